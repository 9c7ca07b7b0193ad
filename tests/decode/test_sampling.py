from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.decode.sampling import (
    RULES,
    Sampler,
    at_temperature,
    min_p,
    penalise,
    softmax,
    top_k,
    top_p,
)
from tinyllm.errors import InferenceError, InvalidTokenError, UsageError

INF = float("inf")


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def kept(probabilities: np.ndarray, p: float) -> int:
    return top_p(probabilities[top_k(probabilities, 0)], p)


def test_softmax_is_a_distribution_in_float32():
    p = softmax(f32(1, 2, 3))
    assert np.allclose(p, [0.0900, 0.2447, 0.6652], atol=1e-4)
    assert p.dtype == np.float32


def test_softmax_of_large_logits_and_of_masked_ones():
    assert softmax(f32(1000, 1000, -INF)).tolist() == [0.5, 0.5, 0.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_nucleus_of_known_probabilities(dtype):
    assert kept(np.array([0.3, 0.1, 0.1, 0.5], dtype), 0.8) == 2
    assert kept(np.array([0.5, 0.41, 0.09], dtype), 0.9) == 2


def test_the_nucleus_at_its_limits():
    p = f32(0.3, 0.1, 0.1, 0.5)
    assert [kept(p, x) for x in (1.0, 1e-8, 0.0)] == [4, 1, 1]


def test_top_1_then_a_nucleus_keeps_one():
    p = f32(0.3, 0.1, 0.1, 0.5)
    assert top_p(p[top_k(p, 1)], 0.8) == 1


def test_top_k_is_best_first_and_equals_by_id():
    assert top_k(f32(0.2, 0.4, 0.2, 0.2), 2).tolist() == [1, 0]
    assert top_k(f32(0.2, 0.4, 0.2, 0.2), 0).tolist() == [1, 0, 2, 3]
    assert len(top_k(f32(0.5, 0.5), 9)) == 2


def test_many_equals_stay_in_the_order_of_their_ids():
    probabilities = np.array([0.001, 0.003, 0.002] * 100, np.float32)
    assert top_k(probabilities, 100).tolist() == list(range(1, 300, 3))


def test_a_draw_that_rounds_up_to_1_is_still_a_legal_token():
    class Highest:
        def random(self):
            return 1.0 - 2.0**-53  # 1.0 in float32

    sampler = Sampler(1.0)
    sampler._random = Highest()
    assert sampler.pick(f32(3, 1, -INF, -INF)) == 1


@pytest.mark.parametrize("temperature", [0.0, 0.0099])
def test_a_cold_sampler_takes_the_first_of_the_largest(temperature):
    assert Sampler(temperature).pick(f32(1, 5, 5, -INF)) == 1


def test_a_warm_sampler_does_not_only_take_the_largest():
    sampler = Sampler(1.0)
    assert {sampler.pick(f32(1, 1.5, 1)) for _ in range(60)} == {0, 1, 2}


def test_counts_follow_the_probabilities_at_the_temperature():
    sampler, logits = Sampler(2.0, seed=7), f32(0, 2, 4)
    counts = np.bincount([sampler.pick(logits) for _ in range(4000)], minlength=3)
    assert np.allclose(counts / 4000, softmax(logits / np.float32(2)), atol=0.03)


@pytest.mark.parametrize(
    ("setting", "legal"), [({"top_k": 2}, {1, 3}), ({"top_p": 0.5}, {3})]
)
def test_filters_leave_only_the_best(setting, legal):
    sampler = Sampler(1.0, **setting)
    picked = {sampler.pick(np.log(f32(0.1, 0.3, 0.05, 0.55))) for _ in range(60)}
    assert picked == legal


def test_the_same_seed_gives_the_same_picks_and_another_seed_others():
    def picks(seed: int) -> list[int]:
        sampler = Sampler(1.0, seed=seed)
        return [sampler.pick(np.zeros(50, np.float32)) for _ in range(20)]

    assert picks(42) == picks(42)
    assert picks(42) != picks(43)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    "logits", [(1, np.nan, 2), (-INF, -INF), (1, INF), (np.nan, -INF)]
)
def test_logits_without_a_largest_number_are_an_error(temperature, logits):
    with pytest.raises(InferenceError):
        Sampler(temperature).pick(f32(*logits))


def test_nothing_legal_and_nan_are_told_apart():
    with pytest.raises(InferenceError, match="no token is legal"):
        Sampler().pick(f32(-INF, -INF))
    with pytest.raises(InferenceError, match="nan"):
        softmax(f32(np.nan, 0))


@pytest.mark.parametrize(
    "setting",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"temperature": INF},
        {"top_k": -1},
        {"top_p": 1.1},
        {"top_p": -0.1},
        {"top_p": float("nan")},
    ],
)
def test_a_setting_out_of_range_is_named(setting):
    with pytest.raises(UsageError, match=next(iter(setting))):
        Sampler(**setting)


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(
        st.one_of(st.floats(-80, 80, width=32), st.just(-INF)), min_size=1, max_size=12
    ).filter(lambda values: max(values) > -INF),
    temperature=st.sampled_from([0.0, 0.02, 1.0, 50.0]),
    top_k=st.integers(0, 4),
    top_p=st.floats(0, 1),
    seed=st.integers(0, 5),
)
def test_a_masked_token_is_never_picked_and_logits_stay(
    logits, temperature, top_k, top_p, seed
):
    row = f32(*logits)
    before = row.copy()
    picked = Sampler(temperature, top_k, top_p, seed).pick(row)
    assert row[picked] > -INF
    assert np.array_equal(row, before)


@pytest.mark.parametrize(
    "setting",
    [
        {"seed": -1},
        {"seed": 1.5},
        {"seed": None},
        {"seed": True},
        {"top_k": 2.0},
        {"temperature": 1e39},
        {"temperature": 10**400},
        {"temperature": "warm"},
        {"temperature": None},
        {"top_p": "all"},
    ],
    ids=str,
)
def test_a_setting_of_the_wrong_kind_is_named_with_what_was_given(setting):
    ((name, value),) = setting.items()
    with pytest.raises(UsageError, match=name) as caught:
        Sampler(**setting)
    assert "warm" not in setting.values() or repr(value) in str(caught.value)


def test_numbers_of_numpy_are_settings_too():
    sampler = Sampler(np.float32(1), np.int64(1), np.float32(1), np.int64(3))
    assert sampler.pick(f32(0, 1)) == 1


def test_the_highest_temperature_is_no_warning():
    assert Sampler(1e6).pick(f32(0, -INF)) == 0


def test_min_p_keeps_what_reaches_its_share_of_the_best():
    p = f32(0.5, 0.3, 0.15, 0.05)
    assert [min_p(p, x) for x in (0.0, 0.05, 0.2, 0.5, 0.61, 1.0)] == [4, 4, 3, 2, 1, 1]
    assert min_p(f32(0.25, 0.25, 0.25, 0.25), 1.0) == 4  # equals of the best stay


def test_a_penalty_lowers_what_was_seen_once_however_often_and_nothing_else():
    logits = f32(2, -2, 1)
    assert penalise(logits, [0, 1], 2.0).tolist() == [1, -4, 1]
    assert penalise(logits, [0, 1, 0, 0, 1], 2.0).tolist() == [1, -4, 1]
    assert logits.tolist() == [2, -2, 1]
    assert penalise(logits, [], 2.0).dtype == np.float32


@given(
    st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=12),
    st.data(),
    st.floats(1, 10),
)
def test_a_penalty_never_raises_a_logit_and_leaves_a_masked_one(values, data, penalty):
    logits = f32(*values)
    logits[0] = -INF
    ids = st.integers(0, len(values) - 1)
    seen = data.draw(st.lists(ids))
    lowered = penalise(logits, seen, penalty)
    assert (lowered <= logits).all()
    assert lowered[0] == -INF
    rest = [i for i in range(len(values)) if i not in seen]
    assert np.array_equal(lowered[rest], logits[rest])


def test_the_window_of_the_penalty_forgets_what_is_further_back():
    logits = f32(2.0, 1.9, 0.0)
    setting = {"repetition_penalty": 2.0, "repetition_window": 2}
    pick = Sampler(**setting).pick
    assert pick(logits) == 0
    assert pick(logits, [0]) == 1
    assert pick(logits, [0, 2, 2]) == 0
    assert pick(logits, [0, 1]) == 0
    everything = Sampler(repetition_penalty=2.0, repetition_window=0)
    assert everything.pick(logits, [0]) == 0  # a window of nothing: no penalty


def test_a_penalty_of_one_and_a_min_p_of_zero_change_no_pick():
    logits = np.random.default_rng(0).normal(size=40).astype(np.float32)
    plain = Sampler(temperature=1.0, seed=3)
    same = Sampler(temperature=1.0, seed=3, min_p=0.0, repetition_penalty=1.0)
    assert [plain.pick(logits) for _ in range(99)] == [
        same.pick(logits, [1, 2, 3]) for _ in range(99)
    ]


@pytest.mark.parametrize(
    "setting",
    [
        {"min_p": 1.5},
        {"min_p": -0.1},
        {"repetition_penalty": 0.5},
        {"repetition_penalty": float("nan")},
        {"repetition_window": -1},
    ],
)
def test_a_new_setting_out_of_range_is_named(setting):
    with pytest.raises(UsageError, match=next(iter(setting))):
        Sampler(**setting)


SETTINGS = [
    {},
    {"temperature": 0.5},
    {"temperature": 2.0},
    {"top_k": 4},
    {"top_p": 0.8},
    {"min_p": 0.3},
    {"repetition_penalty": 3.0},
    {"temperature": 1.5, "top_k": 6, "top_p": 0.9, "min_p": 0.1},
]


def exact_distribution(logits, seen, setting):
    """What the picks should follow, in float64 and without the package's filters."""
    z = logits.astype(np.float64)
    for i in set(seen):
        factor = setting.get("repetition_penalty", 1.0)
        z[i] = z[i] / factor if z[i] > 0 else z[i] * factor
    p = np.exp(z / setting.get("temperature", 1.0))
    p /= p.sum()
    order = sorted(range(len(p)), key=lambda i: -p[i])[: setting.get("top_k") or None]
    best, total, legal = p[order[0]], sum(p[i] for i in order), []
    for i in order:
        reached = sum(p[j] for j in legal) / total
        if legal and reached >= setting.get("top_p", 1.0):
            break
        if p[i] >= setting.get("min_p", 0.0) * best:
            legal.append(i)
    out = np.zeros(len(p))
    out[legal] = p[legal] / p[legal].sum()
    return out


LOGITS = f32(1.9, 1.2, 0.7, 0.3, -0.1, -0.6, -1.1, -1.7, -2.2, -40.0)
SEEN = [0, 4, 4]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_what_is_kept_is_the_exact_distribution(setting):
    kept = Sampler(**({"temperature": 1.0} | setting)).kept(LOGITS, SEEN)
    expected = exact_distribution(LOGITS, SEEN, setting)
    chances = np.zeros(len(LOGITS))
    chances[kept.token_ids] = kept.chances
    assert np.allclose(chances, expected, atol=1e-6)
    assert sorted(kept.chances, reverse=True) == kept.chances.tolist()
    assert kept.chances.dtype == np.float32


def test_each_rule_names_what_it_removed_and_the_mass_it_had():
    logits = np.log(f32(0.4, 0.25, 0.15, 0.1, 0.06, 0.04))
    logits = np.append(logits, -np.inf).astype(np.float32)
    kept = Sampler(1.0, top_k=5, top_p=0.9, min_p=0.5).kept(logits)
    assert [gone.rule for gone in kept.removed] == [*RULES]
    # after top-k 0.96 is left: 0.4, 0.65, 0.8, 0.9 of it are .417 .677 .833 .9375
    assert [gone.token_ids.tolist() for gone in kept.removed] == [[6], [5], [4], [2, 3]]
    masses = [gone.mass for gone in kept.removed]
    assert masses == pytest.approx([0, 0.04, 0.06, 0.25], abs=1e-6)
    assert kept.token_ids.tolist() == [0, 1]
    assert kept.shares.tolist() == pytest.approx([0.4, 0.25], abs=1e-6)


def test_a_token_without_a_chance_is_removed_by_no_filter():
    kept = Sampler(1.0, top_k=3).kept(f32(1, -INF, 1, -INF))
    impossible, by_top_k, *_ = kept.removed
    assert impossible.token_ids.tolist() == [1, 3]
    assert not len(by_top_k.token_ids)


def test_the_mass_is_measured_at_the_temperature():
    logits = np.log(f32(0.64, 0.32, 0.04))
    kept = Sampler(0.5, top_k=1).kept(logits)
    squares = np.array([0.64, 0.32, 0.04]) ** 2
    lost = squares[1:].sum() / squares.sum()
    assert kept.removed[1].mass == pytest.approx(lost, abs=1e-6)


def test_the_penalty_says_whom_it_lowered_and_what_they_lost():
    logits = np.log(f32(0.5, 0.3, 0.2))
    sampler = Sampler(1.0, repetition_penalty=2.0, repetition_window=3)
    penalty = sampler.kept(logits, [2, 0, 1, 0]).penalty
    after = np.array([0.5**2, 0.3**2, 0.2])  # a logit below 0 is doubled
    assert penalty.token_ids.tolist() == [0, 1]
    lost = 0.8 - after[:2].sum() / after.sum()
    assert penalty.mass == pytest.approx(lost, abs=1e-6)
    assert Sampler(1.0).kept(logits, [0]).penalty.mass == 0


@settings(max_examples=200, deadline=None)
@given(
    logits=st.lists(
        st.one_of(st.floats(-80, 80, width=32), st.just(-INF)), min_size=2, max_size=12
    ).filter(lambda values: max(values) > -INF),
    temperature=st.sampled_from([0.0, 0.02, 1.0, 50.0]),
    top_k=st.integers(0, 4),
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    seed=st.integers(0, 5),
)
def test_nothing_is_lost_and_the_pick_is_what_the_seed_s_number_draws(
    logits, temperature, top_k, top_p, min_p, seed
):
    row, seen = f32(*logits), [0, 1]
    setting = {"top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed}
    sampler = Sampler(temperature, repetition_penalty=1.3, **setting)
    kept = sampler.kept(row, seen)
    gone = [i for rule in kept.removed for i in rule.token_ids]
    assert sorted([*gone, *kept.token_ids]) == [*range(len(row))]
    assert len(kept.token_ids) >= 1
    masses = [rule.mass for rule in kept.removed]
    assert kept.shares.sum() + sum(masses) == pytest.approx(1, abs=1e-5)
    assert kept.penalty.mass > -1e-6
    number = np.random.default_rng(seed).random()
    assert sampler.pick(row, seen) == kept.draw(number)


def test_looking_at_what_is_kept_draws_nothing():
    def picks(look):
        sampler = Sampler(1.0, seed=3)
        looks = [sampler.kept(LOGITS) for _ in range(look)]
        return [sampler.pick(LOGITS) for _ in range(20)], looks

    assert picks(0)[0] == picks(7)[0]


def test_a_number_falls_on_the_part_of_the_token_that_it_stands_in():
    kept = Sampler(1.0).kept(np.log(f32(0.25, 0.5, 0.125, 0.125)))
    numbers = (0.0, 0.49, 0.51, 0.74, 0.76, 0.87, 0.88, 0.999)
    assert [kept.draw(x) for x in numbers] == [1, 1, 0, 0, 2, 2, 3, 3]
    halves = Sampler(1.0).kept(f32(1, 1))  # where two parts meet, the next begins
    assert [halves.draw(x) for x in (0.0, 0.5)] == [0, 1]


def test_a_part_that_a_filter_removed_is_shared_out_in_proportion():
    kept = Sampler(1.0, top_k=2).kept(np.log(f32(0.3, 0.1, 0.6)))
    assert kept.chances.tolist() == pytest.approx([2 / 3, 1 / 3], abs=1e-6)


def test_top_1_and_then_a_nucleus_keeps_one_and_top_p_0_keeps_one():
    logits = np.log(f32(0.3, 0.1, 0.1, 0.5))
    for setting in ({"top_k": 1, "top_p": 0.8}, {"top_p": 0.0}, {"top_p": 1e-8}):
        assert Sampler(1.0, **setting).kept(logits).token_ids.tolist() == [3]
    assert len(Sampler(1.0, top_p=1.0).kept(logits).token_ids) == 4


def test_the_nucleus_is_measured_on_what_top_k_left():
    logits = np.log(f32(0.4, 0.3, 0.2, 0.1))
    # 0.4 of the whole is below 0.5; 0.4 of the 0.7 that top-k leaves is above it
    assert len(Sampler(1.0, top_p=0.5).kept(logits).token_ids) == 2
    assert len(Sampler(1.0, top_k=2, top_p=0.5).kept(logits).token_ids) == 1


def test_temperature_comes_before_the_nucleus():
    logits = np.log(f32(0.6, 0.3, 0.1))
    assert len(Sampler(0.5, top_p=0.75).kept(logits).token_ids) == 1
    assert len(Sampler(1.0, top_p=0.75).kept(logits).token_ids) == 2


def test_temperature_0_divides_by_nothing_and_sorts_nothing(monkeypatch):
    def never(*_, **__):
        raise AssertionError("sorted")

    with np.errstate(all="raise"):
        assert at_temperature(f32(1, 5, 5, -INF), 0.0).tolist() == [0, 1, 0, 0]
        monkeypatch.setattr(np, "argsort", never)
        assert Sampler(0.0, top_k=3, top_p=0.5).pick(f32(1, 5, 5, -INF)) == 1


def test_at_temperature_1_is_softmax_and_a_row_is_never_changed():
    row = LOGITS.copy()
    assert np.array_equal(at_temperature(row, 1.0), softmax(row))
    assert np.array_equal(row, LOGITS)
    assert at_temperature(row, 0.0).dtype == np.float32


def test_a_seed_belongs_to_its_request_and_not_to_its_neighbours():
    def alone(seed):
        sampler = Sampler(1.0, seed=seed)
        return [sampler.pick(LOGITS) for _ in range(30)]

    one, two = Sampler(1.0, seed=1), Sampler(1.0, seed=2)
    pairs = [(one.pick(LOGITS), two.pick(LOGITS)) for _ in range(30)]
    assert [*map(list, zip(*pairs, strict=True))] == [alone(1), alone(2)]


def test_a_sampler_says_how_far_back_it_looks_and_needs_no_more():
    assert Sampler(1.0).looks_back == 0
    assert Sampler(1.0, repetition_penalty=1.1).looks_back == 64
    sampler = Sampler(0.0, repetition_penalty=3.0, repetition_window=2)
    assert sampler.looks_back == 2
    text = [1, 2, 0, 1, 0]
    assert sampler.pick(LOGITS, text) == sampler.pick(LOGITS, text[-2:])
    assert sampler.kept(LOGITS, text).penalty.token_ids.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("seen", "named"), [([0, 3], "3"), ([-1], "-1"), ([0.5], "0.5"), ([True], "bool")]
)
def test_an_id_to_penalise_that_is_none_is_refused_by_name(seen, named):
    with pytest.raises(InvalidTokenError, match=f"{named}.*from 0 to 2"):
        Sampler(repetition_penalty=2.0).pick(f32(1, 2, 3), seen)


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_20000_picks_follow_the_exact_distribution(setting):
    """Chi-square: a right sampler exceeds this bound about once in 100,000."""
    expected = exact_distribution(LOGITS, SEEN, setting)
    sampler = Sampler(seed=11, **({"temperature": 1.0} | setting))
    n = 20_000
    counts = np.bincount([sampler.pick(LOGITS, SEEN) for _ in range(n)], minlength=10)
    assert not counts[expected == 0].any()
    likely = expected * n >= 5
    assert counts[~likely].sum() < 20
    parts = (counts[likely] - expected[likely] * n) ** 2 / (expected[likely] * n)
    free = int(likely.sum()) - 1
    assert parts.sum() < free + 4.3 * np.sqrt(2 * free) + 10


def test_the_chi_square_test_notices_a_wrong_temperature():
    logits = f32(1.9, 1.2, 0.7, 0.3)
    expected = exact_distribution(logits, [], {"temperature": 1.0})
    sampler = Sampler(temperature=1.1, seed=11)
    counts = np.bincount([sampler.pick(logits) for _ in range(20_000)], minlength=4)
    parts = (counts - expected * 20_000) ** 2 / (expected * 20_000)
    assert parts.sum() > 3 + 4.3 * np.sqrt(6) + 10


def test_a_nucleus_of_a_large_vocabulary_is_that_of_exact_sums():
    """A float32 sum of 49,152 shares ends near 0.9996 and would keep them all."""
    tail = np.full(49_152, 1 / 49_152, np.float32)
    assert top_p(tail, 0.9999) == math.ceil(0.9999 * 49_152)
    shares = np.sort(np.random.default_rng(0).pareto(1.2, 49_152))[::-1]
    shares = (shares / shares.sum()).astype(np.float32)
    exact = 1 + int(np.count_nonzero(np.cumsum(shares.astype(float))[:-1] < 0.999))
    assert top_p(shares, 0.999) == exact


@pytest.mark.parametrize(
    "logits", [[1.0, 2.0], np.ones((2, 3), np.float32), np.ones(0)]
)
@pytest.mark.parametrize("temperature", [0, 1])
def test_what_is_no_row_of_logits_is_refused(temperature, logits):
    with pytest.raises(InferenceError, match="one row"):
        Sampler(temperature).pick(logits)


@pytest.mark.parametrize("setting", [{"temperature": True}, {"top_p": False}])
def test_true_and_false_are_no_numbers(setting):
    with pytest.raises(UsageError):
        Sampler(**setting)


def test_the_smallest_temperature_that_is_not_greedy():
    logits = np.array([0.0, 0.01], np.float32)
    picks = {Sampler(0.01, seed=seed).pick(logits) for seed in range(40)}
    assert picks == {0, 1}
    assert {Sampler(0.0099, seed=seed).pick(logits) for seed in range(40)} == {1}
