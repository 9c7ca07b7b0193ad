"""Small notebooks made on the fly, to try the machinery on."""

from __future__ import annotations

import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import notebooks  # noqa: E402  (tools/notebooks.py, a script)

PICTURE = """\
%matplotlib inline
import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(3, 2), dpi=80)
ax.bar([0, 1, 2], [1, 3, 2])
ax.set_title("a title")
plt.show()"""
CAPTURE = """\
import ipywidgets
out = ipywidgets.Output()
with out:
    print("caught by the widget")
display(out)"""
CELLS = ['print("four")', "2 + 2", "2 + 2;", PICTURE, CAPTURE, 'end = "the end"\nend']
CELLS += ["print(end)"]


def notebook(*sources):
    """A notebook of code cells that has not been run."""
    cells = [new_code_cell(source, id=f"cell-{i}") for i, source in enumerate(sources)]
    return notebooks.canonical(new_notebook(cells=cells))


def run_notebook(*sources):
    """A notebook of code cells with the outputs of a run."""
    return notebooks.run(notebook(*sources), Path.cwd())


def save(nb, path):
    """Write `nb` at `path` in the project's form and return the path."""
    path.write_text(nbformat.writes(nb) + "\n", encoding="utf-8")
    return path
