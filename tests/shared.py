"""Where recorded data lies that is too large, or not ours, to be kept in the repository.

It is looked for in the folder that the environment variable SERVECAST_SHARED names, or in `shared` beside the
checkout. Tests that need it skip with a reason where it is absent.
"""

import os
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]


def folder() -> Path:
    """Return the shared folder, which may not exist."""
    named = os.environ.get("SERVECAST_SHARED")
    return Path(named) if named else CHECKOUT.parent / "shared"


def path(*parts: str) -> Path:
    """Return a path in the shared folder; skip the calling test where it is absent."""
    found = folder().joinpath(*parts)
    if not found.exists():
        pytest.skip(f"{'/'.join(parts)} is not in the shared folder (set SERVECAST_SHARED to name one)")
    return found
