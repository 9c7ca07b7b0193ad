from __future__ import annotations

import hashlib
import random
from collections import Counter
from itertools import islice

import numpy as np
import pytest

from tests.trained_tokenizer import tokenizer
from tinyllm.agent import protocol, tools
from tinyllm.agent.backend import Slot
from tinyllm.agent.loop import Agent
from tinyllm.agent.tools import Registry
from tinyllm.train import corpus
from tinyllm.train.tasks import SIGNATURES, Task, make

SAME_CORPUS = "a43f82aff21097d54a8077b6ed39e8345879c60ae1450cc91d881fb36c0fcc08"


def test_the_same_corpus_is_generated_on_every_machine():
    """The promise of the model card. Whatever breaks it makes another model."""
    ids = corpus.build(tokenizer(), 245_761, 1, corpus.AGENT)
    assert corpus.checksum(ids) == SAME_CORPUS


def test_the_tokenizer_has_512_ids_and_digits_are_single_tokens():
    assert tokenizer().vocab_size == 512
    ids = tokenizer().encode("4871 * 209")
    assert tokenizer().token_bytes(ids[0]) == b"4"
    digits = [t for t in tokenizer().tokens if any(c in b"0123456789" for c in t)]
    assert sorted(digits) == [b"%d" % d for d in range(10)]


def test_the_checksum_is_of_little_endian_uint16():
    ids = np.array([1, 258], np.uint16)
    swapped = ids.astype(">u2")
    assert corpus.checksum(ids) == corpus.checksum(swapped)
    assert corpus.checksum(ids) == hashlib.sha256(b"\x01\x00\x02\x01").hexdigest()


@pytest.mark.parametrize(
    "mix", [corpus.AGENT, corpus.STORIES], ids=["agent", "stories"]
)
def test_a_document_is_its_pieces_encoded_apart_between_bos_and_eos(mix):
    made = corpus.documents(tokenizer(), 7, mix)
    rng = random.Random(7)
    for ids in islice(made, 200):
        pieces = corpus.document_pieces(rng, mix)
        apart = [i for piece in pieces for i in tokenizer().encode(piece)]
        assert ids == [tokenizer().bos_id, *apart, *tokenizer().eos_ids]


def test_encoding_a_document_at_once_would_give_other_ids():
    """So the test above can fail: boundaries between pieces do matter."""
    rng = random.Random(7)
    pieces = corpus.document_pieces(rng, {"calc": 1.0})
    apart = protocol.encode_pieces(tokenizer(), pieces)
    assert tokenizer().encode("".join(pieces)) != apart


def test_build_packs_the_documents_without_a_gap_and_cuts_the_last():
    told: list[int] = []
    ids = corpus.build(tokenizer(), 1000, 7, corpus.AGENT, told.append)
    flat = [
        i for d in islice(corpus.documents(tokenizer(), 7, corpus.AGENT), 50) for i in d
    ]
    assert ids.dtype == np.uint16
    assert ids.tolist() == flat[:1000]
    assert told == sorted(told)
    assert told[-1] == 1000


def test_another_seed_gives_another_corpus():
    first, second = (corpus.build(tokenizer(), 500, s, corpus.AGENT) for s in (1, 2))
    assert (first != second).any()


def test_the_mix_has_the_shares_it_names():
    assert sum(corpus.AGENT.values()) == pytest.approx(1.0)
    rng = random.Random(0)
    texts = ["".join(corpus.document_pieces(rng, corpus.AGENT)) for _ in range(2000)]
    stories = Counter(text.startswith("TOOLS: ") for text in texts)[False]
    assert abs(stories / 2000 - corpus.AGENT["story"]) < 0.015  # 3 deviations


def test_training_reads_no_held_out_task():
    """`documents` asks for training tasks alone; evaluation asks for the others."""
    rng = random.Random(3)
    held = {
        make(f, rng, True).question
        for f in corpus.AGENT
        if f != "story"
        for _ in range(300)
    }
    texts = corpus.sample_texts(3000, 5, corpus.AGENT)
    seen = {
        line.removeprefix("TASK: ")
        for t in texts
        for line in t.split("\n")
        if line.startswith("TASK: ")
    }
    assert len(seen) > 2000
    assert not seen & held


def test_the_tool_list_is_written_as_the_registry_writes_it(tmp_path):
    own = Registry(
        [tools.calc, tools.read_file(tmp_path), tools.list_files(tmp_path)]
        + [tools.remember(), tools.answer]
    )
    signatures = {tool.name: SIGNATURES[tool.name] for tool in own}
    assert protocol.describe(signatures) == own.describe()


class Actor:
    """A backend that plays the moves of a task, as the ids training has for them."""

    def __init__(self, task: Task, registry: Registry) -> None:
        self.tokenizer, self.n_ctx, self.tools = tokenizer(), 512, registry
        lines = (
            (m.thought, protocol.call_text(m.tool, dict(m.args))) for m in task.moves
        )
        self.lines = [text for pair in lines for text in pair]

    def reset(self) -> None:
        pass

    def _next(self, token_ids, on_text=None) -> Slot:
        text = self.lines.pop(0)
        return Slot(tuple(self.tokenizer.encode(text)), text)

    thought = call = _next


@pytest.mark.parametrize(
    "family", ["calc", "read", "read_calc", "direct", "list", "remember"]
)
def test_a_transcript_at_run_time_has_the_ids_of_the_document(family, tmp_path):
    rng = random.Random(11)
    for n in range(30):
        task = make(family, rng, True)
        root = tmp_path / str(n)
        root.mkdir()
        for name, text in task.files.items():
            (root / name).write_text(text, encoding="utf-8")
        own = {
            t.name: t
            for t in Registry(
                [tools.calc, tools.read_file(root)]
                + [tools.list_files(root), tools.remember(), tools.answer]
            )
        }
        listed = {name: args for name, args in task.tools.items() if name in own}
        shown = Task(task.family, listed, task.question, task.moves)
        trace = Agent(Actor(shown, Registry(own[name] for name in listed))).run(
            task.question
        )
        document = protocol.encode_pieces(tokenizer(), corpus.task_pieces(shown))
        end = tokenizer().encode(protocol.END)
        assert list(trace.token_ids) + end == [tokenizer().bos_id, *document]
        assert trace.answer == task.answer
