"""The README says what is true: its Python runs, its numbers are the files'."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.plugins.nbval_gaps import compare_pictures
from tinyllm.evaluate.ablation import CONDITIONS
from tinyllm.evaluate.statistics import percent, spread
from tinyllm.evaluate.table import Row
from tinyllm.models.catalog import KNOWN
from tinyllm.train.tasks import FAMILIES
from tinyllm.widgets import ablation, picture

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import budget  # noqa: E402  (tools/budget.py, a script)

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


def test_pico_has_as_many_lines_as_it_says_and_at_most_250():
    source = (ROOT / "tinyllm" / "pico.py").read_text(encoding="utf-8")
    lines = len(budget.code_lines(source))
    assert lines <= 250
    assert f"is the agent in {lines} lines of code" in README


def test_pico_prints_the_trace_that_it_shows():
    command = [sys.executable, "-m", "tinyllm.pico", "What is 4871 * 209?"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert f"```\n{done.stdout.decode()}```" in README.replace("\r\n", "\n")


def test_the_sizes_of_a_download_are_those_of_the_table():
    (file,), wheel = KNOWN["smollm2"].files, KNOWN["smollm2"].wheel
    sizes = f"{wheel.size // 10**6 + 1} MB to download, {file.size // 10**6} MB on"
    assert sizes in README


def test_every_chapter_that_is_there_is_marked_so_and_no_other():
    marked = re.findall(r"\| (\d\d) [^|]*\| \*\*here\*\*", README)
    there = [path.name[:2] for path in (ROOT / "notebooks").glob("*.ipynb")]
    assert sorted(marked) == sorted(there)


def stored_rows():
    """The rows of the full ablation that chapter 07 shows."""
    text = (ROOT / "notebooks/data/ablation.json").read_text(encoding="utf-8")
    return [Row.from_json(plain) for plain in json.loads(text)]


def told(found, metric):
    """A share as the README tells it."""
    count = found.counts[metric]
    return f"{percent(found.share(metric))} ({spread(count, found.tasks)})"


def test_its_table_of_the_ablation_is_that_of_chapter_07():
    metrics = ("parsed", "valid", "right_tool", "solved")
    shown = [r for r in stored_rows() if r.arm in ("free", "mask")]
    assert {r.condition for r in shown} == set(CONDITIONS)
    for found in shown:
        shares = " | ".join(told(found, metric) for metric in metrics)
        line = f"| {found.condition} | {found.arm} | {found.tasks} | {shares} |"
        assert line in README


def test_the_targets_of_the_ablation_are_met_by_what_is_stored():
    rows = {(r.condition, r.arm): r for r in stored_rows()}
    trained, stories = rows["trained", "mask"], rows["story-only", "mask"]
    assert trained.tasks == stories.tasks == 500 * len(FAMILIES)
    for found in rows.values():
        if found.arm == "mask":
            assert found.counts["parsed"] == found.counts["valid"] == found.tasks
    assert min(trained.by_family.values()) >= 0.95
    assert stories.share("solved") < 0.01


def test_its_picture_of_the_ablation_is_drawn_from_what_is_stored():
    pictures = [
        (ROOT / "docs/ablation.png").read_bytes(),
        picture.png(ablation.draw(stored_rows())),
    ]
    stored, drawn = ([("image/png", base64.b64encode(png))] for png in pictures)
    assert compare_pictures(stored, drawn) == []
    assert "](docs/ablation.png)" in README
