"""The row of tokens: where the one looked at stands, and what is said below."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.widgets import picture
from tinyllm.widgets.token_row import DRAWN, FORCED, LOOKS, STEPPED_IN, WIDE, token_row

LEGEND = {"": "wanted", STEPPED_IN: "by the mask", DRAWN: "by chance"}


def row(tokens, at):
    """The axes with a row of tokens, and the texts in it from left to right."""
    axes = picture.figure(7.2, 1).add_subplot()
    token_row(axes, tokens, at, LEGEND)
    shown = [t for t in axes.texts if t.get_position()[1] > 0]
    return axes, [t.get_text() for t in shown]


def frame(axes):
    """The box around the token looked at: from where to where."""
    (box,) = [bar for bar in axes.patches if bar.get_linewidth() == 1.8]
    ends = (box.get_x(), box.get_x() + box.get_width())
    return min(ends), max(ends)


def test_each_token_has_its_mark_and_a_look_of_its_own():
    axes, names = row([("a", ""), ("b", STEPPED_IN), ("c", FORCED)], 1)
    assert names == ["a", f"b{STEPPED_IN}", f"c{FORCED}"]
    hatches = [bar.get_hatch() for bar in axes.patches[:4] if bar.get_height() == 0.8]
    assert len(set(hatches)) == len(hatches) == 3
    looks = [(look["edgecolor"], look.get("hatch")) for look in LOOKS.values()]
    assert len(set(looks)) == len(LOOKS)


@given(
    st.lists(st.integers(1, 20).map(lambda n: ("x" * n, "")), min_size=1, max_size=60),
    st.data(),
)
def test_the_token_looked_at_is_in_sight_wherever_it_stands(tokens, data):
    at = data.draw(st.integers(0, len(tokens) - 1))
    axes, names = row(tokens, at)
    left, right = axes.get_xlim()
    low, high = frame(axes)
    assert left <= low < high <= right
    assert tokens[at][0] in names


@pytest.mark.parametrize("n", [1, 40, 400])
def test_the_row_is_as_wide_as_a_line_and_ends_with_the_last_token(n):
    tokens = [("abc", "")] * n
    axes, _ = row(tokens, n - 1)
    left, right = axes.get_xlim()
    assert right - left == pytest.approx(WIDE, abs=0.5)
    assert frame(axes)[1] == pytest.approx(4 * n)
    if 4 * n > WIDE:
        assert right == pytest.approx(4 * n)


def test_the_legend_names_each_mark():
    axes, _ = row([("a", "")], 0)
    below = [t.get_text() for t in axes.texts if t.get_position()[1] < 0]
    assert below == ["wanted", f"{STEPPED_IN} by the mask", f"{DRAWN} by chance"]
