"""Seeded synthetic traces: a bank's shared LLM platform with several tenants and kinds of traffic.

`generate` writes a trace/1 file; its defaults write `traces/sample.parquet`: a Tuesday hour from 10:00,
10,000 requests, meant to use one H100 with Llama-3.1-8B well: nearly all requests meet an SLO of 1 s to the
first token and 50 ms a token, bursts and long documents do not. No prompt, person or company is behind it.

What the sample is held to (`tests/ingest/test_synth.py` computes it anew), and the public traces the bands
were set by: A = Azure LLM inference trace 2023, conversation (Azure/AzurePublicDataset @ b469a113, CC-BY 4.0),
M = Mooncake conversation, S = Mooncake synthetic (kvcache-ai/Mooncake @ 3b5a5941, Apache-2.0), V = VTC Arena
(Ying1123/VTC-artifact @ 192c2e20, Apache-2.0), W = Weka agentic coding sessions (callanjfox/kv-cache-tester @
94f6046d, Apache-2.0).

| statistic, replayable requests           | band          | measured elsewhere           |
|------------------------------------------|---------------|------------------------------|
| input tokens, mean                       | 4,000-6,500   | A 1,155, M 12,035, S 15,326  |
| input tokens, p50                        | 3,000-5,000   | A 1,020, M 6,909, S 11,587   |
| input tokens, p90                        | 8,000-13,000  | A 2,735, M 27,367, S 38,611  |
| input tokens, p99                        | 18,000-30,000 | A 4,142, M 85,400, S 66,456  |
| output tokens, mean                      | 270-370       | A 211, M 343, V 256, S 149   |
| output tokens, p50                       | 200-350       | A 129, M 350, V 211, S 69    |
| output tokens, p90                       | 550-750       | A 424, M 597, V 513, S 389   |
| output tokens, p99                       | 900-1,400     | A 601, M 1,119, V 785, S 768 |
| gap between arrivals, std / mean         | 1.02-1.12     | A 1.09, V 1.10, S 1.01       |
| requests in 10 s, variance / mean        | 2-4           | A 3.9, M 2.1, V 2.5          |
| requests in 60 s, variance / mean        | 5-17          | A 16.1, M 2.9                |
| prompt tokens seen before, endless cache | 0.37-0.65     | M 0.374, S 0.651             |
| the same, agent class alone              | 0.85-0.97     | W 0.964, in one session      |

Input lengths lie between A, a chat service of short prompts, and M, one of long contexts, at a ratio of p99
to p50 of 5 to 7 (A 4.1, M 12.4, S 5.7).

The profile `reasoning` is a long-output mix: mean about 5,000 output tokens, about 70 % of them reasoning
(ServeGen's DeepSeek-R1 clients, alibaba/ServeGen @ f891d118: 70 %, at a mean of 1,527 output tokens).

What it is not: tenants, shares, failures and the hours of the day are invented; the spacing of turns assumes
a fixed time per token, so it does not react to a slow engine (`think_us` and `after_request_id` let a
closed-loop replay do that); conversations do not branch; failures do not cluster with load; the local clock
has one offset for the whole window, no summer time.
"""

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from pipeline.errors import ConfigError, TraceError
from pipeline.ingest.synth import arrivals, sessions, traffic
from pipeline.ingest.synth.sink import Sink, Summary

SAMPLE_SEED = 135  # the first one that gives exactly 10,000 requests
SAMPLE_START = "2026-03-10T10:00:00+01:00"
SAMPLE_DURATION_S = 3_600.0
SAMPLE_REQUESTS = 10_000

__all__ = ["SAMPLE_DURATION_S", "SAMPLE_REQUESTS", "SAMPLE_SEED", "SAMPLE_START", "Summary", "generate"]


def generate(
    path: str | Path,
    *,
    seed: int = SAMPLE_SEED,
    start: str = SAMPLE_START,
    duration_s: float = SAMPLE_DURATION_S,
    requests: float | None = None,
    requests_per_s: float | None = None,
    mix: str | Mapping[str, float] = "bank",
    tenants: Sequence[str] = traffic.TENANTS,
    model: str | None = None,
    progress: Callable[[float, int], None] | None = None,
) -> Summary:
    """Write a synthetic trace to `path` and return its counts; the same arguments give the same bytes.

    seed : any integer of at least 0
    start : ISO time of the window's start; its offset from UTC (none: UTC) is the local clock of the day's shape
    duration_s : length of the window in seconds
    requests, requests_per_s : expected number in the window, or the mean rate; give one or neither (10,000 requests).
        The number comes out by chance, as in a real window.
    mix : a profile (`bank`, `reasoning`), or the share of a week's requests by class; in a shorter window the
        shares follow the hour, as the night batch does
    tenants : names, the busiest first
    model : name in the trace; None takes the profile's
    progress : called after every slice of the window with the share done (0 to 1) and the rows written so far

    The window is cut out of a running platform: sessions that began before it send their later turns, with the
    flag `parent_outside_window` on the first of them, and sessions that outlast it are cut. Memory does not
    grow with the window. Raises ConfigError for an argument out of range, TraceError if the folder is missing.
    """
    path = Path(path)
    begin = _parse(start)
    names = _check(seed, duration_s, tenants)
    expected = _expected(duration_s, requests, requests_per_s)
    profile = traffic.resolve(mix)
    if not path.absolute().parent.is_dir():
        raise TraceError(f"{path}: the folder {path.absolute().parent} does not exist")
    monday_s = begin.weekday() * 86_400.0 + begin.hour * 3600 + begin.minute * 60 + begin.second
    plan = arrivals.make(profile, seed=seed, monday_s=monday_s, duration_s=duration_s, requests=expected)
    start_us = (begin - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
    end_us = round(duration_s * 1e6)
    sink = Sink(path, seed=seed, start_us=start_us, end_us=end_us, tenants=names, model=model or profile.model)
    try:
        with sink:
            for index in range(plan.slices):
                parts = [_part(plan, index, place, seed, len(names)) for place in range(len(plan.classes))]
                sink.add(parts, plan.slice_end_us(index))
                if progress:
                    progress((index + 1) / plan.slices, sink.summary.requests)
    except OSError as error:
        raise TraceError(f"{path}: cannot be written: {error.strerror or error}") from error
    return sink.summary


def _part(plan: arrivals.Plan, index: int, place: int, seed: int, n_tenants: int) -> np.ndarray:
    """Return the rows of one slice and class, from a random stream that is theirs alone."""
    stream = np.random.SeedSequence(seed, spawn_key=(plan.classes[place], index))
    rng = np.random.Generator(np.random.PCG64(stream))
    starts_us = plan.starts_us(index, place, rng)
    return sessions.make(plan.classes[place], starts_us, int(plan.first_session[index, place]), n_tenants, rng)


def _parse(start: str) -> dt.datetime:
    try:
        begin = dt.datetime.fromisoformat(start)
    except ValueError:
        raise ConfigError(f"start = {start!r}: not an ISO time such as {SAMPLE_START}") from None
    return begin if begin.tzinfo else begin.replace(tzinfo=dt.UTC)


def _check(seed: int, duration_s: float, tenants: Sequence[str]) -> tuple[str, ...]:
    if seed < 0:
        raise ConfigError(f"seed = {seed}: must be at least 0")
    if not (math.isfinite(duration_s) and duration_s > 0):
        raise ConfigError(f"duration_s = {duration_s}: must be above 0")
    names = tuple(tenants)
    if not names or "" in names or len(set(names)) != len(names):
        raise ConfigError(f"tenants = {', '.join(names)!r}: needs at least one name, each once and not empty")
    return names


def _expected(duration_s: float, requests: float | None, requests_per_s: float | None) -> float:
    if requests is not None and requests_per_s is not None:
        raise ConfigError("requests and requests_per_s: give one of them, not both")
    if requests is None:
        requests = SAMPLE_REQUESTS if requests_per_s is None else requests_per_s * duration_s
    if not (math.isfinite(requests) and requests > 0):
        raise ConfigError(f"requests = {requests}: must be above 0")
    return requests
