"""Random cases for the engines that have a twin: small traces, tight memory, odd settings, many ties."""

import numpy as np
from hypothesis import strategies as st

from tests.policies import base

MS = 1_000_000
MOST_STEPS = 400  # ends livelocks, which some settings allow


def case(engine: dict, requests: dict) -> base.Case:
    """Return a case of which nothing is recorded."""
    columns = {name: values if name == "out_lens" else np.array(values, np.int64) for name, values in requests.items()}
    if "out_lens" in columns:
        lists = np.empty(len(requests["out_lens"]), object)
        lists[:] = [tuple(row) for row in requests["out_lens"]]
        columns["out_lens"] = lists
    return base.Case("drawn", {"engine": engine}, {"requests": columns})


@st.composite
def _arrivals(draw: st.DrawFn, count: int) -> list[int]:
    ticks = draw(st.lists(st.sampled_from([0, 0, 0, 1, 3, 20]), min_size=count, max_size=count))
    return [int(ns) for ns in np.cumsum(ticks) * 8 * MS]


def _cost(draw: st.DrawFn) -> dict:
    return {"a_ns": 8 * MS, "b_ns": draw(st.sampled_from([0, 50_000])), "c_ns": draw(st.sampled_from([0, 100]))}


def _ints(draw: st.DrawFn, count: int, least: int, most: int) -> list[int]:
    return draw(st.lists(st.integers(least, most), min_size=count, max_size=count))


@st.composite
def sarathi(draw: st.DrawFn) -> base.Case:
    """Draw a case of one of sarathi-serve's five schedulers."""
    scheduler = draw(st.sampled_from(["sarathi", "vllm", "simple_chunking", "orca", "faster_transformer"]))
    seqs = draw(st.sampled_from([1, 2, 4, 8]))
    dynamic = scheduler == "sarathi" and draw(st.booleans())
    engine = {
        "scheduler": scheduler,
        "block_size": draw(st.sampled_from([1, 2, 4, 8])),
        "num_gpu_blocks": draw(st.sampled_from([8, 12, 24, 120, 200])),
        "max_model_len": draw(st.sampled_from([24, 48, 1000])),
        "max_num_seqs": seqs,
        "chunk_size": draw(st.sampled_from([8, 16, 40])),
        "max_batched_tokens": draw(st.sampled_from([None, 32])),
        "dynamic_chunking": dynamic,
        "low_chunk_size": 8 if dynamic else None,
        "high_chunk_size": draw(st.sampled_from([16, 40])) if dynamic else None,
        "chunk_schedule_max_tokens": 60 if dynamic else None,
        "chunk_schedule_stages": draw(st.sampled_from([2, 5])) if dynamic else None,
        "correct_restart_count": draw(st.booleans()),
        "max_steps": MOST_STEPS,
    }
    count = draw(st.integers(1, 14))
    requests = {
        "arrival_ns": draw(_arrivals(count)),
        "prompt_len": _ints(draw, count, 1, 40),
        "max_tokens": _ints(draw, count, 1, 20),
    }
    return case(engine | _cost(draw), requests)


@st.composite
def vllm_v0(draw: st.DrawFn) -> base.Case:
    """Draw a case of vLLM's original scheduler that the real code would survive."""
    early = draw(st.booleans())
    chunked = not early and draw(st.booleans())
    policy = "priority" if not early and draw(st.booleans()) else "fcfs"
    mode = None if early else draw(st.sampled_from([None, None, "swap", "recompute"]))
    if policy == "priority" and mode == "swap":
        mode = None
    most_samples = 1 if policy == "priority" or mode == "recompute" else 4
    engine = {
        "engine": "0.2.7" if early else "0.6.3.post1",
        "block_size": draw(st.sampled_from([1, 2, 4, 8])),
        "num_gpu_blocks": draw(st.sampled_from([12, 24, 48, 200])),
        "num_cpu_blocks": draw(st.sampled_from([10, 60, 400])),
        "max_model_len": draw(st.sampled_from([24, 48, 100])),
        "max_num_batched_tokens": draw(st.sampled_from([16, 48, 128])),
        "max_num_seqs": draw(st.sampled_from([4, 8, 16])),
        "max_paddings": draw(st.sampled_from([0, 20, 256])),
        "enable_chunked_prefill": chunked,
        "preemption_mode": mode,
        "policy": policy,
        "delay_factor": 0.0 if early else draw(st.sampled_from([0.0, 0.5, 2.0])),
        "watermark": draw(st.sampled_from([0.0, 0.01, 0.2])),
        "d_ns": 20_000,
        "e_ns": 10_000,
        "max_steps": MOST_STEPS,
    }
    count = draw(st.integers(1, 14))
    lengths = st.lists(st.integers(1, 20), min_size=1, max_size=most_samples)
    requests = {
        "arrival_ns": draw(_arrivals(count)),
        "prompt_len": _ints(draw, count, 1, 40),
        "priority": _ints(draw, count, 0, 2),
        "out_lens": draw(st.lists(lengths, min_size=count, max_size=count)),
    }
    if draw(st.booleans()):
        requests["max_tokens"] = _ints(draw, count, 1, 16)
    return case(engine | _cost(draw), requests)


@st.composite
def reserve(draw: st.DrawFn) -> base.Case:
    """Draw a case of the baseline that reserves the longest answer."""
    longest = draw(st.sampled_from([24, 48, 100]))
    engine = {
        "block_size": draw(st.sampled_from([1, 4, 16])),
        "num_gpu_blocks": draw(st.sampled_from([8, 30, 120])),
        "max_model_len": longest,
        "max_num_batched_tokens": longest + draw(st.sampled_from([8, 60])),
        "max_num_seqs": draw(st.sampled_from([1, 3, 8])),
    }
    count = draw(st.integers(1, 14))
    outputs = _ints(draw, count, 1, 20)
    stated = [draw(st.sampled_from([base.NONE, output, output + 9])) for output in outputs]
    requests = {
        "arrival_ns": draw(_arrivals(count)),
        "prompt_len": _ints(draw, count, 1, 50),
        "out_len": outputs,
        "max_tokens": stated,
    }
    return case(engine | _cost(draw), requests)


@st.composite
def trtllm(draw: st.DrawFn) -> base.Case:
    """Draw a case of TensorRT-LLM in which every request fits into an empty server."""
    chunking = draw(st.sampled_from([None, "FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"]))
    block = draw(st.sampled_from([1, 2, 4, 8]))
    engine = {
        "policy": draw(st.sampled_from(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"])),
        "block_size": block,
        "num_blocks": draw(st.sampled_from([64, 90, 200])) // block,
        "max_seq_len": draw(st.sampled_from([48, 60, 100])),
        "max_batch_size": draw(st.sampled_from([1, 2, 4, 8])),
        "max_num_tokens": draw(st.sampled_from([16, 30] if chunking else [64, 100])),
        "chunking": chunking,
        "chunk_unit": block * draw(st.sampled_from([1, 2])),
        "max_steps": MOST_STEPS,
    }
    count = draw(st.integers(1, 14))
    most = _ints(draw, count, 1, 20)
    requests = {
        "req": list(range(count)),
        "arrival_ns": draw(_arrivals(count)),
        "prompt_len": _ints(draw, count, 1, 40),
        "max_tokens": most,
        "out_len": [draw(st.integers(1, longest)) for longest in most],
        "priority": _ints(draw, count, 0, 2),
    }
    limit = engine["max_seq_len"]
    requests["prompt_len"] = [
        min(prompt, limit - answer) for prompt, answer in zip(requests["prompt_len"], most, strict=True)
    ]
    return case(engine | _cost(draw), requests)
