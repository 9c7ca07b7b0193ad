"""Chapter 00 as a reader sees it: the mask moves when the slider is moved."""

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "00_start_here.ipynb"


def test_the_mask_follows_the_slider_and_a_typed_question_is_answered(chapter):
    from playwright.sync_api import expect

    words = chapter.notebook.locator(".tinyllm-mask")
    picture = chapter.notebook.locator("img.widget-image")
    expect(words).to_contain_text("token 1 of")
    first, counts = picture.get_attribute("src"), words.inner_text()
    chapter.press(chapter.slider(), "ArrowRight", times=3)
    expect(words).to_contain_text("token 4 of")
    expect(words).to_contain_text("wanted calc, got calc")
    expect(picture).not_to_have_attribute("src", first)
    assert words.inner_text().splitlines()[1] != counts.splitlines()[1]  # legal tokens
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720
    chapter.press(chapter.slider(), "ArrowLeft", times=3)
    expect(words).to_have_text(counts)

    answers_a_question(chapter)


def answers_a_question(chapter):
    """The reader changes the question and runs the cell again."""
    from playwright.sync_api import expect

    cells = chapter.notebook.locator(".jp-CodeCell")
    texts = cells.locator(".cm-content").all_inner_texts()
    cell = cells.nth(next(i for i, text in enumerate(texts) if "question = " in text))
    editor = cell.locator(".cm-content")
    editor.click()
    editor.press("Control+A")
    editor.press_sequentially('print(agent.run("What is 1234 * 8?").answer)')
    editor.press("Control+Enter")
    expect(cell.locator(".jp-OutputArea-output").first).to_contain_text("9872")
