"""Write a file whole or not at all: `whole_file`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A new file to write into, which takes the place of `path` at the block's end.

    After an exception, Ctrl-C included, `path` is what it was and nothing is left over.
    """
    target = Path(path)
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)  # of a run that was killed, or a link to elsewhere
    file = part.open("xb")  # if this fails, what lies there is not ours to remove
    try:
        with file:
            yield file
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
