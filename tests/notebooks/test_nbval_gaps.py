"""nbval, with the project's plugin, notices a notebook that was damaged on purpose.

One reference is run once, damaged in many ways, and all copies are checked by one run
of pytest --nbval in a child process, as `make test` checks the chapters.
"""

import base64
import copy
import io
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from nbformat.v4 import new_markdown_cell, new_output
from PIL import Image, ImageDraw

from tests.notebooks.made import CELLS, ROOT, notebook, run_notebook, save
from tests.plugins.nbval_gaps import heading_of, picture_difference

TEXT, RESULT, SILENT, PICTURE, CAPTURE, NAME, LAST = range(len(CELLS))


def repainted(nb, paint):
    """Change the stored picture with `paint(image)`."""
    data = next(o.data for o in nb.cells[PICTURE].outputs if "image/png" in o.data)
    image = Image.open(io.BytesIO(base64.b64decode(data["image/png"]))).convert("RGB")
    file = io.BytesIO()
    paint(image).save(file, "png")
    data["image/png"] = base64.b64encode(file.getvalue()).decode()


def spot(image):
    """A picture with a mark as large as one digit."""
    ImageDraw.Draw(image).rectangle((100, 60, 105, 66), fill=(0, 0, 0))
    return image


def darker(image):
    """A picture one grey level darker, as another renderer may draw it."""
    return image.point(lambda level: max(level - 1, 0))


def change_what_cells_show(nb):
    nb.cells[TEXT].outputs[0].text = "five\n"
    nb.cells[RESULT].outputs[0].data["text/plain"] = "5"
    nb.cells[SILENT].outputs.append(nb.cells[RESULT].outputs[0])
    repainted(nb, spot)


def add_and_drop(nb):
    nb.cells[TEXT].outputs.append(new_output("stream", name="stderr", text="oh\n"))
    nb.cells[PICTURE].outputs.clear()


def forget_one(nb):
    nb.cells[NAME].outputs, nb.cells[NAME].execution_count = [], None


def strip_outputs(nb):
    for cell in nb.cells:
        cell.outputs, cell.execution_count = [], None


# {damage: the cells that must fail}; the others must pass
EXPECTED = {
    None: [],
    change_what_cells_show: [TEXT, RESULT, SILENT, PICTURE],
    add_and_drop: [TEXT, PICTURE],
    forget_one: [NAME],
    strip_outputs: [*range(len(CELLS))],
}


def name_of(damage):
    return damage.__name__ if damage else "healthy"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """{damage: numbers of the cells that failed} of one run over all copies, where."""
    folder = tmp_path_factory.mktemp("damaged")
    reference = run_notebook(*CELLS)
    for damage in EXPECTED:
        nb = copy.deepcopy(reference)
        repainted(nb, darker)
        if damage:
            damage(nb)
        save(nb, folder / f"{name_of(damage)}.ipynb")
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "-q",
               "-p", "tests.plugins.nbval_gaps", "--junitxml", folder / "out.xml",
               "-c", folder / "none.ini", folder]  # fmt: skip
    (folder / "none.ini").write_text("[pytest]\n")
    env = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        command, env=env, cwd=folder, check=False, capture_output=True
    )
    (folder / "said.txt").write_bytes(done.stdout)
    failed = {name_of(damage): [] for damage in EXPECTED}
    for case in ET.parse(folder / "out.xml").iter("testcase"):
        if case.find("failure") is not None:
            name = case.get("classname").removesuffix(".ipynb").split(".")[-1]
            failed[name].append(int(case.get("name").split()[-1]))
    return failed, folder


@pytest.mark.parametrize("damage", EXPECTED, ids=name_of)
def test_the_damaged_cells_and_no_others_fail(outcomes, damage):
    assert outcomes[0][name_of(damage)] == EXPECTED[damage]


def test_a_failure_names_the_cell_and_says_which_output_was_stored(outcomes):
    said = (outcomes[1] / "said.txt").read_text("utf-8")
    assert 'change_what_cells_show.ipynb [1], under "": Cell outputs differ' in said
    assert "--- stored\n+++ now\n@@ -1 +1 @@\n-five\n+four" in said
    assert "forget_one.ipynb [6]" in said
    assert "never run" in said
    assert "make notebooks" in said


def test_the_two_pictures_and_their_difference_are_kept(outcomes):
    kept = outcomes[1] / "build" / "nbval" / "change_what_cells_show" / "cell-4"
    names = sorted(path.name for path in kept.iterdir())
    assert names == [f"picture-1-{x}.png" for x in ("difference", "now", "stored")]
    with Image.open(kept / "picture-1-difference.png") as image:
        dark = np.argwhere(np.asarray(image)[..., 0] < 128)
    assert dark.min(axis=0).tolist() == [60, 100]  # row and column of the spot
    assert dark.max(axis=0).tolist() == [66, 105]


def test_a_cell_is_named_by_the_heading_above_it():
    nb = notebook("x = 1", "x", "x + 1")
    nb.cells.insert(1, new_markdown_cell("# One\n\ntext\n\n## Two\n"))
    assert [heading_of(nb, n) for n in range(3)] == ["", "Two", "Two"]


def test_two_grey_levels_pass_and_one_changed_digit_does_not():
    old = np.full((480, 640, 4), 128.0)
    assert max(picture_difference(old, old + 2)) <= 2
    digit = old.copy()
    digit[40:47, 40:44] = 0
    whole, worst = picture_difference(old, digit)
    assert whole < 2 < 16 < worst


def test_pictures_of_unlike_size_are_infinitely_far_apart():
    whole, worst = picture_difference(np.zeros((4, 4, 4)), np.zeros((4, 5, 4)))
    assert whole == worst == float("inf")
