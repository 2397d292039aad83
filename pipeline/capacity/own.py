"""Own GPUs: how many replicas of a deployment keep the SLO on this traffic, and what they cost."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.capacity.rates import STATED, table
from pipeline.config import Config, Prices
from pipeline.errors import ConfigError

TARGET_SLO_SHARE = 0.99
MOST_REPLICAS = 256
# How the price lists call an accelerator of the catalogue.
_LISTED = {
    "a100-80gb-sxm": "A100 80GB",
    "h100-80gb-sxm": "H100",
    "h200-141gb-sxm": "H200",
    "b200-180gb-sxm": "B200",
    "b300-288gb-sxm": "B300",
}
_PROVIDERS = {"azure": "Azure", "google": "Google"}


def fewest(keeps: Callable[[int], bool], most: int = MOST_REPLICAS) -> int | None:
    """Return the smallest number from 1 on for which `keeps` holds, None if none up to `most` does.

    More replicas are taken to be no worse: doubled until they do, then halved between.
    """
    high = 1
    while not keeps(high):
        if high == most:
            return None
        high = min(2 * high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle, high)
    return high


def compare(
    config: Config, slo_share: Callable[[Config], float | None], gpus_per_replica: int, target: float = TARGET_SLO_SHARE
) -> dict[str, Any]:
    """Find the replicas that keep the SLO and price them.

    slo_share : replays a configuration and returns the share of requests within the SLO
    Returns replicas (rows of purchase_own), needed (None if no number up to 256 is enough), gpu, terms (price rows).
    """
    seen: dict[int, float | None] = {}

    def keeps(replicas: int) -> bool:
        fleet = config.fleet.model_copy(update={"replicas": replicas})
        seen[replicas] = slo_share(config.model_copy(update={"fleet": fleet}))
        share = seen[replicas]
        return share is not None and share >= target

    needed = fewest(keeps)
    return {
        "replicas": [
            {
                "replicas": n,
                "gpus": n * gpus_per_replica,
                "slo_share": seen[n],
                "keeps_slo": seen[n] is not None and seen[n] >= target,  # type: ignore[operator]
            }
            for n in sorted(seen)
        ],
        "needed": needed,
        "gpus_per_replica": gpus_per_replica,
        "target_slo_share": target,
        "gpu": config.hardware.gpu,
        "model": config.hardware.model,
        "terms": gpu_terms(config.hardware.gpu, config.prices),
    }


def gpu_terms(gpu: str, prices: Prices) -> list[dict[str, Any]]:
    """Return what an hour of the accelerator costs by term: stated prices, else those of the provider's list.

    Raises ConfigError for a provider without a list of that name; an accelerator that is not listed has no terms.
    """
    stated = (("on-demand", prices.usd_per_gpu_hour), ("reserved", prices.usd_per_gpu_hour_reserved))
    found = [_term(name, usd, STATED, None) for name, usd in stated if usd is not None]
    if found:
        return found
    rows = table("gpu_hours")
    provider = prices.gpu_provider or _PROVIDERS.get(prices.provider, "AWS")
    known = sorted({row["provider"] for row in rows})
    if provider not in known:
        raise ConfigError(f"prices.gpu_provider = {provider!r}: no such list; there are {', '.join(known)}")
    return [
        _term(row["term"], float(row["usd_per_gpu_hour"]), f"{row['source']} ({provider})", row["as_of"] or None)
        for row in rows
        if row["provider"] == provider and row["gpu"] == _LISTED.get(gpu)
    ]


def replay_share(trace: Any, root: Path, where: str | None) -> Callable[[Config], float | None]:
    """Return a function that replays a configuration into `root` and returns its share within the SLO."""
    from pipeline.query import session
    from pipeline.replay import terminal

    def share(config: Config) -> float | None:
        run, _ = terminal.replay(trace, config, root, where=where)
        return session.answer_rows(session.open([run]), "headline")[0]["slo_share"]

    return share


def _term(name: str, usd: float, source: str, as_of: str | None) -> dict[str, Any]:
    return {"term": name, "usd_per_gpu_hour": usd, "source": source, "as_of": as_of}
