"""Accelerators and models that are known by name: facts from `data/`, one id per thing, aliases beside it."""

import csv
import functools
from dataclasses import dataclass
from importlib import resources

from pipeline.config import did_you_mean, nearest
from pipeline.errors import ConfigError

DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True, slots=True)
class Gpu:
    """One accelerator; a rate or peak that the maker does not offer is None."""

    id: str
    name: str
    memory_gib: float  # memory that software sees
    bandwidth_gb_per_s: float  # GB/s, 10**9 bytes
    bf16_tflops: float  # dense peak
    fp8_tflops: float | None
    link_gb_per_s: float  # GB/s to other accelerators, per direction
    source: str

    def peak_tflops(self, weight_dtype: str) -> float:
        """Return the dense peak that matrix products run at with these weights; 4-bit weights compute in 16 bit."""
        return self.fp8_tflops if weight_dtype == "fp8" and self.fp8_tflops else self.bf16_tflops


@dataclass(frozen=True, slots=True)
class Model:
    """One model, as its published config describes it."""

    id: str
    attention: str  # mha, gqa, mqa or mla
    layers: int
    hidden: int
    heads: int
    kv_heads: int | None  # None for mla, which keeps one latent per token
    head_dim: int | None
    intermediate: int
    vocab: int
    tied_embeddings: bool  # the LM head is the input embedding
    experts: int  # 0: dense
    experts_per_token: int
    moe_intermediate: int
    shared_experts: int
    first_dense_layers: int
    mla_latent: int | None  # elements of latent and rotary key per token and layer
    sliding_window: int | None  # tokens
    max_context: int  # tokens
    matmul_params_per_token: int  # LM head included, input embedding not
    weight_bytes: dict[str, int]  # by weight dtype, embeddings and LM head 16 bit
    published_dtype: str
    attention_flops: int  # per token and token of context
    tables_of: str  # model of the catalogue whose step times hold for it: one of the same dimensions
    source: str

    def kv_elements_per_gpu(self, tensor_parallel_size: int) -> int:
        """Return KV elements per token that each accelerator keeps; heads beyond the last one are copies."""
        if self.kv_heads is None or self.head_dim is None:
            return self.layers * (self.mla_latent or 0)
        return 2 * self.layers * max(1, self.kv_heads // tensor_parallel_size) * self.head_dim

    def tensor_parallel_sizes(self) -> list[int]:
        """Return the sizes up to 64 that divide the attention heads and fit the KV heads."""
        sizes = [size for size in range(1, 65) if self.heads % size == 0]
        if self.kv_heads is None:
            return sizes
        return [size for size in sizes if self.kv_heads % size == 0 or size % self.kv_heads == 0]


def gpu(name: str) -> Gpu:
    """Return the accelerator of this id or alias, in any case; ConfigError lists the nearest."""
    return gpus()[_lookup("gpu", name, gpus())[0]]


def model(name: str) -> tuple[Model, str | None]:
    """Return the model of this id, alias or Hugging Face name, and the weight dtype that the name itself implies."""
    model_id, weight_dtype = _lookup("model", name, models())
    return models()[model_id], weight_dtype


def has(kind: str, name: str) -> bool:
    """Return whether a name of kind `gpu` or `model` is an id or alias of the catalogue."""
    return name.strip().lower() in _names(kind)


@functools.cache
def gpus() -> dict[str, Gpu]:
    """Return every accelerator by id."""
    return {
        row["gpu"]: Gpu(
            id=row["gpu"],
            name=row["name"],
            memory_gib=float(row["hbm_visible_gib"]),
            bandwidth_gb_per_s=float(row["mem_bw_GBps"]),
            bf16_tflops=float(row["dense_bf16_tflops"]),
            fp8_tflops=float(row["dense_fp8_tflops"]) if row["dense_fp8_tflops"] else None,
            link_gb_per_s=float(row["link_GBps_per_dir"]),
            source=f"{row['spec_source']}; memory: {row['visible_source']}",
        )
        for row in rows("gpus.csv")
    }


@functools.cache
def models() -> dict[str, Model]:
    """Return every model by id."""
    return {row["model"]: _model(row) for row in rows("models.csv")}


def rows(file: str) -> list[dict[str, str]]:
    """Return the rows of a data file of this package."""
    text = resources.files("pipeline.hardware").joinpath("data").joinpath(file).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def overhead_ms(kind: str, tensor_parallel_size: int) -> float:
    """Return a measured overhead for kind `step_dense`, `step_moe` or `frontend`, milliseconds."""
    known = [row for row in rows("overheads.csv") if row["kind"] == kind]
    fitting = [row for row in known if int(row["tensor_parallel_from"]) <= tensor_parallel_size]
    return float(max(fitting, key=lambda row: int(row["tensor_parallel_from"]))["value_ms"])


def _model(row: dict[str, str]) -> Model:
    def maybe(name: str) -> int | None:
        return int(row[name]) if row[name] else None

    latent = maybe("mla_kv_lora_rank")
    is_mla = row["attention"] == "mla"
    return Model(
        id=row["model"],
        attention=row["attention"],
        layers=int(row["layers"]),
        hidden=int(row["hidden"]),
        heads=int(row["heads"]),
        kv_heads=None if is_mla else maybe("kv_heads"),
        head_dim=None if is_mla else maybe("head_dim"),
        intermediate=int(row["intermediate"]),
        vocab=int(row["vocab"]),
        tied_embeddings=row["tie_embeddings"] == "True",
        experts=int(row["experts"]),
        experts_per_token=int(row["experts_per_token"]),
        moe_intermediate=int(row["moe_intermediate"]),
        shared_experts=int(row["shared_experts"]),
        first_dense_layers=int(row["first_dense_layers"]),
        mla_latent=latent + (maybe("mla_qk_rope") or 0) if latent is not None else None,
        sliding_window=maybe("sliding_window"),
        max_context=int(row["max_context"]),
        matmul_params_per_token=int(row["params_matmul_per_token"]),
        weight_bytes={
            "bf16": int(row["weight_bytes_bf16"]),
            "fp16": int(row["weight_bytes_bf16"]),
            "fp8": int(row["weight_bytes_fp8"]),
            "w4a16": int(row["weight_bytes_w4a16_g128"]),
        },
        published_dtype=row["published_dtype"],
        attention_flops=int(row["attn_flops_per_token_per_ctx"]),
        tables_of=row["model"],
        source=row["source"],
    )


@functools.cache
def _names(kind: str) -> dict[str, tuple[str, str | None]]:
    """Return lower-case name -> (id, implied weight dtype) of ids and aliases."""
    ids = gpus() if kind == "gpu" else models()
    names: dict[str, tuple[str, str | None]] = {name.lower(): (name, None) for name in ids}
    for row in rows("aliases.csv"):
        if row["kind"] == kind:
            names[row["alias"].lower()] = (row["id"], row["weight_dtype"] or None)
    return names


def _lookup(kind: str, name: str, ids: dict) -> tuple[str, str | None]:
    names = _names(kind)
    wanted = name.strip().lower().replace(" ", "-")
    if wanted in names:
        return names[wanted]
    close = list(dict.fromkeys(names[match][0] for match in nearest(wanted.split("/")[-1], names, count=5)))[:3]
    raise ConfigError(
        f'hardware.{kind} = "{name}": not in the catalogue{did_you_mean(close)}\nKnown ids: {", ".join(sorted(ids))}'
    )
