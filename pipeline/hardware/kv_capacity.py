"""How many KV blocks fit: vLLM's own sum, with the parts it measures at start replaced by a formula.

    KV memory = gpu_memory_utilization x total - (weights + activation + non-torch + CUDA graphs)    per accelerator
    blocks    = floor(KV memory / (block_size x KV bytes per token of one accelerator))

vLLM measures `activation` with a dummy step of max_num_batched_tokens tokens and max_num_seqs samples. Its peak is the
larger of
    sampling   2 hidden states of every token + 38 bytes per logit (16-bit logits, 32-bit copy, sorted copy, its
               64-bit index, probabilities and their running sum, and scratch)
    forward    2 hidden states of every token + the widest layer between them (3 x the MLP width)
`non-torch` is 0.13 GiB on one accelerator, 0.55 GiB where several talk to each other. The CUDA-graph estimate is
subtracted from version 0.21 on; 0.018 GiB per layer, within the 0.4 to 1.0 GiB that are reported.

Parameters come from few logged starts: 38 bytes from Llama-3.1-8B at 8192 tokens and 1024 sequences (vLLM 0.11), the
two hidden states from Qwen2.5-7B at 1024 against 2048 tokens. `servecast validate kv` judges on the rest.
"""

import math
from dataclasses import dataclass

from pipeline.hardware.catalogue import DTYPE_BYTES, Gpu, Model

GIB = 2**30
BYTES_PER_LOGIT = 38
HIDDEN_STATES = 2
ACTIVATION_BYTES = 2
NON_TORCH_GIB = {False: 0.13, True: 0.55}
GRAPH_GIB_PER_LAYER = 0.018
GRAPH_GIB_RANGE = (0.4, 1.0)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the memory of one accelerator goes, GiB; `kv_gib` is what is left for KV and may be negative."""

    total_gib: float
    usable_gib: float  # gpu_memory_utilization x total
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    cuda_graphs_gib: float
    kv_gib: float
    kv_bytes_per_token: int  # of one accelerator
    num_gpu_blocks: int  # null block included, as vLLM counts; 0 when nothing fits

    @property
    def overhead_gib(self) -> float:
        """Return what is neither weights nor KV."""
        return self.activation_gib + self.non_torch_gib + self.cuda_graphs_gib


def memory(
    gpu: Gpu,
    model: Model,
    *,
    tensor_parallel_size: int,
    weight_dtype: str,
    kv_cache_dtype: str,
    gpu_memory_utilization: float,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    block_size: int = 16,
    graphs_counted: bool = True,
) -> Memory:
    """Return the memory plan of one accelerator.

    graphs_counted : False for vLLM before 0.21, which took CUDA graphs out of the unreserved rest.
    """
    usable = gpu_memory_utilization * gpu.memory_gib
    weights = model.weight_bytes[weight_dtype] / tensor_parallel_size / GIB
    activation = activation_bytes(model, tensor_parallel_size, max_num_batched_tokens, max_num_seqs) / GIB
    non_torch = NON_TORCH_GIB[tensor_parallel_size > 1]
    graphs = min(max(GRAPH_GIB_PER_LAYER * model.layers, GRAPH_GIB_RANGE[0]), GRAPH_GIB_RANGE[1])
    graphs = graphs if graphs_counted else 0.0
    kv_gib = usable - weights - activation - non_torch - graphs
    kv_bytes = kv_bytes_per_token(model, tensor_parallel_size, kv_cache_dtype)
    return Memory(
        total_gib=gpu.memory_gib,
        usable_gib=usable,
        weights_gib=weights,
        activation_gib=activation,
        non_torch_gib=non_torch,
        cuda_graphs_gib=graphs,
        kv_gib=kv_gib,
        kv_bytes_per_token=kv_bytes,
        num_gpu_blocks=max(0, math.floor(kv_gib * GIB / (block_size * kv_bytes))),
    )


def kv_bytes_per_token(model: Model, tensor_parallel_size: int, kv_cache_dtype: str) -> int:
    """Return KV bytes per token on one accelerator."""
    return model.kv_elements_per_gpu(tensor_parallel_size) * DTYPE_BYTES[kv_cache_dtype]


def activation_bytes(model: Model, tensor_parallel_size: int, batched_tokens: int, seqs: int) -> int:
    """Return the peak of vLLM's dummy step on one accelerator, bytes; the vocabulary is gathered, not divided."""
    states = HIDDEN_STATES * model.hidden * ACTIVATION_BYTES * batched_tokens
    sampling = BYTES_PER_LOGIT * min(seqs, batched_tokens) * model.vocab
    width = model.intermediate // tensor_parallel_size
    if model.experts:
        expert_width = model.moe_intermediate // tensor_parallel_size
        width = max(width, model.experts_per_token * expert_width)
    return states + max(sampling, 3 * width * ACTIVATION_BYTES * batched_tokens)
