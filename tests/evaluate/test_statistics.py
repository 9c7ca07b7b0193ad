"""Intervals, pairs, and the one rule by which percentages are written."""

from __future__ import annotations

import math
from itertools import product

import pytest

from tinyllm.evaluate.held_out import Score
from tinyllm.evaluate.statistics import chance, percent, sign_test, spread, wilson
from tinyllm.evaluate.table import METRICS, Row, table


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [  # Brown, Cai and DasGupta 2001, and by hand
        (0, 10, 0.0, 0.278),
        (10, 10, 0.722, 1.0),
        (5, 10, 0.237, 0.763),
        (485, 500, 0.951, 0.982),
    ],
)
def test_the_interval_is_wilsons(k, n, low, high):
    assert wilson(k, n) == pytest.approx((low, high), abs=5e-4)


@pytest.mark.parametrize("n", range(9))
def test_the_sign_test_counts_every_way_in_which_coins_can_fall(n):
    for wins in range(n + 1):
        apart = abs(2 * wins - n)
        coins = product((-1, 1), repeat=n)
        surprising = sum(abs(sum(fallen)) >= apart for fallen in coins)
        assert sign_test(wins, n - wins) == surprising / 2**n


def test_the_sign_test_has_two_sides_and_no_preference():
    assert sign_test(6, 0) == sign_test(0, 6) == pytest.approx(2 / 64)
    assert sign_test(16, 0) < 0.0001
    assert sign_test(0, 0) == sign_test(7, 7) == 1


def test_thousands_of_tasks_neither_overflow_nor_take_p_below_none():
    assert 0 <= sign_test(4000, 0) < 1e-300
    assert sign_test(2050, 1950) == pytest.approx(
        math.erfc(99 / math.sqrt(2 * 4000)), rel=0.01
    )


@pytest.mark.parametrize("n", [40, 500, 4000])
def test_only_all_is_shown_as_all_and_only_none_as_none(n):
    assert (percent(0 / n), percent(n / n)) == ("0.0", "100.0")
    inside = {percent(k / n) for k in range(1, n)}
    assert not inside & {"0.0", "100.0"}
    assert {percent(1 / 4000), percent(3999 / 4000)} == {"0.1", "99.9"}


@pytest.mark.parametrize("n", [1, 25, 40, 500, 4000])
def test_a_written_interval_contains_the_interval_and_little_more(n):
    for k in range(0, n + 1, max(1, n // 50)):
        written = [float(x) / 100 for x in spread(k, n).split("-")]
        low, high = wilson(k, n)
        assert low - 0.001 < written[0] <= low + 1e-12
        assert high - 1e-12 <= written[1] < high + 0.001


def test_a_p_is_never_written_as_none():
    assert (chance(1.0), chance(0.04996), chance(0.0)) == (
        "1.0000",
        "0.0500",
        "<0.0001",
    )


def test_evaluate_and_ablate_write_the_same_count_the_same_way():
    k, n = 3999, 4000
    row = Row("c", "a", n, dict.fromkeys(METRICS, k), 1, 1, None)
    *_, shares, spreads = (line.split() for line in table([row]).splitlines())
    assert str(Score("calc", n, k, 1, 1)).split()[-2:] == [shares[-1], spreads[-1]]
    assert shares[-1] == "99.9"
