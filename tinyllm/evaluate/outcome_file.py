"""Outcomes on the disk, so that an ablation that was stopped can be resumed.

`OutcomeFile(path, about)` has one condition and arm as JSON lines: first what was
measured, then an outcome a line, those of a family in order. A last line that a stop
cut short is dropped; a file about something else is refused, and so is one to which
another process writes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from tinyllm.atomic_file import atomic_file
from tinyllm.errors import UsageError
from tinyllm.evaluate.ablation import Arm, Condition, Outcome
from tinyllm.models.find import find


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
        """Return how many tasks of a family are done; they are always the first."""
        return sum(outcome.family == family for outcome in self.outcomes)

    def add(self, outcome: Outcome) -> None:
        """Append an outcome, here and in the file."""
        if self.path is not None:
            line = json.dumps(outcome.to_json()).encode() + b"\n"
            with self.path.open("ab") as file:
                if file.tell() != self._size:  # it has grown since we last wrote
                    raise self._foreign(self.path, "another process writes to it")
                file.write(line)
            self._size += len(line)
        self.outcomes.append(outcome)

    def _read(self, path: Path) -> list[Outcome]:
        """Return the outcomes of the file, in its order, without a last cut line."""
        text = path.read_text(encoding="utf-8", errors="replace")
        lines = text.split("\n")[:-1]  # after the last line break is nothing, or a cut
        try:
            about = json.loads(lines[0]) if lines else self.about
            found = [Outcome.from_json(json.loads(line)) for line in lines[1:]]
        except (ValueError, TypeError) as error:
            raise self._foreign(path, "it is damaged") from error
        for family in {outcome.family for outcome in found}:
            numbers = [o.number for o in found if o.family == family]
            if numbers != list(range(len(numbers))):
                raise self._foreign(path, f"its tasks of {family} are not in order")
        if about != self.about:
            raise self._foreign(path, "it is about another measurement")
        return found

    def _rewrite(self, path: Path) -> None:
        """Write what was read, all of it or nothing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            for plain in [self.about, *(o.to_json() for o in self.outcomes)]:
                file.write(json.dumps(plain).encode() + b"\n")
        self._size = path.stat().st_size

    def _foreign(self, path: Path, reason: str) -> UsageError:
        return UsageError(
            f"{path} cannot be resumed, {reason}: delete it, or give --out another "
            "folder"
        )


def about(condition: Condition, arm: Arm, seed: int) -> dict[str, Any]:
    """Return what an outcome depends on, apart from the code: the head of a file."""
    return {
        "condition": condition.name,
        "arm": arm.name,
        "seed": seed,
        "temperature": condition.temperature,
        "model": _digest(find(condition.model)),
    }


def _digest(path: Path) -> str:
    """Return the SHA-256 of the files of a model: a folder, or a file and tokenizer.

    Of a folder they are the weights, and each file of JSON: configuration, tokenizer,
    index.
    """
    names = [path, *path.parent.glob("tok*.bin")]
    if path.is_dir():
        names = [*path.glob("*.safetensors"), *path.glob("*.json")]
    digest = hashlib.sha256()
    for name in sorted(names):
        digest.update(name.name.encode() + b"\0")
        with name.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)  # goes on with the same one
    return digest.hexdigest()
