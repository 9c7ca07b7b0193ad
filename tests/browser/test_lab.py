"""Notebooks in a real JupyterLab: all cells run, no request leaves the machine."""

from pathlib import Path

from tests.notebooks.made import ROOT, notebook, save

SLIDER = """\
import ipywidgets as widgets
slider = widgets.IntSlider(value=1, min=0, max=9)
note = widgets.HTML("<b class='note'>moved to 1</b>")
def moved(change):
    note.value = f"<b class='note'>moved to {change['new']}</b>"
slider.observe(moved, "value")
widgets.VBox([slider, note])"""


def test_every_chapter_has_a_browser_test_that_runs_all_of_its_cells():
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        test = Path(__file__).with_name(f"test_chapter_{path.name[:2]}.py").read_text()
        assert path.name in test
        assert "(chapter)" in test


def test_a_slider_moved_by_keyboard_reaches_the_kernel(open_notebook, tmp_path):
    from playwright.sync_api import expect

    page = open_notebook(save(notebook("x = 1", SLIDER), tmp_path / "slider.ipynb"))
    page.run_all()
    expect(page.notebook.locator(".note")).to_have_text("moved to 1")
    page.press(page.slider(), "ArrowRight", times=3)
    expect(page.notebook.locator(".note")).to_have_text("moved to 4")


def test_an_error_in_a_cell_is_seen(open_notebook, tmp_path):
    nb = notebook("print('fine')", "raise ValueError('broken on purpose')", "1")
    page = open_notebook(save(nb, tmp_path / "broken.ipynb"))
    page.run_all()
    assert "broken on purpose" in page.bad_outputs.first.inner_text()


def test_a_request_to_another_machine_is_noticed():
    from tests.browser.conftest import leaves_the_machine

    assert leaves_the_machine("https://cdn.jsdelivr.net/npm/require.js")
    assert leaves_the_machine("ws://127.0.0.1.example.org/api")
    assert not leaves_the_machine("http://127.0.0.1:8888/lab")
    assert not leaves_the_machine("data:image/png;base64,AAAA")
