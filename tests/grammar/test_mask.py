from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.toy_tokenizer import (
    BOS,
    EOS,
    JSON_TOKENS,
    N_SPECIAL,
    PAD,
    ToyTokenizer,
    byte_level,
    characters,
    is_json,
    json_rules,
    states_of,
    walk,
)
from tinyllm.errors import GrammarError
from tinyllm.grammar import TokenGrammar, compile, mask
from tinyllm.grammar.expression import Alternation, Call, Concatenation, Rules, literal
from tinyllm.grammar.pushdown import State
from tinyllm.grammar.vocabulary import Vocabulary

TOKENIZER = byte_level(
    b'{"', b'":', b'","', b'"}', b"},{", b"[]", b"null", b"true", b"12", b"\\u", b"ab"
)


def legal(grammar: TokenGrammar, state: State) -> list[int]:
    ids: list[int] = grammar.mask(state).nonzero()[0].tolist()
    return ids


def is_list_of_ints(text: str) -> bool:
    return is_json(text, list) and all(type(item) is int for item in json.loads(text))


def is_number(text: str) -> bool:
    """Any JSON number whose exponent has at most three digits and is at most 199."""
    digits = text.partition("e")[2].lstrip("-")
    small = len(digits) <= 3 and int(digits or "0") <= 199 if digits.isdigit() else True
    return small and (is_json(text, int) or is_json(text, float))


def matches(pattern: str) -> Callable[[str], bool]:
    return lambda text: re.fullmatch(pattern, text) is not None


INTS: dict[str, Any] = {"type": "array", "items": {"type": "integer"}}
# source, independent parser, characters, longer tokens, bytes any prefix may still need
TOYS: list[tuple[Any, Callable[[str], bool], str, list[bytes], int]] = [
    ("(ab|b)*c?", matches("(ab|b)*c?"), "abc", [b"ab", b"bc", b"bab", b"ca"], 1),
    ("a{2,3}(b|cc)", matches("a{2,3}(b|cc)"), "abc", [b"aa", b"ac", b"cc"], 3),
    ("[^b]é?", matches("[^b]é?"), "abé", [b"\xc3", b"\xa9", b"b\xc3", b"\xa9a"], 2),
    (INTS, is_list_of_ints, "[],01-", [b"[1", b"1,", b"]]", b"10", b",-"], 2),
    (
        {"type": "string"},
        lambda text: is_json(text, str),
        '"\\n a',
        [b'"a', b'a"', b"\\\\", b'\\"', b"\n", b'""'],
        2,
    ),
    ({"type": "number"}, is_number, "01.e-", [b"1."], 1),
]


@pytest.mark.parametrize(("source", "check", "letters", "longer", "slack"), TOYS)
def test_masks_over_a_toy_vocabulary_equal_an_independent_parser(
    source: Any,
    check: Callable[[str], bool],
    letters: str,
    longer: list[bytes],
    slack: int,
) -> None:
    tokenizer = ToyTokenizer(characters(letters) + longer)
    grammar = compile(source, tokenizer)
    alphabet = sorted({chr(b) for token in tokenizer.tokens for b in token})
    size = {3: 8, 4: 8, 5: 7}.get(len(alphabet), 6)
    texts = set[bytes]()
    for length in range(size + 1):
        for drawn in itertools.product(alphabet, repeat=length):
            data = "".join(drawn).encode("latin-1")
            try:
                good = check(data.decode())
            except UnicodeDecodeError:
                good = False
            if good:
                texts.add(data)
    prefixes = {text[:end] for text in texts for end in range(len(text) + 1)}
    work = [(grammar.start(), b"")]
    while work:
        state, text = work.pop()
        found = grammar.mask(state)
        assert found[EOS] == (text in texts), text
        for token_id in range(N_SPECIAL, tokenizer.vocab_size):
            after = text + tokenizer.tokens[token_id]
            if len(after) <= size - slack:
                assert found[token_id] == (after in prefixes), after
                if found[token_id]:
                    work.append((grammar.advance(state, token_id), after))


def is_json_so_far(text: str) -> bool:
    """Whether some end makes a text of the toy rules of JSON, as Python reads it."""
    plain = re.sub(r'"[^"]*("|$)', "", text)
    closers = ""
    for char in plain:
        closers = {"[": "]", "{": "}"}.get(char, "") + closers
        closers = closers[1:] if char in "]}" else closers
    ends = ("", "1", '"', ":1", '":1', '"":1')
    return any(is_toy_json(text + end + closers) for end in ends)


def is_toy_json(text: str) -> bool:
    """Only a and b in strings, only such numbers as the rules have."""
    inside = all(set(part) <= set("ab") for part in re.findall('"([^"]*)"', text))
    return inside and any(is_json(text, kind) for kind in (list, dict, int, str))


def is_balanced(text: str) -> bool:
    found = re.fullmatch("(a*)c(b*)", text)
    return found is not None and len(found[1]) == len(found[2])


def is_balanced_so_far(text: str) -> bool:
    found = re.fullmatch("(a*)(c(b*))?", text)
    return found is not None and len(found[1]) >= len(found[3] or "")


BALANCED = Rules(
    Call("s"),
    {
        "s": Alternation(
            (Concatenation((literal("a"), Call("s"), literal("b"))), literal("c"))
        )
    },
)
RECURSIVE: list[tuple[Rules, Any, Any, list[bytes]]] = [
    (
        json_rules(),
        is_toy_json,
        is_json_so_far,
        [*characters("[],1-0"), b"]]", b"[1", b",[", b"1]]"],
    ),
    (
        json_rules(),
        is_toy_json,
        is_json_so_far,
        [*characters('[]{}":a1'), b"]]", b"}]", b'"}]', b'{"', b'":'],
    ),
    (BALANCED, is_balanced, is_balanced_so_far, [*characters("abc"), b"cb", b"bb"]),
]


@pytest.mark.parametrize(("rules", "check", "so_far", "tokens"), RECURSIVE)
def test_masks_of_recursive_rules_equal_an_independent_parser(
    rules: Rules,
    check: Callable[[str], bool],
    so_far: Callable[[str], bool],
    tokens: list[bytes],
) -> None:
    tokenizer = ToyTokenizer(tokens)
    grammar = TokenGrammar(rules, Vocabulary(tokenizer))
    work, seen = [(grammar.start(), "")], {""}
    while work:
        state, text = work.pop()
        found = grammar.mask(state)
        assert found[EOS] == check(text) == grammar.may_end(state), text
        for token_id in range(N_SPECIAL, tokenizer.vocab_size):
            after = text + tokenizer.tokens[token_id].decode()
            if len(after) <= 8:
                assert found[token_id] == so_far(after), after
                if found[token_id] and after not in seen:
                    seen.add(after)
                    work.append((grammar.advance(state, token_id), after))


# With the second, bytes do not say what tokens can complete: : is in none alone.
WITHOUT_COLON = [*(t for t in JSON_TOKENS if t != b":"), b'":[', b'":']


@pytest.mark.parametrize("tokens", [JSON_TOKENS, WITHOUT_COLON])
def test_mask_and_advance_agree_on_recursive_rules(tokens: list[bytes]) -> None:
    tokenizer = ToyTokenizer(tokens)
    grammar = TokenGrammar(json_rules(), Vocabulary(tokenizer))
    assert grammar.machine.network.by_bytes == (b":" in tokens)
    work, seen = [grammar.start()], {grammar.start()}
    for state in work:
        found = grammar.mask(state).tolist()
        assert any(found)
        for token_id, is_legal in enumerate(found):
            if not is_legal:
                with pytest.raises(
                    GrammarError, match=rf"token {token_id} .* is illegal"
                ):
                    grammar.advance(state, token_id)
            elif (after := grammar.advance(state, token_id)) not in seen:
                seen.add(after)
                work += [after] if len(seen) < 400 else []


def test_tokens_that_lead_into_a_dead_end_of_the_vocabulary_are_illegal() -> None:
    # A c needs a d behind it, which only cd has: c, ac and bc lead nowhere.
    tokenizer = ToyTokenizer([b"a", b"b", b"c", b"ac", b"bc", b"ab", b"cd"])
    pattern = "a(b|cd)*"
    grammar = compile(pattern, tokenizer)
    ids = range(N_SPECIAL, tokenizer.vocab_size)
    spelled = [
        drawn
        for length in range(6)
        for drawn in itertools.product(ids, repeat=length)
        if re.fullmatch(pattern, tokenizer.text(drawn).decode())
    ]
    prefixes = {drawn[:end] for drawn in spelled for end in range(len(drawn) + 1)}
    for prefix in prefixes:
        if len(prefix) <= 3:
            after = {i for i in ids if (*prefix, i) in prefixes}
            found = set(legal(grammar, walk(grammar, prefix))) - {EOS}
            assert found == after, prefix
            for banned in set(ids) - after:
                with pytest.raises(GrammarError, match="illegal"):
                    grammar.advance(walk(grammar, prefix), banned)


GRAMMARS: list[Any] = [
    "(ab|b)*c?",
    ".{1,2}|[é😀]+",
    {"type": "string", "maxLength": 3},
    {"type": ["array", "number"], "items": {"enum": ["a", None, {"b": 1}]}},
]


@pytest.mark.parametrize("source", GRAMMARS)
def test_mask_and_advance_agree_on_every_token_of_every_state(source: Any) -> None:
    grammar = compile(source, TOKENIZER)
    for state in states_of(grammar):
        for token_id, is_legal in enumerate(grammar.mask(state).tolist()):
            if is_legal:
                after = grammar.advance(state, token_id)
                assert token_id != EOS or after == state
                assert grammar.mask(after).any()
            else:
                with pytest.raises(
                    GrammarError, match=rf"token {token_id} .* is illegal"
                ):
                    grammar.advance(state, token_id)


@pytest.mark.parametrize("source", GRAMMARS)
def test_finish_is_accepted_and_no_shorter_completion_exists(source: Any) -> None:
    grammar = compile(source, TOKENIZER)
    for state in states_of(grammar):
        way = grammar.finish(state)
        after = state
        for token_id in way:
            assert not grammar.may_end(after)
            after = grammar.advance(after, token_id)
        assert grammar.may_end(after)
        assert EOS not in way
        reached = {state}
        for _ in way:
            assert not any(grammar.may_end(s) for s in reached)
            reached = {
                grammar.advance(s, i) for s in reached for i in legal(grammar, s)
            }


def test_eos_is_legal_exactly_where_the_text_may_end() -> None:
    grammar = compile("a|ab", TOKENIZER)
    start = grammar.start()
    first = grammar.advance(start, TOKENIZER.id_of(b"a"))
    last = grammar.advance(start, TOKENIZER.id_of(b"ab"))
    assert [grammar.may_end(s) for s in (start, first, last)] == [False, True, True]
    assert [bool(grammar.mask(s)[EOS]) for s in (start, first, last)] == [
        False,
        True,
        True,
    ]
    assert [grammar.is_done(s) for s in (start, first, last)] == [False, False, True]
    assert legal(grammar, last) == [EOS]


def test_special_ids_are_illegal_whatever_their_bytes_say() -> None:
    tokenizer = ToyTokenizer(characters("ab"))
    tokenizer.tokens[PAD] = tokenizer.tokens[BOS] = tokenizer.tokens[EOS] = b"a"
    grammar = compile("a+", tokenizer)
    assert legal(grammar, grammar.start()) == [N_SPECIAL]
    after = grammar.advance(grammar.start(), N_SPECIAL)
    assert legal(grammar, after) == [EOS, N_SPECIAL]
    with pytest.raises(GrammarError):
        grammar.advance(after, BOS)


@pytest.mark.parametrize("token_id", [-1, TOKENIZER.vocab_size, 10**9])
def test_ids_outside_the_vocabulary_are_illegal(token_id: int) -> None:
    grammar = compile(".*", TOKENIZER)
    with pytest.raises(GrammarError, match="illegal"):
        grammar.advance(grammar.start(), token_id)


def test_the_dead_state_and_unknown_states_are_refused() -> None:
    grammar = compile("a(b|c)|d", ToyTokenizer([b"a", b"d", b"cc"]))
    calls: list[Callable[[Any], Any]] = [grammar.mask, grammar.may_end, grammar.is_done]
    calls += [grammar.finish, grammar.legal_count, lambda s: grammar.advance(s, 4)]
    for state in (-1, 0, 10**6):
        for call in calls:
            with pytest.raises(GrammarError, match="not a state"):
                call(state)


def test_apply_bans_the_illegal_logits_in_place_and_counts_the_legal() -> None:
    grammar = compile("[ab]", TOKENIZER)
    # A model may have more logits than its tokenizer has ids.
    logits = np.arange(TOKENIZER.vocab_size + 5, dtype=np.float32)
    before = logits.copy()
    assert grammar.apply(logits, grammar.start()) == 2
    kept = np.flatnonzero(logits > -np.inf).tolist()
    assert kept == [TOKENIZER.id_of(b"a"), TOKENIZER.id_of(b"b")]
    assert (logits[kept] == before[kept]).all()
    assert logits.dtype == np.float32


@pytest.mark.parametrize("shape", [(TOKENIZER.vocab_size - 1,), (1, 600)])
def test_logits_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    grammar = compile("a", TOKENIZER)
    with pytest.raises(GrammarError, match="shape"):
        grammar.apply(np.zeros(shape, np.float32), grammar.start())


def test_a_mask_is_remembered_read_only_and_counted() -> None:
    grammar = compile("[ab]c", TOKENIZER)
    first = grammar.mask(grammar.start())
    assert first.shape == (TOKENIZER.vocab_size,)
    assert first.dtype == np.bool_
    assert grammar.mask(grammar.start()) is first
    assert grammar.legal_count(grammar.start()) == int(first.sum()) == 2
    with pytest.raises(ValueError, match="read-only"):
        first[0] = True


def test_remembered_masks_are_bounded_and_come_back_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mask, "MAX_MASKS", 3)
    grammar = compile("abcdefgh", TOKENIZER)
    states = list(states_of(grammar))
    before = [grammar.mask(state).copy() for state in states]
    assert grammar._row.cache_info().currsize == 3
    for state, expected in zip(states, before, strict=True):
        assert (grammar.mask(state) == expected).all()


def test_a_state_is_a_value_and_going_back_is_keeping_it() -> None:
    grammar = compile({"type": "string"}, TOKENIZER)
    state = walk(grammar, [TOKENIZER.id_of(b'"'), TOKENIZER.id_of(b"a")])
    assert state in {walk(grammar, [TOKENIZER.id_of(b'"'), TOKENIZER.id_of(b"a")])}
    branch = grammar.advance(state, TOKENIZER.id_of(b'"'))
    assert grammar.is_done(branch)
    assert grammar.advance(state, TOKENIZER.id_of(b"b")) == state


def test_an_emoji_may_be_split_over_tokens_but_not_left_half() -> None:
    tokens = [b'"', b'"\xf0', b"\x9f\x98", b"\x98", b'\x80"', b"\x80", b"\x9f"]
    tokenizer = ToyTokenizer(tokens)
    grammar = compile({"type": "string", "minLength": 1, "maxLength": 1}, tokenizer)
    state = grammar.start()
    split = [tokenizer.id_of(part) for part in (b'"\xf0', b"\x9f\x98", b'\x80"')]
    for token_id in split:
        assert not grammar.mask(state)[EOS]
        state = grammar.advance(state, token_id)
    assert tokenizer.text(split).decode() == '"😀"'
    assert grammar.is_done(state)
    half = walk(grammar, split[:2])
    one_byte_more = (b"\x98", b'\x80"', b"\x80", b"\x9f")
    assert legal(grammar, half) == [tokenizer.id_of(part) for part in one_byte_more]


def test_options_that_the_vocabulary_cannot_spell_are_left_out() -> None:
    tokenizer = ToyTokenizer(characters("ab|"))
    grammar = compile("a(b|é)|é", tokenizer)
    after = grammar.advance(grammar.start(), tokenizer.id_of(b"a"))
    assert legal(grammar, after) == [tokenizer.id_of(b"b")]
    with pytest.raises(GrammarError, match="0xc3"):
        compile("é", tokenizer)


def closed(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


TEXT = st.text(st.characters(codec="utf-8"), max_size=4)
PLAIN = st.text("abé😀", max_size=3)
CONSTANTS = st.none() | st.booleans() | st.integers(-99, 99) | PLAIN | st.just([1, {}])


@st.composite
def schemas_with_values(draw: st.DrawFn, depth: int = 2) -> tuple[Any, Any]:
    """A random schema of the supported keywords, and a value that it allows."""
    kinds = ["string", "integer", "number", "boolean", "null", "const", "enum"]
    kind = draw(st.sampled_from(kinds + ["array", "object", "anyOf"] * bool(depth)))
    if kind == "string":
        text = draw(TEXT)
        least = draw(st.integers(0, len(text)))
        most = draw(st.integers(len(text), len(text) + 3))
        return {"type": kind, "minLength": least, "maxLength": most}, text
    if kind == "integer":
        return {"type": kind}, draw(st.integers())
    if kind == "number":
        # Exponents beyond 199 are not written, so that every number is finite.
        written = st.floats(-1e190, 1e190).filter(lambda x: x == 0 or abs(x) > 1e-190)
        return {"type": kind}, draw(written)
    if kind == "boolean":
        return {"type": [kind, "null"]}, draw(st.booleans())
    if kind == "null":
        return {"type": kind}, None
    if kind == "const":
        value = draw(CONSTANTS)
        return {"const": value}, value
    if kind == "enum":
        values = draw(st.lists(CONSTANTS, min_size=1, max_size=3))
        return {"enum": values}, draw(st.sampled_from(values))
    inner = schemas_with_values(depth - 1)
    if kind == "array":
        schema, value = draw(inner)
        values = [value] * draw(st.integers(0, 3))
        most = draw(st.integers(len(values), 4))
        return {"type": kind, "items": schema, "maxItems": most}, values
    if kind == "anyOf":
        pairs = draw(st.lists(inner, min_size=1, max_size=3))
        value = draw(st.sampled_from([value for _, value in pairs]))
        return {"anyOf": [schema for schema, _ in pairs]}, value
    members = draw(st.dictionaries(st.sampled_from(["a", "aa", 'q"', "é"]), inner))
    required = [key for key in members if draw(st.booleans())]
    present = [k for k in members if k in required or draw(st.booleans())]
    schema = closed({key: pair[0] for key, pair in members.items()}, required)
    return schema, {key: members[key][1] for key in present}


@settings(max_examples=60)
@given(schemas_with_values(), st.randoms(use_true_random=False), st.integers(0, 40))
def test_random_legal_walks_always_end_in_text_that_validates(
    pair: tuple[Any, Any], rng: random.Random, steps: int
) -> None:
    schema, _ = pair
    grammar = compile(schema, TOKENIZER)
    state, ids = grammar.start(), list[int]()
    for _ in range(steps):
        choices = [i for i in legal(grammar, state) if i != EOS]
        if not choices:
            assert grammar.is_done(state)
            break
        ids.append(rng.choice(choices))
        state = grammar.advance(state, ids[-1])
    ids += grammar.finish(state)
    assert grammar.may_end(walk(grammar, ids))
    value = json.loads(TOKENIZER.text(ids).decode())
    Draft202012Validator(schema).validate(value)


@settings(max_examples=60)
@given(schemas_with_values(), st.randoms(use_true_random=False))
def test_a_valid_text_is_legal_at_every_step_however_it_is_split(
    pair: tuple[Any, Any], rng: random.Random
) -> None:
    schema, value = pair
    grammar = compile(schema, TOKENIZER)
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    state = grammar.start()
    while data:
        fits = [i for i, t in enumerate(TOKENIZER.tokens) if t and data.startswith(t)]
        assert grammar.mask(state)[fits].all()
        token_id = rng.choice(fits)
        state = grammar.advance(state, token_id)
        data = data[len(TOKENIZER.tokens[token_id]) :]
    assert grammar.may_end(state)


def test_a_tool_call_is_closed_in_the_fewest_tokens_from_inside_its_text() -> None:
    call = closed({"expression": {"type": "string"}}, ["expression"])
    schema = {
        "anyOf": [closed({"tool": {"const": "calc"}, "args": call}, ["tool", "args"])]
    }
    tokenizer = byte_level(b'"}}')
    grammar = compile(schema, tokenizer)
    text = b'{"tool":"calc","args":{"expression":"2+'
    state = walk(grammar, [N_SPECIAL + byte for byte in text])
    assert grammar.finish(state) == (tokenizer.id_of(b'"}}'),)
    inside_escape = grammar.advance(state, N_SPECIAL + ord("\\"))
    assert len(grammar.finish(inside_escape)) == 2
    assert len(grammar.finish(grammar.start())) == len(text) - 2 + 1


@pytest.mark.parametrize("eos_ids", [set(), {2}, {1, 2}])
def test_a_text_is_done_where_only_its_eos_ids_are_legal(eos_ids: set[int]) -> None:
    tokenizer = ToyTokenizer(characters("ab"))
    tokenizer.eos_ids = frozenset(eos_ids)
    for pattern, done in (("a", True), ("ab?", False), ("ab", False)):
        grammar = compile(pattern, tokenizer)
        assert not grammar.is_done(grammar.start())
        assert grammar.is_done(grammar.advance(grammar.start(), 3)) is done
