"""Chapter 02 as a reader sees it: the attention explorer follows its three sliders."""

import pytest

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "02_forward_pass.ipynb"
LAYER, HEAD, POSITION = range(3)


@pytest.fixture
def chapter(open_notebook):
    """The chapter after all its cells have run, without an error."""
    page = open_notebook(CHAPTER)
    page.run_all()
    assert page.bad_outputs.all_inner_texts() == []
    return page


def test_words_and_picture_follow_layer_head_and_position(chapter):
    from playwright.sync_api import expect

    from tests.browser.lab import PATIENCE

    words = chapter.notebook.locator(".tinyllm-attention")
    picture = chapter.notebook.locator("img.widget-image")
    expect(words).to_contain_text("layer 0, head 0: position ")
    start, drawn = words.inner_text(), [picture.get_attribute("src")]

    def moved(slider, key, times, text):
        """Press a key on a slider; words must say so, and the picture must change."""
        chapter.press(chapter.slider(slider), key, times)
        expect(words).to_contain_text(text, timeout=PATIENCE)
        expect(picture).not_to_have_attribute("src", drawn[-1], timeout=PATIENCE)
        drawn.append(picture.get_attribute("src"))

    moved(LAYER, "ArrowRight", 2, "layer 2, head 0: position ")
    moved(HEAD, "ArrowRight", 3, "layer 2, head 3: position ")
    moved(POSITION, "Home", 1, "layer 2, head 3: position 0 (<1>) reads")
    expect(words).to_contain_text("1.00 of [ 0] <1>  (itself)\n  and nothing else")
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720

    moved(LAYER, "ArrowLeft", 2, "layer 0, head 3: position 0")
    moved(HEAD, "Home", 1, "layer 0, head 0: position 0")
    moved(POSITION, "End", 1, start.splitlines()[0])
    expect(words).to_have_text(start)
