"""How kernel functions are compiled.

`inlined` functions are merged into their caller by LLVM, which spares copying the descriptors of a dozen
arrays at each call; `compiled` ones stay apart: the entry, and what is large and rarely needed.

The kernel allocates nothing, so numba need not count references to arrays. It did so with two atomic
operations around most uses of an array: without them a replay of decoding requests takes a quarter of
the time. Division by zero cannot happen, so no function has an error path.
"""

from typing import Any

from numba import njit

_OPTIONS: dict[str, Any] = {"cache": True, "error_model": "numpy", "_nrt": False}

compiled = njit(nogil=True, **_OPTIONS)
inlined = njit(forceinline=True, **_OPTIONS)
