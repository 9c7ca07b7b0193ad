from __future__ import annotations

import os
import random
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tinyllm.errors import InvalidTokenError, TokenizationError
from tinyllm.formats import gguf, tokenizer_bin
from tinyllm.formats.gguf_vocabulary import tokenizer_of
from tinyllm.text.sentencepiece import Kind, SentencePiece
from tinyllm.text.stream import TextStream

DATA = Path(os.environ.get("TINYLLM_DATA", "/nowhere"))
HEAD = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
HEAD_KINDS = [Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, *[Kind.BYTE] * 256]
# Equal scores, "xyz" of which no half is a piece, and pieces that only look special.
TEXTS = {
    " ": -9.0,
    "a": -9.0,
    "b": -9.0,
    "<": -9.0,
    "s": -9.0,
    ">": -9.0,
    "ñ": -9.0,
    "aa": -1.0,
    "ab": -1.0,
    "  ": -2.0,
    " a": -3.0,
    "aab": -0.5,
    "xy": -4.0,
    "xyz": -4.0,
    "<s": -1.0,
    "🦙": -9.0,
}
ANY_TEXT = st.lists(
    st.sampled_from([*"ab xyzñ<s>\n", "🦙", "é", "\u2581", "<0x0A>"])
).map("".join)


def made(texts=None, *, kind=Kind.NORMAL, **settings) -> SentencePiece:
    texts = TEXTS if texts is None else TEXTS | texts
    kinds = [Kind.NORMAL if t in TEXTS else kind for t in texts]
    return SentencePiece(
        [*HEAD, *texts],
        [*[0.0] * len(HEAD), *texts.values()],
        [*HEAD_KINDS, *kinds],
        **{"bos_id": 1, "eos_ids": {2}} | settings,
    )


SMALL = made()
BARE = made(dummy_prefix=False)


def ids_of(*pieces: str) -> list[int]:
    return [SMALL.pieces.index(p) for p in pieces]


def naive(tokenizer: SentencePiece, text: str) -> list[int]:
    """The specification, O(n²): join the pair that is the best piece, start again."""
    parts = list(" " + text) if text else []
    while pairs := [
        (-TEXTS[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in TEXTS
    ]:
        i = min(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    spelled = [
        [p] if p in TEXTS else [f"<0x{b:02X}>" for b in p.encode()] for p in parts
    ]
    return [tokenizer.pieces.index(piece) for part in spelled for piece in part]


@given(ANY_TEXT)
def test_encoding_gives_the_ids_of_the_naive_merge(text):
    assert SMALL.encode(text) == naive(SMALL, text)


@given(st.text() | ANY_TEXT, st.booleans())
@example("\u2581", True)
@example(" \u2581 ", False)
@example("\x00\r\n\x85\u2028\ufeff", True)
def test_decoding_an_encoded_text_gives_the_text(text, dummy_prefix):
    tokenizer = SMALL if dummy_prefix else BARE
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_empty_text_has_no_ids_not_even_the_dummy_prefix():
    assert SMALL.encode("") == []
    assert SMALL.decode([]) == ""


def test_a_space_is_put_before_a_text_and_merges_with_it():
    assert SMALL.encode("a") == ids_of(" a")
    assert BARE.encode("a") == ids_of("a")
    assert SMALL.encode(" ") == ids_of("  ")


def test_the_higher_score_merges_first_and_then_the_leftmost():
    assert BARE.encode("aaa") == ids_of("aa", "a")
    assert SMALL.encode("aab") == ids_of(" ", "aab")  # not " a", "ab"


def test_the_parts_of_a_merge_need_not_be_pieces():
    assert "x" not in SMALL.pieces
    assert BARE.encode("xyz") == ids_of("xyz")
    assert BARE.encode("yz") == ids_of("<0x79>", "<0x7A>")


def test_what_is_no_piece_is_spelled_in_bytes():
    assert BARE.encode("é") == ids_of("<0xC3>", "<0xA9>")
    assert BARE.encode("🦙") == ids_of("🦙")


def test_text_that_looks_like_a_special_or_a_byte_piece_is_text():
    assert BARE.encode("<s>") == ids_of("<s", ">")  # "<s" is a piece, "<s>" is special
    assert ids_of("<0x0A>")[0] not in BARE.encode("<0x0A>")
    assert BARE.decode(BARE.encode("</s><0x0A><unk>")) == "</s><0x0A><unk>"


@given(st.lists(st.sampled_from([*HEAD[:5], "<0x41>", " ", "a"]), max_size=6))
def test_no_text_becomes_a_special_id(parts):
    ids = SMALL.encode("".join(parts))
    assert not SMALL.special_ids & set(ids)


def test_a_word_of_a_file_s_space_character_is_spelled_in_bytes():
    """The named difference: sentencepiece and llama.cpp take U+2581 for a space."""
    assert BARE.encode("a\u2581") == ids_of("a", "<0xE2>", "<0x96>", "<0x81>")


def test_decoding_drops_one_space_and_only_at_the_start():
    assert SMALL.decode(ids_of("  ", "a", " a")) == " a a"
    assert SMALL.decode(ids_of("a", " a")) == "a a"
    assert SMALL.decode([1, *ids_of(" a")]) == "a"
    assert SMALL.decode(ids_of("<0x20>", "a")) == "a"
    assert BARE.decode(ids_of(" a")) == " a"


def test_special_ids_decode_to_nothing():
    assert SMALL.special_ids == {0, 1, 2}
    assert SMALL.specials == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert SMALL.decode([1, *SMALL.encode("ab"), 2, 0]) == "ab"
    assert {SMALL.token_bytes(i) for i in SMALL.special_ids} == {b""}


def test_a_byte_piece_is_its_byte_and_a_text_piece_its_utf_8():
    assert SMALL.token_bytes(3 + 0xE9) == b"\xe9"
    assert SMALL.token_bytes(ids_of("ñ")[0]) == "ñ".encode()


def test_broken_utf_8_decodes_to_replacement_characters():
    assert BARE.decode([*BARE.encode("é")[:1], *ids_of("a")]) == "\ufffda"


def test_a_stream_gives_a_character_when_its_last_byte_comes():
    stream = TextStream(BARE)
    assert [stream.push(i) for i in BARE.encode("é")] == ["", "é"]
    assert TextStream(SMALL, at_start=True).push(ids_of(" a")[0]) == "a"
    assert TextStream(SMALL).push(ids_of(" a")[0]) == " a"


@pytest.mark.parametrize("wrong", [-1, SMALL.vocab_size, 2**40, 1.0, "a", None, True])
def test_what_is_no_id_is_refused(wrong):
    with pytest.raises(InvalidTokenError, match=f"0 to {SMALL.vocab_size - 1}"):
        SMALL.token_bytes(wrong)


def test_numpy_integers_are_ids():
    assert SMALL.decode(np.array(SMALL.encode("aab x"), np.uint16)) == "aab x"


def test_a_lone_surrogate_is_a_typed_error():
    with pytest.raises(TokenizationError, match="character 1 of the text is a lone"):
        SMALL.encode("a\ud800b")


def test_user_defined_pieces_are_cut_out_first_and_the_longest_first():
    ours = made({"ba": 0.0, "bab": 0.0}, kind=Kind.USER_DEFINED, dummy_prefix=False)
    ba, bab = len(HEAD) + len(TEXTS), len(HEAD) + len(TEXTS) + 1
    a = ids_of("a")[0]
    assert ours.encode("aaba") == [*ids_of("aa"), ba]  # "aab" would score higher
    assert ours.encode("abaaab") == [a, ba, *ids_of("aab")]
    assert ours.encode("babab") == [bab, *ids_of("ab")]
    assert ours.decode(ours.encode("ababa")) == "ababa"
    assert not {ba, bab} & ours.special_ids


def test_unused_pieces_are_special():
    ours = made({"ba": 9.0}, kind=Kind.UNUSED, dummy_prefix=False)
    assert ours.encode("ba") == ids_of("b", "a")
    assert ours.token_bytes(ours.vocab_size - 1) == b""


def test_of_equal_pieces_the_first_counts():
    ours = made({"q": -1.0}, dummy_prefix=False)
    twice = SentencePiece(
        [*ours.pieces, "q"],
        [*ours.scores, 5.0],
        [*ours.kinds, Kind.NORMAL],
        bos_id=1,
        eos_ids={2},
        dummy_prefix=False,
    )
    assert twice.encode("q") == [ours.vocab_size - 1]


def without(piece: str) -> dict:
    i = SMALL.pieces.index(piece)
    lists = {"pieces": SMALL.pieces, "scores": SMALL.scores, "kinds": SMALL.kinds}
    return {name: values[:i] + values[i + 1 :] for name, values in lists.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without("<0x41>"), r"no piece for \['<0x41>'\]"),
        ({"pieces": SMALL.pieces[:-1]}, "274 pieces, 275 scores and 275 kinds"),
        ({"scores": [*SMALL.scores[:-1], float("nan")]}, "score of piece 274 is nan"),
        ({"scores": [*SMALL.scores[:-1], 1e39]}, "expected a finite float32"),
        ({"kinds": [*SMALL.kinds[:-1], 7]}, "piece 274 is '🦙' of kind 7"),
        ({"kinds": [*SMALL.kinds[:-1], Kind.BYTE]}, "bytes .* written like <0x0A>"),
        ({"pieces": [*SMALL.pieces[:-1], ""]}, "piece 274 is empty"),
        ({"pieces": [*SMALL.pieces[:-1], "\udc80"]}, "piece 274 is a lone surrogate"),
        ({"bos_id": 5}, "bos is 5, eos"),
        ({"bos_id": 10**6}, "bos is"),
        ({"eos_ids": {2, 300}}, r"eos \[2, 300\]: not all"),
    ],
)
def test_a_damaged_vocabulary_is_refused_by_name(change, message):
    whole = {"pieces": SMALL.pieces, "scores": SMALL.scores, "kinds": SMALL.kinds}
    with pytest.raises(TokenizationError, match=message):
        SentencePiece(**whole | {"bos_id": 1, "eos_ids": {2}} | change)


# Vocabularies that people use, and the library that learned them.


@cache
def real(name: str) -> SentencePiece:
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"TINYLLM_DATA names no folder with {name}")
    if path.suffix == ".bin":
        return tokenizer_bin.load(path, 512)
    tokenizer = tokenizer_of(gguf.read(path).metadata, name)
    assert isinstance(tokenizer, SentencePiece)
    return tokenizer


def library_of(ours: SentencePiece):
    """The library's tokenizer of the same pieces, which changes no character."""
    pytest.importorskip("google.protobuf", reason="the oracle `sentencepiece`")
    library = pytest.importorskip("sentencepiece", reason="the oracle `sentencepiece`")
    from sentencepiece import sentencepiece_model_pb2

    proto = sentencepiece_model_pb2.ModelProto()
    for text, score, kind in zip(ours.pieces, ours.scores, ours.kinds, strict=True):
        proto.pieces.add(piece=text.replace(" ", "\u2581"), score=score, type=kind)
    proto.trainer_spec.model_type = proto.trainer_spec.BPE
    proto.trainer_spec.byte_fallback = True
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = ours.dummy_prefix
    proto.normalizer_spec.remove_extra_whitespaces = False
    return library.SentencePieceProcessor(model_proto=proto.SerializeToString())


@cache
def oracle(name: str):
    return library_of(real(name))


WORDS = ["<s>", "<0x0A>", " the", "the", "ing", "  ", "\r\n", "tion", "🦙", "中文", "é"]
MIXED = st.lists(st.sampled_from(WORDS) | st.text(max_size=6), max_size=12).map("".join)
SPACE_IN_FILES = "\u2581"


def check_same(name: str, text: str) -> None:
    ours, theirs = real(name), oracle(name)
    ids = ours.encode(text)
    assert ids == theirs.encode(text)
    assert ours.decode(ids) == theirs.decode(ids) == text


@pytest.mark.parametrize("name", ["llama-spm.gguf", "tok512.bin"])
@given(text=MIXED)
def test_sentencepiece_gives_the_same_ids_and_text(name, text):
    assume(SPACE_IN_FILES not in text)
    check_same(name, text)


@pytest.mark.parametrize("name", ["llama-spm.gguf", "tok512.bin"])
def test_sentencepiece_gives_the_same_ids_for_thousands_of_texts(name):
    rng = random.Random(0)
    for _ in range(4000):
        rare = [chr(rng.randrange(0xD800)), chr(rng.randrange(0xE000, 0x110000))]
        parts = [*map(chr, range(128)), *WORDS * 6, *rare * 6]
        text = "".join(rng.choices(parts, k=rng.randint(0, 20)))
        check_same(name, text.replace(SPACE_IN_FILES, " "))


@pytest.mark.parametrize("name", ["llama-spm.gguf", "tok512.bin"])
def test_sentencepiece_alone_takes_its_space_character_for_a_space(name):
    ours, theirs = real(name), oracle(name)
    assert theirs.encode("a\u2581b") == theirs.encode("a b") == ours.encode("a b")
    assert ours.decode(ours.encode("a\u2581b")) == "a\u2581b"


@given(st.text(alphabet="ab ", max_size=30))
def test_sentencepiece_agrees_on_user_defined_pieces(text):
    ours, theirs = with_user_defined()
    assert ours.encode(text) == theirs.encode(text)


@cache
def with_user_defined():
    ours = made({"ba": 0.0, "bab": 0.0, "    ": 0.0}, kind=Kind.USER_DEFINED)
    return ours, library_of(ours)


@pytest.mark.parametrize("name", ["llama-spm.gguf", "tok512.bin"])
@given(text=MIXED)
def test_every_text_survives_a_real_vocabulary(name, text):
    tokenizer = real(name)
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("", []),
        ("Hello", [15043]),
        (" Hello", [29871, 15043]),
        ("  Hello", [259, 15043]),
        ("    Hello\n    Hello", [268, 15043, 13, 1678, 15043]),
        ("This is 🦙.cpp", [910, 338, 29871, 243, 162, 169, 156, 29889, 8223]),
        ("\r\n", [6756, 13]),
        ("a\r\nb", [263, 30004, 13, 29890]),
        ("\x00", [29871, 3]),
        ("<s>", [529, 29879, 29958]),
        ("<0x0A>", [529, 29900, 29916, 29900, 29909, 29958]),
        ("\u2581", [29871, 229, 153, 132]),
    ],
)
def test_llama_s_vocabulary_gives_the_ids_that_other_engines_give(text, ids):
    tokenizer = real("llama-spm.gguf")
    assert tokenizer.encode(text) == ids
    assert tokenizer.decode(ids) == text


def test_an_emoji_of_four_tokens_comes_whole_from_a_stream():
    stream = TextStream(real("llama-spm.gguf"))
    assert [stream.push(i) for i in [243, 162, 169, 156]] == ["", "", "", "🦙"]
    assert [stream.push(i) for i in [243, 162, 169]] == ["", "", ""]
    assert stream.flush() == "\ufffd"


@pytest.mark.parametrize(("letter", "n"), [("a", 25_002), ("b", 50_001), (" ", 6251)])
def test_a_hundred_thousand_letters_are_one_text_and_no_trouble(letter, n):
    """Quadratic work would take minutes here, and the time limit of a test is five."""
    ids = real("llama-spm.gguf").encode(letter * 100_000)
    assert len(ids) == n
    assert real("llama-spm.gguf").decode(ids) == letter * 100_000
