"""Compare: the same traffic under several schedulers and at several loads, as a grid for `run.sweep`.

Every scheduler gets the memory for KV, the longest sequence, the limit of running requests and the accelerators of one
deployment; everything else is its engine's own default.
"""

from collections.abc import Sequence
from typing import Any

from pipeline import config as config_module
from pipeline import hardware
from pipeline.config import Config
from pipeline.engines import POLICIES
from pipeline.errors import ConfigError
from pipeline.hardware import Deployment
from pipeline.report import words
from pipeline.sweep.grid import COMPARE, TARGET_SLO_SHARE, Grid, Point
from pipeline.sweep.results import Choice, Result

POLICY, LOAD = "engine.policy", "load.rate_scale"
MOST_LOADS = 4  # what a chart can tell apart by colour


def grid(base: Config, policies: Sequence[str], loads: Sequence[float]) -> Grid:
    """Return the points: every policy at every load.

    Raises ConfigError for an unknown policy, no load or too many, and a base that does not fit its hardware.
    """
    unknown = [name for name in policies if name not in POLICIES]
    if unknown:
        raise ConfigError(f"--policies {', '.join(unknown)}: there is no such policy; there are {', '.join(POLICIES)}")
    if not 1 <= len(set(loads)) <= MOST_LOADS or min(loads) <= 0:
        raise ConfigError(f"--loads {', '.join(map(str, loads))}: must be 1 to {MOST_LOADS} factors above 0")
    if base.load.kind == "closed":
        raise ConfigError("load.kind = closed: a comparison varies load.rate_scale, which needs load.kind = open")
    deployment = hardware.resolve(base)
    cases = [(policy, load) for policy in dict.fromkeys(policies) for load in sorted(set(loads))]
    points = tuple(_point(number, deployment, *case) for number, case in enumerate(cases, start=1))
    return Grid((POLICY, LOAD), points, TARGET_SLO_SHARE, COMPARE)


def _point(number: int, deployment: Deployment, policy: str, load: float) -> Point:
    settings = {POLICY: policy, LOAD: load}
    sections = config_module.to_dict(deployment.config)
    sections["engine"] = _engine(deployment, policy)
    sections["load"] |= {"rate_scale": float(load)}
    try:
        return Point(number, settings, config_module.from_dict(sections))
    except ConfigError as error:
        return Point(number, settings, None, str(error))


def _engine(deployment: Deployment, policy: str) -> dict[str, Any]:
    """Return the engine section of a policy: the limits of the deployment under its own names, else its defaults."""
    if policy == deployment.config.engine.policy:
        return deployment.config.engine.model_dump()
    plain = POLICIES[policy]()
    block_size = plain.limit("block_size")
    tokens = deployment.usable_blocks * deployment.block_size
    limits = {
        "tensor_parallel_size": deployment.tensor_parallel_size,
        "gpu_memory_utilization": deployment.config.engine.limit("gpu_memory_utilization"),
        "num_gpu_blocks": tokens // block_size + plain.NULL_BLOCKS,
        "max_model_len": deployment.max_model_len,
        "max_num_seqs": deployment.max_num_seqs,
    }
    stated = plain.resolved(limits)
    own = {name: getattr(stated, name) for name in type(stated).model_fields if name != "policy"}
    return {"policy": policy} | {name: value for name, value in own.items() if value != getattr(plain, name)}


def choose(results: Sequence[Result], target_slo_share: float) -> Choice:
    """Return the policy that keeps the SLO at the highest load, and how far each one gets, in one sentence."""
    target = words.share(target_slo_share, 2)
    reach: dict[str, tuple[float, Result]] = {}
    policies = list(dict.fromkeys(r.settings[POLICY] for r in results if r.figures is not None))
    for r in results:
        if r.figures is None or (r.figures["slo_share"] or 0.0) < target_slo_share:
            continue
        known = reach.get(r.settings[POLICY])
        if known is None or r.figures["goodput_rps"] > known[0]:
            reach[r.settings[POLICY]] = (r.figures["goodput_rps"], r)
    if not reach:
        return Choice(None, f"No policy keeps the SLO for {target} of the requests at any of these loads.")
    ranked = sorted(reach, key=lambda policy: (-reach[policy][0], policies.index(policy)))
    parts = [f"{policy} up to load {reach[policy][1].settings[LOAD]:g}" for policy in ranked]
    never = [policy for policy in policies if policy not in reach]
    beyond = f"; {', '.join(never)} at none of these loads" if never else ""
    best = reach[ranked[0]]
    return Choice(
        best[1].number,
        f"The SLO is kept for {target} of the requests by {', '.join(parts)}{beyond}. Most goodput within it: "
        f"{ranked[0]} with {words.number(best[0])} requests/s.",
    )
