"""How long one engine step takes, as terms whose inputs a replay keeps up to date in O(1).

For a step with `m` decoding sequences (contexts summing to `C`: tokens in KV before the step + 1 each) and prefill
chunks `(c, p)` (c new tokens after p cached ones), all in nanoseconds:

    T = m + sum c                          tokens through the linear layers
    S = m + chunks that sample             rows through the LM head
    t = c0 + c1 S + G[T] + L0 + L1 S + mu D + sum P
    D = max(D0 + D1 m, D2 + D3 m + D4 C)                              0 when m = 0
    P = max(P0 + P1 c + P2 (p + c), P3 + P4 c + P5 c (p + c / 2))

`mu` applies only in steps that hold both decodes and chunks. `G` is piecewise linear through measured knots, its last
slope goes on beyond the last one; G[0] = 0. Coefficients: `data/coefficients.csv`, `data/g_knots.csv`, fitted to
measured kernel tables; `c0` is what the engine itself needs per step and no table holds (`data/overheads.csv`).

Where the tables lack a configuration, terms come from relatives or from a roofline, and `estimate` says so:

    combined  weights and attention measured, in two configurations of the same accelerator
    scaled    measured with another KV type; D4, the reading of KV, scaled by its bytes
    fitted    stated by the user in [step_time], as `servecast hardware fit` writes it
    roofline  `data/roofline.csv`, parameters shared by measured configurations of the accelerator or of all
"""

import dataclasses
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.config import StepTable
from pipeline.hardware import catalogue
from pipeline.hardware.catalogue import DTYPE_BYTES, Gpu, Model
from pipeline.hardware.kv_capacity import kv_bytes_per_token

NS_PER_MS = 1e6
NS_PER_US = 1e3
TERMS = ("c0", "c1", "L0", "L1", "D0", "D1", "D2", "D3", "D4", "P0", "P1", "P2", "P3", "P4", "P5")
ROOFLINE_BAND_PCT = {"known_gpu": 12.0, "other_gpu": 17.0, "moe": 50.0}
SCALED_BAND_PCT = 8.0  # Llama-3.1-8B on H100 and L40S, scaled against measured: at most 4.8 %, plus the table's own


@dataclass(frozen=True, eq=False)
class StepTime:
    """Step time of one deployment; every term float64 nanoseconds, `mu` a factor."""

    c0: float
    c1: float
    L0: float
    L1: float
    D0: float
    D1: float
    D2: float
    D3: float
    D4: float
    P0: float
    P1: float
    P2: float
    P3: float
    P4: float
    P5: float
    mu: float
    g_ns: np.ndarray  # float64[max tokens of a step + 1]; steps with a prefill chunk
    g_decode_ns: np.ndarray  # the same for steps that only decode; the same array unless measured apart
    config: str | None  # row of coefficients.csv that gives the weights' part, None for a roofline
    basis: str  # measured, combined, scaled, fitted or roofline
    error_pct: float  # mean absolute error of a step against the tables this rests on, percent
    source: str
    notes: tuple[str, ...]

    @property
    def estimate(self) -> bool:
        """Return whether no table was measured for this configuration."""
        return self.basis in ("scaled", "roofline")

    def terms_ms(self) -> dict[str, float]:
        """Return every term by name, milliseconds, and the factor `mu`."""
        return {name: getattr(self, name) / NS_PER_MS for name in TERMS} | {"mu": self.mu}

    def step_ns(
        self, decodes: int, decode_context: int, chunks: Iterable[tuple[int, int]] = (), sampling_chunks: int = 0
    ) -> int:
        """Return the length of one step, the plain reference for the engine's own arithmetic.

        decodes, decode_context : m and C; chunks : (c, p) of each prefill chunk; sampling_chunks : those that sample
        """
        chunks = list(chunks)
        tokens = decodes + sum(c for c, _ in chunks)
        if tokens == 0:
            return 0
        samples = decodes + sampling_chunks
        g = self.g_ns if chunks else self.g_decode_ns
        time = self.c0 + self.c1 * samples + float(g[tokens]) + self.L0 + self.L1 * samples
        if decodes:
            attention = max(self.D0 + self.D1 * decodes, self.D2 + self.D3 * decodes + self.D4 * decode_context)
            time += (self.mu if chunks else 1.0) * attention
        prefill = 0.0
        for c, p in chunks:
            prefill += max(self.P0 + self.P1 * c + self.P2 * (p + c), self.P3 + self.P4 * c + self.P5 * c * (p + c / 2))
        return round(time + prefill)


def build(
    gpu: Gpu,
    model: Model,
    *,
    tensor_parallel_size: int,
    weight_dtype: str,
    kv_cache_dtype: str,
    step_overhead_ms: float,
    max_tokens: int,
    stated: StepTable | None = None,
) -> StepTime:
    """Return the step time of a deployment from the best basis there is.

    stated     : table of the user, taken where it was fitted for this very configuration (`applies`)
    max_tokens : most tokens that one step can hold; length of the G arrays less one
    """
    if stated is not None and applies(stated, gpu, model, tensor_parallel_size, weight_dtype, kv_cache_dtype):
        return from_stated(stated, step_overhead_ms=step_overhead_ms, max_tokens=max_tokens)
    wanted = {
        "gpu": gpu.id,
        "model": model.tables_of,
        "tensor_parallel_size": str(tensor_parallel_size),
        "backend": "vllm",
    }
    rows = [row for row in catalogue.rows("coefficients.csv") if all(row[key] == wanted[key] for key in wanted)]
    weights = [row for row in rows if _kind(row["weight_dtype"]) == _kind(weight_dtype)]
    if not weights:
        return roofline(
            gpu,
            model,
            tensor_parallel_size=tensor_parallel_size,
            weight_dtype=weight_dtype,
            kv_cache_dtype=kv_cache_dtype,
            step_overhead_ms=step_overhead_ms,
            max_tokens=max_tokens,
        )
    table = from_table(weights[0]["config"], step_overhead_ms=step_overhead_ms, max_tokens=max_tokens)
    if _kind(weights[0]["kv_dtype"]) != _kind(kv_cache_dtype):
        attention = [row for row in rows if _kind(row["kv_dtype"]) == _kind(kv_cache_dtype)]
        if attention:
            other = from_table(attention[0]["config"], step_overhead_ms=step_overhead_ms, max_tokens=max_tokens)
            table = _combined(table, other)
        else:
            table = _scaled(table, DTYPE_BYTES[kv_cache_dtype] / DTYPE_BYTES[weights[0]["kv_dtype"]], kv_cache_dtype)
    if weights[0]["all_reduce_included"] == "False":
        table = _with_all_reduce(table, gpu, model, tensor_parallel_size)
    return table


def applies(table: StepTable, gpu: Gpu, model: Model, size: int, weight_dtype: str, kv_cache_dtype: str) -> bool:
    """Return whether a stated table was fitted for this configuration."""
    fitted = (table.gpu, table.model, table.tensor_parallel_size, table.weight_dtype, table.kv_cache_dtype)
    asked = (gpu.id, model.id, size, weight_dtype, kv_cache_dtype)
    return tuple(map(_kind, map(str, fitted))) == tuple(map(_kind, map(str, asked)))


def from_table(config: str, *, step_overhead_ms: float, max_tokens: int) -> StepTime:
    """Return the step time of one row of `coefficients.csv`, as measured."""
    row = next(row for row in catalogue.rows("coefficients.csv") if row["config"] == config)
    knots = _knots(config)
    mixed = expand(knots["mixed"], max_tokens)
    separate = row["separate_decode_G"] == "True"
    return StepTime(
        c0=step_overhead_ms * NS_PER_MS,
        c1=0.0,
        **{name: float(row[name]) * NS_PER_MS for name in TERMS if name not in ("c0", "c1")},
        mu=float(row["mu_mixed"]),
        g_ns=mixed,
        g_decode_ns=expand(knots["decode"], max_tokens) if separate else mixed,
        config=config,
        basis="measured",
        error_pct=float(row["mape_all"] or row["mape_mixed"]),
        source=f"{row['kernels']}, {row['source']}",
        notes=(),
    )


def from_stated(table: StepTable, *, step_overhead_ms: float, max_tokens: int) -> StepTime:
    """Return the step time that a table [step_time] states."""
    tokens = np.array(table.tokens, dtype=np.float64)
    mixed = expand((tokens, np.array(table.ms)), max_tokens)
    decode = table.decode_ms
    return StepTime(
        c0=step_overhead_ms * NS_PER_MS,
        c1=0.0,
        **{name: getattr(table, name) * NS_PER_MS for name in TERMS if name not in ("c0", "c1")},
        mu=table.mu,
        g_ns=mixed,
        g_decode_ns=mixed if decode is None else expand((tokens[: len(decode)], np.array(decode)), max_tokens),
        config=None,
        basis="fitted",
        error_pct=table.error_pct,
        source=table.source,
        notes=(),
    )


def expand(knots: tuple[np.ndarray, np.ndarray], max_tokens: int) -> np.ndarray:
    """Return G for 0 ... max_tokens tokens, nanoseconds, from knots (tokens, ms); read-only."""
    tokens, values_ms = knots
    at = np.arange(max_tokens + 1, dtype=np.float64)
    g_ms = np.interp(at, tokens, values_ms)
    slope = (values_ms[-1] - values_ms[-2]) / (tokens[-1] - tokens[-2])
    beyond = at > tokens[-1]
    g_ms[beyond] = values_ms[-1] + slope * (at[beyond] - tokens[-1])
    g_ms[0] = 0.0
    return _frozen(g_ms * NS_PER_MS)


def roofline(
    gpu: Gpu,
    model: Model,
    *,
    tensor_parallel_size: int,
    weight_dtype: str,
    kv_cache_dtype: str,
    step_overhead_ms: float,
    max_tokens: int,
) -> StepTime:
    """Return an estimate from peaks and bandwidths, in the same terms."""
    known = _roofline_row(gpu.id)
    p = {name: float(value) for name, value in (known or _roofline_row("all") or {}).items() if name != "scope"}
    tp, peak = tensor_parallel_size, gpu.bf16_tflops * 1e9  # flops per ms
    bandwidth = gpu.bandwidth_gb_per_s * 1e6  # bytes per ms
    head_params = model.vocab * model.hidden
    tokens = np.arange(max_tokens + 1, dtype=np.float64)

    rough = p["moe_eff"] if model.experts else 1.0
    flops = 2.0 * (model.matmul_params_per_token - head_params) / tp
    compute = flops * tokens / (p["ec"] * rough * gpu.peak_tflops(weight_dtype) * 1e9)
    memory = _weight_bytes_read(model, weight_dtype, tokens) / tp / (p["em"] * rough * bandwidth)
    layers_ms = p["tL_us"] / 1e3 * model.layers
    norms_ms = 14.0 * model.layers * model.hidden * 2 * tokens / (0.8 * bandwidth)
    g_ms = layers_ms + (compute**4 + memory**4) ** 0.25 + norms_ms
    g_ms += _all_reduce_ms(p, gpu, model, tp, tokens)
    g_ms[0] = 0.0
    g_ns = _frozen(g_ms * NS_PER_MS)

    ms = dict.fromkeys(TERMS, 0.0)
    ms["c0"] = step_overhead_ms
    ms["L0"] = head_params * 2 / tp / (0.85 * bandwidth)
    ms["L1"] = 2.0 * head_params / tp / (p["ec"] * peak)
    ms["D2"] = p["td_us"] / 1e3 * model.layers
    ms["D4"] = kv_bytes_per_token(model, tp, kv_cache_dtype) / (p["ea"] * bandwidth)
    ms["P3"] = p["tp_us"] / 1e3 * model.layers
    ms["P5"] = model.attention_flops / tp / (p["ep"] * peak)
    moe_unknown = bool(model.experts) and known is None
    band = ROOFLINE_BAND_PCT["moe" if moe_unknown else "known_gpu" if known else "other_gpu"]
    return StepTime(
        **{name: value * NS_PER_MS for name, value in ms.items()},
        mu=1.0,
        g_ns=g_ns,
        g_decode_ns=g_ns,
        config=None,
        basis="roofline",
        error_pct=band,
        source=f"roofline with parameters of {'this accelerator' if known else 'all measured accelerators'}",
        notes=(
            f"Step time is a roofline estimate, about +-{band:.0f} % per step: no kernel table for {model.id} "
            f"({weight_dtype}) on {tp} x {gpu.id}. Good for ranking, not for milliseconds.",
        ),
    )


def _weight_bytes_read(model: Model, weight_dtype: str, tokens: np.ndarray) -> np.ndarray:
    """Return weight bytes of all layers that a step of so many tokens reads; experts nobody chose are not read."""
    embeddings = 2 * model.vocab * model.hidden * (1 if model.tied_embeddings else 2)
    layers = model.weight_bytes[weight_dtype] - embeddings
    if not model.experts:
        return np.full(len(tokens), float(layers))
    share = model.experts_per_token / model.experts
    return layers * np.maximum(1.0 - (1.0 - share) ** tokens, share)


def _all_reduce_ms(p: dict[str, float], gpu: Gpu, model: Model, tp: int, tokens: np.ndarray) -> np.ndarray:
    if tp == 1:
        return np.zeros(len(tokens))
    start_ms = p["alpha_us"] / 1e3 * math.sqrt(math.log2(tp))
    moved_ms = 4.0 * tokens * model.hidden * (tp - 1) / tp / (p["beta"] * gpu.link_gb_per_s * 1e6)
    return 2 * model.layers * (start_ms + moved_ms)


def scaled(steps: StepTime, factor: float) -> StepTime:
    """Return the step time with the kernels so many times as long; the engine's own time per step, c0, stays."""
    if factor == 1.0:
        return steps
    terms = {name: getattr(steps, name) * factor for name in TERMS if name != "c0"}
    g_ns = _frozen(steps.g_ns * factor)
    g_decode_ns = g_ns if steps.g_decode_ns is steps.g_ns else _frozen(steps.g_decode_ns * factor)
    return dataclasses.replace(steps, **terms, g_ns=g_ns, g_decode_ns=g_decode_ns)


def _combined(weights: StepTime, attention: StepTime) -> StepTime:
    """Return weights' terms of one table and attention's terms of another one."""
    taken = {name: getattr(attention, name) for name in TERMS if name[0] in "DP"}
    note = f"Step time combines two tables: weights from {weights.config}, attention from {attention.config}."
    error = max(weights.error_pct, attention.error_pct)
    return dataclasses.replace(
        weights, **taken, mu=attention.mu, basis="combined", error_pct=error, notes=(*weights.notes, note)
    )


def _scaled(table: StepTime, factor: float, kv_cache_dtype: str) -> StepTime:
    note = (
        f"Step time is an estimate, about +-{SCALED_BAND_PCT:.0f} % per step: the table {table.config} was measured "
        f"with another KV type; reading of KV scaled by {factor:g} for {kv_cache_dtype}."
    )
    error = max(table.error_pct, SCALED_BAND_PCT)
    return dataclasses.replace(table, D4=table.D4 * factor, basis="scaled", error_pct=error, notes=(*table.notes, note))


def _with_all_reduce(table: StepTime, gpu: Gpu, model: Model, tp: int) -> StepTime:
    """Add the roofline's all-reduce to a table that was measured without."""
    row = _roofline_row(gpu.id) or _roofline_row("all") or {}
    p = {name: float(value) for name, value in row.items() if name != "scope"}
    tokens = np.arange(len(table.g_ns), dtype=np.float64)
    extra = _all_reduce_ms(p, gpu, model, tp, tokens) * NS_PER_MS
    extra[0] = 0.0
    note = f"The table {table.config} was measured without all-reduce; its time is added from the roofline."
    g_ns = _frozen(table.g_ns + extra)
    g_decode_ns = g_ns if table.g_decode_ns is table.g_ns else _frozen(table.g_decode_ns + extra)
    return dataclasses.replace(table, g_ns=g_ns, g_decode_ns=g_decode_ns, notes=(*table.notes, note))


@functools.cache
def _knots(config: str) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    phases: dict[str, list[tuple[float, float]]] = {}
    for row in catalogue.rows("g_knots.csv"):
        if row["config"] == config:
            phases.setdefault(row["phase"], []).append((float(row["tokens"]), float(row["ms"])))
    return {phase: _columns(sorted(points)) for phase, points in phases.items()}


def _columns(points: list[tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(points, dtype=np.float64)
    return _frozen(table[:, 0].copy()), _frozen(table[:, 1].copy())


def _roofline_row(scope: str) -> dict[str, Any] | None:
    return next((row for row in catalogue.rows("roofline.csv") if row["scope"] == scope), None)


def _kind(dtype: str) -> str:
    return "16 bit" if dtype in ("bf16", "fp16") else dtype


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array
