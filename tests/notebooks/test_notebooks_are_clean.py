"""Every stored notebook was run from top to bottom and stores only what it claims."""

import copy

import nbformat
import pytest
from nbformat.v4 import new_markdown_cell, new_output

from tests.notebooks.made import PICTURE, ROOT, run_notebook
from tests.plugins.notebook_rules import all_faults, shows_something

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_chapter_has_no_faults(path):
    nb = nbformat.read(path, as_version=4)
    nbformat.validate(nb)
    assert all_faults(nb) == []


@pytest.fixture(scope="module")
def healthy():
    return run_notebook("x = 4", "print(x)", "x", PICTURE, 'print("three bars")')


def test_a_notebook_that_was_just_run_has_no_faults(healthy):
    assert all_faults(healthy) == []


def prose_between(nb):
    nb.cells.insert(1, new_markdown_cell("words"))


def test_prose_between_the_cells_is_no_fault(healthy):
    nb = copy.deepcopy(healthy)
    prose_between(nb)
    assert all_faults(nb) == []


def show(text):
    """A damage that makes the second cell show `text`."""
    return lambda nb: nb.cells[1].outputs[0].update(text=text)


DAMAGE = {
    "not run in order": lambda nb: nb.cells[1].update(execution_count=7),
    "not run in order 1..5: [None": lambda nb: nb.cells[0].update(execution_count=None),
    "cell 2 shows something but": lambda nb: nb.cells[1].outputs.clear(),
    "cell 3 shows something but": lambda nb: nb.cells[2].outputs.clear(),
    "wrote to stderr": lambda nb: nb.cells[0].outputs.append(
        new_output("stream", name="stderr", text="warning")
    ),
    "an absolute path": show("read /home/me/notes.txt"),
    "a memory address": show("<object at 0x7f3a2b4c5d60>"),
    "a timing": show("took 3.1 ms"),
    "a float with more": show("0.30000000000000004"),
    "draws a picture": lambda nb: nb.cells.pop(),
    "language_info.version": lambda nb: nb.metadata.update(
        language_info={"name": "python", "version": "3.11.7"}
    ),
    "widget state": lambda nb: nb.metadata.update(widgets={}),
    "when it was run": lambda nb: nb.cells[0].metadata.update(execution={}),
}


@pytest.mark.parametrize("fault", DAMAGE)
def test_each_fault_is_found_and_named(healthy, fault):
    nb = copy.deepcopy(healthy)
    DAMAGE[fault](nb)
    faults = all_faults(nb)
    assert len(faults) == 1
    assert fault in faults[0]


@pytest.mark.parametrize("source", ["print(1)", "x", "x[0]", "%time\n2 + 2", "f'{x}'"])
def test_these_cells_surely_show_something(source):
    assert shows_something(source)


@pytest.mark.parametrize("source", ["x = 1", "x;", "f(x)", "def f():\n    print(1)"])
def test_these_cells_need_not_show_anything(source):
    assert not shows_something(source)
