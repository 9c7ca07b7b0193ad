"""`make notebooks` stores a run in one form, or leaves the file as it was."""

import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell

from tests.notebooks.made import ROOT, notebook, notebooks, save

TOOL = ROOT / "tools" / "notebooks.py"


def run_tool(*paths):
    command = [sys.executable, str(TOOL), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    """A notebook with a widget and two prints, run once by the tool."""
    nb = notebook("import ipywidgets\n\nipywidgets.IntSlider()", "print(1)\nprint(2)")
    nb.cells.insert(0, new_markdown_cell("# One", id="words"))
    path = save(nb, tmp_path_factory.mktemp("chapter") / "one.ipynb")
    assert run_tool(path).returncode == 0
    return path


def test_a_run_counts_from_one_and_stores_text_but_no_widget(chapter):
    nb = nbformat.read(chapter, as_version=4)
    slider, prints = nb.cells[1:]
    assert [slider.execution_count, prints.execution_count] == [1, 2]
    assert list(slider.outputs[0].data) == ["text/plain"]
    assert prints.outputs == [{"name": "stdout", "output_type": "stream",
                               "text": "1\n2\n"}]  # fmt: skip
    assert "widgets" not in nb.metadata
    assert "version" not in nb.metadata.language_info


def test_a_second_run_changes_no_byte(chapter):
    before = chapter.read_bytes()
    result = run_tool(chapter)
    assert "[1/1] one.ipynb unchanged" in result.stdout
    assert chapter.read_bytes() == before


def test_ruff_formats_what_the_tool_wrote_without_touching_it(chapter):
    before = chapter.read_bytes()
    command = [sys.executable, "-m", "ruff", "format", "--isolated", str(chapter)]
    subprocess.run(command, check=True, capture_output=True)
    assert chapter.read_bytes() == before


def test_a_failing_cell_is_named_and_the_file_stays(tmp_path):
    nb = notebook("x = 1", "assert x == 2, 'x is not two'", "x")
    path = save(nb, tmp_path / "bad.ipynb")
    before = path.read_bytes()
    result = run_tool(path)
    assert result.returncode == 1
    assert "left as it was. code cell 2 of 3: assert x == 2" in result.stderr
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["bad.ipynb"]


def test_a_kernel_that_dies_is_named_and_the_file_stays(tmp_path):
    path = save(notebook("import os", "os._exit(3)"), tmp_path / "dies.ipynb")
    before = path.read_bytes()
    result = run_tool(path)
    assert result.returncode == 1
    assert "code cell 2 of 2" in result.stderr
    assert path.read_bytes() == before


def test_an_interrupt_leaves_the_file_and_says_so(tmp_path, monkeypatch, capsys):
    def interrupted(self, **_):
        raise KeyboardInterrupt

    path = save(notebook("1"), tmp_path / "one.ipynb")
    before = path.read_bytes()
    monkeypatch.setattr(notebooks.NotebookClient, "execute", interrupted)
    assert notebooks.rerun_all([path]) == 130
    assert f"{path} left as it was" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_a_file_that_is_no_notebook_is_named(tmp_path):
    path = Path(tmp_path / "no.ipynb")
    path.write_text("{")
    result = run_tool(path)
    assert result.returncode == 1
    assert "no.ipynb: left as it was" in result.stderr
    assert "Traceback" not in result.stderr
