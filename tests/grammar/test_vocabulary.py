"""The walk over the trie, in its three ways, against each token byte by byte."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.stack_simulator import goes_on_into_what_follows, random_rules
from tests.toy_tokenizer import (
    BOS,
    EOS,
    JSON_TOKENS,
    N_SPECIAL,
    ToyTokenizer,
    after,
    byte_level,
    characters,
    json_rules,
)
from tinyllm.errors import GrammarError
from tinyllm.grammar import vocabulary as module
from tinyllm.grammar.expression import (
    Alternation,
    Call,
    Concatenation,
    Rules,
    literal,
    optional,
)
from tinyllm.grammar.pushdown import Pushdown, State
from tinyllm.grammar.regex import parse
from tinyllm.grammar.vocabulary import Vocabulary

Legal = set[tuple[int, State]]
# One by one; levels; around a loop, where there is one. FEW and MOST choose.
WAYS = {"one by one": (10**9, 32), "levels": (-1, 10**9), "around a loop": (-1, 1)}
TOKENS = st.lists(
    st.text("abc", min_size=1, max_size=4).map(str.encode), min_size=1, max_size=12
)


def machine_of(rules: Rules | str, vocabulary: Vocabulary) -> Pushdown:
    """Or, for a rule that calls itself, a rejected example."""
    rules = Rules(parse(rules)) if isinstance(rules, str) else rules
    try:
        return Pushdown(rules, vocabulary.alphabet, vocabulary.alone)
    except GrammarError:
        assume(False)
        raise


def found_in(machine: Pushdown, vocabulary: Vocabulary, state: State) -> Legal:
    """Return what a walk with all frames below finds."""
    found = vocabulary.walk(machine, state)
    pairs = zip(found.token.tolist(), found.number.tolist(), strict=True)
    listed = [(token, found.states[n]) for token, n in pairs]
    assert len(listed) == len(set(listed)), "a token was found twice"
    return set(listed)


def found_in_parts(machine: Pushdown, vocabulary: Vocabulary, state: State) -> set[int]:
    """Return the tokens of one walk for each frame, from where the one above ended."""
    tokens, nodes = set[int](), None
    dfa, frame = state
    while True:
        min_left, max_left = (frame.min_left, frame.max_left) if frame else (0, 0)
        found = vocabulary.walk(machine, State(dfa, machine.ground), nodes)
        legal = [n <= max_left for n in found.ticks.tolist()]
        tokens |= set(found.token[legal].tolist())
        if frame is None:
            return tokens
        may_leave = [min_left <= n <= max_left for n in found.exit_ticks.tolist()]
        nodes, dfa, frame = found.exits[may_leave], frame.state, frame.below


def byte_by_byte(machine: Pushdown, vocabulary: Vocabulary, state: State) -> Legal:
    legal = set()
    for token, data in enumerate(vocabulary.token_bytes):
        now: State | None = state
        for byte in data:
            now = now and machine.next(now, byte)
        if data and now is not None:
            legal.add((token, now))
    return legal


def some_states(machine: Pushdown, most: int) -> list[State]:
    states = [machine.start] if machine.start.dfa.positions else []
    for state in states:
        for byte in sorted(machine.legal_bytes(state)):
            now = machine.next(state, byte)
            if now is not None and now not in states and len(states) < most:
                states.append(now)
    return states


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=40)
@given(rules=random_rules(), tokens=TOKENS)
def test_each_way_of_walking_finds_what_single_bytes_find(
    way: str, rules: Rules, tokens: list[bytes]
) -> None:
    vocabulary = Vocabulary(ToyTokenizer(tokens))
    machine = machine_of(rules, vocabulary)
    assume(not goes_on_into_what_follows(rules, vocabulary.alphabet))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", WAYS[way][0])
        patch.setattr(module, "MOST", WAYS[way][1])
        for state in some_states(machine, 25):
            expected = byte_by_byte(machine, vocabulary, state)
            assert found_in(machine, vocabulary, state) == expected
            parts = found_in_parts(machine, vocabulary, state)
            assert parts == {token for token, _ in expected}


@pytest.mark.parametrize("way", WAYS)
def test_tokens_that_close_several_frames_are_found_in_json(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FEW", WAYS[way][0])
    monkeypatch.setattr(module, "MOST", WAYS[way][1])
    tokenizer = ToyTokenizer([*JSON_TOKENS, b']]}],[{"', b"1]]", b"1,[1", b'{"a":1]'])
    vocabulary = Vocabulary(tokenizer)
    machine = machine_of(json_rules(), vocabulary)
    for text in (
        b"",
        b"[",
        b"[[",
        b'[{"a":[[1',
        b'[[{"',
        b'[[{"a":[[',
        b"[[1,2",
        b'{"a":"',
    ):
        state = after(machine, text)
        assert state is not None
        expected = byte_by_byte(machine, vocabulary, state)
        assert found_in(machine, vocabulary, state) == expected, text
        parts = found_in_parts(machine, vocabulary, state)
        assert parts == {token for token, _ in expected}, text


def test_a_number_that_can_go_on_does_not_hide_what_follows_it() -> None:
    vocabulary = Vocabulary(ToyTokenizer(JSON_TOKENS))
    machine = machine_of(json_rules(), vocabulary)
    state = after(machine, b"[1")
    assert state is not None
    found = found_in(machine, vocabulary, state)
    assert {vocabulary.token_bytes[t] for t, _ in found} >= {b"1", b",", b"]"}


def test_a_string_state_is_walked_around_the_bytes_that_change_nothing() -> None:
    vocabulary = Vocabulary(byte_level(b"abc", b'ab"', b'ab"x', b"a\nb", b"\\n"))
    machine = machine_of(r'"([ -!#-\[\]-~]|\\n)*"x?', vocabulary)
    state = after(machine, b'"a')
    assert state is not None
    expected = byte_by_byte(machine, vocabulary, state)
    assert found_in(machine, vocabulary, state) == expected
    assert len(expected) == 95 - 1 + 1 + 4  # quote, backslash too; four longer ones


def test_the_sets_of_such_bytes_that_are_remembered_are_few() -> None:
    vocabulary = Vocabulary(byte_level(b"ab"))
    for n in range(1, 40):
        machine = machine_of(f"(a|[ -@]{{{n}}}[ -@]*)", vocabulary)
        found = found_in(machine, vocabulary, machine.start)
        assert found == byte_by_byte(machine, vocabulary, machine.start)
    assert len(vocabulary._loops) <= module.MAX_LOOPS


def equal_single_steps(rules: Rules, letters: bytes, longest: int) -> int:
    """Read all texts up to a length at once; return how many of those were legal."""
    single, many = Pushdown(rules, letters, letters), Pushdown(rules, letters, letters)
    steps, texts, n_legal = module._Steps(many, many.start), [b""], 0
    live = module._Live(*np.array([[0], [1], [0]]))
    for _ in range(longest):
        parent = np.repeat(np.arange(len(texts)), len(letters))
        texts = [text + bytes((letter,)) for text in texts for letter in letters]
        data = np.array([text[-1] for text in texts], np.uint8)
        places = np.arange(len(texts))
        reading = module._Live(places, live.number[parent], live.ticks[parent])
        live = steps.read(reading, data)
        legal = [i for i, text in enumerate(texts) if after(single, text) is not None]
        assert live.node.tolist() == legal
        texts = [texts[i] for i in legal]
        for i, text in enumerate(texts):
            state = steps.states[live.number[i]]
            expected = after(single, text)
            assert expected is not None
            assert many.may_end(state) == single.may_end(expected), text
            assert many.least(state) == single.least(expected), text
            assert state == after(many, text)
        n_legal += len(texts)
    return n_legal


@settings(max_examples=50)
@given(random_rules())
def test_many_steps_at_once_equal_single_steps(rules: Rules) -> None:
    try:
        equal_single_steps(rules, b"abc", 5)
    except GrammarError:
        assume(False)


def test_calls_that_are_found_while_others_are_carried_out_do_not_mix_them_up() -> None:
    # What follows each call may end and begins with a new one, all on one level.
    names = "pqrst"
    rules = {n: literal(2 * n) for n in [*names, *names.upper()]}
    begun = [Concatenation((Call(n), optional(Call(n.upper())))) for n in names]
    inside = Concatenation((literal("("), Alternation(tuple(begun))))
    start = Concatenation((Call("inside"), literal("x")))
    letters = "(" + names + names.upper() + "x"
    whole = Rules(start, {"inside": inside, **rules})
    # One text "(", then "(p" and "(pp" for each name, then "(ppP" or "(ppx", "(ppPP".
    assert equal_single_steps(whole, letters.encode(), 5) == 1 + 5 + 5 + 10 + 5


def test_alone_a_walk_stays_above_its_beginning() -> None:
    machine = Pushdown(
        Rules(Concatenation((Call("p"), literal("c"))), {"p": literal("ab")}),
        b"abc",
        b"abc",
    )
    state = after(machine, b"ab")
    assert state is not None
    alone = State(state.dfa, machine.ground)
    assert machine.next(alone, ord("c")) is None
    assert machine.next(state, ord("c")) == after(machine, b"abc")


def test_a_token_may_leave_two_rules_that_end_together() -> None:
    # After ac both q and p may be over; cd leaves them in one token.
    p = Concatenation((literal("a"), Call("q"), optional(literal("b"))))
    rules = Rules(Concatenation((Call("p"), literal("d"))), {"p": p, "q": literal("c")})
    vocabulary = Vocabulary(ToyTokenizer([*characters("abcd"), b"cd", b"cbd"]))
    machine = machine_of(rules, vocabulary)
    state = after(machine, b"a")
    assert state is not None
    tokens = {vocabulary.ids[data] for data in (b"c", b"cd", b"cbd")}
    assert found_in_parts(machine, vocabulary, state) == tokens


def test_tokens_that_are_prefixes_of_each_other_all_appear() -> None:
    vocabulary = Vocabulary(ToyTokenizer([b"aab", b"a", b"b", b"aa", b"ab"]))
    machine = machine_of("a*", vocabulary)
    found = found_in(machine, vocabulary, machine.start)
    assert {token for token, _ in found} == {N_SPECIAL + 1, N_SPECIAL + 3}


def test_two_tokens_with_the_same_bytes_are_both_legal() -> None:
    vocabulary = Vocabulary(ToyTokenizer([b"a", b"b", b"a"]))
    machine = machine_of("a", vocabulary)
    found = found_in(machine, vocabulary, machine.start)
    assert {token for token, _ in found} == {N_SPECIAL, N_SPECIAL + 2}
    assert vocabulary.ids[b"a"] == N_SPECIAL


def test_special_ids_and_silent_tokens_are_left_out_whatever_their_bytes_say() -> None:
    tokenizer = ToyTokenizer([b"a", b""])
    tokenizer.tokens[BOS] = tokenizer.tokens[EOS] = b"ab"
    vocabulary = Vocabulary(tokenizer)
    machine = machine_of("ab?", vocabulary)
    found = found_in(machine, vocabulary, machine.start)
    assert {token for token, _ in found} == {N_SPECIAL}
    assert vocabulary.token_bytes[BOS] == b""
    assert vocabulary.alphabet == vocabulary.alone == frozenset(b"a")


def test_a_vocabulary_without_tokens_finds_none() -> None:
    vocabulary = Vocabulary(ToyTokenizer([]))
    machine = Pushdown(Rules(parse("a*")), b"a", b"a")
    assert found_in(machine, vocabulary, machine.start) == set()
    assert vocabulary.longest == 0


def test_the_trie_has_one_node_for_each_prefix() -> None:
    tokens = [b"b", b"ab", b"abc", b"a", b"bd", b"abd", b"ab"]
    prefixes = {token[:end] for token in tokens for end in range(len(token) + 1)}
    vocabulary = Vocabulary(ToyTokenizer(tokens))
    assert len(vocabulary._byte) == len(prefixes)
    assert vocabulary.alphabet == frozenset(b"abcd")
    assert vocabulary.alone == frozenset(characters("ab")[i][0] for i in range(2))
