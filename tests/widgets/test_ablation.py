"""The ablation widget: dots, bars and words say what the rows count."""

from __future__ import annotations

from itertools import pairwise

import pytest

pytest.importorskip("ipywidgets", reason="the notebooks extra is not installed")
pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

from tinyllm.errors import UsageError
from tinyllm.evaluate.ablation import ARMS, CONDITIONS
from tinyllm.evaluate.table import METRICS, SYNTAX, Row
from tinyllm.widgets import ablation


def counted(condition, arm, *counts, tasks=40):
    """A row with these counts, in the order of METRICS."""
    return Row(condition, arm, tasks, dict(zip(METRICS, counts, strict=True)), 9, 9, 1)


ONE = [
    counted("trained", "free", 40, 39, 28, 10, 0),
    counted("trained", "mask", 40, 40, 20, 5, 1),
]
# no two metrics of a row have the same count, so that no column can pass for another
ALL = [
    counted(condition, arm, 40 - i, 30 - i, 20 + j, 10 + j, i + j)
    for i, condition in enumerate(CONDITIONS)
    for j, arm in enumerate(ARMS)
]


def dots(fig):
    """(x, y) of each dot in a column, and its look, from the top and from the left."""
    lines = [
        line for line in fig.axes[0].lines if line.get_marker() not in ("", "None")
    ]
    places = [(line.get_xydata()[0].tolist(), line) for line in lines]
    found = [(y, x, line) for (x, y), line in places if x >= ablation.LEFT]
    return sorted(found, key=lambda dot: dot[:2])


def bars(fig):
    """(y, left end, right end) of each interval, from the top and from the left."""
    wide = [line for line in fig.axes[0].lines if line.get_linewidth() > 3]
    ends = [(line.get_ydata()[0], *sorted(line.get_xdata()))
            for line in wide if line.get_marker() == "None"]  # fmt: skip
    return sorted(ends)


@pytest.mark.parametrize("rows", [ONE, ALL, ALL[:1]])
def test_each_dot_stands_at_its_share_and_each_bar_spans_its_interval(rows):
    fig = ablation.draw(rows)
    at = ablation._columns(list(METRICS))
    expected = [(row, metric, at[metric]) for row in rows for metric in METRICS]
    drawn = zip(dots(fig), bars(fig), expected, strict=True)
    for (_, x, _), (_, left, right), (row, metric, (zero, full)) in drawn:
        parts = [(at - zero) / (full - zero) for at in (x, left, right)]
        assert parts[0] == pytest.approx(row.counts[metric] / row.tasks)
        assert parts[1:] == pytest.approx(row.interval(metric))
        assert left <= x + 1e-9
        assert x <= right + 1e-9


def test_the_columns_are_headed_in_their_order_and_sense_stands_apart():
    fig = ablation.draw(ONE)
    heads = {t.get_text(): t.get_position()[0] for t in fig.axes[0].texts}
    columns = ablation._columns(list(METRICS))
    for metric, (zero, full) in columns.items():
        assert heads[METRICS[metric]] == pytest.approx((zero + full) / 2)
    gaps = [b[0] - a[1] for a, b in pairwise(columns.values())]
    parting = len(SYNTAX) - 1
    assert gaps[parting] == pytest.approx(2 * ablation.GAP)
    assert gaps[:parting] + gaps[parting + 1 :] == pytest.approx([ablation.GAP] * 3)
    assert heads["syntax"] < columns["right_tool"][0] < heads["sense"]
    assert columns["solved"][1] == pytest.approx(ablation.WIDTH - ablation.RIGHT)


def test_arms_differ_by_shape_as_well_as_by_colour():
    assert list(ablation.LOOKS) == list(ARMS)
    looks = [*ablation.LOOKS.values(), ablation.OTHER]
    assert len({look["marker"] for look in looks}) == len(looks)
    assert len({look["color"] for look in looks}) == len(looks)
    shapes = [line.get_marker() for _, _, line in dots(ablation.draw(ALL[:4]))]
    expected = [ablation.LOOKS[arm]["marker"] for arm in ARMS]
    assert shapes[:: len(METRICS)] == expected


def test_an_arm_of_another_name_has_a_shape_of_its_own():
    fig = ablation.draw([counted("trained", "prayer", 5, 4, 3, 2, 1)])
    assert {line.get_marker() for _, _, line in dots(fig)} == {"X"}
    assert "prayer" in [t.get_text() for t in fig.axes[0].texts]


@pytest.mark.parametrize("metrics", [None, ["solved"], ["valid", "solved"]])
@pytest.mark.parametrize("rows", [ONE, ALL, ALL[:1]])
def test_no_text_lies_outside_the_picture_or_on_another(rows, metrics):
    fig = ablation.draw(rows, metrics)
    fig.draw_without_rendering()
    width, height = fig.bbox.size
    boxes = [text.get_window_extent() for text in fig.axes[0].texts]
    for i, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= width
        assert 0 <= box.y0 < box.y1 <= height
        assert not any(box.overlaps(other) for other in boxes[:i])


WORDS = [
    "trained",
    "  free, 40 tasks",
    "    syntax: parsed 40 (91.2-100.0 %), valid 39 (87.1-99.6 %)",
    "    sense:  right tool 28 (54.5-82.0 %), right args 10 (14.1-40.2 %), "
    "solved 0 (0.0-8.8 %)",
    "  mask, 40 tasks",
    "    syntax: parsed 40 (91.2-100.0 %), valid 40 (91.2-100.0 %)",
    "    sense:  right tool 20 (35.1-64.9 %), right args 5 (5.4-26.2 %), "
    "solved 1 (0.4-12.9 %)",
]


def test_the_words_say_what_the_picture_shows():
    assert ablation.told(ONE).splitlines() == WORDS
    lines = ablation.told(ALL).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(CONDITIONS)
    assert "free, 1 task\n" in ablation.told([counted("c", "free", *[1] * 5, tasks=1)])


def test_some_metrics_are_shown_in_the_order_of_all():
    some = ["solved", "parsed"]
    assert ablation.told(ONE[:1], some).splitlines()[2:] == [
        "    syntax: parsed 40 (91.2-100.0 %)",
        "    sense:  solved 0 (0.0-8.8 %)",
    ]
    assert len(dots(ablation.draw(ONE, some))) == 4
    only = ablation.draw(ONE, ["solved"])
    assert "syntax" not in [t.get_text() for t in only.axes[0].texts]


def test_the_picture_has_the_words_as_alt_text_and_the_same_bytes_each_time():
    first, again = ablation.still(ONE), ablation.still(ONE)
    assert first.data == again.data
    assert first.alt == ablation.told(ONE)
    assert ablation.still(ONE, ["solved"]).alt == ablation.told(ONE, ["solved"])


def test_no_rows_and_unknown_metrics_are_refused_by_name():
    for show in (ablation.draw, ablation.told, ablation.explorer):
        with pytest.raises(UsageError, match="no rows: measure at least one arm"):
            show([])
    for wanted in (["answered"], []):
        with pytest.raises(UsageError, match="metrics are some of parsed, valid"):
            ablation.draw(ONE, wanted)


def test_the_explorer_shows_the_condition_and_the_metric_that_are_chosen():
    choices, picture, words = ablation.explorer(ALL).children
    condition, metric = choices.children
    assert condition.options == ("all", *CONDITIONS)
    first = words.value, picture.value
    condition.value = "story-only"
    chosen = [row for row in ALL if row.condition == "story-only"]
    assert "trained" not in words.value
    assert picture.value == ablation.still(chosen).data
    metric.value = "solved"
    assert "parsed" not in words.value
    assert ablation.told(chosen, ["solved"]) in words.value
    assert picture.value == ablation.still(chosen, ["solved"]).data
    condition.value = metric.value = "all"
    assert (words.value, picture.value) == first


def test_the_name_of_a_condition_is_escaped():
    words = ablation.explorer([counted("<b>", "free", 5, 4, 3, 2, 1)]).children[2]
    assert "&lt;b&gt;" in words.value
    assert "<b>" not in words.value
