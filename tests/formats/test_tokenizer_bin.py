from __future__ import annotations

import os
import random
import struct
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from tinyllm.errors import TokenizationError
from tinyllm.formats import tokenizer_bin
from tinyllm.text.sentencepiece import Kind, SentencePiece

DATA = Path(os.environ.get("TINYLLM_DATA", "/nowhere"))
BYTES = [f"<0x{b:02X}>".encode() for b in range(256)]
TOKENS = [b"<unk>", b"\n<s>\n", b"\n</s>\n", *BYTES, b" ", b"a", b" a", "ñ".encode()]
SCORES = [0.0] * 259 + [-1.0, -2.5, -0.125, -3.0]
N = len(TOKENS)


def blob(tokens=TOKENS, scores=SCORES, longest=None) -> bytes:
    """A file as llama2.c's export writes it."""
    longest = max(map(len, tokens)) if longest is None else longest
    parts = [struct.pack("<i", longest)]
    for token, score in zip(tokens, scores, strict=True):
        parts += [struct.pack("<fi", score, len(token)), token]
    return b"".join(parts)


STARTS = [4 + sum(8 + len(t) for t in TOKENS[:i]) for i in range(N)]


def at_token(i: int) -> int:
    """Where token i begins in the file."""
    return STARTS[i]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokenizer.bin"


def loaded(path: Path, data: bytes, n: int = N) -> SentencePiece:
    path.unlink(missing_ok=True)  # far quicker than to write over it
    path.write_bytes(data)
    return tokenizer_bin.load(path, n)


def test_ids_scores_and_kinds_are_those_of_the_file(path):
    tokenizer = loaded(path, blob())
    assert tokenizer.vocab_size == N
    assert tokenizer.specials == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert (tokenizer.bos_id, tokenizer.eos_ids) == (1, {2})
    assert tokenizer.add_bos
    assert tokenizer.dummy_prefix
    assert tokenizer.scores == SCORES
    assert tokenizer.encode("añ\n") == [261, 262, 3 + 10]
    assert tokenizer.token_bytes(3 + 0xFF) == b"\xff"


def test_a_saved_tokenizer_is_the_file_it_came_from(path):
    tokenizer_bin.save(loaded(path, blob()), path)
    assert path.read_bytes() == blob()
    assert [p.name for p in path.parent.iterdir()] == ["tokenizer.bin"]


def test_a_published_file_is_read_and_written_byte_for_byte(path):
    published = DATA / "tok512.bin"
    if not published.is_file():
        pytest.skip("TINYLLM_DATA names no folder with tok512.bin")
    tokenizer = tokenizer_bin.load(published, 512)
    assert tokenizer.encode("Once upon a time") == [403, 407, 261, 378]
    tokenizer_bin.save(tokenizer, path)
    assert path.read_bytes() == published.read_bytes()


def replaced(at: int, new: bytes) -> bytes:
    data = blob()
    return data[:at] + new + data[at + len(new) :]


def int32(value: int) -> bytes:
    return struct.pack("<i", value)


def with_token(i: int, token: bytes) -> bytes:
    return blob([*TOKENS[:i], token, *TOKENS[i + 1 :]])


REFUSED = {
    "an empty file": (b"", "0 bytes: expected 4"),
    "three bytes": (b"\x07\0\0", "3 bytes: expected 4"),
    "no token": (blob()[:4], "ends before token 0: expected 263"),
    "half a score": (blob()[: at_token(1) + 3], "ends before token 1"),
    "half a token": (blob()[:-1], "token 262 claims 2 bytes: .* the 1 that are left"),
    "a token too few": (blob()[: at_token(262)], "ends before token 262"),
    "a byte too many": (blob() + b"x", "1 bytes are left after 263 tokens"),
    "a length of 2^31-1": (replaced(at_token(5) + 4, int32(2**31 - 1)), "token 5 "),
    "a length of -1": (replaced(at_token(5) + 4, int32(-1)), "token 5 claims -1"),
    "longer than the longest": (blob(longest=5), "token 2 claims 6 bytes: .* 0 to 5"),
    "a longest of -1": (blob(longest=-1), "token 0 claims 5 bytes"),
    "no UTF-8": (with_token(260, b"\xff"), r"token 260 is b'\\xff': expected UTF-8"),
    "nothing": (with_token(260, b""), "piece 260 is empty"),
    "another byte": (with_token(4, b"<0x00>"), "token 4 is '<0x00>': expected '<0x01>"),
    "a raw byte": (with_token(13, b"\n"), r"token 13 is '\\n': expected '<0x0A>'"),
    "a score of NaN": (blob(scores=[*SCORES[:-1], float("nan")]), "piece 262 is nan"),
    "an endless score": (blob(scores=[*SCORES[:-1], float("inf")]), "piece 262 is inf"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_damaged_file_is_refused_by_name(path, name):
    data, message = REFUSED[name]
    with pytest.raises(TokenizationError, match=rf"tokenizer\.bin: .*{message}"):
        loaded(path, data)


@pytest.mark.parametrize("n", [262, 264, 2**60, 259, 3, 0, -1])
def test_a_file_of_another_vocabulary_size_is_refused(path, n):
    with pytest.raises(TokenizationError, match=r"ends before token|bytes are left"):
        loaded(path, blob(), n)


@pytest.mark.parametrize("n", [0, 1, 3, 100, 258])
def test_a_vocabulary_without_every_byte_is_refused(path, n):
    with pytest.raises(TokenizationError, match=r"is None: expected '<0x"):
        loaded(path, blob(TOKENS[:n], SCORES[:n], 7), n)


def test_what_is_no_file_is_refused_by_name(tmp_path):
    for path in (tmp_path, tmp_path / "nothing.bin"):
        with pytest.raises(TokenizationError, match=f"{path.name}: there is no such"):
            tokenizer_bin.load(path, N)


def test_a_file_larger_than_the_limit_is_not_read(path, monkeypatch):
    monkeypatch.setattr("tinyllm.formats.content.MAX_BYTES", 100)
    with pytest.raises(TokenizationError, match="larger than 100"):
        loaded(path, blob())


WHOLE = blob()


def mutated(rng: random.Random) -> bytes:
    """The file with a few numbers, bytes or its end changed."""
    data = bytearray(WHOLE)
    for _ in range(rng.randint(1, 3)):
        at = rng.choice([0, at_token(rng.randrange(N)), at_token(rng.randrange(N)) + 4])
        what = rng.randrange(4)
        if what == 0:
            data[at : at + 4] = rng.choice([2**31 - 1, 0, 1, 2**30]).to_bytes(
                4, "little"
            )
        elif what == 1:
            data[rng.randrange(len(data))] = rng.randrange(256)
        elif what == 2:
            del data[rng.randrange(len(data) // 2, len(data)) :]
            data += bytes(rng.randrange(12))
        else:
            data[at : at + 4] = rng.randbytes(4)
    return bytes(data)


def load_mutated(path: Path, seed: int, times: int) -> int:
    """How many of so many damaged files load; the rest must be refused in type."""
    rng, good = random.Random(seed), 0
    for _ in range(times):
        size = rng.choice([N, N, N, N + 1, 2**31, 2**60])
        with suppress(TokenizationError):
            good += loaded(path, mutated(rng), size).vocab_size == N
    return good


def test_thousands_of_damaged_files_load_or_are_refused_in_type(path):
    assert 100 < load_mutated(path, 0, 3000) < 2900


def test_damaged_files_take_no_more_memory_than_they_are_large(path):
    tracemalloc.start()  # makes all six times as slow: fewer files
    try:
        load_mutated(path, 1, 500)
        assert tracemalloc.get_traced_memory()[1] < 2**20  # of 64 MB that are allowed
    finally:
        tracemalloc.stop()


def changed(tokenizer: SentencePiece, **settings) -> SentencePiece:
    given = {
        "pieces": tokenizer.pieces,
        "scores": tokenizer.scores,
        "kinds": tokenizer.kinds,
        "bos_id": 1,
        "eos_ids": {2},
    }
    return SentencePiece(**given | settings)


@pytest.mark.parametrize("what", ["bos", "eos", "add", "prefix", "kind", "order"])
def test_a_tokenizer_that_the_format_cannot_hold_is_not_written(path, what):
    plain = loaded(path, blob())
    pieces = list(plain.pieces)
    pieces[3], pieces[4] = pieces[4], pieces[3]
    settings = {
        "bos": {"bos_id": 2},
        "eos": {"eos_ids": {1, 2}},
        "add": {"add_bos": False},
        "prefix": {"dummy_prefix": False},
        "kind": {"kinds": [*plain.kinds[:-1], Kind.UNUSED]},
        "order": {"pieces": pieces},
    }[what]
    with pytest.raises(TokenizationError, match="this tokenizer differs"):
        tokenizer_bin.save(changed(plain, **settings), path)
    assert path.read_bytes() == blob()


def test_a_failed_save_leaves_the_old_file(path, monkeypatch):
    tokenizer = loaded(path, blob())
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("no")))
    with pytest.raises(OSError, match="no"):
        tokenizer_bin.save(tokenizer, path)
    assert path.read_bytes() == b"old"
    assert [p.name for p in path.parent.iterdir()] == ["tokenizer.bin"]
