"""llama2.c's `tokenizer.bin`: read and write it.

`load(path, vocab_size)` and `save(tokenizer, path)`. A file is an int32, the length of
the longest token, and then for each token a float32 score, an int32 length and so many
bytes, all little-endian. How many tokens there are, the model's file says. Id 0 is
unknown, 1 bos, 2 eos, 3 to 258 the bytes, written `<0x00>` to `<0xFF>`.
Source: karpathy/llama2.c, tokenizer.py and run.c.
"""

from __future__ import annotations

import os
import struct

from tinyllm.atomic_file import atomic_file
from tinyllm.errors import TokenizationError
from tinyllm.formats.content import content
from tinyllm.text.sentencepiece import Kind, SentencePiece

BYTE_NAMES = [f"<0x{b:02X}>" for b in range(256)]
FIRST = 3 + len(BYTE_NAMES)  # the first id that stands for a text
HEAD = [Kind.UNKNOWN, Kind.CONTROL, Kind.CONTROL, *[Kind.BYTE] * len(BYTE_NAMES)]


def load(path: str | os.PathLike[str], vocab_size: int) -> SentencePiece:
    """Return the tokenizer in the file `path`, of a model with `vocab_size` tokens.

    Raises TokenizationError naming the file, the token and what was expected.
    """
    try:
        return _build(*_tokens(content(path), vocab_size))
    except TokenizationError as error:
        raise TokenizationError(f"{path}: {error}") from error


def _tokens(data: bytes, vocab_size: int) -> tuple[list[str], list[float]]:
    """Return texts and scores; each length is checked against the bytes that follow."""
    if len(data) < 4:
        raise TokenizationError(f"{len(data)} bytes: expected 4 and then the tokens")
    (longest,) = struct.unpack_from("<i", data)
    texts: list[str] = []
    scores: list[float] = []
    at = 4
    for i in range(vocab_size):
        if len(data) - at < 8:
            raise TokenizationError(
                f"it ends before token {i}: expected {vocab_size} tokens, as many as "
                "the model has"
            )
        score, length = struct.unpack_from("<fi", data, at)
        at += 8
        if not 0 <= length <= min(longest, len(data) - at):
            raise TokenizationError(
                f"token {i} claims {length} bytes: expected 0 to {longest}, "
                f"and no more than the {len(data) - at} that are left"
            )
        texts.append(_text(data[at : at + length], i))
        scores.append(score)
        at += length
    if at < len(data):
        raise TokenizationError(
            f"{len(data) - at} bytes are left after {vocab_size} tokens, as many as "
            "the model has: do the two belong together?"
        )
    return texts, scores


def _text(data: bytes, token_id: int) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise TokenizationError(
            f"token {token_id} is {data!r:.60}: expected UTF-8"
        ) from error


def _build(texts: list[str], scores: list[float]) -> SentencePiece:
    for i, expected in enumerate(BYTE_NAMES, 3):
        if (found := texts[i] if i < len(texts) else None) != expected:
            raise TokenizationError(
                f"token {i} is {found!r:.60}: expected {expected!r}"
            )
    names = [texts[0], *(text.strip("\n") for text in texts[1:3])]
    return SentencePiece(
        [*names, *texts[3:]],
        scores,
        [*HEAD, *[Kind.NORMAL] * (len(texts) - FIRST)],
        bos_id=1,
        eos_ids={2},
    )


def save(tokenizer: SentencePiece, path: str | os.PathLike[str]) -> None:
    """Write `tokenizer` as a tokenizer.bin that llama2.c reads, whole or not at all.

    Raises TokenizationError for a tokenizer that the format has no words for.
    """
    pieces = tokenizer.pieces
    kinds = [*HEAD, *[Kind.NORMAL] * (len(pieces) - FIRST)]
    ends = (tokenizer.bos_id, *tokenizer.eos_ids) == (1, 2)
    begins = tokenizer.add_bos and tokenizer.dummy_prefix
    bytes_as_here = pieces[3:FIRST] == BYTE_NAMES
    if not (tokenizer.kinds == kinds and bytes_as_here and ends and begins):
        raise TokenizationError(
            "a tokenizer.bin has the ids 0 unknown, 1 bos, 2 eos, 3 to 258 the bytes "
            "<0x00> to <0xFF>, then texts only; bos and a space begin a text: this "
            "tokenizer differs"
        )
    texts = [pieces[0], *(f"\n{name}\n" for name in pieces[1:3]), *pieces[3:]]
    data = [text.encode() for text in texts]
    with atomic_file(path) as file:
        file.write(struct.pack("<i", max(map(len, data))))
        for token, score in zip(data, tokenizer.scores, strict=True):
            file.write(struct.pack("<fi", score, len(token)) + token)
