"""Outcomes counted: shares, their intervals, and how they are shown."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tinyllm.evaluate.ablation import Outcome
from tinyllm.evaluate.table import METRICS, Row, costs, families, pairs, row, table

GOOD = Outcome("calc", 0, 2, 2, 2, True, True, True, 50, 130, 0.9, "answered")
BAD = Outcome("calc", 1, 3, 2, 1, True, False, False, 100, 300, None, "max_steps")


def test_a_row_counts_tasks_not_calls():
    found = row("trained", "free", [GOOD, BAD, GOOD])
    assert found.tasks == 3
    expected = {"parsed": 2, "valid": 2, "right_tool": 3, "right_args": 2, "solved": 2}
    assert found.counts == expected
    assert (found.tokens, found.forwarded) == (66.7, 186.7)
    assert found.mass_kept == 0.9, "a task without a mask has no part in the mean"
    assert row("trained", "free", [BAD]).mass_kept is None


def test_the_interval_is_that_of_the_share():
    found = row("c", "a", [GOOD] * 25)
    assert found.interval("solved") == pytest.approx((0.867, 1.0), abs=1e-3)
    assert found.share("solved") == 1


def numbered(*solved, first=0):
    """Outcomes of one family with these verdicts, numbered from `first`."""
    return [
        replace(GOOD, number=first + i, solved=yes, n_valid=2 * yes)
        for i, yes in enumerate(solved)
    ]


def test_pairs_count_the_tasks_that_passed_in_one_arm_only():
    mask = row("c", "mask", numbered(1, 1, 0, 1, 0), numbered(1, 0, 1, 0, 0))
    assert (mask.paired_tasks, mask.paired["solved"]) == (5, [2, 1])
    assert mask.to_json()["p"] == {"valid": 1.0, "solved": 1.0}


def test_a_pair_is_the_same_task_of_the_same_family_and_not_the_same_place():
    free = numbered(0, 0, 0, 1)
    late = row("c", "mask", numbered(1, 1, first=2), free)
    assert (late.paired_tasks, late.paired["solved"]) == (2, [1, 0])
    other = [replace(o, family="read") for o in free]
    assert row("c", "mask", free, other).paired == {}


def test_the_table_of_pairs_has_p_and_leaves_out_what_has_no_pair():
    free = row("c", "free", numbered(*[0] * 9))
    mask = row("c", "mask", numbered(*[1] * 9), numbered(*[0] * 9))
    caption, _, condition, *lines = pairs([free, mask]).splitlines()
    assert "in this arm only" in caption
    assert condition == "c"
    assert [line.split() for line in lines] == [
        ["mask", "9", "9", "0", "0.0039", "9", "0", "0.0039"]
    ]
    assert pairs([free]) == ""


def test_a_row_goes_through_json_and_back():
    found = row("trained", "mask", [GOOD, BAD], [BAD, GOOD])
    plain = json.loads(json.dumps(found.to_json()))
    assert Row.from_json(plain) == found
    assert plain["intervals"]["solved"] == [0.0945, 0.9055]


def test_the_table_names_each_condition_once_and_fits_a_page():
    rows = [
        row(condition, arm, [GOOD, BAD], [GOOD, BAD])
        for condition in ("trained", "story-only")
        for arm in ("free", "instructed")
    ]
    for text in (table(rows), pairs(rows), families(rows), costs(rows)):
        assert text.count("trained\n") == 1
        assert text.index("trained") < text.index("story-only")
        assert text.count("instructed") == 2
        assert max(map(len, text.splitlines())) <= 88
    assert all(head in table(rows) for head in METRICS.values())


def test_the_widest_numbers_stay_apart():
    counts = dict.fromkeys(METRICS, 39_990)
    wide = Row("a-condition", "instructed", 40_000, counts, 1234.5, 12345.6, 0.9999)
    *_, shares, spreads = table([wide]).splitlines()
    assert shares.split() == ["instructed", "40000", *["99.9"] * len(METRICS)]
    assert spreads.split() == ["99.9-100.0"] * len(METRICS)


def test_all_but_one_is_not_shown_as_all():
    nearly = replace(
        row("c", "a", [GOOD]), tasks=4000, counts=dict.fromkeys(METRICS, 3999)
    )
    assert table([nearly]).splitlines()[2].split()[2:] == ["99.9"] * len(METRICS)
    every = replace(nearly, counts=dict.fromkeys(METRICS, 4000))
    assert table([every]).splitlines()[2].split()[2:] == ["100.0"] * len(METRICS)


def test_each_family_has_its_share_of_what_was_solved():
    read = replace(GOOD, family="read_calc")
    found = row("trained", "mask", [GOOD, BAD, read])
    assert found.by_family == {"calc": 0.5, "read_calc": 1.0}
    head, condition, line = families([found]).splitlines()
    assert head.split() == ["calc", "read_calc"]
    assert (condition, line.split()) == ("trained", ["mask", "50.0", "100.0"])


def test_nearly_all_is_never_shown_as_all_and_what_was_not_measured_not_as_none():
    one, other = (
        row("c", arm, [replace(GOOD, mass_kept=0.99996, family=family)])
        for arm, family in (("free", "calc"), ("mask", "read"))
    )
    assert costs([one]).splitlines()[-1].split()[-1] == "99.9"
    lines = families([one, other]).splitlines()
    assert [line.split() for line in lines[2:]] == [
        ["free", "100.0", "-"],
        ["mask", "-", "100.0"],
    ]
