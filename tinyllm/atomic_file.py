"""Write a file whole or not at all: `atomic_file`, and where: `writable`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tinyllm.errors import UsageError


@contextmanager
def atomic_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Yield a new file to write, which replaces `path` at the end of the block.

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


def writable(folder: str | os.PathLike[str]) -> Path:
    """Return the folder, made if need be; UsageError if no file can be put there."""
    path = Path(folder)
    if not os.fspath(folder):
        raise UsageError('the folder\'s name is empty: name one, or "." for this one')
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}): name another folder"
        ) from error
