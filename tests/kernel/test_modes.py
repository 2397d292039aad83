"""The same kernel without the compiler, and with array bounds checked: both in a process of their own.

numba reads both flags when it is imported. The cache of compiled code has its own folder under bounds checks.
"""

import os
import subprocess
import sys

from tests.shared import CHECKOUT

PROGRAM = """
import sys
from hypothesis import HealthCheck, Phase, given, seed, settings
from tests import strategies
from tests.kernel import agree

@seed(20250731)
@settings(max_examples=int(sys.argv[1]), database=None, deadline=None, phases=[Phase.generate],
          suppress_health_check=list(HealthCheck))
@given(strategies.scenarios(loads=("open", "open", "closed", "sessions")))
def check(scenario):
    twin = scenario.twin(check=False)
    small = {"step_rows": 3, "gap_rows": 1, "decision_rows": 1, "window": 1}
    assert agree.differences(twin, agree.kernel(scenario)) == []
    assert agree.differences(twin, agree.kernel(scenario, decisions=True)) == []
    assert agree.differences(twin, agree.kernel(scenario, pieces=2, sizes=small)) == []

check()
print("agreed")
"""


TOO_SHORT = """
import numpy as np
from pipeline.replay import state
real = state.State.__post_init__
def cut(self):
    real(self)
    self.parts = self.parts._replace(promoted=np.zeros((self.replicas, 0), np.int32))
state.State.__post_init__ = cut
"""


def run(examples: int, before: str = "", **flags: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-c", before + PROGRAM, str(examples)],
        cwd=CHECKOUT,
        env=os.environ | flags,
        capture_output=True,
        text=True,
        check=False,
    )


def test_interpreted_equals_compiled():
    """Both equal the twin, to the last bit: test_engine.py says so of the compiled kernel."""
    done = run(15, NUMBA_DISABLE_JIT="1")
    assert done.stdout == "agreed\n", done.stderr[-3000:]


def test_no_index_leaves_its_array():
    done = run(80, NUMBA_BOUNDSCHECK="1")
    assert done.stdout == "agreed\n", done.stderr[-3000:]


def test_bounds_are_checked_there():
    done = run(1, TOO_SHORT, NUMBA_BOUNDSCHECK="1")
    assert "IndexError: index is out of bounds" in done.stderr
