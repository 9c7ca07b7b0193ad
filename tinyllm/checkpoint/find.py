"""Where models are: `find` turns a name or a path into a folder.

Named models lie inside the package; nothing is ever downloaded.
"""

from __future__ import annotations

import os
from pathlib import Path

from tinyllm.errors import ModelNotFoundError

EMBEDDED = Path(__file__).parent.parent / "embedded"
NAMES = ("agent", "stories")


def available() -> list[str]:
    """Return the named models that are present, in order."""
    return [name for name in NAMES if (EMBEDDED / name / "config.json").is_file()]


def find(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the folder of a named model, or the path itself where it is a folder.

    A name goes before a path of the same spelling: write "./agent" for the path.
    Raises ModelNotFoundError listing the names that exist.
    """
    if name_or_path in available():
        return EMBEDDED / name_or_path
    given = os.fspath(name_or_path)
    if given and given not in NAMES and Path(given).is_dir():
        return Path(name_or_path)
    known = ", ".join(available()) or "none in this copy of the package"
    raise ModelNotFoundError(
        f"no model {given!r}: give the path of a folder with "
        f"config.json, model.safetensors and tokenizer.json, or a name ({known})"
    )
