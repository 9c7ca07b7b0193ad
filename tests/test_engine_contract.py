"""What every engine promises: one set of tests over the toy, numpy in both modes, ours.

An engine is asked through the waist only, so a new one joins by one more line of
ENGINES.
"""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tinyllm
from tests.conftest import TINY, random_weights
from tinyllm.decode.generate import generate
from tinyllm.engine import Engine
from tinyllm.errors import (
    CacheError,
    ContextFullError,
    InferenceError,
    InvalidTokenError,
    PromptTooShortError,
    TinyllmError,
    TokenizationError,
)
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.text.bpe import BPE
from tinyllm.toy import ToyEngine


def tiny(exact: bool) -> NumpyEngine:
    model = Model(TINY, random_weights(TINY), exact)
    return NumpyEngine(model, BPE.from_merges([]), "tiny")


ENGINES = {
    "toy": ToyEngine,
    "toy, fast": lambda: ToyEngine(exact=False),
    "tiny": lambda: tiny(True),
    "tiny, fast": lambda: tiny(False),
    "embedded": tinyllm.load,
    "embedded, fast": lambda: tinyllm.load("stories", exact=False),
    "short": lambda: tinyllm.load(n_ctx=24),
}
IDS = [1, 20, 30, 200, 7, 20, 30, 99, 5]


@pytest.fixture(scope="module", params=ENGINES)
def lm(request) -> Engine:
    return ENGINES[request.param]()


def same(lm, found, right):
    """Whether logits are equal: bit for bit in exact mode, else up to rounding."""
    assert found.dtype == right.dtype == np.float32
    if lm.exact:
        return np.array_equal(found, right)
    return np.allclose(found, right, rtol=0, atol=5e-6 * np.abs(right).max())


def test_prefill_decode_and_score_are_one_full_pass(lm):
    whole = lm.score(lm.session(), IDS)
    assert whole.shape == (9, lm.tokenizer.vocab_size)
    session = lm.session()
    assert same(lm, lm.prefill(session, IDS[:-1]), whole[-2])
    assert same(lm, lm.decode(session, IDS[-1]), whole[-1])
    assert session.token_ids == IDS
    assert same(lm, lm.prefill(lm.session(), IDS), whole[-1])
    assert lm.prefill(session, IDS).shape == (lm.tokenizer.vocab_size,)


def test_score_gives_the_rows_after_the_shared_prefix(lm):
    whole, session = lm.score(lm.session(), IDS), lm.session()
    lm.prefill(session, [*IDS[:4], 9, 9])
    rows = lm.score(session, IDS)
    assert rows.shape[0] == 5
    assert same(lm, rows, whole[4:])
    assert session.token_ids == IDS


def test_forwarded_grows_by_exactly_what_was_prefilled(lm):
    session = lm.session()
    for ids, new in ((IDS[:5], 5), (IDS, 4), (IDS, 1), ([*IDS[:2], 9], 1), (IDS, 7)):
        before = session.forwarded, session.reused
        lm.prefill(session, ids)
        assert session.forwarded - before[0] == new
        assert session.reused - before[1] == len(ids) - new
    lm.decode(session, 3)
    assert session.forwarded == 5 + 4 + 1 + 1 + 7 + 1


def test_a_session_rewinds_to_where_it_was_and_nowhere_else(lm):
    session, cold = lm.session(), lm.score(lm.session(), [*IDS[:4], 9])
    lm.prefill(session, IDS)
    for n in (-1, len(IDS) + 1, 2.0, True):
        with pytest.raises(CacheError, match="0 to 9"):
            session.rewind(n)
    assert session.token_ids == IDS
    session.rewind(4)
    assert same(lm, lm.decode(session, 9), cold[-1])
    session.reset()
    assert (session.length, session.n_free) == (0, session.n_ctx)
    assert same(lm, lm.prefill(session, IDS[:1]), cold[0])


def test_the_last_position_works_and_the_next_is_refused(lm):
    session = lm.session()
    full = [7] * session.n_ctx
    lm.prefill(session, full[:-1])
    lm.decode(session, 7)
    assert session.n_free == 0
    for call in (
        lambda: lm.decode(session, 7),
        lambda: lm.prefill(session, [*full, 7]),
        lambda: lm.score(session, [*full, 7]),
    ):
        with pytest.raises(ContextFullError, match=str(session.n_ctx)):
            call()
    assert session.token_ids == full


@pytest.mark.parametrize("bad", [-1, 2**40, 1.0, True, None, "a", [1]])
def test_an_id_that_is_none_is_refused_and_nothing_changes(lm, bad):
    session = lm.session()
    lm.prefill(session, IDS)
    for call in (
        lambda: lm.decode(session, bad),
        lambda: lm.prefill(session, [1, bad]),
        lambda: lm.score(session, [1, bad]),
        lambda: lm.detokenize([bad]),
    ):
        with pytest.raises(InvalidTokenError):
            call()
    assert (session.token_ids, session.forwarded) == (IDS, len(IDS))


def test_a_prompt_of_no_ids_is_too_short(lm):
    for call in (lm.prefill, lm.score):
        with pytest.raises(PromptTooShortError):
            call(lm.session(), [])


def test_text_that_is_none_is_refused(lm):
    for bad in (None, b"a", "\ud800"):
        with pytest.raises(TokenizationError):
            lm.tokenize(bad)


def test_every_error_belongs_to_the_family_and_the_cache_to_inference():
    for error in (TokenizationError, InvalidTokenError, InferenceError):
        assert issubclass(error, TinyllmError)
    for error in (CacheError, ContextFullError, PromptTooShortError):
        assert issubclass(error, InferenceError)


def test_a_session_of_another_engine_is_refused(lm):
    other = tiny(True).session()
    for call in (
        lambda: lm.prefill(other, IDS),
        lambda: lm.decode(other, 1),
        lambda: lm.score(other, IDS),
    ):
        with pytest.raises(CacheError, match="another model"):
            call()
    assert other.length == 0


def test_any_text_comes_back_and_no_text_is_a_special_id(lm):
    for text in ("", "a", "Zwölf <|eos|> 🦙\n", ' {"tool":"calc"} the cat'):
        ids = lm.tokenize(text)
        assert lm.detokenize(ids) == text
        assert not set(ids) & lm.tokenizer.special_ids


def test_embed_gives_a_vector_of_length_1_for_one_text_and_a_matrix_for_many(lm):
    one, many = lm.embed("abc"), lm.embed(["abc", "cba", ""])
    assert one.dtype == many.dtype == np.float32
    assert many.shape == (3, *one.shape)
    assert np.array_equal(many[0], one)
    assert np.allclose(np.linalg.norm(many, axis=1), 1, atol=1e-6)
    assert not np.allclose(many[0], many[1], atol=1e-3)
    assert lm.embed([]).shape == (0, *one.shape)
    assert lm.embed(("abc",)).shape == (1, *one.shape)


def test_two_threads_with_a_session_each_write_what_each_writes_alone(lm):
    def written(prompt):
        session, rows = lm.session(), []
        for n in range(1, len(prompt) + 1):
            rows.append(lm.prefill(session, prompt[:n]))
            rows.append(lm.decode(session, 9))
        return np.stack(rows)

    prompts = [IDS * 2, IDS[::-1] * 2]
    alone, together = [written(prompt) for prompt in prompts], {}
    gate = threading.Barrier(2)

    def work(i):
        gate.wait()
        together[i] = written(prompts[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [np.array_equal(together[i], alone[i]) for i in range(2)] == [True, True]


def test_the_verifier_and_the_generator_run_on_it(lm):
    assert tinyllm.verify(lm, "ab") <= 1e-4
    first = generate(lm, "ab", max_new_tokens=6)
    assert first == generate(lm, "ab", max_new_tokens=6)
    assert first.text == lm.detokenize(first.token_ids)
