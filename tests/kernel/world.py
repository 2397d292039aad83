"""The engine's arrays on a bench, so that one mechanism can be tried by itself."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from pipeline.kernel import block_pool, layout, prefix_index
from pipeline.kernel.layout import NONE
from pipeline.replay.policies.vllm import Settings
from pipeline.replay.state import State, StepCost, TraceBatch

SHARED = ("requests",)  # all other arrays have one row per replica
RINGS = ("hashes", "lengths")


class World:
    """Arrays of one small replica; `call` gives a kernel function what its parameters name."""

    def __init__(self, **settings: Any) -> None:
        values = {
            "block_size": 4,
            "num_gpu_blocks": 9,
            "max_model_len": 64,
            "max_num_batched_tokens": 32,
            "max_num_seqs": 6,
        } | settings
        self.state = State(Settings(**values), StepCost.whole(1000, 0, 0, 64), window=16)
        self.step = layout.records(layout.STEP, 1)[0]

    def __getattr__(self, name: str) -> Any:
        state = self.__dict__["state"]
        if name in ("engine", "cost"):
            return getattr(state, f"{name}s")[0]
        if name == "g_ns":
            return state.cost.g_ns
        if name in RINGS:
            return getattr(state, name).array
        if name in state.parts._fields:
            return getattr(state.parts, name)[0]
        return getattr(state, name) if name in SHARED else getattr(state, name)[0]

    def call(self, function: Callable, **given: Any) -> Any:
        """Call a compiled function; parameters that are not given are the arrays of their names."""
        python = getattr(function, "py_func", function)
        names = inspect.signature(python).parameters
        return function(*(given[name] if name in given else getattr(self, name) for name in names))

    def load(self, **columns: list[int]) -> None:
        """Append trace rows and send them to the replica; columns left out are the plainest."""
        count = len(next(iter(columns.values())))
        plain = {
            "arrival_ns": 0,
            "input_tokens": 8,
            "output_tokens": 4,
            "end_outcome": layout.FINISHED,
            "priority": 0,
            "prefix_tokens": 0,
            "prefix_block_tokens": 1,
            "replica": 0,
        }
        values = {name: np.array(columns.get(name, [value] * count)) for name, value in plain.items()}
        nothing = {"hashes": np.zeros(0, np.uint64), "hash_offsets": np.zeros(count + 1, np.int64)}
        self.state.load(TraceBatch(**values, **nothing))
        self.arrivals[:count] = np.arange(count)
        self.engine.routed = count

    def idle_blocks(self) -> list[int]:
        """Return the idle blocks in the order in which they would be handed out."""
        e = self.engine
        entries = [int(self.idle[at & e.idle_mask]) for at in range(e.idle_head, e.idle_tail)]
        listed = block_pool.LISTED
        return [self.block(e >> 2) if e & 3 == listed else e >> 2 for e in entries if e != NONE]

    def block(self, number: int) -> int:
        """Return the block that is listed under a number."""
        return int(self.cached[number].block)

    def list(self, slot: int, at: int, key: int, place: int = 0, count: int = 1) -> None:
        """List blocks of a request, from `at` on, in the prefix index at places of the run of that key."""
        self.call(prefix_index.put, slot=slot, first=at, count=count, key=np.uint64(key), place=place)

    def listed(self, key: int, place: int = 0) -> int:
        """Return the number in `cached` that a lookup gives, or NONE."""
        run = self.call(prefix_index.first_run, key=np.uint64(key))
        return int(self.call(prefix_index.find, run=run, place=place))

    def found(self, key: int, place: int = 0) -> int:
        """Return the block that a lookup gives, or NONE."""
        number = self.listed(key, place)
        return NONE if number == NONE else self.block(number)
