"""Chapter 03 as a reader sees it: the sampling explorer follows its five sliders."""

import re

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "03_sampling.ipynb"
TEMPERATURE, TOP_K, TOP_P, MIN_P, SEED = range(5)


def test_words_and_picture_follow_temperature_filters_and_seed(chapter):
    from playwright.sync_api import expect

    words = chapter.notebook.locator(".tinyllm-sampling")
    picture = chapter.notebook.locator("img.widget-image")
    expect(words).to_contain_text("temperature 1.00, top-k 12, top-p 0.90, seed 0")
    start, drawn = words.inner_text(), [picture.get_attribute("src")]

    def moved(slider, key, text):
        """Press a key on a slider; words must say so, and the picture must change."""
        chapter.press(chapter.slider(slider), key)
        expect(words).to_contain_text(text)
        expect(picture).not_to_have_attribute("src", drawn[-1])
        drawn.append(picture.get_attribute("src"))

    moved(TEMPERATURE, "ArrowRight", "temperature 1.05, top-k 12, top-p 0.90, seed 0")
    moved(TEMPERATURE, "ArrowLeft", "temperature 1.00, top-k 12, top-p 0.90, seed 0")
    assert words.inner_text() == start
    moved(SEED, "ArrowRight", "top-p 0.90, seed 1")
    expect(words).to_contain_text("seed 1 throws 0.51 and draws")
    moved(TOP_K, "ArrowLeft", "temperature 1.00, top-k 11, top-p 0.90, seed 1")
    moved(TOP_P, "ArrowLeft", "top-k 11, top-p 0.89, seed 1")
    moved(MIN_P, "End", "top-p 0.89, min-p 1.00, seed 1")
    assert re.search(r"kept +1 token", words.inner_text())
    moved(TEMPERATURE, "Home", "temperature 0.00, top-k 11")
    expect(words).to_contain_text("greedy throws no number")
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720
