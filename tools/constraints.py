"""Write constraints.txt: the installed version of all that the extras need.

    make judges && make constraints       (torch is among them, so install it first)

Follows the requirements from pyproject.toml through what is installed in .venv. Lines
are `name==version`: no addresses, no hashes. What only other systems need stays free.
Run it under Python 3.11, since newer releases of some packages (numpy 2.5, for one) no
longer install there; what refuses even the first 3.11 is named and nothing is written.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution, metadata, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = "tinyllm-notebooks"
OLDEST = "3.11.0"
EXTRAS = ("notebooks", "http", "oracles", "test", "lint", "judges")
HEADER = """\
# The versions that `make setup` and `make judges` install, for Python 3.11 to 3.14.
# Written by `make constraints`; the bounds are in pyproject.toml.
"""


def needs(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What `name` with `extras` requires on this system."""
    found = map(Requirement, distribution(name).requires or [])
    return [r for r in found if applies(r, extras)]


def applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    """Whether the marker of a requirement holds here, for one of `extras` or none."""
    marker = requirement.marker
    return marker is None or any(
        marker.evaluate({"extra": extra}) for extra in extras | {""}
    )


def closure(name: str, extras: frozenset[str]) -> set[str]:
    """The names of all distributions that `name` with `extras` leads to."""
    seen: set[tuple[str, frozenset[str]]] = set()
    todo = [(name, extras)]
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        for need in needs(*here):
            todo.append((canonicalize_name(need.name), frozenset(need.extras)))
    return {name for name, _ in seen}


def refuses_oldest(name: str) -> bool:
    """Whether the installed `name` does not install on the oldest Python."""
    return not SpecifierSet(
        str(metadata(name).json.get("requires_python", ""))
    ).contains(OLDEST)


def main() -> int:
    """Write constraints.txt and return the exit code."""
    try:
        names = sorted(closure(PROJECT, frozenset(EXTRAS)) - {PROJECT})
    except PackageNotFoundError as error:
        print(f"{error.name} is not installed: run `make judges`", file=sys.stderr)
        return 1
    if too_new := [f"{n} {version(n)}" for n in names if refuses_oldest(n)]:
        print(f"install an older {', '.join(too_new)}: no {OLDEST}", file=sys.stderr)
        return 1
    # "2.13.0+cpu" names a build, not a release
    pins = [f"{name}=={version(name).split('+')[0]}" for name in names]
    (ROOT / "constraints.txt").write_text(HEADER + "\n".join(pins) + "\n")
    print(f"constraints.txt: {len(pins)} versions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
