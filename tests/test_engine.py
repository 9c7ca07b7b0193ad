from __future__ import annotations

import ast
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tinyllm
from tinyllm.agent.local import LocalBackend
from tinyllm.agent.tools import Registry, answer
from tinyllm.decode.generate import generate
from tinyllm.errors import (
    CheckpointError,
    ContextFullError,
    InferenceError,
    PromptTooShortError,
)
from tinyllm.formats.hf_folder import save_folder
from tinyllm.model.transformer import Model
from tinyllm.numpy_engine import NumpyEngine
from tinyllm.toy import ToyEngine

IDS = [1, 20, 30, 200, 7]


def test_a_full_forward_equals_prefill_and_decode(lm, model):
    session = lm.session()
    prefilled = lm.prefill(session, IDS[:-1])
    decoded = lm.decode(session, IDS[-1])
    whole = model.forward(IDS)
    assert np.array_equal(prefilled, whole[-2])
    assert np.array_equal(decoded, whole[-1])
    assert session.token_ids == IDS


def test_sessions_of_one_engine_are_independent(lm, model):
    a, b = lm.session(), lm.session()
    lm.prefill(a, IDS)
    lm.prefill(b, [9, 9])
    assert np.array_equal(lm.decode(a, 5), model.forward([*IDS, 5])[-1])


def test_prefill_refuses_nothing_and_too_much(lm):
    session = lm.session()
    with pytest.raises(PromptTooShortError):
        lm.prefill(session, [])
    with pytest.raises(ContextFullError, match="40"):
        lm.prefill(session, [1] * 41)
    assert session.length == 0


def test_tokenize_and_detokenize_are_the_tokenizers(lm):
    assert lm.detokenize(lm.tokenize("Zwölf <|eos|>")) == "Zwölf <|eos|>"
    assert not set(lm.tokenize("<|bos|>")) & lm.tokenizer.special_ids


def test_a_session_knows_the_ids_that_end_a_text(lm):
    assert lm.session().eos_ids == lm.tokenizer.eos_ids


def test_embed_is_the_mean_state_at_length_1(lm, model):
    vector = lm.embed("abc")
    mean = model.hidden([1, *lm.tokenize("abc")]).mean(axis=0)
    assert vector.dtype == np.float32
    assert np.allclose(vector, mean / np.linalg.norm(mean), atol=1e-6)
    assert np.isclose(np.linalg.norm(lm.embed("")), 1, atol=1e-6)
    assert not np.allclose(lm.embed("abc"), lm.embed("cba"), atol=1e-3)


def test_load_takes_a_path_and_a_mode(tmp_path, config, weights, tokenizer, model):
    save_folder(tmp_path / "mine", config, weights, tokenizer, "F32")
    lm = tinyllm.load(tmp_path / "mine")
    assert (lm.name, lm.model.exact, lm.config) == ("mine", True, config)
    assert repr(lm) == "NumpyEngine('mine', exact)"
    fast = tinyllm.load(str(tmp_path / "mine"), exact=False)
    assert np.allclose(fast.model.forward(IDS), model.forward(IDS), atol=1e-4)


def test_a_model_that_is_not_there_is_an_error_that_says_what_is():
    with pytest.raises(CheckpointError, match="nowhere"):
        tinyllm.load("nowhere")


def test_a_session_of_another_model_is_refused(lm, config, weights):
    fast = NumpyEngine(Model(config, weights, exact=False), lm.tokenizer)
    session = lm.session()
    lm.prefill(session, IDS)
    with pytest.raises(InferenceError, match=r"of another model than .*fast"):
        fast.prefill(session, [5])
    with pytest.raises(InferenceError, match="of another model"):
        fast.decode(session, 5)
    assert session.token_ids == IDS


ABOVE = ["agent", "grammar", "decode/generate.py", "decode/sampling.py"]


def test_nothing_above_the_engine_reaches_into_the_model():
    package = Path(tinyllm.__file__).parent
    paths = [p for name in ABOVE for p in (package / name).glob("**/*.py")]
    paths += [package / name for name in ABOVE if name.endswith(".py")]
    assert len(paths) > 15
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            reached = isinstance(node, ast.Attribute) and node.attr in INSIDE
            assert not reached, f"{path}:{node.lineno}: .{node.attr}"


INSIDE = {"model", "cache", "layers", "hidden"}


def test_agent_and_generation_need_no_more_than_the_waist_has():
    """An engine with the names of `Engine` and no others, around a toy."""
    toy = ToyEngine("a b c d a b c d a b")
    names = ("tokenizer", "tokenize", "detokenize", "session", "prefill", "decode")
    waist = SimpleNamespace(**{name: getattr(toy, name) for name in names})
    made = generate(waist, "a b", max_new_tokens=3)
    assert made.text == " c d a"
    tools = Registry([answer])
    backend = LocalBackend(waist, tools, constrain=False)
    slot = backend.thought(toy.tokenize("a b"))
    assert slot.text.startswith("c d a b")
