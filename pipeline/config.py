"""Settings of a replay: names, units, defaults and limits; TOML, `vllm serve` lines and `--set` in, digest out.

Every default lives here and only here. `None` means "not chosen": `pipeline.hardware.resolve` replaces it by what
vLLM itself would choose for the model and the accelerator. The word `none` sets a value back to that.
"""

import difflib
import hashlib
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from pipeline import engine_args as engine_line
from pipeline.errors import ConfigError

_DTYPE_WORDS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "int4": "w4a16",
    "awq": "w4a16",
    "gptq": "w4a16",
}


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Return up to `count` of the known names that look most like `word`, best first."""
    by_lower = {name.lower(): name for name in sorted(known)}
    return [by_lower[match] for match in difflib.get_close_matches(word.lower(), by_lower, n=count, cutoff=0.5)]


def did_you_mean(names: list[str]) -> str:
    """Return "; did you mean a or b?", or nothing when there is no name to offer."""
    return f"; did you mean {' or '.join(names)}?" if names else ""


def _plain_dtype(value: Any) -> Any:
    return _DTYPE_WORDS.get(value.lower(), value.lower()) if isinstance(value, str) else value


def _known_time_zone(value: str) -> str:
    try:
        ZoneInfo(value)
    except (KeyError, ValueError, OSError):
        hint = did_you_mean(nearest(value, available_timezones()))
        raise ValueError(f"must be a time zone name such as Europe/Berlin{hint}") from None
    return value


def _length_or_auto(value: int) -> int:
    if value < 2 and value != -1:
        raise ValueError("must be at least 2, or -1 for as much as fits")
    return value


WeightDtype = Annotated[Literal["auto", "bf16", "fp16", "fp8", "w4a16"], BeforeValidator(_plain_dtype)]
KvCacheDtype = Annotated[Literal["auto", "bf16", "fp16", "fp8"], BeforeValidator(_plain_dtype)]
TimeZone = Annotated[str, AfterValidator(_known_time_zone)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
AtLeastZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**31 - 1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Engine(_Section):
    """How the serving engine is set up, under vLLM's own argument names."""

    policy: Literal["vllm"] = Field(default="vllm", description="scheduler that makes the decisions")
    block_size: Annotated[int, Field(ge=1, le=1024)] = Field(default=16, description="KV block, tokens")
    num_gpu_blocks: Annotated[int, Field(ge=2, le=2**31 - 1)] | None = Field(
        default=None,
        description="KV blocks, null block included (vLLM's num_gpu_blocks_override); none: computed from the hardware",
    )
    max_model_len: Annotated[int, Field(le=2**31 - 1), AfterValidator(_length_or_auto)] | None = Field(
        default=None,
        description="longest sequence, prompt and answer, tokens; none: the model's own limit; -1: as much as fits",
    )
    max_num_batched_tokens: Count | None = Field(
        default=None, description="most tokens in one step; none: vLLM's server default for the accelerator"
    )
    max_num_seqs: Count | None = Field(
        default=None, description="most requests running at once; none: vLLM's server default for the accelerator"
    )
    max_num_active_seqs: Count | None = Field(
        default=None, description="most requests running when another one is admitted; none: max_num_seqs"
    )
    enable_chunked_prefill: bool = Field(default=True, description="a prompt may be computed in several steps")
    enable_prefix_caching: bool = Field(default=True, description="KV blocks of equal prefixes are shared and kept")
    scheduling_policy: Literal["fcfs", "priority"] = Field(default="fcfs", description="order of the waiting queue")
    long_prefill_token_threshold: Annotated[int, Field(ge=0, le=2**31 - 1)] = Field(
        default=0, description="most prefill tokens of one request in a step; 0: no limit"
    )
    long_prefill_token_threshold_adaptive: bool = Field(
        default=False, description="raise that threshold to an equal share of the step where that is more"
    )
    scheduler_reserve_full_isl: bool = Field(
        default=True, description="admit a request only if its whole prompt fits now"
    )
    watermark: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="share of KV blocks kept free when a request is admitted beside others"
    )
    prefill_schedule_interval: Count = Field(default=1, description="steps from one prefill to the next; 1: every step")
    async_scheduling: bool = Field(default=True, description="decide a step while the one before it still runs")
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = Field(
        default=0.9, description="share of the accelerator's whole memory that the engine may use, weights included"
    )
    tensor_parallel_size: Annotated[int, Field(ge=1, le=1024)] = Field(
        default=1, description="accelerators that share a model"
    )

    @model_validator(mode="after")
    def _batch_limits_agree(self) -> "Engine":
        if self.max_num_batched_tokens is not None:
            check_batch_limits(
                self.max_num_batched_tokens, self.max_num_seqs, self.max_model_len, self.enable_chunked_prefill
            )
        return self


class Hardware(_Section):
    """What the engine runs on and what it serves."""

    gpu: str = Field(default="h100-80gb-sxm", description="accelerator, an id or alias of the catalogue")
    model: str = Field(default="llama-3.1-8b", description="model, an id, alias or Hugging Face name of the catalogue")
    weight_dtype: WeightDtype = Field(
        default="auto", description="type of the weights; auto: as the model is published"
    )
    kv_cache_dtype: KvCacheDtype = Field(
        default="auto", description="type of the KV cache; auto: the model's 16-bit type"
    )
    step_overhead_ms: AtLeastZero | None = Field(
        default=None, description="engine time per step outside the kernels, milliseconds; none: the catalogue's value"
    )
    frontend_ms: AtLeastZero | None = Field(
        default=None,
        description="time outside the engine that callers see (HTTP, tokenizer), added to TTFT and E2E by the queries, "
        "milliseconds; none: the catalogue's value",
    )


class Load(_Section):
    """How requests are offered and how patient the clients are."""

    kind: Literal["open"] = Field(default="open", description="requests arrive when the log says so")
    rate_scale: Positive = Field(
        default=1.0, description="arrival offsets are divided by this; 2 offers twice the rate"
    )
    timeout_s: Positive | None = Field(
        default=None, description="a client gives up after this many seconds; none: never"
    )
    queue_limit: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="requests waiting in a replica, those not yet looked at included, at which a new one is refused "
        "with 429; none: no limit",
    )


class Fleet(_Section):
    """How many copies of the deployment share the traffic, and who gets the next request."""

    replicas: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="equal replicas of the deployment")
    router: Literal["round_robin", "least_outstanding", "session"] = Field(
        default="least_outstanding",
        description="round_robin: in turn; least_outstanding: fewest requests in flight, lowest number on ties; "
        "session: a stable hash ring over sessions, requests without one to the fewest in flight",
    )


class SloTargets(_Section):
    """Latency a request must keep to count as good; a target of none is not judged."""

    ttft_ms: Positive | None = Field(default=1000.0, description="time to first token, milliseconds")
    tpot_ms: Positive | None = Field(
        default=50.0, description="mean time per output token after the first, milliseconds"
    )
    e2e_ms: Positive | None = Field(default=None, description="arrival to last token, milliseconds; none: not judged")


class Slo(SloTargets):
    """Latency targets; a table named after a request class overrides some of them for that class."""

    classes: dict[str, SloTargets] = Field(default_factory=dict, description="own targets of a request class")

    @model_validator(mode="before")
    @classmethod
    def _tables_are_classes(cls, values: Any) -> Any:
        """Take every sub-table for a class, so that a misspelt target stays an error; even one named `classes`."""
        if not isinstance(values, dict):
            return values
        tables = {name: table for name, table in values.items() if _is_slo_class(name, table)}
        plain = {name: value for name, value in values.items() if name not in tables and name != "classes"}
        return plain | {"classes": tables}

    def targets(self, request_class: str | None) -> SloTargets:
        """Return the targets of a class: its own where stated, the general ones elsewhere."""
        general = {name: getattr(self, name) for name in SloTargets.model_fields}
        own = self.classes.get(request_class) if request_class is not None else None
        return SloTargets(**general | (own.model_dump(exclude_unset=True) if own else {}))


class Report(_Section):
    """How answers are shown."""

    time_zone: TimeZone = Field(default="UTC", description="time zone of clock times in answers and charts")


class Prices(_Section):
    """What is bought and what it costs; a value that is stated here replaces the published one."""

    provider: Literal["azure", "google", "openai", "anthropic", "bedrock"] = Field(
        default="azure", description="whose capacity: Azure PTU, Google GSU, OpenAI Scale Tier, Anthropic, Bedrock"
    )
    model: str | None = Field(default=None, description="model that serves the traffic, as `servecast prices` lists it")
    deployment_type: Literal["global", "datazone", "regional"] = Field(
        default="global", description="kind of deployment; minimum, step and price depend on it"
    )
    region: str | None = Field(default=None, description="region, named on the page; list prices are those of the type")
    hours_per_month: Positive = Field(default=730.0, description="length of a month, hours")
    tokens_per_minute_per_unit: Positive | None = Field(
        default=None, description="weighted tokens a unit serves in a minute, as measured or agreed"
    )
    tokens_per_unit_month: Positive | None = Field(
        default=None, description="the same for a whole month of hours_per_month; state one of the two"
    )
    output_tokens_per_minute_per_unit: Positive | None = Field(
        default=None, description="output tokens of a unit where input and output are bought side by side"
    )
    weight_cached: AtLeastZero | None = Field(default=None, description="weight of a cached input token")
    weight_cache_write: AtLeastZero | None = Field(
        default=None, description="weight of an input token written to cache"
    )
    weight_output: AtLeastZero | None = Field(default=None, description="weight of an output token; plain input is 1")
    minimum_units: Count | None = Field(default=None, description="fewest units that can be bought")
    increment_units: Count | None = Field(default=None, description="step in which units are bought")
    usd_per_1m_input: AtLeastZero | None = Field(
        default=None, description="pay-as-you-go, plain input, USD per million"
    )
    usd_per_1m_cached_input: AtLeastZero | None = Field(
        default=None, description="pay-as-you-go, cached input, USD per million"
    )
    usd_per_1m_cache_write: AtLeastZero | None = Field(
        default=None, description="pay-as-you-go, input written to cache, USD per million"
    )
    usd_per_1m_output: AtLeastZero | None = Field(default=None, description="pay-as-you-go, output, USD per million")
    usd_per_unit_hour: Positive | None = Field(default=None, description="a unit by the hour, USD")
    usd_per_unit_month: Positive | None = Field(default=None, description="a unit committed for a month, USD per month")
    usd_per_unit_month_1_year: Positive | None = Field(
        default=None, description="a unit committed for a year, USD per month"
    )
    bucket_s: Positive = Field(
        default=60.0, description="depth of Azure's bucket, seconds at full rate; not published, 60 is assumed"
    )
    window_s: Positive | None = Field(
        default=None, description="Google's quota window; none: 120, 30 or 5 s by the number of units"
    )
    window_phase_s: AtLeastZero = Field(default=0.0, description="where in the log the first window begins, seconds")
    max_tokens_policy: Literal["logged", "rolling_mean", "fixed"] = Field(
        default="logged",
        description="output counted at admission. logged: the request's max_tokens, rolling_mean where it states none; "
        "rolling_mean: mean output of the last 1000 requests; fixed: fixed_max_tokens for all",
    )
    fixed_max_tokens: Count | None = Field(
        default=None, description="output counted at admission under `fixed`, tokens"
    )
    overflow: Literal["spill", "refuse"] = Field(
        default="spill", description="a refused request. spill: goes to pay-as-you-go; refuse: its client may retry"
    )
    retry: Literal["none", "retry_after", "exponential"] = Field(
        default="none", description="what a refused client does; exponential: after 1, 2, 4, ... s, at most 60"
    )
    max_retries: Annotated[int, Field(ge=0, le=100)] = Field(default=5, description="attempts after the first")
    spill_cached_share: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.0, description="share of cached input that is cached on the pay-as-you-go side too; 0 is assumed"
    )
    spill_delay_ms: AtLeastZero = Field(default=50.0, description="time a spilled request loses, milliseconds; assumed")
    output_tokens_per_s: Positive | None = Field(
        default=None, description="speed of an answer where the log has no times; none: the published target, else 50"
    )
    monthly_survival: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0, description="chance that the need lasts another month; weighs on terms longer than one"
    )
    gpu_provider: str | None = Field(default=None, description="whose GPU-hours, as `servecast prices gpu` lists them")
    usd_per_gpu_hour: Positive | None = Field(default=None, description="own GPUs, by the hour, USD")
    usd_per_gpu_hour_reserved: Positive | None = Field(default=None, description="own GPUs, reserved, USD per hour")
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="seed of the resampling of days")

    @model_validator(mode="after")
    def _one_rate(self) -> "Prices":
        if self.tokens_per_minute_per_unit is not None and self.tokens_per_unit_month is not None:
            raise ValueError("state prices.tokens_per_minute_per_unit or prices.tokens_per_unit_month, not both")
        if self.max_tokens_policy == "fixed" and self.fixed_max_tokens is None:
            raise ValueError("prices.max_tokens_policy = fixed needs prices.fixed_max_tokens")
        return self


class Config(_Section):
    """All settings of one replay. Build it with `load` or `from_dict`, which explain what is wrong."""

    engine: Engine = Engine()
    hardware: Hardware = Hardware()
    load: Load = Load()
    fleet: Fleet = Fleet()
    slo: Slo = Slo()
    report: Report = Report()
    prices: Prices = Prices()
    unmodelled: tuple[str, ...] = Field(default=(), description="engine arguments that were given and are not modelled")


SECTIONS = ("engine", "hardware", "load", "fleet", "slo", "report", "prices")
# Prices decide nothing in a replay, so they are no part of a run and of its digest.
_RUN_SECTIONS = SECTIONS[:-1]


def check_batch_limits(batched_tokens: int, seqs: int | None, model_len: int | None, chunked_prefill: bool) -> None:
    """Raise ValueError if vLLM would refuse to start with these limits; None is a limit not known yet."""
    if seqs is not None and batched_tokens < seqs:
        raise ValueError(
            f"engine.max_num_batched_tokens = {batched_tokens}: must be at least engine.max_num_seqs = {seqs}"
        )
    if not chunked_prefill and model_len is not None and batched_tokens < model_len:
        raise ValueError(
            f"engine.max_num_batched_tokens = {batched_tokens}: must be at least engine.max_model_len = {model_len} "
            "while engine.enable_chunked_prefill is off; raise it, lower max_model_len or switch chunked prefill on"
        )


def load(path: str | Path | None = None, overrides: Iterable[str] = (), engine_args: str | None = None) -> Config:
    """Build a config from a TOML file, then a `vllm serve ...` line, then `key=value` texts; a later one wins.

    Raises ConfigError that names the source, the key, its value and what would be right.
    """
    values: dict[tuple[str, ...], Any] = {}
    origin: dict[tuple[str, ...], str] = {}
    unmodelled: list[str] = []

    def take(table: Mapping[str, Any], source: str) -> None:
        for key, value in _leaves(table):
            _check_key(key, value, source)
            values[key] = value
            origin[key] = source

    if path is not None:
        take(_read_toml(Path(path)), Path(path).name)
    if engine_args is not None:
        line = engine_line.parse(engine_args)
        take(line.settings, "--engine-args")
        unmodelled = list(line.unmodelled)
    for text in overrides:
        take(_parse_override(text), "--set")
    return _build(_nest(values), origin, tuple(unmodelled))


def from_dict(sections: Mapping[str, Any], unmodelled: Iterable[str] = ()) -> Config:
    """Build a config from sections as `to_dict` returns them; raises ConfigError as `load` does."""
    for key, value in _leaves(sections):
        _check_key(key, value, "")
    return _build(_nest(dict(_leaves(sections))), {}, tuple(unmodelled))


def to_dict(config: Config) -> dict[str, Any]:
    """Return the plain sections of a replay with every default spelled out; each slo class shows all its targets."""
    sections: dict[str, Any] = {name: getattr(config, name).model_dump() for name in _RUN_SECTIONS}
    names = sorted(sections["slo"].pop("classes"))
    sections["slo"] |= {name: config.slo.targets(name).model_dump() for name in names}
    return sections


def digest(config: Config) -> str:
    """Return 64 hex digits that depend on every setting, spelled out, and on nothing else."""
    content = {"config": to_dict(config), "unmodelled": list(config.unmodelled)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def describe_fields() -> list[tuple[str, str, str]]:
    """Return (key, default, description) of every setting, in file order, for help texts and documentation."""
    rows = []
    for section in SECTIONS:
        for name, field in Config.model_fields[section].annotation.model_fields.items():  # type: ignore[union-attr]
            if (section, name) == ("slo", "classes"):
                continue
            default = "none" if field.default is None else json.dumps(field.default)
            rows.append((f"{section}.{name}", default, field.description or ""))
    return rows


def _is_slo_class(name: str, value: Any) -> bool:
    return isinstance(value, dict) and name not in SloTargets.model_fields


def _fields(section: str) -> list[str]:
    model: Any = Config.model_fields[section].annotation
    return [name for name in model.model_fields if (section, name) != ("slo", "classes")]


def _leaves(table: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (path, value) of every value of nested tables; an empty table is a value of its own."""
    for name, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*prefix, name))
        else:
            yield (*prefix, name), None if isinstance(value, str) and value.lower() == "none" else value


def _nest(values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for key, value in values.items():
        table = root
        for part in key[:-1]:
            table = table.setdefault(part, {})
        if not (value == {} and isinstance(table.get(key[-1]), dict)):
            table[key[-1]] = value
    return root


def _check_key(key: tuple[str, ...], value: Any, source: str) -> None:
    """Raise ConfigError if no setting has this name, with the nearest one."""
    section, *rest = key
    if section not in SECTIONS:
        places = [f"{name}.{section}" for name in SECTIONS if section in _fields(name)]
        hint = did_you_mean(places or nearest(section, SECTIONS))
        hint = hint or f"; known are {', '.join(SECTIONS)}"
        raise ConfigError(f"{_at(source)}{'.'.join(key)}: unknown section{hint}")
    if not rest:
        if value != {}:
            raise ConfigError(f"{_at(source)}{section}: must be a table of settings, not {_show(value)}")
        return
    names, name = _fields(section), rest[0]
    if section == "slo" and name not in names and (len(rest) == 2 or value == {}):
        names, name = list(SloTargets.model_fields), rest[-1] if len(rest) == 2 else "ttft_ms"
    elif len(rest) > 1 and name in names:
        raise ConfigError(f"{_at(source)}{section}.{name}: must be a value, not a table")
    if name in names and len(rest) <= 2:
        return
    elsewhere = [f"{other}.{name}" for other in SECTIONS if other != section and name in _fields(other)]
    close = [f"{'.'.join(key[:-1])}.{match}" for match in nearest(name, names)]
    raise ConfigError(f"{_at(source)}{'.'.join(key)}: unknown setting{did_you_mean(elsewhere or close)}")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None


def _parse_override(text: str) -> dict[str, Any]:
    """Parse `engine.max_num_seqs=64`; a value that is no TOML value is taken as a word."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: must be key=value, for example engine.max_num_seqs=64")
    for candidate in (value.strip(), json.dumps(value.strip(), ensure_ascii=True)):
        try:
            table = tomllib.loads(f"{key.strip()} = {candidate}")
        except tomllib.TOMLDecodeError:
            continue
        if len(list(_leaves(table))) == 1:
            return table
    raise ConfigError(f"--set {text}: must be key=value, for example engine.max_num_seqs=64")


def _build(sections: dict[str, Any], origin: Mapping[tuple[str, ...], str], unmodelled: tuple[str, ...]) -> Config:
    try:
        return Config(**sections, unmodelled=unmodelled)
    except ValidationError as error:
        problems = [_problem(item, origin) for item in error.errors(include_url=False)]
        raise ConfigError("\n".join(dict.fromkeys(problems))) from None


def _problem(item: Any, origin: Mapping[tuple[str, ...], str]) -> str:
    """Turn one pydantic error into `source: section.key = value: what would be right`."""
    if item["type"] == "value_error" and len(item["loc"]) == 1:
        sources = sorted({source for key, source in origin.items() if key[0] == item["loc"][0]})
        return f"{_at(', '.join(sources))}{item['ctx']['error']}"
    # An annotation such as `int | None` adds parts to the path that are not keys of the file; so does `classes`.
    key = tuple(part for part in map(str, item["loc"]) if part != "classes")
    while len(key) > 2 and key not in origin and key[:-1] in origin:
        key = key[:-1]
    return f"{_at(origin.get(key, ''))}{'.'.join(key)} = {_show(item['input'])}: {_rule(item)}"


def _rule(item: Any) -> str:
    limits = item.get("ctx", {})
    rules = {
        "greater_than_equal": "must be at least {ge}",
        "greater_than": "must be more than {gt}",
        "less_than_equal": "must be at most {le}",
        "less_than": "must be less than {lt}",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_type": "must be a number",
        "finite_number": "must be a finite number",
        "bool_type": "must be true or false",
        "string_type": "must be a text",
        "literal_error": "must be one of {expected}",
        "value_error": "{error}",
    }
    return rules.get(item["type"], item["msg"]).format(**limits).replace("'", "")


def _show(value: Any) -> str:
    return "none" if value is None else json.dumps(value, default=str)


def _at(source: str) -> str:
    return f"{source}: " if source else ""
