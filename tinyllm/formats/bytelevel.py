"""Byte-level BPE as other people's files write it: each byte as a printable character.

`from_vocabulary` builds a tokenizer from such texts and merges, whichever file held
them; `byte_characters` is the table.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from tinyllm.errors import TokenizationError
from tinyllm.text.bpe import BPE


def byte_characters() -> list[str]:
    """Return the printable character that stands for each of the 256 bytes, in order.

    Printable Latin-1 stands for itself; the rest are moved up to U+0100 and on.
    Source: openai/gpt-2, encoder.py, bytes_to_unicode.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    return [chr(b if b in printable else next(moved)) for b in range(256)]


# Each such character to the one whose code is the byte, all others of Latin-1 to none.
_NONE = 0xFFFF
_TO_LATIN_1 = dict.fromkeys(range(256), _NONE)
_TO_LATIN_1 |= {ord(c): b for b, c in enumerate(byte_characters())}


def from_vocabulary(
    texts: Sequence[str],
    merges: Sequence[tuple[str, str]],
    specials: Mapping[str, int],
    *,
    bos_id: int,
    eos_ids: Collection[int],
    add_bos: bool,
    pre_tokenizer: str,
) -> BPE:
    """Return the tokenizer whose id i is spelled `texts[i]`, merges in order of rank.

    `specials` maps the text of each special token to its id. Raises TokenizationError
    naming a token that is not written in byte characters, or a merge of unknown tokens.
    """
    special_ids = set(specials.values())
    tokens, ids = [b""] * len(texts), {}
    for i, text in enumerate(texts):
        if i not in special_ids:
            tokens[i], ids[text] = _bytes(text, i), i
    triples = []
    for rank, (a, b) in enumerate(merges):
        if not (a in ids and b in ids and a + b in ids):
            raise TokenizationError(
                f"merge {rank} is {a!r} and {b!r}: both, and the two together, must be "
                "ordinary tokens of the vocabulary"
            )
        triples.append((ids[a], ids[b], ids[a + b]))
    return BPE(
        tokens,
        triples,
        dict(specials),
        bos_id=bos_id,
        eos_ids=eos_ids,
        add_bos=add_bos,
        pre_tokenizer=pre_tokenizer,
    )


def _bytes(text: str, token_id: int) -> bytes:
    try:
        return text.translate(_TO_LATIN_1).encode("latin-1")
    except UnicodeEncodeError as error:
        raise TokenizationError(
            f"token {token_id} is {text!r}: {text[error.start]!r} stands for no byte"
        ) from None
