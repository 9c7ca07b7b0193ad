"""An engine that a reader can check by hand, and all that stands above engines."""

from __future__ import annotations

import numpy as np
import pytest

from tinyllm.engine import Engine
from tinyllm.errors import ContextFullError, InvalidTokenError, TokenizationError
from tinyllm.model.cache import KVCache
from tinyllm.toy import BOS, EOS, ToyEngine, ToyModel

TEXT = "the cat saw the dog and the dog ran"


@pytest.fixture(scope="module")
def lm():
    return ToyEngine(TEXT, n_ctx=16)


def test_a_logit_is_how_often_a_word_followed(lm):
    the, cat, _, dog = lm.tokenize("the cat saw dog")
    logits = lm.prefill(lm.session(), [BOS, the])
    assert logits.dtype == np.float32
    assert logits[[cat, dog]].tolist() == [1, 2]
    assert logits.sum() == 3
    assert lm.model.forward([BOS])[0, the] == 1
    assert lm.model.forward(lm.tokenize("ran"))[0, EOS] == 1


def test_words_are_tokens_and_white_space_parts_them(lm):
    assert lm.tokenize("the\n\tdog  ") == lm.tokenize("the dog")
    assert lm.detokenize(lm.tokenize(" the  dog ")) == "the dog"
    assert lm.tokenize("") == []
    with pytest.raises(TokenizationError, match="'mouse'"):
        lm.tokenize("the mouse")
    with pytest.raises(TokenizationError):
        lm.tokenize(None)
    with pytest.raises(InvalidTokenError):
        lm.detokenize([99])


def test_a_session_on_it_counts_rewinds_and_forks_like_any_other(lm):
    ids = [BOS, *lm.tokenize("the cat saw")]
    session = lm.session()
    session.feed(ids)
    again = session.feed(ids)
    assert np.array_equal(again, lm.model.forward(ids)[-1])
    assert (session.forwarded, session.reused, session.rewound) == (5, 3, 1)
    fork = session.fork()
    fork.extend(lm.tokenize("the"))
    assert (fork.length, session.length) == (5, 4)
    with pytest.raises(ContextFullError, match="16"):
        session.extend([2] * 13)


def test_it_generates_and_ends_at_eos(lm):
    assert lm.generate("the cat", max_new_tokens=3).text == " saw the dog"
    ended = lm.generate("dog ran")
    assert (ended.text, ended.stop_reason) == ("", "eos")
    assert lm.generate("the", temperature=1.0, seed=1).token_ids


def test_an_embedding_counts_words_without_their_order(lm):
    assert np.array_equal(lm.embed("cat dog"), lm.embed("dog cat"))
    assert np.isclose(np.linalg.norm(lm.embed("the cat")), 1)
    assert not np.allclose(lm.embed("cat"), lm.embed("dog"))


def test_another_models_cache_is_refused_by_it(lm):
    cache = KVCache(lm.config)
    lm.model.forward([BOS], cache)
    other = ToyModel(lm.model.table, n_ctx=16)
    with pytest.raises(Exception, match="another model"):
        other.forward([BOS], cache)


def test_it_is_an_engine_and_says_so(lm):
    engine: Engine = lm
    assert repr(engine) == "ToyEngine('toy', exact)"
