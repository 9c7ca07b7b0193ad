"""The verifier passes what is right, in both modes, and fails whatever is broken."""

from __future__ import annotations

import numpy as np
import pytest

import tinyllm
from tinyllm.errors import ContextFullError, InvalidTokenError, PromptTooShortError
from tinyllm.model.cache import KVCache
from tinyllm.model.transformer import Model
from tinyllm.verify import equivalence
from tinyllm.verify.equivalence import (
    LIMIT,
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
from tinyllm.verify.injected import SlippedCache, shifted

IDS = [1, 20, 30, 200, 7, 20, 30, 99, 5]
TASK = "TOOLS: calc(expression) answer(text)\nTASK: What is 4871 * 209?\nTHOUGHT:"
STORY = "Once upon a time, there was a little girl named Lily. She loved to"


@pytest.fixture(scope="module", params=["agent", "stories"])
def embedded(request):
    lm = tinyllm.load(request.param)
    text = TASK if request.param == "agent" else STORY
    fast = tinyllm.load(request.param, exact=False)
    return lm.model, fast.model, [lm.tokenizer.bos_id, *lm.tokenizer.encode(text)]


def test_every_claim_holds_bit_for_bit_on_the_embedded_models(embedded):
    model, _, ids = embedded
    checks = verify_kv(model, ids)
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


def test_a_global_shift_is_invisible_and_text_survives_a_decode_shift():
    lm = tinyllm.load()
    found = []
    for text in ("Once upon a time", "TASK: Read notes.txt.", TASK):
        ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode(text)]
        made, same = blind_spots(lm.model, ids)
        assert 0 < made < 1e-5
        assert min(check.difference for check in injected_bugs(lm.model, ids)) > 1e-2
        found.append(same)
    assert max(found) == SURVIVAL
    assert min(found) >= 24


def test_odd_sizes_hold_in_both_modes(model, fast_model):
    assert all(check.passed for check in verify_kv(model, IDS))
    assert all(check.passed for check in verify_kv(fast_model, IDS))


def test_the_verifier_runs_on_the_longest_prompt_it_accepts(model):
    n_ctx = model.config.n_ctx
    ids = [i % 7 for i in range(n_ctx - equivalence.AFTER - 1)]
    assert all(check.passed for check in verify_kv(model, ids))
    with pytest.raises(ContextFullError, match=f"at most {len(ids)}"):
        verify_kv(model, [*ids, 1])


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        ([], PromptTooShortError),
        ([1, 2], PromptTooShortError),
        ([1, 2, 259], InvalidTokenError),
        ([1, 2, -1], InvalidTokenError),
        ([1.0, 2, 3], InvalidTokenError),
    ],
)
def test_a_prompt_that_proves_nothing_is_refused(model, ids, error):
    with pytest.raises(error):
        verify_kv(model, ids)


def test_progress_is_told_as_often_as_promised(model):
    told = []
    verify_kv(model, IDS, lambda: told.append(1))
    assert len(told) == 2 * len(IDS) - 1


@pytest.mark.parametrize("shift", [{"decode": 1}, {"decode": -1}, {"prefill": 1}])
def test_a_model_with_a_shift_fails_the_checks(model, shift):
    broken = shifted(model, **shift)
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


def test_reading_one_position_too_few_is_noticed_at_every_place(config, weights):
    broken = Forgetful(config, weights)
    for check in verify_kv(broken, IDS)[:3]:
        assert not check.passed
        assert check.difference > LIMIT


def test_a_difference_of_rounding_fails_in_exact_mode_and_passes_in_fast(
    config, weights
):
    assert not every_split(Rough(config, weights), IDS).passed
    assert every_split(Rough(config, weights, exact=False), IDS).passed


class Short(KVCache):
    """A cache whose rewind never goes below half of what is held."""

    def rewind(self, n):
        super().rewind(max(n, self.length // 2))


class Erasing(KVCache):
    """A cache whose rewind moves the length, and spoils the first slot."""

    def rewind(self, n):
        super().rewind(n)
        self.k[:, :, 0] = 0


@pytest.mark.parametrize("kind", [Short, Erasing])
def test_a_rewind_that_keeps_other_than_it_says_is_noticed(model, monkeypatch, kind):
    monkeypatch.setattr(equivalence, "KVCache", kind)
    assert not every_rewind(model, IDS).passed


def test_a_broken_verifier_would_be_seen_by_its_bugs(model, monkeypatch):
    """Where nothing is injected, no difference is made, and that is a failure."""
    monkeypatch.setattr(equivalence, "shifted", lambda model, **_: model)
    monkeypatch.setattr(equivalence, "SlippedCache", KVCache)
    assert [check.passed for check in injected_bugs(model, IDS)] == [False] * 4


def test_a_number_that_is_none_fails(model):
    a = np.array([1, np.nan], np.float32)
    assert difference(a, np.zeros(2, np.float32)) == np.inf
    cache = SlippedCache(model.config)
    cache.k[:] = np.nan
    assert np.isnan(prefill_decode(model, IDS, cache)).any()


class Early(Model):
    """Wrong in every row but the last, as soon as the prompt comes in pieces."""

    def logits(self, hidden):
        logits = super().logits(hidden)
        if len(hidden) != len(IDS):
            logits[:-1] += np.float32(5e-4)
        return logits


def test_a_split_is_judged_by_all_rows_and_to_1e_4(config, weights):
    for exact in (True, False):
        check = every_split(Early(config, weights, exact=exact), IDS)
        assert not check.passed
        assert 1e-4 < check.difference < 1e-3


def test_the_limit_grows_with_logits_for_which_float32_has_no_more_digits():
    assert limit_of(np.array([18.0, -3], np.float32)) == 1e-4
    assert limit_of(np.array([18.0, -40], np.float32)) == pytest.approx(2e-4)


def test_a_prompt_of_one_id_over_and_over_still_tells_the_bugs(model):
    assert all(check.passed for check in verify_kv(model, [35] * 6))


def test_a_check_reads_as_a_line():
    line = str(Check("every split point", 37, 0.0, True, True, "equal bit for bit"))
    assert line.startswith("PASS  every split point")
    assert "37 cases" in line
    assert "bit for bit" in line
    assert "1 case " in str(Check("bug", 1, 0.5, False))
    assert SURVIVAL >= 48  # dozens
