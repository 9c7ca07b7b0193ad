from __future__ import annotations

import json
import os
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tinyllm.errors import TokenizationError
from tinyllm.formats import tokenizer_json
from tinyllm.formats.bytelevel import byte_characters
from tinyllm.text.bpe import BPE, train

TEXTS = ["The cat said: 'I've 12 apples', and the hat costs 34!", "añb añb  \n\n x=1"]
PAIRS = train([*TEXTS * 3, "the that then there hat cat " * 3], 330)
# Letters, digits, signs and white space on whose classes all engines agree.
PLAIN = "abcehstTI 0123456789'’.,!?=+-_\"{}\n\r\tñéßдж中文🦙"
PARTS = ["<|", "|>", "bos", "'ve", "'VE", "  ", "\r\n", " the", "33", "=", "\n\n"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tokenizers")


def made(kind: str) -> BPE:
    plain = BPE.from_merges(PAIRS)
    return BPE(
        plain.tokens,
        plain.merges,
        plain.specials,
        bos_id=plain.bos_id,
        eos_ids=plain.eos_ids,
        pre_tokenizer=kind,
    )


@pytest.fixture(scope="module", params=["smollm", "gpt-2"])
def both(request, folder):
    """Our tokenizer, and the library's, which has read the file that ours wrote."""
    library = pytest.importorskip("tokenizers", reason="the oracle `tokenizers`")
    ours = made(request.param)
    path = folder / f"{request.param}.json"
    tokenizer_json.save(ours, path)
    return ours, library.Tokenizer.from_file(str(path))


def check_same(both, text: str) -> None:
    ours, library = both
    ids = library.encode(text, add_special_tokens=False).ids
    assert ours.encode(text) == ids, text
    assert library.decode(ids) == text


@given(text=st.text(PLAIN))
@example(text="I'VE I've 33333 a\r\nb   c")
@example(text="'s't're've'm'll'd 's 'S")
def test_the_library_reads_our_file_and_gives_the_same_ids(both, text):
    check_same(both, text)


def test_the_library_gives_the_same_ids_for_thousands_of_texts(both):
    rng = random.Random(0)
    for _ in range(5000):
        check_same(both, "".join(rng.choices([*PARTS, *PLAIN], k=rng.randint(0, 20))))


@pytest.mark.parametrize(
    "text",
    [
        "a\u00a0b",
        "a\u3000\u3000b",
        "a\u0085b",
        "a \x1c b",
        "x²½٣Ⅷ",
        "e\u0301",
        "a\u200bb",
    ],
)
def test_the_library_agrees_on_unusual_white_space_and_numbers(both, text):
    ours, library = both
    assert ours.encode(text) == library.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", ["smollm", "gpt-2"])
def test_a_saved_tokenizer_loads_as_it_was(folder, kind):
    ours, path = made(kind), folder / "again.json"
    tokenizer_json.save(ours, path)
    again = tokenizer_json.load(str(path))
    for name in ("tokens", "merges", "specials", "pre_tokenizer", "bos_id", "eos_ids"):
        assert getattr(again, name) == getattr(ours, name), name
    assert os.listdir(folder).count("again.json.part") == 0


def test_the_file_is_utf_8_and_the_same_on_every_system(folder):
    path = folder / "bytes.json"
    tokenizer_json.save(made("smollm"), path)
    data = path.read_bytes()
    assert b"\r" not in data
    assert "Ġ".encode() in data  # GPT-2's character for a space, written as itself


def test_each_byte_has_a_printable_character_of_its_own():
    table = byte_characters()
    assert len(set(table)) == 256
    assert table[ord("A")] == "A"
    assert (table[ord(" ")], table[ord("\n")], table[0xAD]) == ("Ġ", "Ċ", "Ń")
    assert all(c.isprintable() and not c.isspace() for c in table)


def test_merges_written_as_one_string_each_are_read_too(folder):
    path = folder / "old.json"
    tokenizer_json.save(made("smollm"), path)
    document = json.loads(path.read_text("utf-8"))
    document["model"]["merges"] = [" ".join(m) for m in document["model"]["merges"]]
    path.write_text(json.dumps(document), "utf-8")
    assert tokenizer_json.load(path).merges == made("smollm").merges


def changed(path: str, value: object):
    """The document with the entry at `path` set to `value`, or removed for ...."""

    def change(document):
        *way, last = [int(k) if k.isdigit() else k for k in path.split("/")]
        at = document
        for key in way:
            at = at[key]
        at[last] = value
        if value is ...:
            del at[last]

    return change


BOS = {"SpecialToken": {"id": "<|bos|>", "type_id": 0}}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
ROBERTA = {"type": "RobertaProcessing", "cls": ["<|bos|>", 1], "sep": ["<|eos|>", 2]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("model", ...), "model"),
        (changed("model/type", "WordPiece"), "WordPiece"),
        (changed("model/vocab", []), "wrong kind"),
        (changed("model/vocab/a", 2**60), "0 to"),
        (changed("model/vocab/a", -1), "0 to"),
        (changed("model/vocab/a", 5), "0 to"),
        (changed("model/vocab/a", 100.0), "0 to"),
        (changed("model/vocab/a", "b"), "0 to"),
        (changed("model/vocab/a", ...), "0 to"),
        (changed("model/merges/0", ["zz", "zz"]), "zz"),
        (changed("model/merges/0", "a"), "'a': not two tokens"),
        (changed("model/merges/0", "a b c"), "'a b c': not two tokens"),
        (changed("model/merges/0", ["a", 5]), "not two tokens"),
        (changed("model/merges", {}), "must be a list"),
        (changed("model/end_of_word_suffix", "</w>"), "end_of_word_suffix"),
        (changed("model/continuing_subword_prefix", "##"), "continuing_subword"),
        (changed("model/byte_fallback", True), "byte_fallback"),
        (changed("model/ignore_merges", True), "ignore_merges"),
        (changed("normalizer", {"type": "NFC"}), "normalizer"),
        (changed("added_tokens", []), "bos"),
        (changed("pre_tokenizer", None), "pre-tokenizer"),
        (
            changed("pre_tokenizer/pretokenizers/0/individual_digits", False),
            "only GPT-2",
        ),
        (changed("pre_tokenizer/pretokenizers/1/add_prefix_space", True), "only GPT-2"),
        (changed("pre_tokenizer/pretokenizers/1/use_regex", False), "only GPT-2"),
        (changed("pre_tokenizer/pretokenizers/0", {"type": "Split"}), "only GPT-2"),
        (changed("truncation", {"max_length": 5}), "truncation"),
        (changed("padding", {"strategy": {"Fixed": 9}}), "padding"),
        (changed("decoder", {"type": "WordPiece"}), "decoder"),
        (changed("post_processor", {"type": "Foo"}), "post_processor"),
        (changed("post_processor", ROBERTA), "post_processor"),
        (changed("post_processor/single", [TEXT, BOS]), "post_processor"),
        (changed("post_processor/single", [BOS, BOS, TEXT]), "post_processor"),
        (changed("post_processor/single", [BOS]), "post_processor"),
        (changed("post_processor/special_tokens/<|bos|>/ids", [2]), "post_processor"),
        (changed("added_tokens/0/special", False), "not special"),
    ],
)
def test_what_a_file_lacks_or_wants_in_vain_is_named(tmp_path, change, message):
    path = tmp_path / "tokenizer.json"
    tokenizer_json.save(made("smollm"), path)
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(TokenizationError, match=message):
        tokenizer_json.load(path)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"model": 3}', b"NaN"]
)
def test_a_file_of_another_kind_is_a_typed_error(tmp_path, data):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(data)
    with pytest.raises(TokenizationError, match=r"tokenizer\.json"):
        tokenizer_json.load(path)


def test_an_absent_file_is_a_typed_error(tmp_path):
    with pytest.raises(TokenizationError, match="no such file"):
        tokenizer_json.load(tmp_path / "nothing.json")


def test_an_empty_suffix_or_prefix_changes_nothing(tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer_json.save(made("smollm"), path)
    document = json.loads(path.read_text("utf-8"))
    document["model"] |= {"end_of_word_suffix": "", "continuing_subword_prefix": None}
    path.write_text(json.dumps(document), "utf-8")
    assert tokenizer_json.load(path).merges == made("smollm").merges


@pytest.mark.parametrize("of", [0, 1, "both"])
def test_ordinary_text_cannot_be_merged_into_a_special_token(tmp_path, of):
    path = tmp_path / "tokenizer.json"
    tokenizer_json.save(made("smollm"), path)
    document = json.loads(path.read_text("utf-8"))
    merges, vocab = document["model"]["merges"], document["model"]["vocab"]
    pair = next(m for m in merges if of == "both" or len(m[of]) > 1)
    text = "".join(pair) if of == "both" else pair[of]
    special = {"id": vocab[text], "content": text, "special": True}
    document["added_tokens"].append(special)
    path.write_text(json.dumps(document), "utf-8")
    with pytest.raises(TokenizationError, match="must be ordinary tokens"):
        tokenizer_json.load(path)


def test_a_file_larger_than_the_limit_is_not_read(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    tokenizer_json.save(made("smollm"), path)
    monkeypatch.setattr("tinyllm.formats.content.MAX_BYTES", 100)
    with pytest.raises(TokenizationError, match="larger than 100"):
        tokenizer_json.load(path)


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "tokenizer.json"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        tokenizer_json.save(made("smollm"), path)
    assert os.listdir(tmp_path) == ["tokenizer.json"]
    assert path.read_text() == "old"


def test_the_library_puts_bos_first_as_add_bos_says(tmp_path):
    """What is saved says so itself, and a chain of harmless steps is understood."""
    tokenizers = pytest.importorskip("tokenizers")
    path = tmp_path / "tokenizer.json"
    tokenizer_json.save(made("smollm"), path)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    assert theirs.encode("hat").ids == [1, *made("smollm").encode("hat")]
    document = json.loads(path.read_text("utf-8"))
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    chain = [byte_level, document["post_processor"]]
    document["post_processor"] = {"type": "Sequence", "processors": chain}
    path.write_text(json.dumps(document), "utf-8")
    assert tokenizer_json.load(path).add_bos
    document["post_processor"] = byte_level
    path.write_text(json.dumps(document), "utf-8")
    assert not tokenizer_json.load(path).add_bos


def test_a_vocabulary_larger_than_the_file_is_padded_a_smaller_one_refused(
    tmp_path,
):
    path = tmp_path / "tokenizer.json"
    ours = made("smollm")
    tokenizer_json.save(ours, path)
    padded = tokenizer_json.load(path, vocab_size=ours.vocab_size + 5)
    assert padded.vocab_size == ours.vocab_size + 5
    assert padded.token_bytes(ours.vocab_size + 4) == b""
    assert padded.encode("the hat") == ours.encode("the hat")
    with pytest.raises(TokenizationError, match="belong together"):
        tokenizer_json.load(path, vocab_size=ours.vocab_size - 1)


def test_only_special_ids_begin_and_end_a_text(tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer_json.save(made("smollm"), path)
    document = json.loads(path.read_text("utf-8"))
    document["post_processor"] = None
    path.write_text(json.dumps(document), "utf-8")
    assert tokenizer_json.load(path, bos_id=2, eos_ids=[0, 1]).eos_ids == {0, 1}
    with pytest.raises(TokenizationError, match="special"):
        tokenizer_json.load(path, bos_id=80)
