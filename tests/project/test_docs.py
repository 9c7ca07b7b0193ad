"""docs/READING.md and docs/PICO.md say what the package is."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import budget  # noqa: E402  (tools/budget.py, a script)

import docs  # noqa: E402  (tools/docs.py, a script)

SERVE_BOTH = set(budget.COMMON)  # read when they are met


def test_both_files_are_in_step_with_the_package():
    command = [sys.executable, "tools/docs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


def test_every_module_of_the_course_is_read_once_and_nothing_else():
    course = {
        name
        for name, path in budget.modules().items()
        if budget.part_of(name) in ("course", "data") and path.name != "__init__.py"
    }
    assert len(docs.order()) == len(set(docs.order()))
    assert set(docs.order()) == course - SERVE_BOTH


def test_each_module_names_the_one_before_and_the_one_after_it():
    names = docs.order()
    for before, name in pairwise(names):
        assert docs.neighbours(name)["Before"] == before
        assert docs.neighbours(before)["Next"] == name
    assert "Next" not in docs.neighbours(names[-1])
