"""vLLM's cases: read by `tests/cases.py`, replayed by the engines of `tests/engines.py`."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests import cases, engines, oracle
from tests.policies import base

# columns that have a value in the recording only where the request finished
WHEN_FINISHED = ("finish_step", "finish_ns")
NAMES = {"steps": cases.STEP_NAMES, "schedule": cases.DECISION_NAMES, "requests": cases.REQUEST_NAMES}


@dataclass(frozen=True)
class Case(base.Case):
    """A recorded case, and the same as the engines take it."""

    source: cases.Case


def RECOGNISES(config: dict) -> bool:  # noqa: N802
    return config.get("oracle") == "vllm" and not str(config["vllm_version"]).startswith(("0.2.", "0.6."))


def read(folder: Path) -> list[Case]:
    return [wrap(case) for case in cases.read(folder)]


def wrap(case: cases.Case) -> Case:
    """Give a case the form that is compared."""
    return Case(case.name, {"summary": {"stalled": case.stalled}}, _recorded(case.expected), case)


def differences(case: cases.Case, result: oracle.Result) -> list[str]:
    """Return one line per table that differs from the recording; see base.differences."""
    return base.differences(wrap(case), recorded_form(result))


def recorded_form(result: oracle.Result) -> base.Result:
    """Return what an engine answered in recorded names and conventions."""
    tables = _recorded(result)
    finished = np.isin(tables["requests"]["out_status"], ("finished", "max_model_len"))
    for name in WHEN_FINISHED:
        tables["requests"][f"out_{name}"] = np.where(finished, tables["requests"][f"out_{name}"], base.NONE)
    return tables | {"summary": {"stalled": result.stalled}}


def _recorded(result: oracle.Result) -> dict:
    held = {"steps": result.steps, "schedule": result.decisions, "requests": result.requests}
    return {
        table: {old: np.asarray(held[table][new]) for old, new in names.items()} if held[table] else None
        for table, names in NAMES.items()
    }


def twin(case: Case) -> base.Result:
    return recorded_form(engines.twin_engine(case.source))


def kernel(case: Case) -> base.Result:
    return recorded_form(engines.kernel_engine(case.source))


def shortcut(case: Case) -> base.Result:
    return recorded_form(engines.shortcut_engine(case.source))
