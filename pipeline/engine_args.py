"""Read a pasted launch line of an engine: settings of this program, and a sentence for each argument not modelled.

vLLM's argument names are the ones of 0.33 and older spellings still found in scripts; the other engines' stand in
`engine_lines`. Values are never repeated in a
message, except of arguments that become settings: a line may hold an API key or a token.
"""

import difflib
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pipeline import engine_lines
from pipeline.engine_lines import Dialect
from pipeline.errors import ConfigError


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


SOURCE = "--engine-args"
STRAY = "a word of its own"

SHORT = {
    "-tp": "tensor-parallel-size",
    "-pp": "pipeline-parallel-size",
    "-dp": "data-parallel-size",
    "-q": "quantization",
    "-ep": "enable-expert-parallel",
    "-dcp": "decode-context-parallel-size",
    "-pcp": "prefill-context-parallel-size",
    "-sc": "speculative-config",
    "-cc": "compilation-config",
    "-ac": "attention-config",
    "-asc": "api-server-count",
    "-n": "nnodes",
    "-r": "node-rank",
    "-O": "optimization-level",
}

# Arguments that become a setting: name -> (section, key, kind).
MODELLED = {
    "model": ("hardware", "model", "word"),
    "tensor-parallel-size": ("engine", "tensor_parallel_size", "int"),
    "block-size": ("engine", "block_size", "int"),
    "num-gpu-blocks-override": ("engine", "num_gpu_blocks", "int"),
    "max-model-len": ("engine", "max_model_len", "length"),
    "max-num-batched-tokens": ("engine", "max_num_batched_tokens", "int"),
    "max-num-seqs": ("engine", "max_num_seqs", "int"),
    "max-num-active-seqs": ("engine", "max_num_active_seqs", "int"),
    "enable-chunked-prefill": ("engine", "enable_chunked_prefill", "bool"),
    "enable-prefix-caching": ("engine", "enable_prefix_caching", "bool"),
    "scheduling-policy": ("engine", "scheduling_policy", "word"),
    "long-prefill-token-threshold": ("engine", "long_prefill_token_threshold", "int"),
    "long-prefill-token-threshold-adaptive": ("engine", "long_prefill_token_threshold_adaptive", "bool"),
    "scheduler-reserve-full-isl": ("engine", "scheduler_reserve_full_isl", "bool"),
    "watermark": ("engine", "watermark", "float"),
    "prefill-schedule-interval": ("engine", "prefill_schedule_interval", "int"),
    "async-scheduling": ("engine", "async_scheduling", "bool"),
    "gpu-memory-utilization": ("engine", "gpu_memory_utilization", "float"),
    "kv-cache-dtype": ("hardware", "kv_cache_dtype", "kv_dtype"),
    "quantization": ("hardware", "weight_dtype", "quantization"),
}

QUANTIZATIONS = {
    "fp8": "fp8",
    "fbgemm_fp8": "fp8",
    "ptpc_fp8": "fp8",
    "fp8_per_tensor": "fp8",
    "fp8_per_block": "fp8",
    "modelopt": "fp8",
    "awq": "w4a16",
    "awq_marlin": "w4a16",
    "gptq": "w4a16",
    "gptq_marlin": "w4a16",
    "mxfp4": "w4a16",
}
KV_DTYPES = ("auto", "bf16", "bfloat16", "fp16", "float16", "half", "fp8", "fp8_e4m3", "fp8_e5m2")

# Arguments that change behaviour and are not modelled: name -> what the replay does instead.
UNMODELLED = {
    "pipeline-parallel-size": "the replay runs one pipeline stage.",
    "data-parallel-size": "the replay runs one replica.",
    "data-parallel-size-local": "the replay runs one replica.",
    "data-parallel-rank": "the replay runs one replica.",
    "data-parallel-start-rank": "the replay runs one replica.",
    "data-parallel-hybrid-lb": "the replay runs one replica.",
    "data-parallel-external-lb": "the replay runs one replica.",
    "data-parallel-multi-port-external-lb": "the replay runs one replica.",
    "decode-context-parallel-size": "KV is not split along the context.",
    "prefill-context-parallel-size": "prompts are not split over accelerators.",
    "enable-expert-parallel": "experts are taken to be split by tensor parallelism.",
    "enable-eplb": "experts are taken to be used evenly.",
    "enable-dbo": "batches are not overlapped.",
    "ubatch-size": "batches are not overlapped.",
    "all2all-backend": "exchange between experts is part of the measured step time.",
    "speculative-config": "every step yields one token per request.",
    "spec-method": "every step yields one token per request.",
    "spec-model": "every step yields one token per request.",
    "spec-tokens": "every step yields one token per request.",
    "speculative-model": "every step yields one token per request.",
    "num-speculative-tokens": "every step yields one token per request.",
    "diffusion-config": "every step yields one token per request.",
    "enable-lora": "adapters take neither time nor memory.",
    "kv-transfer-config": "KV is neither sent nor received.",
    "ec-transfer-config": "nothing is sent or received.",
    "kv-offloading-size": "KV that is evicted is lost.",
    "swap-space": "KV that is evicted is lost.",
    "kv-cache-memory-bytes": "memory follows gpu-memory-utilization; num-gpu-blocks-override states the blocks.",
    "kv-cache-dtype-skip-layers": "all layers keep KV in one type.",
    "kv-sharing-fast-prefill": "every layer computes the whole prompt.",
    "cpu-offload-gb": "all weights stay on the accelerator.",
    "offload-group-size": "all weights stay on the accelerator.",
    "enforce-eager": "step time and memory are those with CUDA graphs.",
    "compilation-config": "step time and memory are those of vLLM's defaults.",
    "optimization-level": "step time and memory are those of vLLM's defaults.",
    "cudagraph-capture-sizes": "step time and memory are those of vLLM's defaults.",
    "max-cudagraph-capture-size": "step time and memory are those of vLLM's defaults.",
    "performance-mode": "limits and step time are those of the balanced mode.",
    "attention-backend": "step time is that of vLLM's own choice.",
    "attention-config": "step time is that of vLLM's own choice.",
    "moe-backend": "step time is that of vLLM's own choice.",
    "linear-backend": "step time is that of vLLM's own choice.",
    "kernel-config": "step time is that of vLLM's own choice.",
    "mamba-backend": "step time is that of vLLM's own choice.",
    "disable-custom-all-reduce": "step time is that of vLLM's own choice.",
    "disable-cascade-attn": "step time is that of vLLM's own choice.",
    "max-num-scheduled-tokens": "a step may hold max-num-batched-tokens.",
    "max-num-queued-reqs": "no request is refused; load.queue_limit does that.",
    "max-num-queued-tokens": "no request is refused; load.queue_limit does that.",
    "max-num-partial-prefills": "vLLM 0.33 has no such limit.",
    "max-long-partial-prefills": "vLLM 0.33 has no such limit.",
    "num-scheduler-steps": "vLLM 0.33 decides every step.",
    "scheduler-delay-factor": "vLLM 0.33 does not delay prefills this way.",
    "preemption-mode": "a preempted request is computed again.",
    "scheduler-cls": "vLLM's own scheduler decides.",
    "disable-hybrid-kv-cache-manager": "all layers are treated as full attention.",
    "disable-sliding-window": "all layers are treated as full attention.",
    "prefix-cache-retention-interval": "the least recently used blocks are evicted first.",
    "stream-interval": "every token is delivered by itself.",
    "hf-overrides": "the model is taken as published.",
    "hf-config-path": "the model is taken as published.",
    "model-class-overrides": "the model is taken as published.",
    "rope-scaling": "the model is taken as published.",
    "runner": "requests are text generation.",
    "convert": "requests are text generation.",
    "task": "requests are text generation.",
    "limit-mm-per-prompt": "images and other media are not modelled.",
    "skip-mm-profiling": "images and other media are not modelled.",
    "disable-chunked-mm-input": "images and other media are not modelled.",
    "enable-prompt-embeds": "prompts are token counts.",
    "calculate-kv-scales": "it takes no time here.",
    "logits-processors": "sampling takes no time of its own.",
    "structured-outputs-config": "sampling takes no time of its own.",
    "additional-config": "it is not read.",
    "config": "the file is not read; paste its settings.",
    "quantization-config": "hardware.weight_dtype states the type of the weights.",
    "api-server-count": "hardware.frontend_ms states the time outside the engine.",
    "renderer-num-workers": "hardware.frontend_ms states the time outside the engine.",
}
NEUTRAL = {
    "pipeline-parallel-size": "1",
    "data-parallel-size": "1",
    "decode-context-parallel-size": "1",
    "prefill-context-parallel-size": "1",
    "cpu-offload-gb": "0",
    "stream-interval": "1",
    "performance-mode": "balanced",
    "max-num-partial-prefills": "1",
    "max-long-partial-prefills": "1",
    "num-scheduler-steps": "1",
    "runner": "generate",
    "task": "generate",
    "attention-backend": "auto",
    "moe-backend": "auto",
    "linear-backend": "auto",
    "api-server-count": "1",
}

# Arguments that a replay has no use for.
IRRELEVANT = _names(
    """
    host port uds api-key ssl-keyfile ssl-certfile ssl-ca-certs ssl-cert-reqs ssl-ciphers ssl-certfile-refresh
    enable-ssl-refresh root-path middleware allowed-origins allowed-methods allowed-headers allow-credentials headless
    served-model-name chat-template chat-template-content-format default-chat-template-kwargs response-role
    trust-request-chat-template tool-call-parser tool-parser-plugin tool-server enable-auto-tool-choice
    exclude-tools-when-tool-choice-none reasoning-parser reasoning-parser-plugin enable-reasoning reasoning-config
    guided-decoding-backend return-tokens-as-token-ids enable-request-id-headers enable-tokenizer-info-endpoint
    enable-prompt-tokens-details enable-server-load-tracking enable-force-include-usage disable-fastapi-docs
    disable-frontend-multiprocessing h11-max-incomplete-event-size h11-max-header-count enable-offline-docs
    uvicorn-log-level disable-uvicorn-access-log disable-access-log-for-endpoints log-config-file log-error-stack
    disable-log-stats disable-log-requests enable-log-requests enable-log-outputs enable-log-deltas max-log-len
    aggregate-engine-logging show-hidden-metrics-for-version otlp-traces-endpoint collect-detailed-traces
    kv-cache-metrics kv-cache-metrics-sample cudagraph-metrics enable-mfu-metrics enable-logging-iteration-details
    enable-layerwise-nvtx-tracing profiler-config kv-events-config tokenizer tokenizer-mode tokenizer-revision
    skip-tokenizer-init revision code-revision hf-token download-dir load-format config-format
    safetensors-load-strategy safetensors-prefetch-num-threads safetensors-prefetch-block-size ignore-patterns
    model-loader-extra-config use-tqdm-on-load pt-load-map-location max-parallel-loading-workers trust-remote-code
    allowed-local-media-path allowed-media-domains seed dtype max-logprobs logprobs-mode generation-config
    override-generation-config enable-sleep-mode model-impl allow-deprecated-quantization device device-ids
    distributed-executor-backend distributed-timeout-seconds master-addr master-port nnodes node-rank numa-bind
    numa-bind-nodes numa-bind-cpus data-parallel-address data-parallel-rpc-port data-parallel-backend
    ray-workers-use-nsight worker-cls worker-extension-cls prefix-caching-hash-algo kv-offloading-backend
    fail-on-environ-validation shutdown-timeout lora-modules max-loras max-lora-rank max-cpu-loras lora-dtype
    fully-sharded-loras lora-target-modules default-mm-loras mm-processor-cache-gb mm-processor-cache-type
    mm-processor-kwargs media-io-kwargs mm-encoder-tp-mode mm-encoder-attn-backend interleave-mm-strings
    video-pruning-rate language-model-only io-processor-plugin enable-return-routed-experts eplb-config
    expert-placement-strategy enable-flashinfer-autotune grpc disable-mm-preprocessor-cache use-v2-block-manager
    max-seq-len-to-capture enable-fault-tolerance fault-tolerance-config weight-transfer-config tokens-only
    """
)

# Arguments that stand alone; all others take a value.
SWITCHES = _names(
    """
    trust-remote-code enforce-eager enable-lora enable-expert-parallel enable-eplb enable-dbo headless grpc
    enable-auto-tool-choice enable-reasoning disable-log-stats disable-log-requests enable-log-requests
    enable-log-outputs enable-log-deltas allow-credentials enable-ssl-refresh skip-tokenizer-init enable-sleep-mode
    disable-custom-all-reduce disable-cascade-attn disable-sliding-window disable-hybrid-kv-cache-manager
    disable-chunked-mm-input enable-prompt-embeds data-parallel-hybrid-lb data-parallel-external-lb
    data-parallel-multi-port-external-lb fully-sharded-loras enable-return-routed-experts kv-sharing-fast-prefill
    kv-cache-metrics cudagraph-metrics enable-mfu-metrics enable-logging-iteration-details
    enable-layerwise-nvtx-tracing disable-uvicorn-access-log log-error-stack return-tokens-as-token-ids
    enable-request-id-headers enable-tokenizer-info-endpoint enable-prompt-tokens-details enable-server-load-tracking
    enable-force-include-usage disable-fastapi-docs disable-frontend-multiprocessing enable-offline-docs
    trust-request-chat-template exclude-tools-when-tool-choice-none calculate-kv-scales use-tqdm-on-load numa-bind
    aggregate-engine-logging fail-on-environ-validation language-model-only skip-mm-profiling interleave-mm-strings
    ray-workers-use-nsight enable-flashinfer-autotune allow-deprecated-quantization disable-mm-preprocessor-cache
    use-v2-block-manager enable-fault-tolerance tokens-only
    """
) | {name for name, (_, _, kind) in MODELLED.items() if kind == "bool"}

# Arguments that take all words up to the next argument.
LISTS = _names("served-model-name api-key lora-modules cudagraph-capture-sizes ignore-patterns allowed-media-domains")

_PLAIN_ENVIRONMENT = re.compile(r"VLLM_(API_KEY|USE_V1|LOGGING_.*|LOG_.*|HOST_IP|PORT|CACHE_ROOT|.*TOKEN|NO_USAGE.*)")
_SCALES = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


VLLM = Dialect(
    command="vllm serve",
    start=re.compile(r"serve|vllm\.entrypoints\.(openai\.)?api_server"),
    image="vllm",
    policy=None,
    modelled=MODELLED,
    short=SHORT,
    switches=SWITCHES,
    lists=LISTS,
    unmodelled=UNMODELLED,
    neutral=NEUTRAL,
    irrelevant=IRRELEVANT,
)


@dataclass(frozen=True)
class EngineLine:
    """What a line asks for: settings by section, and one sentence per argument that is not modelled."""

    settings: dict[str, dict[str, Any]]
    unmodelled: tuple[str, ...]


def parse(text: str) -> EngineLine:
    """Parse `vllm serve MODEL --flag value ...`, another engine's line (`engine_lines`), or vLLM's arguments alone.

    Raises ConfigError for text that is no such line, a value of the wrong kind, or a value that is missing.
    """
    dialect, environment, arguments = _after_command(_words(text))
    settings: dict[str, dict[str, Any]] = {"engine": {"policy": dialect.policy}} if dialect.policy else {}
    unmodelled = [
        f"{name} in the environment is not looked at."
        for name in environment
        if name.startswith("VLLM_") and not _PLAIN_ENVIRONMENT.fullmatch(name)
    ]
    for name, value in _arguments(arguments, dialect):
        off = name.removeprefix("no-")
        if name == STRAY:
            unmodelled.append("A word that belongs to no argument is left out.")
        elif name != off and off in dialect.modelled and dialect.modelled[off][2] == "bool":
            section, key, _ = dialect.modelled[off]
            settings.setdefault(section, {})[key] = False
        elif name in dialect.modelled:
            section, key, kind = dialect.modelled[name]
            converted, remark = _convert(name, value, kind)
            if remark:
                unmodelled.append(remark)
            else:
                settings.setdefault(section, {})[key] = converted
        else:
            unmodelled.extend(_remark(name, value, dialect))
    return EngineLine(settings, tuple(dict.fromkeys(unmodelled)))


def human_int(text: str) -> int:
    """Return 8192 for "8192" or "8K", 8000 for "8k", 1500 for "1.5k", as vLLM reads them; ValueError otherwise."""
    match = re.fullmatch(r"(\d+)(\.\d+)?([kmgtKMGT])", text.strip())
    if match is None:
        return int(text)
    whole, fraction, scale = match.groups()
    if fraction is None:
        return int(whole) * _SCALES[scale]
    if scale.isupper():
        raise ValueError("no fraction before a binary scale")
    return int(float(whole + fraction) * _SCALES[scale])


def _words(text: str) -> list[str]:
    try:
        words = shlex.split(re.sub(r"\\\s*\n", " ", text))
    except ValueError as error:
        raise ConfigError(f"{SOURCE}: not a command line: {error}") from None
    end = next((i for i, word in enumerate(words) if re.fullmatch(r"&|&&|\||;|[12&]?>>?.*", word)), len(words))
    return [word for word in words[:end] if word != "$"]


def _after_command(words: list[str]) -> tuple[Dialect, list[str], list[str]]:
    """Return whose line it is, the names of environment variables and the words behind the command."""
    dialects = (*engine_lines.DIALECTS, VLLM)
    found = next(
        (
            (dialect, i + 1)
            for i, word in enumerate(words)
            for dialect in dialects
            if dialect.start.fullmatch(word.rpartition("/")[2] if dialect is not VLLM else word)
            or (i and "/" in word and dialect.image in word and words[0] in ("docker", "podman"))
        ),
        None,
    )
    if found is None:
        if not words or not words[0].startswith("-"):
            raise ConfigError(f"{SOURCE}: must be a line such as `vllm serve MODEL --max-num-seqs 64`")
        found = (VLLM, 0)
    dialect, start = found
    if start < len(words) and words[start] == "serve" and dialect is not VLLM:
        start += 1
    pairs = (re.match(r"([A-Z][A-Z0-9_]*)=", word) for word in words[:start])
    return dialect, [pair.group(1) for pair in pairs if pair], words[start:]


def _arguments(words: list[str], dialect: Dialect) -> Iterator[tuple[str, str | None]]:
    """Yield (name without dashes, value or None); the first word of its own is the model, others are STRAY."""
    i, own = 0, "model"
    while i < len(words):
        word = words[i]
        i += 1
        if not _is_flag(word):
            yield own, word
            own = STRAY
            continue
        name, equals, value = word.partition("=")
        name = _long_name(name, dialect)
        if name.startswith("optimization-level") and name != "optimization-level":
            yield "optimization-level", name.removeprefix("optimization-level")
        elif equals:
            yield name, value
        elif name in dialect.lists:
            first = i
            while i < len(words) and not _is_flag(words[i]):
                i += 1
            yield name, " ".join(words[first:i])
        elif name.removeprefix("no-") in dialect.switches or name.startswith("no-"):
            takes = i < len(words) and words[i].lower() in ("true", "false")
            yield name, words[i] if takes else None
            i += takes
        elif i < len(words) and not _is_flag(words[i]):
            yield name, words[i]
            i += 1
        else:
            yield name, None


def _is_flag(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def _long_name(flag: str, dialect: Dialect) -> str:
    """Return the name without dashes; `--a_b`, `-tp` and the dotted `--a.b` all come to the argument's own name."""
    flag = flag.partition(".")[0]
    if flag in dialect.short:
        return dialect.short[flag]
    if re.fullmatch(r"-O\d", flag):
        return f"optimization-level{flag[2:]}"
    return flag.lstrip("-").replace("_", "-")


def _convert(name: str, value: str | None, kind: str) -> tuple[Any, str | None]:
    """Return (setting, None), or (None, sentence) for a value that is not modelled."""
    if kind == "bool":
        if value is None or value.lower() in ("true", "false"):
            return value is None or value.lower() == "true", None
        raise _wrong(name, value, "takes no value, or true or false")
    if value is None:
        raise ConfigError(f"{SOURCE}: --{name}: its value is missing")
    if kind == "word":
        return value, None
    if kind == "kv_dtype":
        known = value.lower() in KV_DTYPES
        return (value.lower(), None) if known else (None, f"--{name} {value} is not modelled: KV is kept in 16 bit.")
    if kind == "quantization":
        dtype = QUANTIZATIONS.get(value.lower())
        remark = f"--{name} {value} does not tell the type of the weights; hardware.weight_dtype states it."
        return (dtype, None) if dtype else (None, remark)
    return _number(name, value, kind), None


def _number(name: str, value: str, kind: str) -> float | int:
    if kind == "length" and value.lower() in ("auto", "-1"):
        return -1
    readers: dict[str, tuple[Callable[[str], float | int], str]] = {
        "float": (float, "must be a number"),
        "int": (human_int, "must be a whole number such as 8192, 8k (8000) or 8K (8192)"),
        "length": (human_int, "must be a whole number such as 8192, 8k (8000) or 8K (8192), or auto"),
    }
    read, rule = readers[kind]
    try:
        return read(value)
    except (ValueError, OverflowError):
        raise _wrong(name, value, rule) from None


def _wrong(name: str, value: str, rule: str) -> ConfigError:
    return ConfigError(f"{SOURCE}: --{name} {value}: {rule}")


def _remark(name: str, value: str | None, dialect: Dialect) -> Iterator[str]:
    """Yield a sentence for an argument that is not modelled or not known; nothing if it cannot matter."""
    positive = name.removeprefix("no-")
    if name in dialect.irrelevant or positive in dialect.irrelevant:
        if name == "dtype" and value in ("float", "float32"):
            yield "--dtype float32 is not modelled: weights and KV are 16 bit."
    elif name in dialect.unmodelled:
        if value is None or value != dialect.neutral.get(name):
            yield f"--{name} is not modelled: {dialect.unmodelled[name]}"
    elif positive not in dialect.unmodelled:
        if dialect is not VLLM:  # whose arguments are not all listed
            yield f"--{name} is not modelled."
            return
        near = difflib.get_close_matches(
            name, [*dialect.modelled, *dialect.unmodelled, *dialect.irrelevant], n=1, cutoff=0.6
        )
        hint = f" Did you mean --{near[0]}?" if near else ""
        yield f"--{name} is not known and left out.{hint}"
