from __future__ import annotations

import os
import random
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.errors import TokenizationError
from tinyllm.formats import gguf
from tinyllm.formats.bytelevel import byte_characters
from tinyllm.formats.gguf_vocabulary import PREFIX, tokenizer_of
from tinyllm.text.bpe import BPE
from tinyllm.text.sentencepiece import SentencePiece

DATA = Path(os.environ.get("TINYLLM_DATA", "/nowhere"))
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def llama(tokens=("\u2581", "a", "\u2581a"), kinds=(1, 1, 1), **more) -> dict:
    """Metadata of a small SentencePiece vocabulary; ids 259 on are `tokens`."""
    n = len(tokens)
    keys = {
        "model": "llama",
        "tokens": ["<unk>", "<s>", "</s>", *BYTES, *tokens],
        "scores": np.arange(0, -259 - n, -1, np.float32),
        "token_type": np.array([2, 3, 3, *[6] * 256, *kinds], np.int32),
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    return keyed(keys | more)


def gpt2(tokens=("<|end|>", "ab"), kinds=(3, 1), **more) -> dict:
    """Metadata of a small byte-level vocabulary; ids 256 on are `tokens`."""
    keys = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*byte_characters(), *tokens],
        "token_type": np.array([*[1] * 256, *kinds], np.int32),
        "merges": ["a b"],
        "eos_token_id": 256,
    }
    return keyed(keys | more)


def keyed(keys: dict) -> dict:
    return {PREFIX + k: v for k, v in keys.items() if v is not ...}


def test_a_llama_vocabulary_is_a_sentencepiece_whose_spaces_are_spaces():
    tokenizer = tokenizer_of(llama(), "x.gguf")
    assert isinstance(tokenizer, SentencePiece)
    assert tokenizer.pieces[259:] == [" ", "a", " a"]
    assert tokenizer.scores[:3] == [0.0, -1.0, -2.0]
    assert tokenizer.encode("a") == [261]
    assert tokenizer.encode("\n") == [259, 3 + 10]
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, {2})
    assert tokenizer.special_ids == {0, 1, 2}


def test_a_gpt2_vocabulary_is_a_byte_level_bpe():
    tokenizer = tokenizer_of(gpt2(), "x.gguf")
    assert isinstance(tokenizer, BPE)
    assert tokenizer.encode("ab ") == [257, 32]
    assert tokenizer.specials == {"<|end|>": 256}
    assert tokenizer.encode("<|end|>") == list(b"<|end|>")


def test_what_a_file_does_not_say_has_its_usual_meaning():
    spm, bpe = tokenizer_of(llama(), "x"), tokenizer_of(gpt2(), "x")
    assert (spm.add_bos, spm.dummy_prefix) == (True, True)
    assert (bpe.add_bos, bpe.dummy_prefix) == (False, False)


def test_what_a_file_says_is_done():
    spm = tokenizer_of(llama(add_bos_token=False, add_space_prefix=False), "x")
    assert (spm.add_bos, spm.dummy_prefix) == (False, False)
    assert tokenizer_of(gpt2(add_bos_token=True, add_space_prefix=False), "x").add_bos


@pytest.mark.parametrize("made", [llama, gpt2])
def test_without_bos_the_end_begins_a_text_too(made):
    tokenizer = tokenizer_of(made(bos_token_id=...), "x")
    assert {tokenizer.bos_id} == tokenizer.eos_ids


def test_every_id_that_ends_a_turn_or_a_text_is_eos_and_special():
    tokens, kinds = ["<|eot|>", "<|eom|>", "a"], [4, 1, 1]
    ends = {"eot_token_id": 259, "eom_token_id": 260}
    tokenizer = tokenizer_of(llama(tokens, kinds, **ends), "x")
    assert tokenizer.eos_ids == {2, 259, 260}
    assert tokenizer.eos_ids < tokenizer.special_ids
    ends = {"eot_token_id": 257, "eom_token_id": 258}
    tokenizer = tokenizer_of(
        gpt2(["<|end|>", *tokens], [3, *kinds], merges=[], **ends), "x"
    )
    assert tokenizer.eos_ids == {256, 257, 258}


def test_a_user_defined_mark_is_special_and_white_space_or_one_letter_is_text():
    tokens = ["<|im_start|>", "\u2581\u2581", "\n\n", "q"]
    spm = tokenizer_of(llama(tokens, [4] * 4, add_space_prefix=False), "x")
    assert spm.special_ids == {0, 1, 2, 259}
    assert spm.encode("q  \n\n") == [262, 260, 261]
    assert 259 not in spm.encode("<|im_start|>")
    bpe = tokenizer_of(gpt2(["<|end|>", "<tool>", "ab"], [3, 4, 1]), "x")
    assert bpe.specials == {"<|end|>": 256, "<tool>": 257}
    assert 257 not in bpe.encode("<tool>")


def test_tokens_that_are_not_used_are_special():
    assert 260 in tokenizer_of(llama(["a", "[PAD1]"], [1, 5]), "x").special_ids
    assert (
        258
        in tokenizer_of(gpt2(["<|end|>", "ab", "[PAD2]"], [3, 1, 5]), "x").special_ids
    )


REFUSED = {
    "no model": (llama(model=...), "model is missing"),
    "another model": (llama(model="t5"), "model is 't5': .* knows 'llama' and 'gpt2'"),
    "a number for model": (llama(model=3), "model is 3: expected str"),
    "a text for tokens": (llama() | keyed({"tokens": "abc"}), "tokens is 'abc'"),
    "a number in tokens": (llama() | keyed({"tokens": [1]}), r"tokens\[0\] is 1"),
    "no scores": (llama(scores=...), "scores is missing"),
    "a score too few": (
        llama(scores=np.zeros(261, np.float32)),
        r"scores is an array \(261,\) of float32: expected 262 scores",
    ),
    "scores that are no numbers": (
        llama(scores=["1"]),
        "scores is .* expected ndarray",
    ),
    "whole scores": (llama(scores=np.zeros(262, np.int32)), "of int32: expected"),
    "a score of NaN": (
        llama(scores=np.full(262, np.nan, np.float32)),
        "score of piece 0 is nan",
    ),
    "no types": (llama(token_type=...), "token_type is missing"),
    "types of another length": (
        llama(token_type=np.ones(5, np.int32)),
        "token_type is an array .* expected 262 integers",
    ),
    "fractional types": (llama(token_type=np.ones(262)), "token_type .* of float64"),
    "types in rows": (llama(token_type=np.ones((1, 262), np.int32)), r"\(1, 262\)"),
    "an unknown type": (llama(kinds=(1, 1, 9)), "piece 261 is .* of kind 9"),
    "no bytes": (llama(token_type=np.ones(262, np.int32)), "no piece for"),
    "no eos": (llama(eos_token_id=...), "eos_token_id is missing"),
    "eos too large": (llama(eos_token_id=262), "eos_token_id is 262: .* 0 to 261"),
    "eos below 0": (llama(eos_token_id=-1), "eos_token_id is -1: expected an id"),
    "true for eos": (llama(eos_token_id=True), "eos_token_id is True: expected int"),
    "bos too large": (llama(bos_token_id=2**60), f"bos_token_id is {2**60}"),
    "eot too large": (llama(eot_token_id=262), "eot_token_id is 262"),
    "a text for eom": (gpt2(eom_token_id="x"), "eom_token_id is 'x': expected int"),
    "1 for true": (llama(add_bos_token=1), "add_bos_token is 1: expected bool"),
    "a text for true": (llama(add_space_prefix="no"), "add_space_prefix is 'no'"),
    "a lone surrogate": (llama(("\udc80",), (1,)), "piece 259 is a lone surrogate"),
    "no pre-tokenizer": (gpt2(pre=...), "pre is missing"),
    "pre-tokenizer default": (
        gpt2(pre="default"),
        "'default': .* 'gpt-2' and 'smollm'",
    ),
    "an unknown pre-tokenizer": (gpt2(pre="qwen2"), "pre is 'qwen2'"),
    "a space before a text": (gpt2(add_space_prefix=True), "add_space_prefix is true"),
    "no merges": (gpt2(merges=...), "merges is missing"),
    "a merge of one": (gpt2(merges=["a b", "ab"]), r"merges\[1\] is 'ab'"),
    "a merge of three": (gpt2(merges=["a b c"]), r"merges\[0\] is 'a b c'"),
    "a merge with nothing": (gpt2(merges=["a "]), r"merges\[0\] is 'a '"),
    "a merge of unknown tokens": (gpt2(merges=["b a"]), "merge 0 is 'b' and 'a'"),
    "a merge into a special": (gpt2(kinds=(3, 3)), "merge 0 .* ordinary tokens"),
    "a character of no byte": (gpt2(("<|end|>", "中"), (3, 1)), "token 257 is '中'"),
    "two specials alike": (
        gpt2(("<e>", "<e>"), (3, 3)),
        "256 and 257 are both special",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_metadata_lacks_or_asks_in_vain_is_refused_by_name(name):
    metadata, message = REFUSED[name]
    with pytest.raises(TokenizationError, match=rf"^my\.gguf: .*{message}"):
        tokenizer_of(metadata, "my.gguf")


def test_metadata_without_tokens_is_refused_by_name():
    for whole in (llama(), gpt2()):
        del whole[PREFIX + "tokens"]
        with pytest.raises(TokenizationError, match=r"tokenizer\.ggml\.tokens is miss"):
            tokenizer_of(whole, "my.gguf")


STRANGE = [None, True, 0, -1, 3, 2**70, 1.5, "", "a b", [], ["a"], [[]], {}, b"x"]
STRANGE += [
    np.zeros(0),
    np.arange(262),
    np.full(258, 3),
    np.array(["a"]),
    np.zeros((2, 2)),
]


@given(st.sampled_from([llama, gpt2]), st.data())
def test_any_value_under_any_key_is_taken_or_refused_in_type(made, data):
    whole = made(bos_token_id=1, add_bos_token=True, add_space_prefix=False)
    for _ in range(data.draw(st.integers(1, 2))):
        key = data.draw(st.sampled_from(sorted(whole)))
        whole[key] = data.draw(st.sampled_from(STRANGE))
    with suppress(TokenizationError):
        assert tokenizer_of(whole, "x").encode("ab")


# GPT-2's own vocabulary, and the library `tokenizers` on the same merges.


@cache
def both():
    path = DATA / "gpt-2.gguf"
    if not path.is_file():
        pytest.skip("TINYLLM_DATA names no folder with gpt-2.gguf")
    library = pytest.importorskip("tokenizers", reason="the oracle `tokenizers`")
    metadata = gguf.read(path).metadata
    vocabulary = {t: i for i, t in enumerate(metadata[f"{PREFIX}tokens"])}
    merges = [tuple(m.split(" ")) for m in metadata[f"{PREFIX}merges"]]
    theirs = library.Tokenizer(library.models.BPE(vocabulary, merges))
    theirs.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=False)
    theirs.decoder = library.decoders.ByteLevel()
    return tokenizer_of(metadata, str(path)), theirs


def check_same(text: str) -> None:
    ours, theirs = both()
    ids = ours.encode(text)
    assert ids == theirs.encode(text).ids, text
    assert ours.decode(ids) == theirs.decode(ids) == text


PARTS = ["'ve", "'VE", "  ", "\r\n", " the", "33", "=", "\n\n", "tion", "🦙", "<|endof"]
# Characters that no version of Unicode has named yet change class when one does.
NAMED = st.text(st.characters(exclude_categories=("Cs", "Cn")), max_size=6)


@given(st.lists(st.sampled_from(PARTS) | NAMED, max_size=12).map("".join))
def test_tokenizers_gives_the_same_ids_and_text(text):
    check_same(text)


def test_tokenizers_gives_the_same_ids_for_thousands_of_texts():
    rng = random.Random(0)
    for _ in range(4000):
        letters = [
            *map(chr, range(0x250)),
            *map(chr, range(0x400, 0x460)),
            *"中文字。か",
        ]
        check_same("".join(rng.choices([*letters, *PARTS * 20], k=rng.randint(0, 20))))


@pytest.mark.parametrize(
    "text",
    [
        "a\x1c b",
        " \x1f",
        "a\x85\x85b",
        "a\u180eb",
        "\ufeffa",
        " \u2028\u3000 x",
        "x²½٣Ⅷ",
    ],
)
def test_tokenizers_agrees_on_unusual_white_space_and_numbers(text):
    check_same(text)


@given(st.text())
def test_every_text_survives_gpt_2_s_vocabulary(text):
    tokenizer = both()[0]
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_gpt_2_s_only_special_token_begins_and_ends_a_text():
    tokenizer = both()[0]
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (50256, {50256})
    assert tokenizer.special_ids == {50256}
    assert 50256 not in tokenizer.encode("<|endoftext|>")
