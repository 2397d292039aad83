"""Step-time coefficients of a new configuration, fitted to NVIDIA's measured kernel tables.

Needs the extra `servecast[aiconfigurator]` (`aiconfigurator-core`, Apache-2.0), which holds times of GEMM, attention,
expert and all-reduce kernels as measured. Its tables are asked at fixed points, and the terms of
`pipeline/hardware/step_time.py` are fitted to the answers:

    G        every operation of a context step but attention and LM head, at KNOTS tokens; apart for decode steps where
             the tables know them to differ
    L0, L1   the LM head over rows
    D        attention of m sequences of equal context
    P        attention of one chunk of c tokens after p
"""

import contextlib
import io
import json
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.config import Config, OwnModel, StepTable
from pipeline.errors import ConfigError
from pipeline.hardware import catalogue, own, step_time
from pipeline.hardware.deployment import Deployment, resolve

KNOTS = (
    *(1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256),
    *(288, 320, 384, 448, 512, 576, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096, 5120),
    *(6144, 8192, 10240, 12288, 16384),
)
ROWS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024)
DECODES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
CONTEXTS = (16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 65536, 131072)
CHUNKS = (8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 16384)
PREFIXES = (0, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
MOST_CONTEXT_TOKENS = 4_000_000  # of all sequences of a step: more fits in no group of accelerators
MOST_STEP_TOKENS = 17_000
TEST_STEPS = 1000
SEED = 1
APART = 0.02  # G of decode steps that differs by more, at the median, is kept apart

SYSTEMS = {
    "a100-80gb-sxm": "a100_sxm",
    "a100-80gb-pcie": "a100_pcie",
    "h100-80gb-sxm": "h100_sxm",
    "h100-80gb-pcie": "h100_pcie",
    "h200-141gb-sxm": "h200_sxm",
    "b200-180gb-sxm": "b200_sxm",
    "b300-288gb-sxm": "b300_sxm",
    "gb200-192gb": "gb200",
    "l40s-48gb": "l40s",
    "l4-24gb": "l4",
    "rtxpro6000-96gb": "rtx_pro_6000_server",
}
_GEMM = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8", "w4a16": "int4_wo"}
_KV = {"bf16": "bfloat16", "fp16": "bfloat16", "fp8": "fp8"}


@dataclass(frozen=True, slots=True)
class Kernels:
    """Times of one step's parts, milliseconds, as the tables state them."""

    mixed_ms: Callable[[int], float]  # tokens
    decode_ms: Callable[[int], float]  # tokens
    head_ms: Callable[[int], float]  # rows
    decode_attention_ms: Callable[[int, int], float]  # sequences, context of each
    chunk_ms: Callable[[int, int], float]  # tokens, tokens before them
    source: str


def fit(config: Config) -> tuple[StepTable, Deployment]:
    """Return the step time of a configuration from kernel tables, and the deployment it belongs to.

    Raises ConfigError if the extra is not installed, or its tables lack the accelerator or an operation.
    """
    deployment = resolve(config)
    with tempfile.TemporaryDirectory() as folder, _quiet():
        try:
            return from_kernels(_kernels(deployment, Path(folder)), deployment), deployment
        except Exception as error:
            if type(error).__module__.split(".")[0] != "aiconfigurator_core":
                raise
            missing = str(error).splitlines()[0].split(" at /")[0][:300]
            raise ConfigError(f"the kernel tables lack an operation: {missing}") from None


def from_kernels(kernels: Kernels, deployment: Deployment) -> StepTable:
    """Return coefficients fitted to these kernels, with their mean error on random steps of other shapes."""
    mixed_ms = [kernels.mixed_ms(tokens) for tokens in KNOTS]
    decode_ms = [kernels.decode_ms(tokens) for tokens in KNOTS if tokens <= max(ROWS)]
    differs = np.median(np.abs(np.array(decode_ms) / np.array(mixed_ms[: len(decode_ms)]) - 1)) > APART
    terms = {"mu": 1.0, **_head(kernels), **_decode(kernels), **_prefill(kernels)}
    table = StepTable(
        gpu=deployment.gpu.id,
        model=deployment.model.id,
        tensor_parallel_size=deployment.tensor_parallel_size,
        weight_dtype=deployment.weight_dtype,
        kv_cache_dtype=deployment.kv_cache_dtype,
        source=kernels.source,
        error_pct=0.0,
        tokens=list(KNOTS),
        ms=_rounded(mixed_ms),
        decode_ms=_rounded(decode_ms) if differs else None,
        **{name: float(f"{value:.7g}") for name, value in terms.items()},
    )
    return table.model_copy(update={"error_pct": round(error_pct(table, kernels), 3)})


def error_pct(table: StepTable, kernels: Kernels) -> float:
    """Return the mean absolute error over random steps: 40 % decode, 40 % mixed, 20 % prefill, all seeded."""
    steps = step_time.from_stated(table, step_overhead_ms=0.0, max_tokens=MOST_STEP_TOKENS)
    errors = []
    for decodes, context, chunks in _test_steps():
        measured_ms = _measured_ms(kernels, decodes, context, chunks)
        predicted_ns = steps.step_ns(decodes, decodes * context, chunks, len(chunks))
        errors.append(abs(predicted_ns / 1e6 / measured_ms - 1))
    return 100 * float(np.mean(errors))


def _test_steps() -> Iterator[tuple[int, int, list[tuple[int, int]]]]:
    """Yield (sequences, context of each, chunks), sizes uniform in their logarithm."""
    rng = np.random.default_rng(SEED)

    def draw(low: float, high: float) -> int:
        return int(np.exp(rng.uniform(np.log(low), np.log(high))))

    for number in range(TEST_STEPS):
        kind = number % 5  # 0, 1 decode; 2, 3 mixed; 4 prefill
        decodes = draw(1, 512) if kind < 4 else 0
        context = min(draw(32, 32768), MOST_CONTEXT_TOKENS // max(decodes, 1)) if decodes else 0
        chunks = [(draw(16, 4096), draw(1, 16384) - 1) for _ in range(draw(1, 4.99))] if kind > 1 else []
        yield decodes, context, chunks


def _measured_ms(kernels: Kernels, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
    tokens = decodes + sum(c for c, _ in chunks)
    g_ms = kernels.mixed_ms(tokens) if chunks else kernels.decode_ms(tokens)
    attention_ms = kernels.decode_attention_ms(decodes, context) if decodes else 0.0
    return g_ms + kernels.head_ms(decodes + len(chunks)) + attention_ms + sum(kernels.chunk_ms(c, p) for c, p in chunks)


def _head(kernels: Kernels) -> dict[str, float]:
    rows = np.array(ROWS, float)
    ms = np.array([kernels.head_ms(n) for n in ROWS])
    found = _least_squares(lambda x: x[0] + x[1] * rows, ms, [ms[0], (ms[-1] - ms[0]) / rows[-1]])
    return dict(zip(("L0", "L1"), found, strict=True))


def _decode(kernels: Kernels) -> dict[str, float]:
    points = [(m, n) for m in DECODES for n in CONTEXTS if m * n <= MOST_CONTEXT_TOKENS]
    m, each = np.array(points, float).T
    total = m * each
    ms = np.array([kernels.decode_attention_ms(*point) for point in points])
    slope = float(np.median(ms[total > 200_000] / total[total > 200_000]))
    low = float(ms.min())

    def line(x: np.ndarray) -> np.ndarray:
        return np.maximum(x[0] + x[1] * m, x[2] + x[3] * m + x[4] * total)

    found = _least_squares(line, ms, [low, low / 50, low, low / 100, slope])
    return dict(zip(("D0", "D1", "D2", "D3", "D4"), found, strict=True))


def _prefill(kernels: Kernels) -> dict[str, float]:
    points = [(c, p) for c in CHUNKS for p in PREFIXES if p + c <= max(PREFIXES)]
    c, p = np.array(points, float).T
    area = c * (p + c / 2)
    ms = np.array([kernels.chunk_ms(*point) for point in points])
    large = area > np.quantile(area, 0.8)
    slope, low = float(np.median(ms[large] / area[large])), float(ms.min())

    def line(x: np.ndarray) -> np.ndarray:
        return np.maximum(x[0] + x[1] * c + x[2] * (p + c), x[3] + x[4] * c + x[5] * area)

    found = _least_squares(line, ms, [low, low / 500, low / 5000, low, low / 500, slope])
    return dict(zip(("P0", "P1", "P2", "P3", "P4", "P5"), found, strict=True))


def _least_squares(line: Callable[[np.ndarray], np.ndarray], ms: np.ndarray, start: Sequence[float]) -> list[float]:
    """Return non-negative coefficients with the least relative errors; large ones count less than their square.

    Coefficients are fitted as multiples of where they start, from several starts; the best is kept.
    """
    from scipy.optimize import least_squares

    scale = np.maximum(np.array(start, float), 1e-12)
    best: Any = None
    for factors in ([1.0] * len(scale), [0.5, *[1.0] * (len(scale) - 1)], [*[0.1] * (len(scale) - 1), 1.0]):
        found = least_squares(
            lambda x: line(x * scale) / ms - 1.0,
            factors,
            bounds=(0.0, np.inf),
            loss="soft_l1",
            f_scale=0.03,
            max_nfev=400,
        )
        best = found if best is None or found.cost < best.cost else best
    return [float(value) for value in best.x * scale]


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


def _kernels(deployment: Deployment, folder: Path) -> Kernels:
    """Return the tables of aiconfigurator for a deployment; a model that it does not know is described to it."""
    try:
        import aiconfigurator_core
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError:
        raise ConfigError(
            "needs NVIDIA's kernel tables: pip install 'servecast[aiconfigurator]' (Python 3.11 to 3.13)"
        ) from None
    system = SYSTEMS.get(deployment.gpu.id)
    if system is None:
        raise ConfigError(f'hardware.gpu = "{deployment.gpu.id}": no kernel tables; there are {", ".join(SYSTEMS)}')
    size = deployment.tensor_parallel_size
    modes = {"gemm_quant_mode": _GEMM[deployment.weight_dtype], "kvcache_quant_mode": _KV[deployment.kv_cache_dtype]}
    if deployment.model.experts:
        modes["moe_quant_mode"] = modes["gemm_quant_mode"]
    described = _described(deployment, Path(aiconfigurator_core.__file__).parent / "model_configs")
    if deployment.weight_dtype == deployment.model.published_dtype and "quantization_config" in described:
        modes = {"kvcache_quant_mode": modes["kvcache_quant_mode"]}  # blocks of FP8, MXFP4 experts: as published
    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")
    handle = EngineHandle.compile(
        str(folder),
        system,
        "vllm",
        tp_size=size,
        **({"moe_tp_size": size} if deployment.model.experts else {}),
        **modes,
    )
    return _asked(handle, f"aiconfigurator-core {_version()} (Apache-2.0), vLLM tables of {system}")


def _asked(handle: Any, source: str) -> Kernels:
    """Return the parts of a step by the names that operations have in every model of aiconfigurator."""

    def indices(ask: Callable[..., Any]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {"attention": [], "head": [], "rest": []}
        for index in range(1000):
            try:
                name = ask([index], batch_size=1, s=16, x=16)[0][0]
            except ValueError:
                return found
            part = "attention" if "attention" in name or "mla_block" in name else "rest"
            found["head" if "logits" in name else part].append(index)
        return found

    context, generation = indices(handle.evaluate_context_ops), indices(handle.evaluate_generation_ops)

    def total(ask: Callable[..., Any], which: list[int], **shape: int) -> float:
        return float(sum(row[1] for row in ask(which, **shape)))

    before, after = handle.evaluate_context_ops, handle.evaluate_generation_ops
    return Kernels(
        mixed_ms=lambda n: total(before, context["rest"], batch_size=1, s=n, x=n),
        decode_ms=lambda n: total(after, generation["rest"], batch_size=n, s=1024, x=n),
        head_ms=lambda n: total(after, generation["head"], batch_size=n, s=1024, x=n),
        decode_attention_ms=lambda m, n: total(after, generation["attention"], batch_size=m, s=n),
        chunk_ms=lambda c, p: total(before, context["attention"], batch_size=1, s=c, prefix=p),
        source=source,
    )


def _described(deployment: Deployment, bundled: Path) -> dict[str, Any]:
    """Return a config.json of the model: the published one that the library brings along, else one made up."""
    names = [row["alias"] for row in catalogue.rows("aliases.csv") if row["id"] == deployment.model.tables_of]
    files = [bundled / f"{name.replace('/', '--')}_config.json" for name in names if "/" in name]
    published = next((file for file in files if file.is_file()), None)
    if published is not None:
        return json.loads(published.read_text(encoding="utf-8"))
    return _made_up(deployment.config.model or own.dimensions(deployment.model.id))


def _made_up(own_model: OwnModel) -> dict[str, Any]:
    """Return a config.json of these dimensions, as the architecture that has such layers."""
    head_dim = own_model.head_dim or own_model.hidden // own_model.heads
    fields: dict[str, Any] = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": own_model.layers,
        "hidden_size": own_model.hidden,
        "num_attention_heads": own_model.heads,
        "num_key_value_heads": own_model.kv_heads or own_model.heads,
        "head_dim": head_dim,
        "intermediate_size": own_model.intermediate,
        "vocab_size": own_model.vocab,
        "max_position_embeddings": own_model.max_context,
        "tie_word_embeddings": own_model.tied_embeddings,
        "torch_dtype": "bfloat16",
    }
    if own_model.experts:
        fields |= {
            "architectures": ["Qwen3MoeForCausalLM"],
            "model_type": "qwen3_moe",
            "num_experts": own_model.experts,
            "num_experts_per_tok": own_model.experts_per_token,
            "moe_intermediate_size": own_model.moe_intermediate,
        }
    if own_model.mla_kv_lora_rank:
        fields |= {
            "architectures": ["DeepseekV3ForCausalLM"],
            "model_type": "deepseek_v3",
            "n_routed_experts": own_model.experts,
            "n_shared_experts": own_model.shared_experts,
            "first_k_dense_replace": own_model.first_dense_layers,
            "kv_lora_rank": own_model.mla_kv_lora_rank,
            "q_lora_rank": own_model.mla_q_lora_rank,
            "qk_rope_head_dim": own_model.mla_qk_rope,
            "qk_nope_head_dim": own_model.mla_qk_nope,
            "v_head_dim": own_model.mla_v_head_dim,
        }
    return fields


def _version() -> str:
    from importlib.metadata import version

    return version("aiconfigurator-core")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's log and prints, which tell of every table it opens, off the terminal."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def toml(table: StepTable, deployment: Deployment) -> str:
    """Return the table as settings: a file for --config that replays the configuration with it."""
    lines = [
        "# Step time fitted by `servecast hardware fit`; used wherever a replay has this accelerator, model and size.",
        "[hardware]",
        f'gpu = "{table.gpu}"',
        f'model = "{table.model}"',
        f'weight_dtype = "{table.weight_dtype}"',
        f'kv_cache_dtype = "{table.kv_cache_dtype}"',
        "",
        "[engine]",
        f"tensor_parallel_size = {table.tensor_parallel_size}",
        "",
    ]
    for name in ("accelerator", "model"):
        stated = getattr(deployment.config, name)
        if stated is not None:
            lines += [f"[{name}]", *_values(stated.model_dump(exclude_none=True)), ""]
    return "\n".join([*lines, "[step_time]", *_values(table.model_dump(exclude_none=True)), ""])


def _values(values: dict[str, Any]) -> list[str]:
    return [f"{name} = {json.dumps(value)}" for name, value in values.items()]
