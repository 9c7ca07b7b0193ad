"""Reading inside one folder, whatever path a model asks for.

Public: `folder`, `read_text`, `list_names`.

A path is resolved first, links and `..` included, and must then be inside the root. A
path outside gives the same error whether the file exists or not: even that is a secret.

Before: agent.calculator. Next: agent.tools.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from pathlib import Path

from tinyllm.agent.protocol import one_line_json
from tinyllm.errors import ToolError

BYTE_LIMIT = 65_536  # of a file; a larger one is refused
NAME_LIMIT = 50  # names in a listing
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def folder(root: str | Path) -> Path:
    """Return the root, resolved; ToolError if it is not a folder."""
    resolved = Path(root).resolve()
    if not resolved.is_dir():
        raise ToolError(f"the root must be an existing folder, not {str(root)!r}")
    return resolved


def read_text(root: Path, path: str) -> str:
    """Return the text of a file inside the root, without one trailing line break.

    ToolError if it leaves the root, is missing or hidden, is not a regular file, has
    more than BYTE_LIMIT bytes or is not UTF-8.
    """
    # escaped and cut: a path is the model's text, and the error is an observation
    shown = repr(path if len(path) <= 60 else path[:59] + "…")
    data = _read_bytes(root, _inside(root, path, shown), shown)
    if len(data) > BYTE_LIMIT:
        raise ToolError(f"{shown} has more than {BYTE_LIMIT} bytes, too many to read")
    try:
        text = data.decode("utf-8-sig")  # a byte order mark is not text
    except UnicodeDecodeError as error:
        raise ToolError(f"{shown} is not a text file (no UTF-8)") from error
    return text.removesuffix("\n").removesuffix("\r")


def list_names(root: Path) -> str:
    """Return the readable files directly in the root, sorted: "a.txt, b.txt".

    Hidden files and links that leave the root are left out; at most NAME_LIMIT names.
    A name that would read like two, or like a line, is a JSON string.
    """
    try:
        found = sorted(os.listdir(root))
    except OSError as error:
        raise ToolError("the folder cannot be read") from error
    readable = (_listed(name) for name in found if _is_readable(root, name))
    # one more than fits shows that there are more
    names = list(islice(readable, NAME_LIMIT + 1))
    if len(names) > NAME_LIMIT:
        names[NAME_LIMIT] = "…"
    return ", ".join(names) or "no files"


def _listed(name: str) -> str:
    return name if name.isprintable() and "," not in name else one_line_json(name)


def _is_readable(root: Path, name: str) -> bool:
    """Return whether the name is that of a file inside the root."""
    try:
        return _inside(root, name, repr(name)).is_file()
    except (ToolError, OSError):
        return False


def _inside(root: Path, path: str, shown: str) -> Path:
    """Return the resolved path; ToolError if it is not inside the root."""
    try:
        full = (root / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # too long, NUL, link circle
        if Path(os.path.normpath(root / path)).is_relative_to(root):
            raise ToolError(f"{shown} is not a path that can be read") from error
        full = root.parent  # the same error as for every other path outside
    if not full.is_relative_to(root):
        raise ToolError(f"{shown} lies outside the folder that may be read")
    # hidden files are not listed and often secret (.env), so they do not exist here
    if any(part.startswith(".") for part in full.relative_to(root).parts):
        raise ToolError(f"there is no file {shown}")
    return full


def _read_bytes(root: Path, full: Path, shown: str) -> bytes:
    """Return at most BYTE_LIMIT + 1 bytes of a regular file."""
    try:
        descriptor = _opened(root, full)
        try:
            mode = os.fstat(descriptor).st_mode
            if stat.S_ISDIR(mode):
                raise ToolError(f"{shown} is a folder, not a file")
            if not stat.S_ISREG(mode):
                raise ToolError(f"{shown} is not a regular file")
            with open(descriptor, "rb", closefd=False) as file:
                # one byte more than allowed shows that the file is too large
                return file.read(BYTE_LIMIT + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ToolError(f"there is no file {shown}") from error
    except OSError as error:
        raise ToolError(f"{shown} cannot be read") from error


def _opened(root: Path, full: Path) -> int:
    """Return a descriptor of the file at a resolved path.

    A resolved path has no links, so a link on the way was put there since: it opens
    folder by folder and follows none. Nor does it wait for the other end of a pipe.
    """
    if os.open not in os.supports_dir_fd:  # Windows
        return os.open(full, _READ)
    descriptor = os.open(root, _READ)
    for name in full.relative_to(root).parts:
        try:
            inner = os.open(name, _READ, dir_fd=descriptor)
        finally:
            os.close(descriptor)
        descriptor = inner
    return descriptor
