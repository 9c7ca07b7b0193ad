"""A tensor as it lies in a file: `Stored` knows its shape, and its numbers on demand.

Readers give a dict of these, views of a `mapped` file. A model turns each into an array
once, so that loading needs little more memory than the weights themselves.

The rows that RoPE turns in pairs are stored in one of two layouts. INTERLEAVED: rows 2i
and 2i + 1 of a head are a pair (llama2.c, GGUF, the paper). HALVES: rows i and i + E/2
are (Hugging Face, and the forward pass of this package). A model read in the wrong
layout writes a few right words, then nonsense.
"""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinyllm.errors import CheckpointError, ModelNotFoundError
from tinyllm.formats.blocks import decode
from tinyllm.formats.content import LFS, POINTER

INTERLEAVED, HALVES = "interleaved pairs", "split halves"


def to_halves(weight: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Return the rows (n_heads * E, D) of interleaved pairs as split halves.

    Rows 0 1 2 3 of a head become 0 2 1 3. `n_heads` is K, not H, for the keys.
    """
    rows, width = weight.shape
    half = rows // n_heads // 2  # E/2
    pairs = weight.reshape(n_heads, half, 2, width)
    return pairs.swapaxes(1, 2).reshape(rows, width)  # (heads * E, D)


def to_interleaved(weight: NDArray[np.float32], n_heads: int) -> NDArray[np.float32]:
    """Return the rows (n_heads * E, D) of split halves as interleaved pairs."""
    rows, width = weight.shape
    half = rows // n_heads // 2  # E/2
    halves = weight.reshape(n_heads, 2, half, width)
    return halves.swapaxes(1, 2).reshape(rows, width)  # (heads * E, D)


@dataclass(frozen=True, eq=False)
class Stored:
    """Numbers of one `kind` (see `blocks.KINDS`) and `shape` in the bytes `raw`.

    `interleaved` is the number of heads whose rows lie as interleaved pairs, 0 where no
    rotation is meant: the array has them in split halves. `np.asarray(stored)` is
    float32.
    """

    raw: NDArray[np.uint8]
    kind: str
    shape: tuple[int, ...]
    interleaved: int = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the numbers as a new array, float32 unless asked otherwise."""
        array = decode(self.kind, self.raw).reshape(self.shape)
        if self.interleaved:
            array = to_halves(array, self.interleaved)
        return array if dtype is None else array.astype(dtype, copy=False)


def pickled(name: str) -> CheckpointError:
    """Return the error for a file of pickled weights."""
    return CheckpointError(
        f"{name} is pickled: opening it could run any code, so it is never unpickled "
        "here. Convert it to safetensors where you trust it: in transformers, "
        "from_pretrained(folder), then save_pretrained(folder)"
    )


def mapped(path: str | os.PathLike[str]) -> NDArray[np.uint8]:
    """Return the bytes of a file, read from disk as they are looked at.

    Raises ModelNotFoundError where there is no file, CheckpointError where it cannot be
    read. A file that somebody cuts short while it is mapped ends the process.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ModelNotFoundError(f"{path} is not a file")
        with open(path, "rb") as file:
            if file.read(len(LFS)) == LFS:
                raise CheckpointError(f"{path} {POINTER}")
            if not os.fstat(file.fileno()).st_size:
                return np.empty(0, np.uint8)
            return np.frombuffer(
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8
            )
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ModelNotFoundError(f"{path} is not a file") from error
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
