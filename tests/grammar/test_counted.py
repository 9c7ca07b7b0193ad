"""Counted repetitions: a counter in the state says what copies would say."""

from __future__ import annotations

import gc
import json
import os
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tinyllm
from tests.grammar.test_completion import fewest
from tests.grammar.test_pushdown import machine_of, pairs
from tests.grammar.test_vocabulary import (
    WAYS,
    byte_by_byte,
    found_in,
    found_in_parts,
    some_states,
)
from tests.stack_simulator import LETTERS, Simulator, goes_on_into_what_follows
from tests.toy_tokenizer import ToyTokenizer, after, byte_level, characters
from tinyllm.errors import GrammarError
from tinyllm.formats import gguf
from tinyllm.formats.gguf_vocabulary import tokenizer_of
from tinyllm.grammar import Vocabulary, compile, expression, states
from tinyllm.grammar import completion as completion_module
from tinyllm.grammar import vocabulary as vocabulary_module
from tinyllm.grammar.completion import Completion
from tinyllm.grammar.expression import (
    EMPTY_TEXT,
    Alternation,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    literal,
)
from tinyllm.grammar.mask import TokenGrammar
from tinyllm.grammar.pushdown import Pushdown
from tinyllm.grammar.regex import parse

BOUNDS = st.sampled_from([(0, 2), (1, 2), (2, 2), (2, 4), (3, 3), (2, None), (0, 3)])


def counted(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Repetitions, many of a body whose last or first byte shows where it ends."""
    ends = [lambda tree: tree, lambda tree: Concatenation((tree, literal("c")))]
    ends.append(lambda tree: Concatenation((literal("c"), tree)))
    return st.builds(
        lambda tree, bounds, end: Repetition(end(tree), *bounds),
        inner,
        BOUNDS,
        st.sampled_from(ends),
    )


def trees(names: str) -> st.SearchStrategy[Expression]:
    """Small trees with counted parts that may call these rules."""
    leaves: st.SearchStrategy[Expression] = LETTERS | st.just(EMPTY_TEXT)
    if names:
        leaves |= st.sampled_from(names).map(Call)

    def larger(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
        parts = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return counted(inner) | parts.map(Concatenation) | parts.map(Alternation)

    return st.recursive(leaves, larger, max_leaves=4)


@st.composite
def counted_rules(draw: st.DrawFn) -> Rules:
    """A tree with a counted part; sometimes it calls a rule that has one, too."""
    names = "P" * draw(st.sampled_from([0, 0, 0, 1]))
    rules: dict[str, Expression] = {}
    for name in names:
        tree, before, behind = draw(trees(names)), draw(LETTERS), draw(LETTERS)
        rules[name] = Concatenation((before, tree, behind))
        rules[name] = Alternation((rules[name], draw(LETTERS)))
    parts = draw(trees(names)), draw(counted(trees(names))), draw(trees(names))
    return Rules(Concatenation(parts[draw(st.integers(0, 1)) :]), rules)


def counts_of(machine: Pushdown) -> int:
    """Return how many repetitions the machine counts instead of copying them."""
    return sum(
        isinstance(call.rule, int) for calls in machine.network.calls for call in calls
    )


def parts_of(grammar: TokenGrammar) -> int:
    """Return how many parts of masks a grammar remembers."""
    return grammar._part.cache_info().currsize


def counting_machine(rules: Rules, letters: bytes = b"abc") -> Pushdown:
    """Return a machine that counts even small repetitions, wherever it can."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expression, "MAX_COPIED", 0)
        return machine_of(rules, letters)


@settings(max_examples=80)
@given(counted_rules())
def test_texts_are_read_as_by_a_set_of_stacks(rules: Rules) -> None:
    machine, reader = counting_machine(rules), Simulator(rules)
    assume(counts_of(machine) and not goes_on_into_what_follows(rules, longest=7))
    assert bool(machine.start.dfa.positions) == bool(reader.start)
    for (state, stacks), text in pairs(machine, reader, 7).items():
        assert machine.legal_bytes(state) == reader.bytes_from(stacks), text
        assert machine.may_end(state) == (() in stacks), text
        left = min(sum(map(reader.shortest, stack)) for stack in stacks)
        assert machine.least(state) == left, text
        rest = machine.rest(state)
        assert len(rest) == left
        assert () in reader.after(text + rest)


TOKENS = st.lists(
    st.text("abc", min_size=1, max_size=5).map(str.encode), min_size=1, max_size=12
)


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40)
@given(rules=counted_rules(), tokens=TOKENS)
def test_tokens_that_span_several_counts_are_found(
    way: str, rules: Rules, tokens: list[bytes]
) -> None:
    vocabulary = Vocabulary(ToyTokenizer([*characters("abc"), *tokens]))
    machine = counting_machine(rules)
    assume(counts_of(machine) and not goes_on_into_what_follows(rules, longest=7))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary_module, "FEW", WAYS[way][0])
        patch.setattr(vocabulary_module, "MOST", WAYS[way][1])
        for state in some_states(machine, 25):
            expected = byte_by_byte(machine, vocabulary, state)
            assert found_in(machine, vocabulary, state) == expected
            parts = found_in_parts(machine, vocabulary, state)
            assert parts == {token for token, _ in expected}


@settings(max_examples=40)
@given(counted_rules(), TOKENS)
def test_no_completion_of_what_is_counted_has_fewer_tokens(
    rules: Rules, longer: list[bytes]
) -> None:
    tokens = [*characters("abc"), *longer]
    machine, vocabulary = counting_machine(rules), Vocabulary(ToyTokenizer(tokens))
    assume(counts_of(machine) and not goes_on_into_what_follows(rules, longest=7))
    found, reader = Completion(machine, vocabulary), Simulator(rules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(completion_module, "MAX_LOOKED_AT", 20_000)
        for text in {b"", *tokens}:
            state = after(machine, text)
            if state is not None:
                ids, n = found.tokens(state), fewest(reader, tokens, reader.after(text))
                assert (None if ids is None else len(ids)) == n, text


def gpt_2() -> Any:
    """Return GPT-2's tokenizer: 50,257 tokens, the longest of 128 bytes."""
    path = Path(os.environ.get("TINYLLM_DATA", "")) / "gpt-2.gguf"
    if not path.is_file():
        pytest.skip("TINYLLM_DATA names no folder with gpt-2.gguf")
    return tokenizer_of(gguf.read(path).metadata, "gpt-2")


VOCABULARIES: dict[str, Callable[[], Any]] = {
    "embedded": lambda: tinyllm.load().tokenizer,
    "bytes": byte_level,
    "gpt-2": gpt_2,
}
KNOWN: dict[str, Vocabulary] = {}


def vocabulary_of(name: str) -> Vocabulary:
    """Return the vocabulary of a tokenizer, built once."""
    if name not in KNOWN:
        KNOWN[name] = Vocabulary(VOCABULARIES[name]())
    return KNOWN[name]


def string(*bounds: int) -> dict[str, Any]:
    keys = ("maxLength",) if len(bounds) == 1 else ("minLength", "maxLength")
    return {"type": "string", **dict(zip(keys, bounds, strict=True))}


def closed(**members: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": members,
        "required": list(members),
        "additionalProperties": False,
    }


def filled(schema: dict[str, Any], rng: random.Random) -> Any:
    """Return a value of a schema whose counted parts are as long as they may be."""
    if "anyOf" in schema:
        return filled(rng.choice(schema["anyOf"]), rng)
    if schema.get("type") == "array":
        return [filled(schema["items"], rng) for _ in range(schema["maxItems"])]
    if "properties" in schema:
        return {k: filled(v, rng) for k, v in schema["properties"].items()}
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    if "maxLength" in schema:
        return "".join(rng.choices('ab e"\\\né東🙂', k=schema["maxLength"]))
    return rng.randint(-999, 999)


def grown(schema: Any, value: Any) -> list[Any]:
    """Return the value with one counted part longer by one, for each such part."""
    if isinstance(value, str) and "maxLength" in schema:
        return [value + "a"]
    if isinstance(value, list):
        longer = [*value, filled(schema["items"], random.Random(0))]
        inner = [[*value[:-1], v] for v in grown(schema["items"], value[-1])]
        return [longer, *inner]
    if isinstance(value, dict) and "properties" in schema:
        return [
            {**value, key: v}
            for key, inside in schema["properties"].items()
            for v in grown(inside, value[key])
        ]
    return []


def text_of(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def read_with_masks(
    grammar: TokenGrammar, data: bytes, rng: random.Random
) -> tuple[bytes, Any]:
    """Read a text in random tokens, with a mask at each; return what was not legal."""
    vocabulary, state = grammar.vocabulary, grammar.start()
    while data:
        ids = [
            vocabulary.ids[data[:n]]
            for n in range(1, min(vocabulary.longest, len(data), 24) + 1)
            if data[:n] in vocabulary.ids
        ]
        legal = grammar.mask(state)[ids].tolist()
        ids = [
            token_id for token_id, is_legal in zip(ids, legal, strict=True) if is_legal
        ]
        if not ids:
            return data, state
        token_id = rng.choice(ids)
        state = grammar.advance(state, token_id)
        data = data[len(vocabulary.token_bytes[token_id]) :]
    return data, state


LISTED = {"type": "array", "items": string(2, 3), "maxItems": 40}
TOOLS = {
    "anyOf": [
        closed(tool={"const": name}, args=closed(text=string(most)))
        for name, most in (("a", 1200), ("b", 30), ("c", 500))
    ]
}
FILLED: dict[str, dict[str, Any]] = {
    "two long strings": closed(a=string(1200), b=string(1300)),
    "five strings": closed(**{f"s{n}": string(n) for n in range(430, 455, 5)}),
    "one of 3000": string(3000),
    "with a least length": closed(a=string(7, 9), b=string(300, 300)),
    "a list of lists": {"type": "array", "items": LISTED, "maxItems": 6},
    "numbers": {"type": "array", "items": {"type": "integer"}, "maxItems": 70},
    "tools with different bounds": TOOLS,
    "alike until the end": {"anyOf": [string(60), {"enum": ["ab", "abc"]}]},
}


@pytest.mark.parametrize("name", VOCABULARIES)
@pytest.mark.parametrize("case", FILLED)
def test_every_counted_part_is_filled_to_its_bound_and_no_further(
    name: str, case: str
) -> None:
    schema, rng = FILLED[case], random.Random(case)
    grammar = compile(schema, vocabulary_of(name))
    for _ in range(2):
        value = filled(schema, rng)
        rest, state = read_with_masks(grammar, text_of(value), rng)
        assert (rest, grammar.may_end(state)) == (b"", True)
    for longer in grown(schema, value)[:3]:
        rest, state = read_with_masks(grammar, text_of(longer), rng)
        assert rest
        ids = grammar.finish(state)
        for token_id in ids:
            state = grammar.advance(state, token_id)
        assert grammar.may_end(state)


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> dict[str, Any]:
    kinds = ["string", "integer", *["array", "object", "anyOf"] * (depth > 0)]
    kind = draw(st.sampled_from(kinds))
    inner = schemas(depth - 1)
    if kind == "string":
        most = draw(st.integers(1, 40))
        return string(draw(st.integers(0, most)), most)
    if kind == "array":
        items = draw(inner)
        return {"type": kind, "items": items, "maxItems": draw(st.integers(1, 12))}
    if kind == "object":
        return closed(a=draw(inner), b=draw(inner))
    if kind == "anyOf":
        return {"anyOf": [draw(inner), draw(inner)]}
    return {"type": kind}


@pytest.mark.parametrize("name", VOCABULARIES)
@settings(max_examples=12)
@given(schema=schemas(), rng=st.randoms(use_true_random=False))
def test_counted_parts_of_random_schemas_are_filled_to_their_bounds(
    name: str, schema: dict[str, Any], rng: random.Random
) -> None:
    grammar = compile(schema, vocabulary_of(name))
    for _ in range(2):
        rest, state = read_with_masks(grammar, text_of(filled(schema, rng)), rng)
        assert rest == b""
        assert grammar.may_end(state)


PATTERNS = {
    "[a-z]{3,90}(\\.[a-z]{2,80}){0,50}": 3 + 90 + 50 * 81,
    "(a{30}){50}a*": 1500,
    "([ab]{2,40}c){5,60}": 60 * 41,
    "(ab|ba){0,300}x?": 600,
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns_are_counted_as_by_python(pattern: str) -> None:
    tokenizer = byte_level(b"aa", b"ab", b"ba", b"aba", b".ab", b"cab")
    rng = random.Random(3)
    grammar = compile(pattern, tokenizer)
    for _ in range(3):
        state, text = grammar.start(), b""
        while len(text) < PATTERNS[pattern] + 10:
            ids = [i for i in grammar.mask(state).nonzero()[0].tolist() if i > 2]
            ends = re.fullmatch(pattern, text.decode()) is not None
            assert grammar.may_end(state) == ends
            if not ids:
                break
            token_id = rng.choice(ids)
            text += tokenizer.tokens[token_id]
            state = grammar.advance(state, token_id)


def test_a_bound_of_a_million_compiles_as_a_bound_of_a_hundred() -> None:
    vocabulary = vocabulary_of("embedded")
    sizes = []
    for most in (100, 1_000_000):
        grammar = compile(f'"[a-z]{{0,{most}}}"', vocabulary)
        state = grammar.start()
        for char in b'"abcde':
            grammar.mask(state)
            state = grammar.advance(state, vocabulary.ids[bytes([char])])
        net = grammar.machine.network
        sizes.append((len(net.needed), grammar.machine.n_states, parts_of(grammar)))
    assert sizes[0] == sizes[1]


def test_a_counted_string_costs_no_more_than_a_free_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    vocabulary, text = vocabulary_of("embedded"), text_of("a b\n" * 250)
    walks, rows, work = [], [], {}
    walk, expand = Vocabulary.walk, states.States._expand
    monkeypatch.setattr(
        Vocabulary, "walk", lambda *args: walks.append(1) or walk(*args)
    )
    monkeypatch.setattr(
        states.States, "_expand", lambda *args: rows.append(1) or expand(*args)
    )
    for kind, schema in {"free": {"type": "string"}, "counted": string(5000)}.items():
        grammar = compile(schema, vocabulary)
        read_with_masks(grammar, text, random.Random(1))  # once, to make what lasts
        walks.clear()
        rows.clear()
        read_with_masks(grammar, text, random.Random(2))
        work[kind] = len(walks), len(rows)
    assert work["counted"] <= work["free"]
    assert work["counted"] == (0, 0)


def test_hundreds_of_texts_leave_as_many_states_as_a_few() -> None:
    schema, rng = FILLED["tools with different bounds"], random.Random(4)
    grammar = compile(schema, vocabulary_of("embedded"))
    sizes = []
    for n in range(200):
        most = grammar.machine
        value = filled(schema, rng)
        value["args"]["text"] = value["args"]["text"][: rng.randrange(40)]
        assert read_with_masks(grammar, text_of(value), rng)[0] == b""
        if n in (19, 199):
            grammar._row.cache_clear()
            gc.collect()
            sizes.append((most.n_states, parts_of(grammar), len(most._frames)))
    assert sizes[1][0] <= sizes[0][0] + 5
    assert sizes[1][1] <= 512
    assert sizes[1][2] < 50


def test_an_ambiguous_end_is_copied_and_too_many_copies_are_refused_at_once() -> None:
    tokenizer = byte_level(b"ab", b"bb")
    grammar = compile("[ab]{0,99}b", tokenizer)
    assert counts_of(grammar.machine) == 0
    assert grammar.machine.accepts(b"b" * 100)
    assert not grammar.machine.accepts(b"b" * 101)
    for pattern in ("[ab]{0,200000}b", "(a|ab){60000}b"):
        with pytest.raises(
            GrammarError, match=r"repetition.*ambiguous.*lower its bounds"
        ):
            compile(pattern, tokenizer)


def test_a_state_far_from_its_bound_shares_its_mask() -> None:
    grammar = TokenGrammar(Rules(parse("[ab]{0,1000}")), vocabulary_of("bytes"))
    state, masks = grammar.start(), []
    for _ in range(1000):
        state = grammar.advance(state, grammar.vocabulary.ids[b"a"])
        masks.append(grammar.mask(state))
    assert all((mask == masks[0]).all() for mask in masks[:-1])
    assert np.flatnonzero(masks[-1]).tolist() == grammar.vocabulary.eos_ids
    assert parts_of(grammar) < 5


@pytest.mark.parametrize("pattern", ["a((bb){2}){2}b", "a((bb){2}){70}b"])
def test_a_token_that_runs_through_the_counts_of_two_levels_is_legal(
    pattern: str,
) -> None:
    tokenizer = ToyTokenizer([*characters("ab"), b"bbbbb"])
    grammar = compile(pattern, tokenizer)
    state = grammar.advance(grammar.start(), 3)
    while not grammar.is_done(state):
        ids = range(tokenizer.vocab_size)
        one_by_one = [grammar.explain(state, i).legal for i in ids]
        assert grammar.mask(state).tolist() == one_by_one
        state = grammar.advance(state, 4)
