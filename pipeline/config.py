"""Settings of a replay: names, units, defaults and limits; TOML, `vllm serve` lines and `--set` in, digest out.

Every default lives here and only here. `None` means "not chosen": `pipeline.hardware.resolve` replaces it by what
vLLM itself would choose for the model and the accelerator. The word `none` sets a value back to that.
"""

import difflib
import hashlib
import itertools
import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, model_validator

from pipeline import engine_args as engine_line
from pipeline.engines import DEFAULT, POLICIES, AnyEngine, Vllm
from pipeline.errors import ConfigError
from pipeline.settings import AtLeastZero, Count, Positive, Section

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


WeightDtype = Annotated[Literal["auto", "bf16", "fp16", "fp8", "w4a16"], BeforeValidator(_plain_dtype)]
KvCacheDtype = Annotated[Literal["auto", "bf16", "fp16", "fp8"], BeforeValidator(_plain_dtype)]
TimeZone = Annotated[str, AfterValidator(_known_time_zone)]


class Hardware(Section):
    """What the engine runs on and what it serves."""

    gpu: str = Field(default="h100-80gb-sxm", description="accelerator, an id or alias of the catalogue")
    model: str = Field(default="llama-3.1-8b", description="model, an id, alias or Hugging Face name of the catalogue")
    weight_dtype: WeightDtype = Field(
        default="auto", description="type of the weights; auto: as the model is published"
    )
    kv_cache_dtype: KvCacheDtype = Field(
        default="auto", description="type of the KV cache; auto: the model's 16-bit type"
    )
    step_time_scale: Positive = Field(
        default=1.0, description="factor on the time of the kernels in every step, as `servecast calibrate` finds it"
    )
    step_overhead_ms: AtLeastZero | None = Field(
        default=None, description="engine time per step outside the kernels, milliseconds; none: the catalogue's value"
    )
    frontend_ms: AtLeastZero | None = Field(
        default=None,
        description="time outside the engine that callers see (HTTP, tokenizer), added to TTFT and E2E by the queries, "
        "milliseconds; none: the catalogue's value",
    )


class Load(Section):
    """How requests are offered and how patient the clients are."""

    kind: Literal["open", "closed"] = Field(
        default="open",
        description="open: requests arrive when the log says so; closed: `concurrency` of them are always under way",
    )
    concurrency: Count | None = Field(
        default=None,
        description="closed: requests under way in the whole fleet; the next of the trace starts when one ends, "
        "however it ends (vllm bench serve --max-concurrency)",
    )
    sessions: Literal["logged", "follow"] = Field(
        default="logged",
        description="open: when a request arrives that names the one it follows (after_request_id). logged: when the "
        "log says so; follow: think_us after the replayed end of that one",
    )
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

    @model_validator(mode="after")
    def _kind_agrees(self) -> "Load":
        if self.kind == "open":
            if self.concurrency is not None:
                raise ValueError(f"load.concurrency = {self.concurrency}: needs load.kind = closed")
            return self
        if self.concurrency is None:
            raise ValueError("load.kind = closed: needs load.concurrency, the requests under way at any time")
        if self.rate_scale != 1:
            raise ValueError(
                f"load.rate_scale = {self.rate_scale:g}: scales logged arrivals, which load.kind = closed does not "
                "use; change load.concurrency instead"
            )
        if self.sessions == "follow":
            raise ValueError("load.sessions = follow: needs load.kind = open; closed sends the rows in trace order")
        return self


class Fleet(Section):
    """How many copies of the deployment share the traffic, and who gets the next request."""

    replicas: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="equal replicas of the deployment")
    router: Literal["round_robin", "least_outstanding", "session"] = Field(
        default="least_outstanding",
        description="round_robin: in turn; least_outstanding: fewest requests in flight, lowest number on ties; "
        "session: a stable hash ring over sessions, requests without one to the fewest in flight",
    )


class SloTargets(Section):
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


class Report(Section):
    """How answers are shown."""

    time_zone: TimeZone = Field(default="UTC", description="time zone of clock times in answers and charts")


class Prices(Section):
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


class Accelerator(Section):
    """An accelerator that the catalogue lacks; `hardware.gpu` names it, or is left out."""

    name: str = Field(description="name of the accelerator, one that the catalogue does not have")
    memory_gib: Positive = Field(description="memory that software sees, GiB")
    bandwidth_gb_per_s: Positive = Field(description="memory bandwidth, GB/s (10^9 bytes)")
    bf16_tflops: Positive = Field(description="dense 16-bit peak, TFLOP/s")
    fp8_tflops: Positive | None = Field(default=None, description="dense FP8 peak, TFLOP/s; none: no FP8 arithmetic")
    link_gb_per_s: Positive = Field(
        default=32.0, description="link to other accelerators, GB/s per direction; 32 is PCIe 4"
    )


class OwnModel(Section):
    """A model that the catalogue lacks; `hardware.model` names it, or the config.json that says the same."""

    name: str = Field(description="name of the model, one that the catalogue does not have")
    layers: Count = Field(description="num_hidden_layers")
    hidden: Count = Field(description="hidden_size")
    heads: Count = Field(description="num_attention_heads")
    kv_heads: Count | None = Field(default=None, description="num_key_value_heads; none: as many as heads")
    head_dim: Count | None = Field(default=None, description="head_dim; none: hidden / heads")
    intermediate: Count = Field(description="intermediate_size of a dense MLP")
    vocab: Count = Field(description="vocab_size")
    max_context: Count = Field(description="max_position_embeddings, tokens")
    tied_embeddings: bool = Field(default=False, description="tie_word_embeddings")
    qkv_bias: bool = Field(default=False, description="queries, keys and values have biases, as in Qwen2")
    experts: Annotated[int, Field(ge=0)] = Field(default=0, description="routed experts of a layer; 0: dense")
    experts_per_token: Annotated[int, Field(ge=0)] = Field(default=0, description="num_experts_per_tok")
    moe_intermediate: Annotated[int, Field(ge=0)] = Field(default=0, description="intermediate size of an expert")
    shared_experts: Annotated[int, Field(ge=0)] = Field(default=0, description="experts that every token uses")
    first_dense_layers: Annotated[int, Field(ge=0)] = Field(default=0, description="first_k_dense_replace")
    mla_kv_lora_rank: Count | None = Field(
        default=None, description="kv_lora_rank; stated: multi-head latent attention"
    )
    mla_q_lora_rank: Count | None = Field(default=None, description="q_lora_rank; none: queries are not compressed")
    mla_qk_rope: Count | None = Field(default=None, description="qk_rope_head_dim")
    mla_qk_nope: Count | None = Field(default=None, description="qk_nope_head_dim")
    mla_v_head_dim: Count | None = Field(default=None, description="v_head_dim")
    sliding_window: Count | None = Field(default=None, description="tokens that a sliding-window layer sees")
    dtype: Annotated[Literal["bf16", "fp16", "fp8", "w4a16"], BeforeValidator(_plain_dtype)] = Field(
        default="bf16", description="type of the published weights"
    )
    weights_gib: Positive | None = Field(
        default=None, description="size of the published weights, GiB; none: computed from the dimensions"
    )

    @model_validator(mode="after")
    def _parts_agree(self) -> "OwnModel":
        if self.experts and not (self.experts_per_token and self.moe_intermediate):
            raise ValueError(f"model.experts = {self.experts} needs model.experts_per_token and model.moe_intermediate")
        if self.mla_kv_lora_rank and not (self.mla_qk_rope and self.mla_qk_nope and self.mla_v_head_dim):
            raise ValueError("model.mla_kv_lora_rank needs model.mla_qk_rope, mla_qk_nope and mla_v_head_dim")
        if self.kv_heads is not None and self.heads % self.kv_heads:
            raise ValueError(f"model.kv_heads = {self.kv_heads}: must divide model.heads = {self.heads}")
        return self


class StepTable(Section):
    """Step time of a configuration that the catalogue lacks, milliseconds, as `servecast hardware fit` writes it."""

    gpu: str = Field(description="accelerator it was fitted for")
    model: str = Field(description="model it was fitted for")
    tensor_parallel_size: Count = Field(description="accelerators that share the model")
    weight_dtype: str = Field(description="type of the weights")
    kv_cache_dtype: str = Field(description="type of the KV cache")
    source: str = Field(description="where the times come from")
    error_pct: AtLeastZero = Field(description="mean absolute error of a step against that source, percent")
    L0: AtLeastZero = Field(description="LM head")
    L1: AtLeastZero = Field(description="LM head, per row")
    D0: AtLeastZero = Field(description="attention of decodes, first line")
    D1: AtLeastZero = Field(description="first line, per sequence")
    D2: AtLeastZero = Field(description="attention of decodes, second line")
    D3: AtLeastZero = Field(description="second line, per sequence")
    D4: AtLeastZero = Field(description="second line, per token of context")
    P0: AtLeastZero = Field(description="attention of a chunk, first line")
    P1: AtLeastZero = Field(description="first line, per token")
    P2: AtLeastZero = Field(description="first line, per token and token before")
    P3: AtLeastZero = Field(description="attention of a chunk, second line")
    P4: AtLeastZero = Field(description="second line, per token")
    P5: AtLeastZero = Field(description="second line, per pair of token and token it sees")
    mu: AtLeastZero = Field(default=1.0, description="factor on decodes' attention in steps that hold chunks too")
    tokens: Annotated[list[Count], Field(min_length=2)] = Field(description="tokens of a step at which G is known")
    ms: list[AtLeastZero] = Field(description="G there: linear layers, milliseconds")
    decode_ms: list[AtLeastZero] | None = Field(
        default=None, description="G of steps that only decode, at the first of these tokens; none: the same"
    )

    @model_validator(mode="after")
    def _points_agree(self) -> "StepTable":
        if len(self.ms) != len(self.tokens) or any(b <= a for a, b in itertools.pairwise(self.tokens)):
            raise ValueError("step_time.tokens must rise, and step_time.ms must have one value for each of them")
        if self.decode_ms is not None and not 2 <= len(self.decode_ms) <= len(self.tokens):
            raise ValueError(
                "step_time.decode_ms must have at least two values, at most one for each of step_time.tokens"
            )
        return self


class Config(Section):
    """All settings of one replay. Build it with `load` or `from_dict`, which explain what is wrong."""

    engine: AnyEngine = Vllm()
    hardware: Hardware = Hardware()
    load: Load = Load()
    fleet: Fleet = Fleet()
    slo: Slo = Slo()
    report: Report = Report()
    prices: Prices = Prices()
    accelerator: Accelerator | None = None
    model: OwnModel | None = None
    step_time: StepTable | None = None
    unmodelled: tuple[str, ...] = Field(default=(), description="engine arguments that were given and are not modelled")


SECTIONS = ("engine", "hardware", "load", "fleet", "slo", "report", "prices")
# Prices decide nothing in a replay, so they are no part of a run and of its digest.
_RUN_SECTIONS = SECTIONS[:-1]
# Sections that are there only when they are stated: what the catalogue lacks.
OWN_SECTIONS: dict[str, type[Section]] = {"accelerator": Accelerator, "model": OwnModel, "step_time": StepTable}


def load(path: str | Path | None = None, overrides: Iterable[str] = (), engine_args: str | None = None) -> Config:
    """Build a config from a TOML file, then a `vllm serve ...` line, then `key=value` texts; a later one wins.

    Raises ConfigError that names the source, the key, its value and what would be right.
    """
    values: dict[tuple[str, ...], Any] = {}
    origin: dict[tuple[str, ...], str] = {}
    unmodelled: list[str] = []

    def take(table: Mapping[str, Any], source: str) -> None:
        for key, value in _leaves(table):
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
    return _checked(values, origin, tuple(unmodelled))


def _checked(
    values: dict[tuple[str, ...], Any], origin: Mapping[tuple[str, ...], str], unmodelled: tuple[str, ...]
) -> Config:
    """Build a config from values by key; the policy decides which settings its engine has."""
    policy = values.get(("engine", "policy"), DEFAULT)
    if policy not in POLICIES:
        hint = did_you_mean(nearest(str(policy), POLICIES)) or f"; known are {', '.join(POLICIES)}"
        at = _at(origin.get(("engine", "policy"), ""))
        raise ConfigError(f"{at}engine.policy = {_show(policy)}: no such policy{hint}")
    for key, value in values.items():
        _check_key(key, value, origin.get(key, ""), policy)
    return _build(_nest(values), origin, unmodelled)


def from_dict(sections: Mapping[str, Any], unmodelled: Iterable[str] = ()) -> Config:
    """Build a config from sections as `to_dict` returns them; raises ConfigError as `load` does."""
    return _checked(dict(_leaves(sections)), {}, tuple(unmodelled))


def to_dict(config: Config) -> dict[str, Any]:
    """Return the plain sections of a replay with every default spelled out; each slo class shows all its targets."""
    sections: dict[str, Any] = {name: getattr(config, name).model_dump() for name in _RUN_SECTIONS}
    names = sorted(sections["slo"].pop("classes"))
    sections["slo"] |= {name: config.slo.targets(name).model_dump() for name in names}
    stated = {name: getattr(config, name) for name in OWN_SECTIONS}
    return sections | {name: own.model_dump() for name, own in stated.items() if own is not None}


def digest(config: Config) -> str:
    """Return 64 hex digits that depend on every setting, spelled out, and on nothing else."""
    content = {"config": to_dict(config), "unmodelled": list(config.unmodelled)}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def describe_fields(policy: str = DEFAULT) -> list[tuple[str, str, str]]:
    """Return (key, default, description) of every setting, in file order, for help texts and documentation."""
    return [row for section in SECTIONS for row in _described(section, policy)]


def describe_own_fields() -> list[tuple[str, str, str]]:
    """Return the same of the sections that describe what the catalogue lacks."""
    return [row for section in OWN_SECTIONS for row in _described(section)]


def _described(section: str, policy: str = DEFAULT) -> Iterator[tuple[str, str, str]]:
    for name in _fields(section, policy):
        field = _section_class(section, policy).model_fields[name]
        default = "to be stated" if field.is_required() else _show(field.default)
        yield f"{section}.{name}", default, field.description or ""


def _is_slo_class(name: str, value: Any) -> bool:
    return isinstance(value, dict) and name not in SloTargets.model_fields


def _section_class(section: str, policy: str) -> type[Section]:
    if section == "engine":
        return POLICIES[policy]
    annotation: Any = Config.model_fields[section].annotation
    return OWN_SECTIONS.get(section, annotation)


def _fields(section: str, policy: str) -> list[str]:
    return [name for name in _section_class(section, policy).model_fields if (section, name) != ("slo", "classes")]


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


def _check_key(key: tuple[str, ...], value: Any, source: str, policy: str) -> None:
    """Raise ConfigError if no setting has this name, with the nearest one."""
    section, *rest = key
    known = (*SECTIONS, *OWN_SECTIONS)
    if section not in known:
        places = [f"{name}.{section}" for name in SECTIONS if section in _fields(name, policy)]
        hint = did_you_mean(places or nearest(section, known))
        hint = hint or f"; known are {', '.join(known)}"
        raise ConfigError(f"{_at(source)}{'.'.join(key)}: unknown section{hint}")
    if not rest:
        if value != {}:
            raise ConfigError(f"{_at(source)}{section}: must be a table of settings, not {_show(value)}")
        return
    names, name = _fields(section, policy), rest[0]
    if section == "slo" and name not in names and (len(rest) == 2 or value == {}):
        names, name = list(SloTargets.model_fields), rest[-1] if len(rest) == 2 else "ttft_ms"
    elif len(rest) > 1 and name in names:
        raise ConfigError(f"{_at(source)}{section}.{name}: must be a value, not a table")
    if name in names and len(rest) <= 2:
        return
    elsewhere = [f"{other}.{name}" for other in SECTIONS if other != section and name in _fields(other, policy)]
    close = [f"{'.'.join(key[:-1])}.{match}" for match in nearest(name, names)]
    others = [other for other in POLICIES if section == "engine" and name in _fields(section, other)]
    if others:
        own = POLICIES[policy].NAMES.get(name)
        hint = f"; its name there is engine.{own}" if own else did_you_mean(close)
        raise ConfigError(
            f"{_at(source)}{'.'.join(key)}: the policy {policy} has no such setting, {' and '.join(others)} have{hint}"
        )
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
    if item["type"] == "value_error" and (len(item["loc"]) == 1 or item["loc"][1:] in [(name,) for name in POLICIES]):
        sources = sorted({source for key, source in origin.items() if key[0] == item["loc"][0]})
        return f"{_at(', '.join(sources))}{item['ctx']['error']}"
    # An annotation such as `int | None` adds parts to the path that are not keys of the file; so does `classes`.
    key = tuple(part for part in map(str, item["loc"]) if part != "classes")
    if key[0] == "engine" and len(key) > 1 and key[1] in POLICIES:
        key = (key[0], *key[2:])  # the union names the policy
    while len(key) > 2 and key not in origin and key[:-1] in origin:
        key = key[:-1]
    value = "" if item["type"] == "missing" else f" = {_show(item['input'])}"
    return f"{_at(origin.get(key, ''))}{'.'.join(key)}{value}: {_rule(item)}"


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
        "missing": "must be stated",
    }
    return rules.get(item["type"], item["msg"]).format(**limits).replace("'", "")


def _show(value: Any) -> str:
    return "none" if value is None else json.dumps(value, default=str)


def _at(source: str) -> str:
    return f"{source}: " if source else ""
