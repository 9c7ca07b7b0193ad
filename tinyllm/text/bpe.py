"""Byte-level byte-pair encoding: learn merges from text, then encode and decode.

`split` cuts a text into words across which nothing is merged, `train` learns the
merges, and `BPE` applies them by `merge_all`. The unit is the byte, so every text can
be spelled. Ids are special tokens first, then the 256 bytes in their own order, then
one id for each merge in the order learned.

Before: text.vocabulary. Next: text.sentencepiece.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeVar

import regex

from tinyllm.errors import TokenizationError
from tinyllm.text.vocabulary import Vocabulary, utf8

# Source: openai/gpt-2, encoder.py. Contractions are case-sensitive on purpose.
_GPT2 = regex.compile(
    r"'(?:s|t|re|ve|m|ll|d)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
_DIGIT = regex.compile(r"(\p{N})")


def split(text: str, kind: str = "smollm") -> list[str]:
    """Return the pieces of `text` under the pre-tokenizer `kind`: "gpt-2" or "smollm".

    >>> split("Add 17 and it's", "smollm")
    ['Add', ' ', '1', '7', ' and', ' it', "'s"]

    Raises TokenizationError for a pre-tokenizer that is not known.
    """
    if kind == "gpt-2":
        return list(_GPT2.findall(text))
    if kind == "smollm":
        return [p for part in _DIGIT.split(text) for p in _GPT2.findall(part)]
    raise TokenizationError(
        f"unknown pre-tokenizer {kind!r}: this package knows 'gpt-2' and 'smollm'"
    )


Symbol = TypeVar("Symbol", int, str)


def merge_all(
    symbols: Sequence[Symbol],
    found: Callable[[Symbol, Symbol], tuple[float, Symbol] | None],
) -> list[Symbol]:
    """Return the symbols after all merges, lowest rank first and then the leftmost.

    `found(a, b)` is the rank of a pair and what it becomes, None if it stays apart. A
    heap of candidate pairs over a linked list: n log n in the number of symbols.

    >>> merge_all("aaab", lambda a, b: (0, a + b) if a + b in ("aa", "ab") else None)
    ['aa', 'ab']
    """
    parts: list[Symbol | None] = list(symbols)
    n = len(parts)
    left, right = list(range(-1, n - 1)), list(range(1, n + 1))
    heap: list[tuple[float, int, Symbol, Symbol, Symbol]] = []

    def offer(i: int, j: int) -> None:
        if i >= 0 and j < n and (pair := found(parts[i], parts[j])):  # type: ignore
            heapq.heappush(heap, (pair[0], i, parts[i], parts[j], pair[1]))  # type: ignore

    for i in range(n - 1):
        offer(i, i + 1)
    while heap:
        _, i, a, b, merged = heapq.heappop(heap)
        j = right[i]
        if parts[i] != a or j >= n or parts[j] != b:
            continue  # a candidate that an earlier merge has used up
        parts[i], parts[j] = merged, None
        right[i] = right[j]
        if right[i] < n:
            left[right[i]] = i
        offer(i, right[i])
        offer(left[i], i)
    return [part for part in parts if part is not None]


Pair = tuple[int, int]
SPECIALS = ("<|pad|>", "<|bos|>", "<|eos|>")
WORDS_REMEMBERED = 4096
LONG_WORD = 64  # bytes; longer words hardly come twice, so they are not remembered


def merge(ids: Sequence[int], pair: Pair, new_id: int) -> list[int]:
    """`ids` with each occurrence of `pair`, left to right, replaced by `new_id`.

    >>> merge([5, 6, 6, 5, 6], (5, 6), 9)
    [9, 6, 9]
    """
    out: list[int] = []
    for token_id in ids:
        if out and out[-1] == pair[0] and token_id == pair[1]:
            out[-1] = new_id
        else:
            out.append(token_id)
    return out


def train(pieces: Iterable[str], vocab_size: int) -> list[Pair]:
    """Return the merges that fill a vocabulary, the most frequent pair first.

    `pieces` are texts; each is pre-tokenized and merges never cross a cut. Ties go to
    the pair with the smaller ids, so the same corpus gives the same merges anywhere.
    Source: Sennrich et al. 2016, "Neural Machine Translation of Rare Words", 3.2.
    """
    if isinstance(pieces, str):
        raise TokenizationError("pieces is one text: give a list of texts, as [text]")
    n_special = len(SPECIALS)
    counts: Counter[str] = Counter()
    for piece, times in Counter(pieces).items():
        for part in split(piece):
            counts[part] += times
    words = [[n_special + b for b in utf8(word)] for word in counts]
    weight = list(counts.values())
    pairs: Counter[Pair] = Counter()
    where: defaultdict[Pair, set[int]] = defaultdict(set)
    for i, word in enumerate(words):
        _count(word, i, weight[i], pairs, where)
    merges: list[Pair] = []
    while n_special + 256 + len(merges) < vocab_size and pairs:
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        if pairs[best] < 2:
            break
        new_id = n_special + 256 + len(merges)
        merges.append(best)
        for i in sorted(where[best]):
            _count(words[i], i, -weight[i], pairs, where)
            words[i] = merge(words[i], best, new_id)
            _count(words[i], i, weight[i], pairs, where)
    return merges


def _count(
    word: list[int],
    index: int,
    weight: int,
    pairs: Counter[Pair],
    where: defaultdict[Pair, set[int]],
) -> None:
    """Add (or with a negative weight take away) the pairs of one word."""
    for pair in pairwise(word):
        pairs[pair] += weight
        if weight > 0:
            where[pair].add(index)
        elif pairs[pair] == 0:
            del pairs[pair]


class BPE(Vocabulary):
    """A byte-level BPE tokenizer: text -> ids by merge rank, ids -> bytes -> text.

    tokens: the bytes of each id, b"" for a special id. merges: (a, b, new id), the
    first is merged first. specials: the text of each special token and its id; written
    in a text it is ordinary text, for only the harness, which appends ids, can ask for
    it. Raises TokenizationError for a pre-tokenizer that is not known, and as
    `Vocabulary` does.
    """

    def __init__(
        self,
        tokens: Sequence[bytes],
        merges: Sequence[tuple[int, int, int]],
        specials: dict[str, int],
        *,
        bos_id: int,
        eos_ids: Collection[int],
        add_bos: bool = True,
        pre_tokenizer: str = "smollm",
    ) -> None:
        super().__init__(
            tokens,
            specials.values(),
            bos_id=bos_id,
            eos_ids=eos_ids,
            add_bos=add_bos,
            dummy_prefix=False,
        )
        split("", pre_tokenizer)  # which must be known
        self.merges = list(merges)
        self.specials = dict(specials)
        self.pre_tokenizer = pre_tokenizer
        self._ranks = {(a, b): (r, new) for r, (a, b, new) in enumerate(merges)}
        self._encode_word = lru_cache(WORDS_REMEMBERED)(self._merge_word)
        self._byte_ids = {t[0]: i for i, t in enumerate(self.tokens) if len(t) == 1}

    @classmethod
    def from_merges(cls, merges: Sequence[Pair]) -> BPE:
        """Return the tokenizer of new `merges`, as `train` returns them."""
        tokens = [b""] * len(SPECIALS) + [bytes([b]) for b in range(256)]
        triples: list[tuple[int, int, int]] = []
        for a, b in merges:
            if not (0 <= a < len(tokens) and 0 <= b < len(tokens)):
                raise TokenizationError(
                    f"merge {len(triples)} is of {a} and {b}: each must be an id below "
                    f"{len(tokens)}, which are there before it"
                )
            triples.append((a, b, len(tokens)))
            tokens.append(tokens[a] + tokens[b])
        specials = {name: i for i, name in enumerate(SPECIALS)}
        return cls(tokens, triples, specials, bos_id=1, eos_ids={2})

    def encode(self, text: str) -> list[int]:
        """Return the token ids of `text`; no special id is ever among them.

        Raises TokenizationError where the text is not valid Unicode (a lone surrogate),
        or has a byte that this vocabulary cannot spell: SmolLM2's lacks 21 of the 256.
        """
        utf8(text)
        words = [piece.encode() for piece in split(text, self.pre_tokenizer)]
        ids: list[int] = []
        for word in words:
            merged = self._merge_word if len(word) > LONG_WORD else self._encode_word
            ids += merged(word)
        return ids

    def _merge_word(self, word: bytes) -> list[int]:
        """Return the ids of a piece: merge the pair of lowest rank, again and again."""
        try:
            ids = [self._byte_ids[b] for b in word]
        except KeyError as error:
            raise TokenizationError(
                f"byte {error} of {word!r} has no token in this vocabulary: leave the "
                "character out"
            ) from None
        return merge_all(ids, lambda a, b: self._ranks.get((a, b)))
