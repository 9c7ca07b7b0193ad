"""The attention widget: its words, picture and sliders say what a trace says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("ipywidgets", reason="the notebooks extra is not installed")
pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

from tests.conftest import TINY, random_weights
from tinyllm.errors import UsageError
from tinyllm.model.trace import Trace, trace
from tinyllm.model.transformer import Model
from tinyllm.text.bpe import BPE
from tinyllm.widgets import attention

TOKENIZER = BPE.from_merges([])  # id 3 + b stands for byte b
IDS = (1, *(3 + b for b in b"ab a"))


def made(rows, layers=1, heads=1):
    """A trace of IDS in which every head of every layer reads as `rows` say."""
    pattern = np.zeros((len(IDS), len(IDS)), np.float32)
    for at, row in enumerate(rows):
        pattern[at, : len(row)] = row
    attention_ = np.tile(pattern, (layers, heads, 1, 1))
    nothing = np.zeros((1, 1), np.float32)
    return Trace(IDS, nothing, attention_, nothing)


MADE = made([[1], [0.25, 0.75], [0, 1, 0], [0.2, 0.3, 0.25, 0.25], [0.6, 0, 0, 0, 0.4]])
REAL = trace(Model(TINY, random_weights(TINY)), IDS)


def test_the_words_name_what_is_read_most_and_how_far_back_it_stands():
    assert attention.told(MADE, TOKENIZER, 0, 0, 4).splitlines() == [
        "layer 0, head 0: position 4 (a) reads",
        "  0.60 of [ 0] <1>  (4 before)",
        "  0.40 of [ 4] a    (itself)",
        "  0.00 of all others",
    ]
    assert attention.told(MADE, TOKENIZER, 0, 0, 2).splitlines()[1:] == [
        "  1.00 of [ 1] a  (the one before)",
        "  0.00 of all others",
    ]


def test_the_first_position_reads_only_itself():
    for layer in range(TINY.n_layers):
        assert attention.told(REAL, TOKENIZER, layer, 5, 0).splitlines()[1:] == [
            "  1.00 of [ 0] <1>  (itself)",
            "  and nothing else",
        ]


def test_equal_shares_stand_in_the_order_of_the_text():
    found = attention.most_read(MADE, TOKENIZER, 0, 0, 3)
    assert [read.position for read in found] == [1, 2, 3, 0]
    noisy = replace(MADE, attention=MADE.attention + np.float32(1e-7) * np.arange(5))
    assert attention.most_read(noisy, TOKENIZER, 0, 0, 3) == found


def test_a_share_too_small_to_be_seen_is_not_named():
    small = made([[1], [0.996, 0.004]])
    assert len(attention.most_read(small, TOKENIZER, 0, 0, 1)) == 1
    assert "0.00 of all others" in attention.told(small, TOKENIZER, 0, 0, 1)


def test_layer_head_and_position_are_not_mixed_up():
    for layer, head, position in [(0, 7, 4), (2, 1, 3), (1, 0, 4)]:
        (best, *_) = attention.most_read(REAL, TOKENIZER, layer, head, position)
        row = REAL.attention[layer, head, position]
        assert best.position == row.argmax()
        assert best.weight == pytest.approx(row.max(), abs=0.005)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ((3, 0, 0), "layer is 3; expected 0 to 2"),
        ((0, 8, 0), "head is 8; expected 0 to 7"),
        ((0, 0, 5), "position is 5; expected 0 to 4"),
        ((0, 0, -1), "position is -1; expected 0 to 4"),
    ],
)
def test_a_place_that_is_not_there_is_refused_by_name(place, message):
    for look in (attention.told, attention.still):
        with pytest.raises(UsageError, match=message):
            look(REAL, TOKENIZER, *place)


def test_a_text_too_long_for_the_picture_is_refused():
    n = attention.LARGEST + 1
    long = replace(REAL, attention=np.zeros((1, 1, n, n), np.float32))
    with pytest.raises(UsageError, match=f"{n} tokens .* room for {n - 1}: trace a"):
        attention.explorer(long, TOKENIZER)


@pytest.mark.parametrize("n", [1, 2, attention.LARGEST])
def test_every_length_up_to_the_limit_is_drawn(n):
    ids = tuple(3 + i for i in range(n))
    pattern = np.tril(np.ones((n, n), np.float32)) / np.arange(1, n + 1)[:, None]
    even = replace(REAL, token_ids=ids, attention=pattern[None, None])
    assert attention.still(even, TOKENIZER, 0, 0, n - 1).data.startswith(b"\x89PNG")


def test_the_picture_shows_the_pattern_and_frames_the_row():
    left, right = attention.draw(MADE, TOKENIZER, 0, 0, 4).axes
    (image,) = left.images
    assert np.array_equal(image.get_array(), MADE.attention[0, 0])
    future, frame = left.patches
    assert future.get_hatch()
    assert (frame.get_x(), frame.get_y(), frame.get_width()) == (-0.5, 3.5, 5)
    assert [label.get_text() for label in left.get_yticklabels()][2:4] == [
        "b [2]",
        "␣ [3]",
    ]
    assert [label.get_text() for label in left.get_xticklabels()] == [*"01234"]
    assert left.get_yticklabels()[4].get_weight() == "bold"
    assert [bar.get_width() for bar in right.patches] == pytest.approx([0.4, 0.6])


def test_the_axis_of_shares_ends_at_one_and_its_labels_stay_in_the_picture():
    fig = attention.draw(MADE, TOKENIZER, 0, 0, 0)
    left, right = fig.axes
    assert right.get_xlim() == (0, 1)
    fig.draw_without_rendering()
    width, height = fig.bbox.size
    for axes in (left, right):
        box = axes.get_tightbbox()
        assert 0 < box.x0 < box.x1 < width
        assert 0 < box.y0 < box.y1 < height - 5
    assert left.get_tightbbox().x1 < right.get_tightbbox().x0


@pytest.mark.parametrize("n", [12, 23, 24, 25, attention.LARGEST])
def test_labels_do_not_touch_and_the_chosen_row_has_one(n):
    ids = (3 + ord("m"),) * n
    pattern = np.eye(n, dtype=np.float32)[None, None]
    many = replace(REAL, token_ids=ids, attention=pattern)
    for position in (n - 1, n - 2):
        fig = attention.draw(many, TOKENIZER, 0, 0, position)
        fig.draw_without_rendering()
        left, _ = fig.axes
        rows = [label.get_window_extent() for label in left.get_yticklabels()]
        columns = [label.get_window_extent() for label in left.get_xticklabels()]
        assert all(a.y0 >= b.y1 for a, b in pairwise(rows))
        assert all(a.x1 + 2 < b.x0 for a, b in pairwise(columns))
        (bold,) = [t for t in left.get_yticklabels() if t.get_weight() == "bold"]
        assert bold.get_text() == f"m [{position}]"


def test_only_what_lies_ahead_is_hatched():
    left, _ = attention.draw(MADE, TOKENIZER, 0, 0, 0).axes
    path = left.patches[0].get_path()
    ahead = [[path.contains_point((s, t)) for s in range(5)] for t in range(5)]
    assert np.array_equal(ahead, np.triu(np.ones((5, 5), bool), 1))


def test_each_slider_redraws_picture_and_words():
    box = attention.explorer(REAL, TOKENIZER)
    *sliders, words, picture = box.children
    assert [slider.description for slider in sliders] == ["layer", "head", "position"]
    assert [slider.max for slider in sliders] == [2, 7, 4]
    assert "layer 0, head 0: position 4" in words.value
    seen = {(words.value, picture.value)}
    for slider, value in zip(sliders, (2, 5, 3), strict=True):
        slider.value = value
        seen.add((words.value, picture.value))
    assert "layer 2, head 5: position 3" in words.value
    assert len({w for w, _ in seen}) == len({p for _, p in seen}) == 4


def test_the_explorer_opens_where_it_is_told():
    box = attention.explorer(REAL, TOKENIZER, layer=2, head=5, position=3)
    *sliders, words, picture = box.children
    assert [slider.value for slider in sliders] == [2, 5, 3]
    assert "layer 2, head 5: position 3" in words.value
    assert picture.value == attention.still(REAL, TOKENIZER, 2, 5, 3).data
    first = attention.explorer(REAL, TOKENIZER, position=0)
    assert "layer 0, head 0: position 0" in first.children[3].value


def test_the_explorer_does_not_open_at_a_place_that_is_not_there():
    with pytest.raises(UsageError, match="head is 8; expected 0 to 7"):
        attention.explorer(REAL, TOKENIZER, head=8)


def test_the_words_of_the_explorer_come_before_its_picture():
    *sliders, words, picture = attention.explorer(REAL, TOKENIZER).children
    came = []
    for child in (words, picture):
        child.observe(lambda change: came.append(change.owner), "value")
    sliders[1].value = 3
    assert came == [words, picture]


def test_what_the_text_holds_is_escaped_and_no_formula():
    ids = tuple(3 + b for b in b"<b>$x")
    box = attention.explorer(replace(REAL, token_ids=ids), TOKENIZER)
    *sliders, words, _ = box.children
    sliders[2].value = 0
    assert "position 0 (&lt;)" in words.value


def test_the_same_trace_gives_the_same_bytes_and_its_words_as_alt_text():
    one, two = (attention.still(REAL, TOKENIZER, 1, 2, 3) for _ in range(2))
    assert one.data == two.data
    assert one.alt == attention.told(REAL, TOKENIZER, 1, 2, 3)
