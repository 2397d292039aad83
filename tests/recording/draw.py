"""Small random cases: odd settings, tight memory, bursts, shared prompts and later turns of conversations."""

from typing import Any

import numpy as np

from tests.cases import GENERATED
from tests.recording.inputs import Inputs, Segment

MOST_STEPS = 600  # ends livelocks, which some settings allow
TEXTS = 4  # prompts may share the beginnings of so many texts, streams 0 to 3
OWN = 1000  # stream 1000 + r holds what only request r says


def case(rng: np.random.Generator) -> Inputs:
    """Draw one case of 4 to 40 requests; the same generator state gives the same case."""
    settings = _settings(rng)
    rows = int(rng.integers(4, 41))
    max_tokens = [_max_tokens(rng, settings["max_model_len"]) for _ in range(rows)]
    return Inputs(
        settings=settings,
        arrival_ns=_arrivals(rng, rows, settings["a_ns"]),
        max_tokens=max_tokens,
        priority=rng.integers(-1, 3, rows).tolist() if rng.random() < 0.5 else [0] * rows,
        prompts=_prompts(rng, max_tokens, settings["max_model_len"]),
    )


def _settings(rng: np.random.Generator) -> dict[str, Any]:
    """Draw settings that vLLM accepts: a budget below max_num_seqs, or below the context unchunked, is refused."""
    max_model_len = int(rng.choice((24, 32, 64, 100, 128, 256, 400)))
    block_size = int(rng.choice((1, 2, 3, 4, 4, 5, 7, 8, 11, 16, 16, 24, 32, 48, 64)))
    chunked = bool(rng.random() < 0.85)
    max_num_seqs = int(rng.choice((1, 2, 3, 4, 8, 8, 16, 16, 64)))
    least = max(max_num_seqs, 1 if chunked else max_model_len)
    budget = max(least, int(rng.choice((1, 3, 8, 16, 17, 32, 64, 100, 128, 512))))
    if not chunked and rng.random() < 0.5:
        budget += int(rng.integers(0, 200))
    thresholds = (0, 0, 0, 1, 5, 16, 30)
    return {
        "block_size": block_size,
        "num_gpu_blocks": _pool(rng, -(-max_model_len // block_size), block_size),
        "max_model_len": max_model_len,
        "max_num_batched_tokens": budget,
        "max_num_seqs": max_num_seqs,
        "max_num_active_seqs": int(rng.integers(1, max_num_seqs + 1)) if rng.random() < 0.15 else None,
        "enable_chunked_prefill": chunked,
        "enable_prefix_caching": bool(rng.random() < 0.8),
        "policy": str(rng.choice(("fcfs", "priority"))),
        "long_prefill_token_threshold": min(int(rng.choice(thresholds)), max_model_len),
        "long_prefill_token_threshold_adaptive": bool(rng.random() < 0.4),
        "scheduler_reserve_full_isl": bool(rng.random() < 0.7),
        "watermark": float(rng.choice((0.0, 0.0, 0.0, 0.01, 0.05, 0.2, 0.5))),
        "prefill_schedule_interval": int(rng.choice((1, 1, 1, 2, 3, 8))),
        "async_scheduling": bool(rng.random() < 0.5),
        "a_ns": int(rng.choice((1_000_000, 8_000_000))),
        "b_ns": int(rng.choice((0, 20_000, 100_000))),
        "c_ns": int(rng.choice((0, 40, 5_000))),
        "max_steps": MOST_STEPS,
    }


def _pool(rng: np.random.Generator, longest: int, block_size: int) -> int:
    """Draw the number of blocks, the null block included, where the longest request needs `longest`."""
    kind = rng.choice(("barely", "barely", "tight", "tight", "room", "ample", "short"))
    if kind == "barely":
        return longest + 1 + int(rng.integers(0, 3))
    if kind == "tight":
        return longest + 2 + int(rng.integers(0, longest + 1))
    if kind == "room":
        return 4 * longest + int(rng.integers(1, 50))
    if kind == "ample":
        return 60 * longest + 50
    return max(2, int(rng.integers(longest // 2, longest + 1)))  # some requests never fit


def _max_tokens(rng: np.random.Generator, max_model_len: int) -> int:
    longest = int(rng.choice((8, 20, max_model_len // 2, max_model_len + 3)))
    return int(rng.integers(1, longest + 1))


def _arrivals(rng: np.random.Generator, rows: int, step_ns: int) -> list[int]:
    """Draw arrival times: some together, some exactly a step apart, some after a pause."""
    spacing = int(step_ns * rng.choice((0.2, 1, 5)))
    gaps = rng.exponential(spacing, rows).astype(np.int64)
    gaps[rng.random(rows) < 0.3] = 0
    gaps[rng.random(rows) < 0.1] = step_ns
    gaps[rng.random(rows) < 0.03] = 100 * step_ns
    return np.cumsum(gaps).tolist()


def _prompts(rng: np.random.Generator, max_tokens: list[int], max_model_len: int) -> list[list[Segment]]:
    """Draw prompts, few of which are too long for the context; a later turn begins with all of an earlier request."""
    prompts: list[list[Segment]] = []
    for request in range(len(max_tokens)):
        most = 2 * max_model_len if rng.random() < 0.02 else max_model_len - 1
        prompt: list[Segment] = []
        kind = rng.choice(("own", "text", "text", "turn"))
        if kind == "text":
            prompt = [(int(rng.integers(0, TEXTS)), 0, int(rng.integers(1, most + 1)))]
        if kind == "turn" and request:
            earlier = int(rng.integers(max(0, request - 8), request))
            said = int(rng.integers(0, max_tokens[earlier] + 1))  # not all of it may be quoted, or generated yet
            prompt = [*prompts[earlier], (GENERATED + earlier, 0, said)]
        used = sum(length for _, _, length in prompt)
        if used > most:
            prompt, used = [], 0
        own = int(rng.integers(0, 1 + min(most - used, int(rng.choice((0, 3, 20, most))))))
        if used + own == 0:
            own = 1
        prompts.append([segment for segment in (*prompt, (OWN + request, 0, own)) if segment[2]])
    return prompts
