"""The sampling widget: its bars, line, words and sliders say what the sampler does."""

from __future__ import annotations

from html import escape
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("ipywidgets", reason="the notebooks extra is not installed")
pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

from tinyllm.decode.sampling import Sampler
from tinyllm.errors import UsageError
from tinyllm.text.bpe import BPE
from tinyllm.widgets import sampling

TOKENIZER = BPE.from_merges([])  # id 3 + b stands for byte b


def row(text, probabilities, rest=1e-9):
    """Logits of these probabilities for the characters of a text, little elsewhere."""
    values = np.full(TOKENIZER.vocab_size, rest)
    values[[3 + ord(c) for c in text]] = probabilities
    return np.log(values).astype(np.float32)


LOGITS = row("abc $", [0.5, 0.25, 0.12, 0.1, 0.03])
FILTERS = Sampler(1.0, top_k=4, top_p=0.85, min_p=0.4, seed=3)  # throws 0.09


def by_text(sampler, logits=LOGITS):
    ids = sampling.likeliest(logits, [sampler])
    found = sampling.bars(logits, TOKENIZER, sampler, ids)
    return {bar.text: bar for bar in found}


def test_the_words_name_every_filter_its_mass_and_the_token_drawn():
    words = sampling.told(LOGITS, TOKENIZER, FILTERS).splitlines()
    assert words[:7] == [
        "temperature 1.00, top-k 4, top-p 0.85, min-p 0.40, seed 3",
        "  top-k     255 tokens that held 0.03",
        "  top-p       1 token  that held 0.10",
        "  min-p       1 token  that held 0.12",
        "  kept        2 tokens that held 0.75",
        "  seed 3 throws 0.09 and draws a",
        "            before  after",
    ]
    assert words[7:12] == [
        "a             0.50   0.67  drawn",
        "b             0.25   0.33",
        "c             0.12      –  min-p",
        "␣             0.10      –  top-p",
        "$             0.03      –  top-k",
    ]
    assert words[-1] == "250 others    0.00      –  top-k"


def test_the_words_at_temperature_0_throw_no_number():
    words = sampling.told(LOGITS, TOKENIZER, Sampler(0.0))
    assert "greedy throws no number and takes a" in words
    assert "no chance 258 tokens that held 0.00" in words


def test_a_filter_that_is_on_and_finds_nothing_to_remove_is_named_all_the_same():
    near_0 = Sampler(0.02, top_k=3, min_p=0.1)  # all but the best round to 0
    words = sampling.told(row("ab", [0.9, 0.1]), TOKENIZER, near_0)
    assert "no chance 258 tokens that held 0.00\n  top-k       0 tokens" in words
    assert "min-p       0 tokens that held 0.00" in words
    assert "top-p" not in words


def test_the_others_say_what_is_kept_of_them_and_what_was_removed():
    others = row("abcdefghijkl", [0.08] * 9 + [0.07, 0.06, 0.05])

    def rest(sampler):
        *_, last = by_text(sampler, others).values()
        return round(last.after, 2), round(last.lost, 2), last.note

    assert rest(Sampler(1.0)) == (0.2, 0, "")  # jkl: beside 0.8 with a bar, of 0.9
    assert rest(Sampler(1.0, top_k=10)) == (0.09, 0.12, "top-k took 0.12")
    assert rest(Sampler(1.0, top_k=9)) == (0, 0.2, "top-k")
    assert rest(Sampler(1.0, top_k=11, min_p=0.9)) == (0, 0.2, "filters")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("setting", [{}, {"top_k": 3}, {"top_p": 0.8}, {"min_p": 0.2}])
def test_the_token_marked_is_the_first_that_the_sampler_picks(setting, seed):
    made = [Sampler(1.5, seed=seed, **setting) for _ in range(2)]
    (marked,) = [bar for bar in by_text(made[0]).values() if bar.drawn]
    picked = made[1].pick(LOGITS)
    assert marked.text == chr(picked - 3).replace(" ", "␣")
    assert made[0].pick(LOGITS) == picked  # looking drew nothing


def test_a_token_that_is_drawn_has_a_bar_however_unlikely_it_is():
    flat = row("z", [0.004], rest=0.00386)
    sampler = Sampler(1.0, seed=5)
    assert sum(bar.drawn for bar in by_text(sampler, flat).values()) == 1
    assert len(by_text(sampler, flat)) == sampling.TOP + 1


def test_bars_hold_both_probabilities_and_the_rest_adds_up_to_one():
    found = by_text(Sampler(2.0, top_k=2))
    roots = np.sqrt([0.5, 0.25])
    assert found["a"].after == pytest.approx(roots[0] / roots.sum(), abs=1e-5)
    assert found["a"].before == pytest.approx(0.5, abs=1e-5)
    assert (found["c"].after, found["c"].rule) == (0, "top_k")
    assert sum(bar.before for bar in found.values()) == pytest.approx(1, abs=1e-5)
    assert sum(bar.after for bar in found.values()) == pytest.approx(1, abs=1e-5)


def test_the_picture_hatches_what_is_removed_and_names_the_rule():
    _, after, line = sampling.draw(LOGITS, TOKENIZER, FILTERS).axes
    hatches = [bar.get_hatch() for bar in after.patches]
    kept, by_min, by_p, by_k = "", "xxxx", "....", "////"
    assert [h or "" for h in hatches[:5]] == [kept, kept, by_min, by_p, by_k]
    labels = [text.get_text() for text in after.texts]
    assert labels[0] == "0.67 ← drawn"
    assert labels[2:5] == ["0.12 min-p", "0.10 top-p", "0.03 top-k"]
    assert [after.texts[i].get_weight() for i in (0, 1)] == ["bold", "normal"]
    words = "kept 0.75, removed by min-p 0.12, removed by top-p 0.10, removed by top-k"
    assert words in line.get_xlabel()


def test_the_line_is_all_probability_in_the_order_of_the_draw():
    *_, line = sampling.draw(LOGITS, TOKENIZER, FILTERS).axes
    ends = [0.0]
    for part in line.patches:
        assert part.get_x() == pytest.approx(ends[-1], abs=1e-5)
        ends.append(part.get_x() + part.get_width())
    assert ends[-1] == pytest.approx(1, abs=1e-5)
    (mark, _) = line.lines
    assert mark.get_xdata()[0] == pytest.approx(0.0856 * 0.75, abs=1e-3)
    words = [text.get_text() for text in line.texts]
    assert "seed 3: 0.09 of the kept part draws a" in words


def test_the_others_are_hatched_for_what_was_removed_of_them():
    sampler = Sampler(2.0, top_k=30, seed=5)
    flat = row("z", [0.1], rest=0.9 / 258)
    _, after, _ = sampling.draw(flat, TOKENIZER, sampler).axes
    *_, kept, removed = after.patches
    assert (kept.get_hatch(), removed.get_hatch()) == (None, "////")
    assert removed.get_x() == pytest.approx(kept.get_width())
    label = f"{kept.get_width():.2f} + {removed.get_width():.2f}"
    assert after.texts[-1].get_text() == label
    assert "hatched: removed" in after.get_xlabel()


def test_many_small_parts_of_the_line_are_drawn_as_one():
    flat = row("z", [0.5], rest=0.5 / 258)
    *_, line = sampling.draw(flat, TOKENIZER, Sampler(1.0, seed=1)).axes
    assert [part.get_width() for part in line.patches] == pytest.approx([0.5, 0.5])


def test_greedy_has_no_mark_on_its_line():
    *_, line = sampling.draw(LOGITS, TOKENIZER, Sampler(0.0)).axes
    assert len(line.lines) == 0


def test_three_samplers_stand_side_by_side_and_four_do_not():
    samplers = [Sampler(t, top_k=5, top_p=0.95, min_p=0.05) for t in (0.5, 1.0, 2.0)]
    fig = sampling.draw(LOGITS, TOKENIZER, *samplers)
    fig.draw_without_rendering()
    titles = [axes.get_title("left") for axes in fig.axes[:4]]
    assert titles[0] == "before"
    assert [title[0] for title in titles[1:]] == ["1", "2", "3"]
    width, height = fig.bbox.size
    for axes in fig.axes:
        box = axes.get_tightbbox()
        assert -1 <= box.x0 < box.x1 <= width + 1
        assert -1 <= box.y0 < box.y1 <= height + 1
    boxes = [axes.get_tightbbox() for axes in fig.axes[:4]]  # with their titles
    assert all(a.x1 <= b.x0 for a, b in pairwise(boxes))
    with pytest.raises(UsageError, match=r"4 samplers .* room for 1 to 3"):
        sampling.draw(LOGITS, TOKENIZER, *samplers, FILTERS)
    with pytest.raises(UsageError, match="0 samplers"):
        sampling.draw(LOGITS, TOKENIZER)


@pytest.mark.parametrize("largest", [0.2, 0.4, 0.9])
def test_the_longest_bar_and_its_label_stay_in_the_picture(largest):
    rest = (1 - largest) / 258
    fig = sampling.draw(row("a", [largest], rest), TOKENIZER, Sampler(1.0, seed=3))
    fig.draw_without_rendering()
    before, after, _ = fig.axes
    for axes in (before, after):
        label = axes.texts[0].get_window_extent()
        assert label.x1 <= axes.get_window_extent().x1 + 1
        assert axes.get_xticks()[-1] >= largest


def test_each_slider_redraws_words_and_picture():
    box = sampling.explorer(LOGITS, TOKENIZER)
    *sliders, picture, words = box.children
    names = [slider.description for slider in sliders]
    assert names == ["temperature", "top-k", "top-p", "min-p", "seed"]
    assert "temperature 1.00, seed 0" in words.value
    seen = {(words.value, picture.value)}
    for slider, value in zip(sliders, (2.0, 4, 0.9, 0.5, 8), strict=True):
        slider.value = value
        seen.add((words.value, picture.value))
    assert len({w for w, _ in seen}) == len({p for _, p in seen}) == 6
    assert "temperature 2.00, top-k 4, top-p 0.90, min-p 0.50, seed 8" in words.value


def test_the_explorer_opens_at_the_settings_of_a_sampler():
    opened = Sampler(5.0, top_k=60, top_p=0.7, min_p=0.1, seed=700)
    *sliders, picture, words = sampling.explorer(LOGITS, TOKENIZER, opened).children
    assert [slider.value for slider in sliders] == [5.0, 60, 0.7, 0.1, 700]
    assert escape(sampling.told(LOGITS, TOKENIZER, opened)) in words.value
    assert picture.value == sampling.still(LOGITS, TOKENIZER, opened).data


def test_the_words_of_the_explorer_are_made_before_its_picture():
    *sliders, picture, words = sampling.explorer(LOGITS, TOKENIZER).children
    came = []
    for child in (words, picture):
        child.observe(lambda change: came.append(change.owner), "value")
    sliders[0].value = 3
    assert came == [words, picture]


def test_what_a_token_holds_is_escaped_and_no_formula():
    logits = row("<$", [0.6, 0.4])
    *_, picture, words = sampling.explorer(logits, TOKENIZER).children
    assert "&lt; " in words.value
    assert bytes(picture.value).startswith(b"\x89PNG")


def test_the_same_settings_give_the_same_bytes_and_the_words_as_alt_text():
    one, two = (sampling.still(LOGITS, TOKENIZER, FILTERS) for _ in range(2))
    assert one.data == two.data
    assert one.alt == sampling.told(LOGITS, TOKENIZER, FILTERS)
    both = sampling.still(LOGITS, TOKENIZER, FILTERS, Sampler(0.0))
    assert "greedy" in both.alt
    assert "min-p" in both.alt
