"""The scheduler, compiled: arrays in, arrays out, no clock and no randomness of its own.

numba's cache does not notice an edit in a module that a cached function imports. So the cache lives in
a folder named by a digest of every file here, of numba's version, and of the flags that change the code.
"""

import hashlib
import os
from pathlib import Path

import numba


def _cache_folder() -> Path:
    digest = hashlib.sha256()
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    for word in (numba.__version__, os.environ.get("NUMBA_BOUNDSCHECK", "")):
        digest.update(word.encode() + b"\0")
    base = os.environ.get("NUMBA_CACHE_DIR") or Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "servecast"
    return Path(base).expanduser() / f"kernel-{digest.hexdigest()[:16]}"


CACHE_FOLDER = _cache_folder()
setattr(numba.config, "CACHE_DIR", str(CACHE_FOLDER))  # noqa: B010  (mypy does not know the attribute)
