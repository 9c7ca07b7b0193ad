"""Chapter 05 as a reader sees it: ask why, take a token, let it go on, undo."""

import re

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "05_grammar_masks.ipynb"


def test_a_reader_asks_why_takes_another_token_goes_on_and_undoes(chapter):
    from playwright.sync_api import expect

    notebook = chapter.notebook
    words, reason, done = (
        notebook.locator(f".tinyllm-mask-{name}") for name in ("words", "why", "deeds")
    )
    picture = notebook.locator("img.widget-image")
    tokens = notebook.locator(".widget-select select")
    take, on, undo = (
        notebook.get_by_role("button", name=name)
        for name in ("take it by hand", "the model goes on", "undo")
    )

    def says(place, text):
        expect(place).to_contain_text(text)

    says(words, "(the mask stepped in)")
    says(reason, "is legal at token")
    start, drawn = words.inner_text(), picture.get_attribute("src")
    at, total = map(int, re.match(r"token (\d+) of (\d+)", start).groups())

    illegal = tokens.locator("option", has_text="illegal").first
    tokens.select_option(label=illegal.inner_text())
    says(reason, "is illegal at token")
    says(reason, "expected:")
    expect(take).to_be_disabled()
    expect(on).to_be_disabled()  # the text is complete

    chapter.press(chapter.slider(), "ArrowLeft", times=at - 4)
    says(words, f"token 4 of {total}")  # where the name begins
    expect(picture).not_to_have_attribute("src", drawn)
    name = tokens.locator("option", has_text=re.compile(r"^answer\s"))
    tokens.select_option(label=name.inner_text())
    says(reason, "answer is legal at token 4")
    take.click()
    says(words, "token 4 of 4")
    says(words, "(chosen by hand)")
    on.click()
    says(words, "»answer◆«")
    expect(words).not_to_contain_text("token 4 of 4")
    says(done, "token 4 chosen by hand: forwarded 0, reused 0")
    undo.click()
    says(words, "token 4 of 4")
    undo.click()
    says(words, f"token 4 of {total}")
    chapter.press(chapter.slider(), "ArrowRight", times=at - 4)
    says(words, f"token {at} of {total}")
    assert words.inner_text() == start
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720

    no_key_reaches_the_notebook(chapter, (tokens, chapter.slider(), undo))


def no_key_reaches_the_notebook(chapter, parts):
    """In JupyterLab's command mode x cuts the cell, and a and b insert one."""
    from playwright.sync_api import expect

    cells = chapter.notebook.locator(".jp-Cell")
    there = cells.count()
    for part in parts:
        for key in "xab":
            chapter.press(part, key)
        expect(cells).to_have_count(there)
