"""Where the folders beside the code are: at the top of a checkout, inside the package in a wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def folder(name: str) -> Path:
    """Return the folder `queries`, `reports` or `traces`; FileNotFoundError if the install lacks it."""
    for base in (_PACKAGE / "_resources", _PACKAGE.parent):
        if (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"{name}/ is missing from this installation of servecast")
