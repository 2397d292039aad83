"""What is replayed: traces, real or drawn, each with a deployment."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import shared

OUT = shared.CHECKOUT / "bench"
WEEK_S = 604_800.0
WEEK_REQUESTS = 10_000_000
FLEET = ("fleet.replicas=8",)
_MOONCAKE = ("hardware.model=llama-3.1-70b", "engine.tensor_parallel_size=4", "hardware.gpu=h100-80gb-sxm")


@dataclass(frozen=True)
class Workload:
    """A trace, made when asked for, and the settings it is replayed with (the rest are defaults)."""

    name: str
    trace: Callable[[], Path | None]
    settings: tuple[str, ...] = ()


def all_of_them(quick: bool = False, large: bool = False) -> list[Workload]:
    """Return the workloads in the order of the table; `quick` ones are small, `large` adds the week."""
    chosen = [
        *(azure(rate, cache, quick) for rate in (1, 3, 6) for cache in (False, True)),
        Workload(
            "mooncake", lambda: _real("mooncake", "conversation_trace.jsonl.gz", 200 if quick else None), _MOONCAKE
        ),
        Workload("sample", lambda: sample(quick)),
        Workload("reasoning", lambda: _reasoning(20 if quick else 2_000)),
        Workload("synthetic", lambda: week(200 if quick else 100_000), FLEET),
    ]
    if large:
        chosen.append(Workload("week", lambda: week(WEEK_REQUESTS), FLEET))
    return chosen


def azure(rate: int, cache: bool, quick: bool) -> Workload:
    """Return the Azure conversation trace at a multiple of its arrival rate, prefix caching on or off."""
    return Workload(
        f"azure {rate}x {'cached' if cache else 'plain'}",
        lambda: _real("azure_2023", "AzureLLMInferenceTrace_conv.csv", 200 if quick else None),
        (f"load.rate_scale={rate}", f"engine.enable_prefix_caching={str(cache).lower()}"),
    )


def sample(quick: bool) -> Path:
    """Return the shipped sample, or its first rows."""
    return head(shared.CHECKOUT / "traces" / "sample.parquet", 200 if quick else None)


def week(requests: int) -> Path:
    """Return that many requests at the week's mean rate: 16.5 a second, about 60 % of what eight H100 can do."""
    from pipeline.ingest import synth

    path = OUT / "traces" / f"week-{requests}.parquet"
    return _once(path, lambda: synth.generate(path, requests=requests, duration_s=WEEK_S * requests / WEEK_REQUESTS))


def _reasoning(requests: int) -> Path:
    from pipeline.ingest import synth

    path = OUT / "traces" / f"reasoning-{requests}.parquet"
    return _once(path, lambda: synth.generate(path, mix="reasoning", requests=requests, duration_s=requests / 0.7))


def _real(folder: str, file: str, rows: int | None) -> Path | None:
    from pipeline.ingest import ingest

    source = shared.folder() / "traces" / folder / file
    if not source.is_file():
        return None
    path = OUT / "traces" / f"{folder}.parquet"
    return head(_once(path, lambda: ingest([source], out=path)), rows)


def head(path: Path, rows: int | None) -> Path:
    """Return a file with the first rows of a trace, all of them where none is asked for."""
    import pyarrow.parquet as pq

    if rows is None:
        return path
    short = OUT / "traces" / f"{path.stem}-{rows}.parquet"
    return _once(short, lambda: pq.write_table(pq.read_table(path).slice(0, rows), short))


def _once(path: Path, make: Callable[[], object]) -> Path:
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        make()
    return path
