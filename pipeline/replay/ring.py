"""Rings: arrays whose length is a power of two, in which entry number i sits at place i modulo that length."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


@dataclass(slots=True)
class Ring:
    """Numbers that come with the rows of the trace and leave with them; it grows as it must."""

    dtype: DTypeLike
    length: int
    end: int = 0  # number of the next entry
    array: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.array = np.zeros(power_of_two(self.length), self.dtype)

    @property
    def mask(self) -> int:
        """What takes the number of an entry to its place."""
        return len(self.array) - 1

    def append(self, values: np.ndarray, first: int) -> int:
        """Append values, keeping the entries from number `first` on; return the number of the first new one."""
        if self.end - first + len(values) > len(self.array):
            old, alive = self.array, np.arange(first, self.end)
            self.array = np.zeros(power_of_two(len(alive) + len(values)), self.dtype)
            self.array[alive & self.mask] = old[alive & (len(old) - 1)]
        number = self.end
        put(self.array, number, np.asarray(values, self.dtype))
        self.end += len(values)
        return number


def put(ring: Any, first: int, rows: Any) -> None:
    """Copy rows into a ring from entry number `first` on."""
    place = first & (len(ring) - 1)
    straight = min(len(rows), len(ring) - place)
    _raw(ring)[place : place + straight] = _raw(rows)[:straight]
    _raw(ring)[: len(rows) - straight] = _raw(rows)[straight:]


def take(ring: Any, first: int, last: int) -> np.ndarray:
    """Return a copy of the entries number `first` to `last` of a ring."""
    place, count = first & (len(ring) - 1), last - first
    straight = min(count, len(ring) - place)
    rows = np.empty(count, ring.dtype)
    _raw(rows)[:straight] = _raw(ring)[place : place + straight]
    _raw(rows)[straight:] = _raw(ring)[: count - straight]
    return rows


def power_of_two(n: int) -> int:
    """Return the least power of two that is at least n and at least 2."""
    return 1 << max(int(n) - 1, 1).bit_length()


def _raw(rows: Any) -> np.ndarray:
    """Return the bytes of each row: records would be copied field by field."""
    return rows.view(np.ndarray).view(np.uint8).reshape(len(rows), rows.dtype.itemsize)
