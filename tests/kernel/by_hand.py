"""Replays small enough to do by hand: blocks of 4 tokens, 8 of them to hand out, a microsecond per step."""

from typing import Any

from tests import oracle
from tests.builders import trace
from tests.kernel import agree
from tests.strategies import Scenario

BOTH_WAYS = ({"decisions": True}, {"decisions": False})  # every request visited, and the shortcut


def replay(text: str, decisions: bool = True, **settings: Any) -> oracle.Result:
    """Replay a line with synchronous scheduling, unless the settings say otherwise."""
    values: dict[str, Any] = {
        "block_size": 4,
        "num_gpu_blocks": 9,
        "max_model_len": 32,
        "max_num_batched_tokens": 32,
        "max_num_seqs": 6,
        "async_scheduling": False,
    }
    scenario = Scenario(trace(text, block_tokens=4), oracle.Engine(**values | settings), a_ns=1000, b_ns=0, c_ns=0)
    return agree.kernel(scenario, decisions=decisions)


def column(table: dict, name: str) -> list:
    """Return a column as plain numbers."""
    return table[name].tolist()
