"""The verifier passes what is right, in both modes, and fails whatever is broken."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import tinyllm
from tests.conftest import random_weights
from tinyllm.decode.session import Session
from tinyllm.errors import (
    ContextFullError,
    InferenceError,
    InvalidTokenError,
    PromptTooShortError,
)
from tinyllm.model.cache import KVCache
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.toy import ToyEngine
from tinyllm.verify import equivalence
from tinyllm.verify.equivalence import (
    SURVIVAL,
    Check,
    blind_spots,
    difference,
    every_rewind,
    every_split,
    injected_bugs,
    limit_of,
    prefill_decode,
    verify_kv,
)
from tinyllm.verify.injected import shifted, slipped

IDS = [1, 20, 30, 200, 7, 20, 30, 99, 5]
TASK = "TOOLS: calc(expression) answer(text)\nTASK: What is 4871 * 209?\nTHOUGHT:"
STORY = "Once upon a time, there was a little girl named Lily. She loved to"


@pytest.fixture(scope="module", params=["agent", "stories"])
def embedded(request):
    lm = tinyllm.load(request.param)
    text = TASK if request.param == "agent" else STORY
    fast = tinyllm.load(request.param, exact=False)
    return lm, fast, [lm.tokenizer.bos_id, *lm.tokenizer.encode(text)]


@pytest.fixture(scope="module")
def fast_lm(fast_model, tokenizer):
    return NumpyEngine(fast_model, tokenizer)


def engine_on(kind, config, weights, tokenizer, exact=True):
    return NumpyEngine(kind(config, weights, exact), tokenizer)


def test_every_claim_holds_bit_for_bit_on_the_embedded_models(embedded):
    lm, _, ids = embedded
    checks = verify_kv(lm, ids)
    assert [check.name for check in checks if not check.passed] == []
    equal, bugs = checks[:3], checks[3:]
    assert all(check.bits and check.difference == 0 for check in equal)
    assert [check.cases for check in equal] == [1, len(ids) - 1, 2 * len(ids)]
    assert len(bugs) == 4
    assert min(check.difference for check in bugs) > 1e-2


def test_every_claim_holds_within_the_limit_in_fast_mode(embedded):
    _, fast, ids = embedded
    checks = verify_kv(fast, ids)
    assert all(check.passed for check in checks)
    assert max(check.difference for check in checks[:3]) <= 1e-4
    assert not checks[1].bits


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("text", ["", "the cat saw the dog", TASK])
def test_every_claim_holds_on_the_toy_without_a_file(exact, text):
    lm = ToyEngine(exact)
    checks = verify_kv(lm, [0, 5, *lm.tokenize(text)])  # two ids and more
    assert [check.name for check in checks if not check.passed] == []
    assert min(check.difference for check in checks[3:]) > 1e-4
    assert all(check.bits for check in checks[:3]) >= exact


def test_verify_takes_a_text_or_ids_of_two_and_more(lm, fast_lm):
    assert tinyllm.verify(lm, "abc") == tinyllm.verify(lm, [1, 2]) == 0.0
    assert 0 < tinyllm.verify(fast_lm, "some more of it") < 1e-4
    with pytest.raises(PromptTooShortError, match="1 token id: give 2 or more"):
        tinyllm.verify(lm, "")  # bos alone
    with pytest.raises(PromptTooShortError):
        tinyllm.verify(lm, [])
    with pytest.raises(InvalidTokenError):
        tinyllm.verify(lm, [1, 259])


@pytest.mark.parametrize("shift", [{"decode": 1}, {"decode": -1}, {"prefill": 1}])
def test_verify_returns_the_difference_that_a_bug_makes(lm, shift):
    assert tinyllm.verify(shifted(lm, **shift), IDS) > 1e-2
    assert tinyllm.verify(slipped(lm), IDS) > 1e-2


def test_verify_asks_for_nothing_that_is_not_in_the_waist(lm):
    names = ("tokenizer", "tokenize", "session", "prefill", "decode", "score")
    waist = SimpleNamespace(**{name: getattr(lm, name) for name in names}, exact=True)
    assert tinyllm.verify(waist, "abc") == 0.0
    assert every_split(waist, IDS).passed
    assert every_rewind(waist, IDS).passed


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("number", [np.nan, np.inf])
@pytest.mark.parametrize(
    "name", ["model.layers.1.mlp.down_proj.weight", "lm_head.weight"]
)
def test_a_weight_that_is_not_finite_is_an_error_and_not_a_verdict(
    config, tokenizer, exact, number, name
):
    weights = random_weights(config)
    weights[name][3, 2] = number
    lm = engine_on(Model, config, weights, tokenizer, exact)
    for check in (verify_kv, tinyllm.verify):
        with pytest.raises(InferenceError, match="logits are not finite"):
            check(lm, IDS)


def test_a_weight_that_only_other_ids_read_is_found_as_well(config, tokenizer):
    weights = random_weights(config)
    weights["model.embed_tokens.weight"][IDS[0] + 1] = np.nan  # appended after rewinds
    with pytest.raises(InferenceError, match="logits are not finite"):
        verify_kv(engine_on(Model, config, weights, tokenizer), IDS)


@pytest.mark.parametrize("exact", [True, False])
def test_a_model_with_small_logits_is_judged_in_proportion(config, tokenizer, exact):
    """All matrices of a new model are drawn with a spread of 0.005."""
    config = replace(config, norm_eps=1e-6)
    small = {
        name: w if w.ndim == 1 else 0.005 * w / w.std()
        for name, w in random_weights(config).items()
    }
    lm = engine_on(Model, config, small, tokenizer, exact)
    assert np.abs(lm.model.forward(IDS)).max() < 0.2
    checks = verify_kv(lm, IDS)
    assert [check.name for check in checks if not check.passed] == []
    assert min(check.difference for check in checks[3:]) < 1e-5


def test_a_global_shift_is_invisible_and_text_survives_a_decode_shift():
    lm = tinyllm.load()
    found = []
    for text in ("Once upon a time", "TASK: Read notes.txt.", TASK):
        ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode(text)]
        made, same = blind_spots(lm, ids)
        assert 0 < made < 1e-5
        assert min(check.difference for check in injected_bugs(lm, ids)) > 1e-2
        found.append(same)
    assert max(found) == SURVIVAL
    assert min(found) >= 24


def test_odd_sizes_hold_in_both_modes(lm, fast_lm):
    assert all(check.passed for check in verify_kv(lm, IDS))
    assert all(check.passed for check in verify_kv(fast_lm, IDS))


def test_the_verifier_runs_on_the_longest_prompt_it_accepts(lm):
    n_ctx = lm.config.n_ctx
    ids = [i % 7 for i in range(n_ctx - equivalence.AFTER - 1)]
    assert all(check.passed for check in verify_kv(lm, ids))
    with pytest.raises(ContextFullError, match=f"at most {len(ids)}"):
        verify_kv(lm, [*ids, 1])


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        ([], PromptTooShortError),
        ([1], PromptTooShortError),
        ([1, 2, 259], InvalidTokenError),
        ([1, 2, -1], InvalidTokenError),
        ([1.0, 2, 3], InvalidTokenError),
    ],
)
def test_a_prompt_that_proves_nothing_is_refused(lm, ids, error):
    with pytest.raises(error):
        verify_kv(lm, ids)


def test_progress_is_told_as_often_as_promised(lm):
    told = []
    verify_kv(lm, IDS, lambda: told.append(1))
    assert len(told) == 2 * len(IDS) - 1


@pytest.mark.parametrize("shift", [{"decode": 1}, {"decode": -1}, {"prefill": 1}])
def test_a_model_with_a_shift_fails_the_checks(lm, shift):
    broken = shifted(lm, **shift)
    found = [check.passed for check in verify_kv(broken, IDS)[:3]]
    assert found == [False, False, False]


class Forgetful(Model):
    """Reads one position too few of the cache whenever something is held."""

    def _read(self, q, k, v):
        short = k.shape[1] > (1 if q.ndim == 2 else q.shape[1])
        return super()._read(q, k[:, short:], v[:, short:])


class Rough(Model):
    """Rounds a single row otherwise than the rows of a batch: exact by name only."""

    def logits(self, hidden):
        logits = super().logits(hidden)
        return logits * np.float32(1 + 1e-6) if len(hidden) == 1 else logits


def test_reading_one_position_too_few_is_noticed_at_every_place(
    config, weights, tokenizer
):
    broken = engine_on(Forgetful, config, weights, tokenizer)
    for check in verify_kv(broken, IDS)[:3]:
        assert not check.passed
        assert check.difference > 1e-4


def test_a_difference_of_rounding_fails_in_exact_mode_and_passes_in_fast(
    config, weights, tokenizer
):
    for exact in (True, False):
        rough = engine_on(Rough, config, weights, tokenizer, exact)
        assert every_split(rough, IDS).passed is not exact


class Short(KVCache):
    """A cache whose rewind never goes below half of what is held."""

    def rewind(self, n):
        super().rewind(max(n, self.length // 2))


class Erasing(KVCache):
    """A cache whose rewind moves the length, and spoils the first slot."""

    def rewind(self, n):
        super().rewind(n)
        self.k[:, :, 0] = 0


class Deaf(KVCache):
    """A cache whose rewind does nothing."""

    def rewind(self, n):
        pass


@pytest.mark.parametrize("kind", [Short, Erasing, Deaf])
def test_a_rewind_that_keeps_other_than_it_says_is_noticed(model, tokenizer, kind):
    class Engine(NumpyEngine):
        def session(self):
            return Session(self.model, kind(self.model.config))

    assert not every_rewind(Engine(model, tokenizer), IDS).passed


def test_a_broken_verifier_would_be_seen_by_its_bugs(lm, monkeypatch):
    """Where nothing is injected, no difference is made, and that is a failure."""
    monkeypatch.setattr(equivalence, "shifted", lambda lm, **_: lm)
    monkeypatch.setattr(equivalence, "slipped", lambda lm: lm)
    assert [check.passed for check in injected_bugs(lm, IDS)] == [False] * 4


def test_a_bug_that_makes_a_nan_is_noticed(lm):
    a = np.array([1, np.nan], np.float32)
    assert difference(a, np.zeros(2, np.float32)) == np.inf
    other = slipped(lm)
    session = other.session()
    session.cache.k[:] = np.nan
    other.session = lambda: session
    assert np.isnan(prefill_decode(other, IDS)).any()


class Early(Model):
    """Wrong in every row but the last, as soon as the prompt comes in pieces."""

    def logits(self, hidden):
        logits = super().logits(hidden)
        if len(hidden) != len(IDS):
            logits[:-1] += np.float32(5e-4)
        return logits


def test_a_split_is_judged_by_all_rows_and_to_1e_4(config, weights, tokenizer):
    for exact in (True, False):
        lm = engine_on(Early, config, weights, tokenizer, exact)
        check = every_split(lm, IDS)
        assert not check.passed
        assert 1e-4 < check.difference < 1e-3


def test_a_wrong_case_is_not_forgotten_when_right_ones_follow():
    right = np.array([18.0, -3], np.float32)
    worst = equivalence._Worst(SimpleNamespace(exact=False), right)
    for error in (0, 1e-3, 0):
        worst.add(right + np.float32(error), right)
    check = worst.check("three cases")
    assert check.difference == pytest.approx(1e-3, rel=1e-2)
    assert not check.passed


def test_the_limit_is_in_proportion_to_the_largest_logit_as_rounding_is():
    assert limit_of(np.array([18.0, -3], np.float32)) == pytest.approx(9e-5)
    assert limit_of(np.array([18.0, -40], np.float32)) == pytest.approx(2e-4)
    assert limit_of(np.array([0.018, 0], np.float32)) == pytest.approx(9e-8)


def test_a_prompt_of_one_id_over_and_over_still_tells_the_bugs(lm):
    assert all(check.passed for check in verify_kv(lm, [35] * 6))


def test_a_check_reads_as_a_line():
    line = str(Check("every split point", 37, 0.0, True, True, "equal bit for bit"))
    assert line.startswith("PASS  every split point")
    assert "37 cases" in line
    assert "bit for bit" in line
    assert "1 case " in str(Check("bug", 1, 0.5, False))
    assert SURVIVAL >= 48  # dozens
