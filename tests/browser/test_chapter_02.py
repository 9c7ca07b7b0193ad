"""Chapter 02 as a reader sees it: the attention explorer follows its three sliders."""

import re

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "02_forward_pass.ipynb"
LAYER, HEAD, POSITION = range(3)


def test_the_explorer_opens_at_the_place_shown_and_follows_its_three_sliders(chapter):
    from playwright.sync_api import expect

    words = chapter.notebook.locator(".tinyllm-attention")
    picture = chapter.notebook.locator("img.widget-image")
    expect(words).to_contain_text(") reads")
    start, drawn = words.inner_text().strip(), [picture.get_attribute("src")]
    shown = chapter.notebook.locator(".jp-OutputArea-output pre").all_inner_texts()
    printed = [text for text in shown if "it reads the token before" in text]
    assert start in printed[0]
    opened = [int(number) for number in re.findall(r"\d+", start)[:3]]

    def moved(slider, key, place):
        """Press a key on a slider; words must say so, and the picture must change."""
        chapter.press(chapter.slider(slider), key)
        text = "layer {}, head {}: position {} ".format(*place)
        expect(words).to_contain_text(text)
        expect(picture).not_to_have_attribute("src", drawn[-1])
        drawn.append(picture.get_attribute("src"))

    place = opened.copy()
    for slider in (LAYER, HEAD, POSITION):
        place[slider] += -1 if opened[slider] else 1
        moved(slider, "ArrowLeft" if opened[slider] else "ArrowRight", place)
    for slider in (LAYER, HEAD, POSITION):
        place[slider] = opened[slider]
        moved(slider, "ArrowRight" if opened[slider] else "ArrowLeft", place)
    expect(words).to_have_text(start)

    moved(POSITION, "Home", [*opened[:2], 0])
    expect(words).to_contain_text("1.00 of [ 0] <1>  (itself)\n  and nothing else")
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720
