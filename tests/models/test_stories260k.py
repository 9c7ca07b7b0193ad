"""A model that others trained, in llama2.c's format: what its own engine prints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import tinyllm
from tinyllm.verify.equivalence import verify_kv
from tinyllm.verify.warm_cold import TASKS, verify_cache

DATA = Path(os.environ.get("TINYLLM_DATA", ""))
pytestmark = pytest.mark.skipif(
    not (DATA / "stories260K.bin").is_file(),
    reason="TINYLLM_DATA names no folder with stories260K.bin",
)


@pytest.fixture(scope="module", params=[True, False], ids=["exact", "fast"])
def lm(request):
    return tinyllm.load(DATA / "stories260K.bin", exact=request.param)


def test_the_greedy_text_is_the_one_that_llama2c_publishes(lm):
    """It begins a text, so the space before the first word is not printed."""
    expected = (DATA / "stories260K.greedy.txt").read_text("utf-8").rstrip("\n")
    made = lm.generate("", max_new_tokens=200)
    assert made.text == expected


def test_a_text_that_goes_on_keeps_its_space(lm):
    assert lm.generate("Once upon", max_new_tokens=2).text == " a time"


def test_the_tokenizer_beside_the_file_is_found_or_named(lm, tmp_path):
    assert lm.tokenizer.vocab_size == 512
    named = DATA / "tok512.bin"
    (tmp_path / "model.bin").symlink_to(DATA / "stories260K.bin")
    with pytest.raises(tinyllm.errors.ModelNotFoundError, match=r"tok512\.bin"):
        tinyllm.load(tmp_path / "model.bin")
    again = tinyllm.load(tmp_path / "model.bin", tokenizer=named)
    assert again.generate("Once upon", max_new_tokens=2).text == " a time"


def test_the_cache_theorem_holds_on_it(lm):
    ids = [lm.tokenizer.bos_id, *lm.tokenizer.encode("Once upon a time, Lily and Tom")]
    checks = verify_kv(lm, ids)
    assert [check for check in checks if not check.passed] == []
    assert all(check.bits for check in checks[:3]) == lm.exact


def test_warm_interleaved_and_cold_write_the_same_on_it(lm):
    verdicts = verify_cache(lambda: lm, tinyllm.tools.default(), TASKS[:2])
    assert all(verdict.passed for verdict in verdicts)
