"""Chapter 01 as a reader sees it: a text is typed and cut, merges go back and forth."""

from tests.notebooks.made import ROOT

CHAPTER = ROOT / "notebooks" / "01_tokens.ipynb"


def test_what_is_typed_is_cut_and_its_merges_follow_the_slider(chapter):
    from playwright.sync_api import expect

    explorer = Explorer(chapter)
    expect(explorer.counts).to_contain_text("characters: 16, bytes: 16")
    first = explorer.pieces.inner_text()

    explorer.write("<script>é 33")
    expect(explorer.counts).to_contain_text("characters: 12, bytes: 13")
    expect(explorer.pieces).not_to_have_text(first)
    assert explorer.pieces.locator("script").count() == 0
    ids = explorer.ids()
    assert explorer.letters().startswith("<script>")
    assert explorer.spelled() == "<script>é 33"
    assert ids[-1] == ids[-2]  # the digit 3, twice

    chapter.press(chapter.slider(), "Home")
    expect(explorer.counts).to_contain_text("tokens: 13")
    assert len(explorer.ids()) == 13  # one a byte
    assert explorer.spelled() == "<script>é 33"
    chapter.press(chapter.slider(), "ArrowRight")
    expect(explorer.counts).to_contain_text("merge 1 of")
    assert len(explorer.ids()) < 13
    chapter.press(chapter.slider(), "End")
    expect(explorer.counts).to_contain_text(f"tokens: {len(ids)}")
    assert explorer.ids() == ids

    explorer.write("3")  # nothing to merge
    expect(explorer.counts).to_have_text("characters: 1, bytes: 1, tokens: 1")
    assert explorer.ids() == [ids[-1]]


class Explorer:
    """The parts of the widget on the page."""

    def __init__(self, chapter):
        self.box = chapter.notebook.locator(".widget-textarea textarea")
        self.counts = chapter.notebook.locator(".tinyllm-counts")
        self.pieces = chapter.notebook.locator(".tinyllm-tokens")

    def write(self, text):
        """Replace the text, key by key."""
        self.box.fill("")
        self.box.press_sequentially(text)

    def lines(self):
        """[piece, id, bytes] of each box."""
        return [t.split("\n") for t in self.pieces.locator(".piece").all_inner_texts()]

    def ids(self):
        return [int(lines[1]) for lines in self.lines()]

    def letters(self):
        return "".join(lines[0] for lines in self.lines())

    def spelled(self):
        return bytes.fromhex(" ".join(lines[2] for lines in self.lines())).decode()
