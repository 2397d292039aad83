"""Launch lines of engines other than vLLM: what their arguments are called here.

Names are those of `python -m sglang.launch_server` 0.5 and `trtllm-serve` 1.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Dialect:
    """How one engine's launch line is written.

    start      : the word behind which its arguments begin, without folders
    image      : what the name of its container image holds
    policy     : engine.policy that the line chooses; None: it is left as it is
    modelled   : argument -> (section, key, kind), as `engine_args` converts it
    short      : other spelling -> argument
    switches   : arguments that take no value; lists : those that take all words up to the next one
    unmodelled : argument -> what the replay does instead; neutral : argument -> value at which that does not matter
    irrelevant : arguments that a replay has no use for
    """

    command: str
    start: re.Pattern[str]
    image: str
    policy: str | None
    modelled: Mapping[str, tuple[str, str, str]]
    short: Mapping[str, str] = field(default_factory=dict)
    switches: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    unmodelled: Mapping[str, str] = field(default_factory=dict)
    neutral: Mapping[str, str] = field(default_factory=dict)
    irrelevant: frozenset[str] = frozenset()


def _engine(**kinds: str) -> dict[str, tuple[str, str, str]]:
    """Return arguments that are settings of the same name, with their kinds."""
    return {name.replace("_", "-"): ("engine", name, kind) for name, kind in kinds.items()}


SGLANG = Dialect(
    command="python -m sglang.launch_server",
    start=re.compile(r"sglang\.launch_server"),
    image="sglang",
    policy="sglang",
    modelled={
        "model-path": ("hardware", "model", "word"),
        "kv-cache-dtype": ("hardware", "kv_cache_dtype", "kv_dtype"),
        "quantization": ("hardware", "weight_dtype", "quantization"),
        **_engine(
            schedule_policy="word",
            page_size="int",
            max_total_tokens="int",
            context_length="length",
            max_running_requests="int",
            chunked_prefill_size="int",
            max_prefill_tokens="int",
            prefill_max_requests="int",
            disable_radix_cache="bool",
            radix_eviction_policy="word",
            schedule_conservativeness="float",
            enable_mixed_chunk="bool",
            enable_priority_scheduling="bool",
            disable_priority_preemption="bool",
            schedule_low_priority_values_first="bool",
            priority_scheduling_preemption_threshold="int",
            disable_overlap_schedule="bool",
            mem_fraction_static="float",
            tp_size="int",
        ),
    },
    short={
        "--model": "model-path",
        "--tp": "tp-size",
        "--tensor-parallel-size": "tp-size",
        "--dp": "dp-size",
        "--ep": "ep-size",
    },
    switches=frozenset(
        [
            "disable-radix-cache",
            "enable-mixed-chunk",
            "enable-priority-scheduling",
            "disable-priority-preemption",
            "schedule-low-priority-values-first",
            "disable-overlap-schedule",
            "trust-remote-code",
            "enable-metrics",
            "disable-cuda-graph",
            "enable-torch-compile",
            "log-requests",
            "skip-tokenizer-init",
            "enable-dp-attention",
            "enable-lora",
            "enable-hierarchical-cache",
        ]
    ),
    lists=frozenset(["served-model-name", "lora-paths", "cuda-graph-bs"]),
    irrelevant=frozenset(
        [
            "host",
            "port",
            "api-key",
            "trust-remote-code",
            "served-model-name",
            "log-level",
            "log-level-http",
            "log-requests",
            "log-requests-level",
            "chat-template",
            "tokenizer-path",
            "tokenizer-mode",
            "tool-call-parser",
            "reasoning-parser",
            "enable-metrics",
            "random-seed",
            "dtype",
            "download-dir",
            "load-format",
            "device",
            "skip-tokenizer-init",
            "revision",
            "decode-log-interval",
            "watchdog-timeout",
            "base-gpu-id",
            "cuda-graph-max-bs",
            "cuda-graph-bs",
            "attention-backend",
            "sampling-backend",
        ]
    ),
)

TENSORRT_LLM = Dialect(
    command="trtllm-serve",
    start=re.compile(r"trtllm-serve"),
    image="tensorrt-llm",
    policy="tensorrt_llm",
    modelled={
        "model": ("hardware", "model", "word"),
        "kv-cache-free-gpu-memory-fraction": ("engine", "free_gpu_memory_fraction", "float"),
        "kv-cache-dtype": ("hardware", "kv_cache_dtype", "kv_dtype"),
        **_engine(
            max_batch_size="int",
            max_num_tokens="int",
            max_seq_len="length",
            tp_size="int",
            enable_chunked_prefill="bool",
            free_gpu_memory_fraction="float",
        ),
    },
    switches=frozenset(["enable-chunked-prefill", "trust-remote-code"]),
    irrelevant=frozenset(
        [
            "host",
            "port",
            "backend",
            "tokenizer",
            "log-level",
            "trust-remote-code",
            "num-postprocess-workers",
            "reasoning-parser",
            "tool-parser",
            "served-model-name",
            "metadata-server-config-file",
            "server-role",
            "chat-template",
            "revision",
        ]
    ),
)

DIALECTS = (SGLANG, TENSORRT_LLM)
