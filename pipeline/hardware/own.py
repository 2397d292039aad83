"""What the catalogue lacks: a user's accelerator by a few numbers, a user's model by its dimensions or config.json.

Counts follow from the dimensions as they do for the rows of `data/models.csv`:

    attention  h H d + 2 h K d + H d h, or for latent attention its down and up projections
    MLP        3 h f; with experts E x 3 h f_e and a router
    bytes      16 bit: 2 per parameter; FP8: 1 per parameter of a linear layer; 4 bit: 0.5 and a 16-bit scale and 4-bit
               zero for each 128 of them; embeddings, LM head and norms stay 16 bit
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from pipeline.config import Config, OwnModel
from pipeline.errors import ConfigError
from pipeline.hardware import catalogue
from pipeline.hardware.catalogue import Gpu, Model

GIB = 2**30
W4_BYTES = 0.5 + 2.5 / 128
_QUANTISATIONS = {"fp8": "fp8", "fbgemm_fp8": "fp8", "awq": "w4a16", "gptq": "w4a16", "mxfp4": "w4a16"}
# Fields of config.json by the names they have in different families of models.
_NAMES = {
    "layers": ("num_hidden_layers",),
    "hidden": ("hidden_size",),
    "heads": ("num_attention_heads",),
    "kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "intermediate": ("intermediate_size_mlp", "intermediate_size"),
    "vocab": ("vocab_size",),
    "max_context": ("max_position_embeddings",),
    "tied_embeddings": ("tie_word_embeddings",),
    "experts": ("num_experts", "num_local_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok",),
    "moe_intermediate": ("moe_intermediate_size",),
    "shared_experts": ("n_shared_experts",),
    "first_dense_layers": ("first_k_dense_replace",),
    "mla_kv_lora_rank": ("kv_lora_rank",),
    "mla_q_lora_rank": ("q_lora_rank",),
    "mla_qk_rope": ("qk_rope_head_dim",),
    "mla_qk_nope": ("qk_nope_head_dim",),
    "mla_v_head_dim": ("v_head_dim",),
    "sliding_window": ("sliding_window",),
}
# What these dimensions cannot describe: field of config.json -> what it means.
_OTHER_LAYERS = {
    "hybrid_override_pattern": "layers of several kinds",
    "layer_types": "layers of several kinds",
    "block_configs": "layers of different sizes",
    "linear_num_value_heads": "linear attention",
    "mamba_num_heads": "state-space layers",
    "ssm_state_size": "state-space layers",
    "index_topk": "sparse attention",
}
_SHAPE = ("attention", "layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "mla_latent")


def gpu(config: Config) -> Gpu:
    """Return the accelerator of a config: the one of [accelerator] if `hardware.gpu` names it or is left out."""
    own, asked = config.accelerator, config.hardware.gpu
    if own is None or ("gpu" in config.hardware.model_fields_set and asked.lower() != own.name.lower()):
        return catalogue.gpu(asked)
    if catalogue.has("gpu", own.name):
        raise ConfigError(f'accelerator.name = "{own.name}": is in the catalogue already; choose another name')
    return Gpu(
        id=own.name,
        name=own.name,
        memory_gib=own.memory_gib,
        bandwidth_gb_per_s=own.bandwidth_gb_per_s,
        bf16_tflops=own.bf16_tflops,
        fp8_tflops=own.fp8_tflops,
        link_gb_per_s=own.link_gb_per_s,
        source="stated in [accelerator]",
    )


def model(config: Config) -> tuple[Model, str | None, OwnModel | None]:
    """Return the model of a config, the weight type its name or config.json implies, and its own dimensions if any.

    A model with the dimensions of one of the catalogue has its step times: most own models are trained on from one.
    """
    own, asked = config.model, config.hardware.model
    path = _config_json(asked)
    if path is not None:
        own = read_config_json(path)
    elif own is None or ("model" in config.hardware.model_fields_set and asked.lower() != own.name.lower()):
        return *catalogue.model(asked), None
    elif catalogue.has("model", own.name):
        raise ConfigError(f'model.name = "{own.name}": is in the catalogue already; choose another name')
    built = from_dimensions(own)
    same = next((known.id for known in catalogue.models().values() if _same_shape(known, built)), None)
    return dataclasses.replace(built, tables_of=same or own.name), own.dtype, own


def read_config_json(path: Path) -> OwnModel:
    """Return the dimensions that a Hugging Face config.json states; ConfigError names the field that is missing."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read as a config.json: {type(error).__name__}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a JSON object, as a Hugging Face config.json is")
    fields = content | content.get("text_config", {})
    _check_layers(fields, path)
    found: dict[str, Any] = {}
    for name, keys in _NAMES.items():
        value = next((fields[key] for key in keys if fields.get(key) is not None), None)
        if value is not None:
            found[name] = value
    if found.get("experts") and "moe_intermediate" not in found:
        # Mixtral and Llama 4 give the size of an expert where others give that of a dense layer.
        found["moe_intermediate"] = fields.get("intermediate_size")
        found.setdefault("shared_experts", 1 if "llama4" in str(fields.get("model_type")) else 0)
    if not fields.get("use_sliding_window", True):
        found.pop("sliding_window", None)
    if found.get("mla_kv_lora_rank"):
        found.pop("kv_heads", None)
        found.pop("head_dim", None)
    found["qkv_bias"] = bool(fields.get("attention_bias")) or fields.get("model_type") in ("qwen2", "qwen2_moe")
    found["dtype"] = _dtype(fields, path)
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    found["name"] = f"{name}-own" if catalogue.has("model", name) else name
    try:
        return OwnModel(**found)
    except ValidationError as error:
        raise ConfigError("\n".join(_unusable(path, item) for item in error.errors(include_url=False))) from None


def _check_layers(fields: dict[str, Any], path: Path) -> None:
    """Raise ConfigError for layers that differ from each other in ways that dimensions alone do not say."""
    for key, what in _OTHER_LAYERS.items():
        kinds = fields.get(key)
        plain = {"full_attention", "sliding_attention"}
        if kinds and not (key == "layer_types" and set(kinds) <= plain):
            raise ConfigError(f"{path}: {key}: {what} are not modelled")
    for key in ("interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq"):
        step = fields.get(key, 1)
        if step != 1 and not (isinstance(step, list) and all(step)):
            raise ConfigError(f"{path}: {key} = {step}: only models with experts in every layer are modelled")


def from_dimensions(own: OwnModel) -> Model:
    """Return the model that these dimensions describe."""
    linear, active = _linear_params(own)
    norms = (2 * own.layers + 1) * own.hidden
    kept = norms + own.vocab * own.hidden * (1 if own.tied_embeddings else 2)
    if own.qkv_bias and not own.mla_kv_lora_rank:
        linear += own.layers * (own.heads + 2 * _kv_heads(own)) * _head_dim(own)
    by_dtype = {
        "bf16": 2 * (linear + kept),
        "fp16": 2 * (linear + kept),
        "fp8": linear + 2 * kept,
        "w4a16": round(linear * W4_BYTES) + 2 * kept,
    }
    if own.weights_gib is not None:
        same = ("bf16", "fp16") if own.dtype in ("bf16", "fp16") else (own.dtype,)
        by_dtype |= dict.fromkeys(same, round(own.weights_gib * GIB))
    is_mla = own.mla_kv_lora_rank is not None
    kv_heads = None if is_mla else _kv_heads(own)
    latent = (own.mla_kv_lora_rank or 0) + (own.mla_qk_rope or 0)
    per_head = 2 * (own.mla_kv_lora_rank or 0) + (own.mla_qk_rope or 0) if is_mla else 2 * _head_dim(own)
    return Model(
        id=own.name,
        attention="mla" if is_mla else "mha" if kv_heads == own.heads else "mqa" if kv_heads == 1 else "gqa",
        layers=own.layers,
        hidden=own.hidden,
        heads=own.heads,
        kv_heads=kv_heads,
        head_dim=None if is_mla else _head_dim(own),
        intermediate=own.intermediate,
        vocab=own.vocab,
        tied_embeddings=own.tied_embeddings,
        experts=own.experts,
        experts_per_token=own.experts_per_token,
        moe_intermediate=own.moe_intermediate,
        shared_experts=own.shared_experts,
        first_dense_layers=own.first_dense_layers,
        mla_latent=latent if is_mla else None,
        sliding_window=own.sliding_window,
        max_context=own.max_context,
        matmul_params_per_token=active + own.vocab * own.hidden,
        weight_bytes=by_dtype,
        published_dtype=own.dtype,
        tables_of=own.name,
        attention_flops=2 * own.layers * own.heads * per_head,
        source="stated in [model] or config.json",
    )


def dimensions(model_id: str) -> OwnModel:
    """Return the dimensions of a model of the catalogue."""
    (row,) = (row for row in catalogue.rows("models.csv") if row["model"] == model_id)
    stated = {name: int(row[name]) for name in OwnModel.model_fields if row.get(name, "").isdigit()}
    if row["attention"] == "mla":
        stated.pop("kv_heads", None)
        stated.pop("head_dim", None)
    return OwnModel(
        name=model_id,
        tied_embeddings=row["tie_embeddings"] == "True",
        qkv_bias=model_id.startswith("qwen2"),
        dtype=row["published_dtype"],  # type: ignore[arg-type]
        **{name: value for name, value in stated.items() if value},
    )


def _linear_params(own: OwnModel) -> tuple[int, int]:
    """Return parameters of all linear layers, and of those that one token passes through."""
    h = own.hidden
    if own.mla_kv_lora_rank is None:
        attention = 2 * h * own.heads * _head_dim(own) + 2 * h * _kv_heads(own) * _head_dim(own)
    else:
        rank, rope, nope = own.mla_kv_lora_rank, own.mla_qk_rope or 0, own.mla_qk_nope or 0
        value, q = own.mla_v_head_dim or 0, own.mla_q_lora_rank
        queries = h * q + q * own.heads * (nope + rope) if q else h * own.heads * (nope + rope)
        attention = queries + h * (rank + rope) + rank * own.heads * (nope + value) + own.heads * value * h
    dense_layers = own.first_dense_layers if own.experts else own.layers
    both = own.layers * attention + dense_layers * 3 * h * own.intermediate
    expert_layers, expert = own.layers - dense_layers, 3 * h * own.moe_intermediate
    router = h * own.experts
    return (
        both + expert_layers * ((own.experts + own.shared_experts) * expert + router),
        both + expert_layers * ((own.experts_per_token + own.shared_experts) * expert + router),
    )


def _kv_heads(own: OwnModel) -> int:
    return own.kv_heads or own.heads


def _head_dim(own: OwnModel) -> int:
    return own.head_dim or own.hidden // own.heads


def _same_shape(known: Model, built: Model) -> bool:
    same = all(getattr(known, name) == getattr(built, name) for name in _SHAPE)
    close = abs(known.matmul_params_per_token / built.matmul_params_per_token - 1) < 1e-3
    whole = abs(known.weight_bytes["fp8"] / built.weight_bytes["fp8"] - 1) < 1e-3
    return same and close and whole


def _dtype(fields: dict[str, Any], path: Path) -> str:
    quantised = fields.get("quantization_config")
    if not quantised:
        stored = str(fields.get("torch_dtype") or fields.get("dtype") or "bfloat16")
        return {"float16": "fp16"}.get(stored, "bf16")  # 32-bit files are served in 16 bit
    method, bits = str(quantised.get("quant_method")).lower(), quantised.get("bits")
    if method in _QUANTISATIONS and (method in ("fp8", "fbgemm_fp8", "mxfp4") or bits in (None, 4)):
        return _QUANTISATIONS[method]
    raise ConfigError(
        f'{path}: quantization_config.quant_method = "{method}": known are fp8, and awq, gptq and mxfp4 with 4 bits; '
        "describe the model in a table [model] with dtype and weights_gib instead"
    )


def _unusable(path: Path, item: Any) -> str:
    name = str(item["loc"][0]) if item["loc"] else ""
    keys = " or ".join(_NAMES.get(name, (name,)))
    if item["type"] == "missing":
        return f"{path}: has no {keys}, which is needed for `{name}`"
    return f"{path}: {keys or 'fields'}: {item['msg']}"


def _config_json(name: str) -> Path | None:
    path = Path(name).expanduser()
    if name.lower().endswith(".json"):
        return path
    return path / "config.json" if (path / "config.json").is_file() else None


def without_unused(config: Config, gpu_id: str, own: OwnModel | None, fitted: bool) -> Config:
    """Return the config with the sections that the deployment really uses.

    own : the model's dimensions where they are not the catalogue's; fitted : whether [step_time] is used
    """
    accelerator = config.accelerator if config.accelerator and config.accelerator.name == gpu_id else None
    step_time = config.step_time if fitted else None
    return config.model_copy(update={"accelerator": accelerator, "model": own, "step_time": step_time})
