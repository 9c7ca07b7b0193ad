"""Chapter 06 as a reader sees it: go through a run token by token and step by step."""

import re

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "06_agent_loop.ipynb"


def test_a_reader_moves_through_a_run_by_slider_and_by_step(chapter):
    from playwright.sync_api import expect

    notebook = chapter.notebook
    words, lines = (
        notebook.locator(f".tinyllm-replay-{name}") for name in ("words", "transcript")
    )
    picture = notebook.locator("img.widget-image")
    back, on = (
        notebook.get_by_role("button", name=name)
        for name in ("previous step", "next step")
    )

    def says(place, text):
        expect(place).to_contain_text(text)

    says(words, "wanted calc, got answer (the mask stepped in)")
    says(lines, "▶ 2  model   ★   CALL:")
    expect(on).to_be_disabled()  # it is the last step
    start, drawn = words.inner_text(), picture.get_attribute("src")
    at = re.search(r"step 2 of 2, call, token (\d+) of (\d+)", start)
    token, total = map(int, at.groups())

    chapter.press(chapter.slider(), "ArrowRight", times=2)
    says(words, f"call, token {token + 2} of {total}")
    expect(words).not_to_contain_text("(the mask stepped in)")
    expect(picture).not_to_have_attribute("src", drawn)
    chapter.press(chapter.slider(), "ArrowLeft", times=2)
    says(words, f"call, token {token} of {total}")
    assert words.inner_text() == start

    back.click()
    says(words, "step 1 of 2, thought, token 1 of")
    says(words, "mask: one line of free text")
    says(words, 'tool: word_count, arguments {"text":"Rosa Bim"}')
    says(lines, "▶ 1  model       THOUGHT:")
    expect(back).to_be_disabled()
    on.click()
    says(words, "step 2 of 2, thought, token 1 of")
    says(lines, "▶ 2  model       THOUGHT: Now I should calculate.")
    chapter.press(chapter.slider(), "End")
    says(words, f"step 2 of 2, call, token {total} of {total}")
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720
