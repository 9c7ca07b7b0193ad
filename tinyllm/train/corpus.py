"""The training corpus as token ids, and the tokenizer that is learned from it.

`learn_tokenizer(seed)` trains the BPE on a sample; `documents(tokenizer, seed, mix)`
yields documents without end; `build` packs them into one array whose `checksum`
identifies the corpus. Every document is encoded in the same pieces as a transcript at
run time, so the model is trained on every boundary between pieces.

Before: train.tasks. Next: train.command.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator

import numpy as np

from tinyllm.agent import protocol
from tinyllm.progress import ignore
from tinyllm.text.bpe import BPE, train
from tinyllm.train.data.stories import story
from tinyllm.train.tasks import Task, make

Mix = dict[str, float]  # family -> share of the documents
AGENT: Mix = {"calc": 0.16, "read": 0.14, "read_calc": 0.12, "direct": 0.11} | {
    "list": 0.09,
    "remember": 0.05,
    "lookup": 0.13,
    "no_tool": 0.15,
    "story": 0.05,
}
STORIES: Mix = {"story": 1.0}


def task_pieces(task: Task) -> list[str]:
    """Return a solved task as the pieces of its transcript: scaffolding and slots."""
    pieces = protocol.prompt_pieces(protocol.describe(task.tools), task.question)
    for move in task.moves:
        pieces += [protocol.THOUGHT, move.thought]
        pieces += [protocol.CALL, protocol.call_text(move.tool, dict(move.args))]
        if move.observation is not None:
            literal = protocol.observation_literal(move.observation)
            pieces += [protocol.OBSERVATION, literal]
    # after its final answer the model writes a line break, and then eos
    return [*pieces, protocol.END]


def document_pieces(rng: random.Random, mix: Mix) -> list[str]:
    """Return the pieces of a document whose family is drawn by the weights of `mix`."""
    family = rng.choices(list(mix), list(mix.values()))[0]
    return [story(rng)] if family == "story" else task_pieces(make(family, rng, False))


def learn_tokenizer(seed: int, vocab_size: int = 512, n_documents: int = 20_000) -> BPE:
    """Return the byte-level BPE of `n_documents` documents of the agent mix."""
    rng = random.Random(seed)
    # pieces, not documents: no token is learned that crosses a boundary
    sample = (p for _ in range(n_documents) for p in document_pieces(rng, AGENT))
    return BPE.from_merges(train(sample, vocab_size))


def documents(tokenizer: BPE, seed: int, mix: Mix) -> Iterator[list[int]]:
    """Yield documents as ids, bos first and eos last, without end."""
    rng = random.Random(seed)
    (eos,) = tokenizer.eos_ids
    while True:
        pieces = document_pieces(rng, mix)
        ids = protocol.encode_pieces(tokenizer, pieces)
        yield [tokenizer.bos_id, *ids, eos]


def build(
    tokenizer: BPE,
    n_tokens: int,
    seed: int,
    mix: Mix,
    progress: Callable[[int], object] = ignore,
) -> np.ndarray:
    """Return the first `n_tokens` ids of the corpus: uint16 (n_tokens,).

    After each document it calls `progress` with the number of ids so far.
    """
    ids = np.empty(n_tokens, np.uint16)  # 512 ids fit, in a quarter of the memory
    filled = 0
    for document in documents(tokenizer, seed, mix):
        part = document[: n_tokens - filled]  # the last document is cut
        ids[filled : filled + len(part)] = part
        filled += len(part)
        progress(filled)
        if filled == n_tokens:
            return ids
    raise AssertionError("documents() has no end")


def checksum(ids: np.ndarray) -> str:
    """Return the SHA-256 of a corpus as little-endian uint16: equal everywhere."""
    return hashlib.sha256(ids.astype("<u2").tobytes()).hexdigest()


def sample_texts(n: int, seed: int, mix: Mix) -> list[str]:
    """Return the first `n` documents of the corpus as texts, to look at."""
    rng = random.Random(seed)
    return ["".join(document_pieces(rng, mix)) for _ in range(n)]
