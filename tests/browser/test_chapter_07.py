"""Chapter 07 as a reader sees it: choose a condition, a metric, and all again."""

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "07_ablation.ipynb"


def test_the_picture_and_its_words_follow_the_two_choices(chapter):
    from playwright.sync_api import expect

    words = chapter.notebook.locator(".tinyllm-ablation")
    picture = chapter.notebook.locator("img.widget-image")
    condition, metric = (
        chapter.notebook.locator(".widget-dropdown select").nth(i) for i in (0, 1)
    )

    def says(text):
        expect(words).to_contain_text(text)

    says("trained\n")
    start, drawn = words.inner_text(), picture.get_attribute("src")
    names = condition.locator("option").all_inner_texts()
    assert names[:3] == ["all", "trained", "story-only"]
    assert all(name in start for name in names[1:])

    condition.select_option(label="story-only")
    expect(words).not_to_contain_text("trained\n")
    expect(picture).not_to_have_attribute("src", drawn)
    says("mask, ")
    says("solved 0 (0.0-")

    metric.select_option(label="parsed")
    expect(words).not_to_contain_text("solved")
    says("syntax: parsed 0 (0.0-")
    *_, name, masked = words.inner_text().strip().splitlines()
    tasks = name.split()[1]
    assert f"parsed {tasks} (" in masked, "under the mask every task parses"

    condition.select_option(label="all")
    metric.select_option(label="all")
    expect(words).to_have_text(start)
    loaded = picture.evaluate("image => image.complete && image.naturalWidth")
    assert loaded == 720
