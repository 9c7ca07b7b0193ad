from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyllm.decode.sampling import Sampler, softmax, top_k, top_p
from tinyllm.errors import InferenceError, UsageError

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
