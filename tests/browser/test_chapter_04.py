"""Chapter 04 as a reader sees it: the timeline follows its slider, the box answers."""

import re

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "04_cache_and_rewind.ipynb"


def test_the_timeline_opens_at_the_step_shown_and_follows_slider_and_box(chapter):
    from playwright.sync_api import expect

    words = chapter.notebook.locator(".tinyllm-timeline")
    answer = chapter.notebook.locator(".tinyllm-answer")
    picture = chapter.notebook.locator("img.widget-image")
    prompt = chapter.notebook.locator(".widget-textarea textarea")
    expect(words).to_contain_text("step 5 of 9: feed")
    start, drawn = words.inner_text().strip(), picture.get_attribute("src")
    printed = chapter.notebook.locator(".jp-OutputArea-output pre").all_inner_texts()
    assert any(start in text for text in printed[: printed.index(start)])

    expect(answer).to_contain_text("all of it is held")
    chapter.press(chapter.slider(), "ArrowRight")
    expect(words).to_contain_text("step 6 of 9: feed")
    expect(words).to_contain_text("beyond the end: ")
    expect(answer).to_contain_text("they part at position")
    expect(picture).not_to_have_attribute("src", drawn)
    chapter.press(chapter.slider(), "ArrowRight")
    expect(words).to_contain_text("step 7 of 9: rewind to")
    expect(words).to_contain_text("forwarded:   0")

    prompt.fill("TOOLS: something else")
    expect(answer).to_contain_text("they part at position")
    reuse, forward = map(int, re.findall(r"reuse (\d+) and forward (\d+)",
                                         answer.inner_text())[0])  # fmt: skip
    assert 0 < reuse < 10
    assert forward > 0
    prompt.fill("")
    expect(answer).to_contain_text("1 id: feed would reuse 0 and forward 1")

    chapter.press(chapter.slider(), "End")
    expect(words).to_contain_text("step 9 of 9: reset")
    expect(words).to_contain_text("held now: 0 of")
    expect(answer).to_contain_text("nothing is held")
    for _ in range(4):
        chapter.press(chapter.slider(), "ArrowLeft")
    expect(words).to_have_text(start)
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720
