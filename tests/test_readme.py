"""The README says what is true: its Python runs, its numbers are the files'."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinyllm.checkpoint.known import KNOWN

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_there_is_python_in_it():
    assert PYTHON


@pytest.mark.parametrize("code", PYTHON)
def test_its_python_runs_in_the_repository_and_the_agent_reads_the_file(code):
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | {"PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        check=True,
    )
    said = done.stdout.decode()
    notes = (ROOT / "notebooks/data/notes.txt").read_text(encoding="utf-8")
    assert f'{{"tool":"answer","args":{{"text":"{notes.strip()}"}}}}' in said


def test_the_sizes_of_a_download_are_those_of_the_table():
    (file,), wheel = KNOWN["smollm2"].files, KNOWN["smollm2"].wheel
    sizes = f"{wheel.size // 10**6 + 1} MB to download, {file.size // 10**6} MB on"
    assert sizes in README


def test_every_chapter_that_is_there_is_marked_so_and_no_other():
    marked = re.findall(r"\| (\d\d) [^|]*\| \*\*here\*\*", README)
    there = [path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert sorted(marked) == sorted(there)
