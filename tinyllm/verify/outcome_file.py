"""Outcomes on the disk, so that an ablation that was stopped goes on where it was.

`OutcomeFile(path, about)` is one condition and arm as JSON lines: first what was
measured, then an outcome a line, each written whole. A line that was cut short by a
stop is dropped; a file about something else is refused.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tinyllm.checkpoint.find import find
from tinyllm.errors import UsageError
from tinyllm.verify.ablation import Arm, Condition, Outcome
from tinyllm.whole import whole_file

BLOCK = 1 << 20  # bytes read at a time


class OutcomeFile:
    """The outcomes of one arm under one condition; `path` None keeps them in memory.

    UsageError if the file is about another measurement or no such file.
    """

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self.path = path
        self.about = about
        self.outcomes: list[Outcome] = []
        if path is not None and path.exists():
            self.outcomes = self._read(path)
        if path is not None:
            self._rewrite(path)

    def done(self, family: str) -> int:
        """How many tasks of a family there are: the first so many."""
        return sum(outcome.family == family for outcome in self.outcomes)

    def add(self, outcome: Outcome) -> None:
        """Append an outcome, here and in the file."""
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(outcome.to_json()) + "\n")
        self.outcomes.append(outcome)

    def _read(self, path: Path) -> list[Outcome]:
        """The outcomes of the file, in its order, without a last line that was cut."""
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
        try:
            about = json.loads(lines[0]) if lines else self.about
            found = [Outcome(**json.loads(line)) for line in lines[1:]]
        except (ValueError, TypeError) as error:
            raise self._foreign(path, "it is damaged") from error
        if about != self.about:
            raise self._foreign(path, "it is about another measurement")
        return found

    def _rewrite(self, path: Path) -> None:
        """Write what was read, whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as file:
            for plain in [self.about, *(o.to_json() for o in self.outcomes)]:
                file.write(json.dumps(plain).encode() + b"\n")

    def _foreign(self, path: Path, reason: str) -> UsageError:
        return UsageError(
            f"{path} cannot be gone on with, {reason}: delete it, or give --out "
            "another folder"
        )


def about(condition: Condition, arm: Arm, seed: int) -> dict[str, Any]:
    """What an outcome depends on, apart from the code: for the head of a file."""
    return {
        "condition": condition.name,
        "arm": arm.name,
        "seed": seed,
        "temperature": condition.temperature,
        "weights": _digest(find(condition.model)),
    }


def _digest(path: Path) -> str:
    """The SHA-256 of a model's weights: those of a folder, or the file itself."""
    names = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    digest = hashlib.sha256()
    for name in names:
        with name.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
    return digest.hexdigest()
