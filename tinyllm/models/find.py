"""Where models are: `find` turns a name or a path into the path of a model.

A named model lies inside this package, in the Python package that carries it, or in the
user's folder of models. Looking only looks: nothing is downloaded, nothing imported.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from tinyllm.errors import CheckpointError, ModelNotFoundError, UsageError
from tinyllm.models.catalog import KNOWN, Known, named

EMBEDDED = Path(__file__).parent.parent / "embedded"
SUFFIXES = (".gguf", ".bin")
KINDS = (
    "the path of a folder with config.json, model.safetensors and tokenizer.json, "
    "or of a .gguf or .bin file"
)


@dataclass(frozen=True)
class Whereabouts:
    """Whether a named model is there: its `folder`, unless it is missing everywhere.

    `problem` says what is wrong with a damaged one.
    """

    state: Literal["found", "missing", "damaged"]
    folder: Path | None = None
    problem: str = ""


def available() -> list[str]:
    """Return the names of the models inside the package that are present, in order."""
    inside = [known for known in KNOWN.values() if not known.files]
    return [known.name for known in inside if whereabouts(known).state == "found"]


def find(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the path of a model: a folder, or the main file of one that is files.

    A name, in any case, goes before a path of the same spelling: write "./agent", or
    give a Path, for the path. Raises ModelNotFoundError saying how to get a known model
    or what there is instead, CheckpointError for a damaged one.
    """
    if isinstance(name_or_path, str) and (known := named(name_or_path)):
        return _find_known(known)
    if not isinstance(name_or_path, (str, os.PathLike)):
        raise UsageError(f"a model is a name or a path, not {name_or_path!r:.40}")
    given = os.fspath(name_or_path)
    if os.path.isdir(given):
        return Path(given)
    if os.path.isfile(given):
        if given.lower().endswith(SUFFIXES):
            return Path(given)
        raise ModelNotFoundError(f"{given!r} is not a model: give {KINDS}")
    hub = ""
    if re.fullmatch(r"[\w.-]+/[\w.-]+", given):
        hub = (
            ". If it is an id of the Hugging Face Hub, from which tinyllm downloads "
            f"nothing: run `hf download {given} --local-dir FOLDER`, then give FOLDER"
        )
    raise ModelNotFoundError(
        f"no model {given!r}: give {KINDS}, or a name ({', '.join(KNOWN)}){hub}"
    )


def whereabouts(known: Known) -> Whereabouts:
    """Return where a named model is; only files of the known size count as found."""
    if not known.files:
        inside = EMBEDDED / known.name
        if os.path.isfile(inside / "config.json"):
            return Whereabouts("found", inside)
        return Whereabouts("missing")
    damaged = None
    for folder in places(known):
        here = _look(known, folder)
        if here.state == "found":
            return here
        if here.state == "damaged":
            damaged = damaged or here
    return damaged or Whereabouts("missing")


def places(known: Known) -> Iterator[Path]:
    """Yield the folders that may hold a named model, in the order of looking."""
    if known.wheel:
        try:  # the spec of a package at the top level is found without importing it
            spec = find_spec(known.wheel.name.split("-")[0])
        except ValueError:  # it was imported, by something that left no spec behind
            spec = None
        for folder in (spec and spec.submodule_search_locations) or ():
            yield Path(folder)
    yield models_folder() / known.name


def models_folder() -> Path:
    """Return the user's folder of models: TINYLLM_MODELS, or `tinyllm` among caches.

    Raises UsageError where neither a variable nor a home folder tells.
    """
    if chosen := os.environ.get("TINYLLM_MODELS"):
        return Path(os.path.expanduser(chosen))
    variable, below = "XDG_CACHE_HOME", ".cache"
    if sys.platform == "darwin":
        variable, below = "", "Library/Caches"
    elif sys.platform == "win32":
        variable, below = "LOCALAPPDATA", "AppData/Local"
    caches = os.environ.get(variable, "")
    if os.path.isabs(caches):  # the XDG standard says that others are ignored
        return Path(caches) / "tinyllm"
    try:
        return Path.home() / below / "tinyllm"
    except RuntimeError:
        raise UsageError(
            "there is no home folder to keep models in: set TINYLLM_MODELS to a folder"
        ) from None


def _look(known: Known, folder: Path) -> Whereabouts:
    sizes = {file: _size(folder / file.name) for file in known.files}
    if set(sizes.values()) == {None}:
        return Whereabouts("missing")
    for file, size in sizes.items():
        if size != file.size:
            has = "is missing" if size is None else f"has {size:,} bytes"
            problem = f"{folder / file.name} {has}, {file.size:,} bytes expected"
            return Whereabouts("damaged", folder, problem)
    return Whereabouts("found", folder)


def _size(path: Path) -> int | None:
    try:
        return os.path.getsize(path) if os.path.isfile(path) else None
    except OSError:
        return None


def _find_known(known: Known) -> Path:
    here = whereabouts(known)
    if here.state == "damaged":
        raise CheckpointError(f"{known.name} is damaged: {here.problem}; {known.how}")
    if here.folder is None:
        raise ModelNotFoundError(
            f"the model {known.name!r} is not on this machine, and nothing is "
            f"downloaded unasked. To get it: {known.how}"
        )
    return here.folder / known.files[0].name if known.files else here.folder
