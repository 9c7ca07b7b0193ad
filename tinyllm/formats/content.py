"""The bytes of a tokenizer's file: `content`, for every kind of them.

`LFS` and `POINTER` tell a Git LFS pointer, in place of any file of a model.
"""

from __future__ import annotations

import os
from pathlib import Path

from tinyllm.errors import TokenizationError

MAX_BYTES = 64 * 2**20
LFS = b"version https://git-lfs"  # how a pointer file begins
POINTER = (
    "is a Git LFS pointer: a few lines that stand for the real file. Run `git lfs "
    "pull` where you cloned it, or download the file"
)


def content(path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of a file; TokenizationError if absent, large or unreadable."""
    try:
        if not Path(path).is_file():  # a pipe or a device might never end
            raise TokenizationError("there is no such file")
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_BYTES:
                raise TokenizationError(f"it is larger than {MAX_BYTES} bytes")
            data = file.read()
    except OSError as error:
        raise TokenizationError(f"it cannot be read: {error.strerror}") from error
    if data.startswith(LFS):
        raise TokenizationError(f"it {POINTER}")
    return data
