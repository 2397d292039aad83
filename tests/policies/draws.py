"""Random cases for the engines that have a twin: small traces, tight memory, odd settings, many ties."""

import numpy as np
from hypothesis import strategies as st

from tests.policies import base

MS = 1_000_000
MOST_STEPS = 400  # ends livelocks, which some settings allow


def case(engine: dict, requests: dict) -> base.Case:
    """Return a case of which nothing is recorded."""
    columns = {}
    for name, values in requests.items():
        if isinstance(values[0], int | np.integer):
            columns[name] = np.array(values, np.int64)
        else:
            columns[name] = np.empty(len(values), object)
            columns[name][:] = [value if isinstance(value, str) else tuple(value) for value in values]
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


@st.composite
def sglang(draw: st.DrawFn) -> base.Case:
    """Draw a case of SGLang's scheduler; prompts share their beginnings, and some go on where an answer ended."""
    cuts = draw(st.booleans())
    engine = {
        "pool_tokens": draw(st.sampled_from([64, 130, 400])),
        "page_size": draw(st.sampled_from([1, 1, 2, 4, 8])),
        "context_len": draw(st.sampled_from([60, 1000])),
        "max_running_requests": draw(st.sampled_from([2, 4, 8])),
        "chunked_prefill_size": draw(st.sampled_from([8, 16, 40])) if cuts else -1,
        "max_prefill_tokens": draw(st.sampled_from([20, 16_384])),
        "prefill_max_requests": draw(st.sampled_from([None, None, 2])),
        "schedule_policy": draw(st.sampled_from(["fcfs", "lpm", "dfs-weight", "lof"])),
        "disable_radix_cache": draw(st.sampled_from([False, False, True])),
        "radix_eviction_policy": draw(st.sampled_from(["lru", "lru", "lfu", "fifo", "slru"])),
        "schedule_conservativeness": draw(st.sampled_from([1.0, 0.3, 0.0, 1.3])),
        "enable_mixed_chunk": draw(st.booleans()),
        "enable_priority_scheduling": draw(st.booleans()),
        "disable_priority_preemption": draw(st.sampled_from([False, False, True])),
        "schedule_low_priority_values_first": draw(st.booleans()),
        "priority_scheduling_preemption_threshold": draw(st.sampled_from([0, 1])),
        "retraction_policy": draw(st.sampled_from(["length", "priority"])),
        "prefill_decode_interval": draw(st.sampled_from([None, None, 2])),
        "disable_overlap_schedule": draw(st.booleans()),
        "released_defects": draw(st.booleans()),
        "max_steps": MOST_STEPS,
    }
    if engine["schedule_policy"] in ("lpm", "dfs-weight"):  # SGLang allows priorities with the others only
        engine["enable_priority_scheduling"] = False
    count = draw(st.integers(1, 14))
    most = _ints(draw, count, 1, 25)
    requests: dict = {
        "req": list(range(count)),
        "arrival_ns": draw(_arrivals(count)),
        "max_tokens": most,
        "out_len": [draw(st.integers(1, longest)) for longest in most],
        "ignore_eos": _ints(draw, count, 0, 1),
        "priority": _ints(draw, count, 0, 3),
    }
    streams, starts, lengths = [], [], []
    for row in range(count):
        parts = [(draw(st.sampled_from([1, 2])), 0, draw(st.sampled_from([3, 16, 34])))]
        if row and draw(st.booleans()):
            parts.append((2**40 + draw(st.integers(0, row - 1)), 0, draw(st.integers(1, 8))))
        parts.append((10 + row, 0, draw(st.integers(1, 12))))
        for kept, values in zip((streams, starts, lengths), zip(*parts, strict=True), strict=True):
            kept.append(list(values))
    requests |= {"seg_stream": streams, "seg_start": starts, "seg_len": lengths}
    requests["prompt_len"] = [sum(row) for row in lengths]
    return case(engine | _cost(draw), requests)


@st.composite
def vtc(draw: st.DrawFn) -> base.Case:
    """Draw a case of S-LoRA's fair queues in which every request fits into an empty server."""
    engine = {
        "policy": draw(st.sampled_from(["fcfs", "vtc_fair", "lcf_fair", "mdrr_fair", "mdrr_fair"])),
        "max_total_token_num": draw(st.sampled_from([64, 100, 400])),
        "batch_max_tokens": draw(st.sampled_from([40, 90])),
        "running_max_req_size": draw(st.sampled_from([1, 2, 4, 16])),
        "max_wait_tokens": draw(st.sampled_from([1, 3, 10])),
        "fair_weights": draw(st.sampled_from([[], [1, 2, 4], [0.5]])),
        "input_price": 1,
        "output_price": draw(st.sampled_from([1, 2])),
        "max_steps": MOST_STEPS,
    }
    count = draw(st.integers(1, 14))
    most = _ints(draw, count, 1, 20)
    names = draw(st.lists(st.sampled_from(["a", "b", "c"]), min_size=count, max_size=count))
    requests = {
        "req": list(range(count)),
        "arrival_ns": draw(_arrivals(count)),
        "prompt_len": _ints(draw, count, 1, 40),
        "max_tokens": most,
        "out_len": [draw(st.integers(1, longest + 2)) for longest in most],
        "tenant": names,
    }
    return case(engine | _cost(draw), requests)
