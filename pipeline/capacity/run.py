"""`servecast ptu`: from a trace to the folder of a purchase."""

from pathlib import Path
from typing import Any

from pipeline import hardware
from pipeline.capacity import own, purchase, rates, sensitivity, store
from pipeline.capacity.traffic import Traffic
from pipeline.config import Config, to_dict
from pipeline.errors import ConfigError
from pipeline.replay.driver import TraceFile


def decide(
    trace: TraceFile, config: Config, root: Path, *, where: str | None = None, with_own: bool = False
) -> tuple[Path, bool]:
    """Decide on a purchase, or find it if it was decided before; return its folder and whether it was made now.

    root     : folder of runs; purchases go to `root/purchases/`
    with_own : also find how many own replicas of the configured deployment keep the SLO

    Raises ConfigError if a rate or price that is needed is not known, TraceError if no request can be counted.
    """
    offer = rates.offer(config.prices)
    if offer.withheld:
        raise ConfigError("nothing can be recommended: " + "; ".join(offer.withheld.values()))
    compared = {"target": own.TARGET_SLO_SHARE, "config": to_dict(config)} if with_own else None
    name = store.identity(trace.digest, where, config.prices, compared)
    folder = root / "purchases" / name
    if (folder / "purchase.json").is_file():
        return folder, False
    market = purchase.market(Traffic.stored(trace.path, where), offer, config.prices)
    decision = purchase.decide(market)
    facts = {"path": trace.name, "digest": trace.digest, "where": where, "rejected_records": trace.rejected_records}
    found = _own(trace, config, root, where) if with_own else None
    return store.write(root / "purchases", name, decision, sensitivity.rows(decision), facts, found), True


def _own(trace: TraceFile, config: Config, root: Path, where: str | None) -> dict[str, Any]:
    deployment = hardware.resolve(config)
    return own.compare(config, own.replay_share(trace, root, where), deployment.tensor_parallel_size)
