"""The README says what is true: its Python runs, its numbers are the files'."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tinyllm.checkpoint.known import KNOWN

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_there_is_python_in_it():
    assert len(PYTHON) == 2


def said_by(code):
    """What a block of the README prints, run in the repository."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode()


def test_its_first_python_runs_and_the_agent_reads_the_file():
    notes = (ROOT / "notebooks/data/notes.txt").read_text(encoding="utf-8")
    expected = f'{{"tool":"answer","args":{{"text":"{notes.strip()}"}}}}'
    assert expected in said_by(PYTHON[0])


def test_its_second_python_writes_what_the_schema_asks_for():
    written, receipt = said_by(PYTHON[1]).splitlines()
    found = json.loads(written)
    assert list(found) == ["name", "age"]
    assert 0 <= found["age"] <= 130
    assert "maxLength" in receipt
    assert "refused" not in receipt


def test_the_sizes_of_a_download_are_those_of_the_table():
    (file,), wheel = KNOWN["smollm2"].files, KNOWN["smollm2"].wheel
    sizes = f"{wheel.size // 10**6 + 1} MB to download, {file.size // 10**6} MB on"
    assert sizes in README


def test_every_chapter_that_is_there_is_marked_so_and_no_other():
    marked = re.findall(r"\| (\d\d) [^|]*\| \*\*here\*\*", README)
    there = [path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert sorted(marked) == sorted(there)
