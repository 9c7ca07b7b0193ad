"""The shortest completions, against a search over the simulator's sets of stacks."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.stack_simulator import (
    Simulator,
    Stacks,
    goes_on_into_what_follows,
    random_rules,
)
from tests.toy_tokenizer import (
    EOS,
    JSON_TOKENS,
    ToyTokenizer,
    after,
    characters,
    json_rules,
    walk,
)
from tinyllm.decode.generate import choose_tokens
from tinyllm.decode.sampling import Sampler
from tinyllm.errors import GrammarError
from tinyllm.grammar import completion as module
from tinyllm.grammar.completion import Completion
from tinyllm.grammar.expression import (
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
from tinyllm.grammar.vocabulary import Vocabulary

NESTED = Concatenation((literal("["), Repetition(Call("v")), literal("]")))
LISTS = Rules(Call("v"), {"v": Alternation((literal("a"), NESTED))})


def completion(rules: Rules | str, tokens: list[bytes]) -> tuple[Completion, Pushdown]:
    rules = Rules(parse(rules)) if isinstance(rules, str) else rules
    vocabulary = Vocabulary(ToyTokenizer(tokens))
    machine = Pushdown(rules, vocabulary.alphabet, vocabulary.alone)
    return Completion(machine, vocabulary), machine


def fewest(reader: Simulator, tokens: list[bytes], start: Stacks) -> int | None:
    """The fewest tokens to an end, None for none; a rejected example if unclear."""
    seen, level = {start}, {start}
    for n in range(12):
        if any(() in stacks for stacks in level):
            return n
        reached = set()
        for stacks in level:
            for data in tokens:
                now = stacks
                for byte in data:
                    now = reader.next(now, byte)
                reached |= {now} if now else set()
        level = reached - seen
        seen |= level
        if not level:
            return None
        assume(len(seen) < 300)
    assume(False)
    raise AssertionError


# Without the single letters some bytes exist only inside longer tokens.
LONGER = st.lists(
    st.text("abc", min_size=1, max_size=4).map(str.encode), min_size=1, max_size=8
)
SINGLE = st.sampled_from([[b"a", b"b", b"c"], [b"a"], []])


@settings(max_examples=80)
@given(random_rules(), LONGER, SINGLE)
def test_no_completion_has_fewer_tokens(
    rules: Rules, longer: list[bytes], single: list[bytes]
) -> None:
    tokens = single + longer
    try:
        found, machine = completion(rules, tokens)
    except GrammarError:
        assume(False)
        raise
    spelled = set(b"".join(tokens))
    assume(
        machine.start.dfa.positions and not goes_on_into_what_follows(rules, spelled)
    )
    reader = Simulator(rules, spelled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_LOOKED_AT", 20_000)
        for text in {b"", *tokens, *(a + b for a in tokens for b in tokens)}:
            state = after(machine, text)
            if state is None:
                continue
            ids, n = found.tokens(state), fewest(reader, tokens, reader.after(text))
            assert (None if ids is None else len(ids)) == n, text
            for budget in range(6):
                assert found.within(state, budget) == (n is not None and n <= budget)


def test_the_shortest_way_counts_tokens_and_not_bytes() -> None:
    tokens = [*characters("abc"), b"abb", b"bbb"]
    found, machine = completion("ab{6}|acc", tokens)
    assert len(found.tokens(machine.start) or ()) == 3
    tokens = [*characters("abc"), b"abbb", b"bbb"]
    found, machine = completion("ab{6}|acc", tokens)
    ids = found.tokens(machine.start) or ()
    assert ToyTokenizer(tokens).text(ids) == b"abbbbbb"
    assert len(ids) == 2


def test_brackets_are_closed_by_tokens_that_close_several() -> None:
    tokens = [*characters("[]a"), b"]]", b"]]]", b"a]]]]"]
    found, machine = completion(LISTS, tokens)
    for depth, n in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 2), (7, 2), (8, 2), (9, 3)]:
        state = after(machine, b"[" * depth)
        assert state is not None
        assert len(found.tokens(state) or ()) == n
        assert [found.within(state, n - 1), found.within(state, n)] == [False, True]


def test_where_bytes_could_go_on_but_no_token_does_there_is_none() -> None:
    found, machine = completion("a(b|c)|d", [b"a", b"d", b"cc"])
    state = after(machine, b"a")
    assert state is not None
    assert found.tokens(state) is None
    assert not found.within(state, 99)
    assert found.within(machine.start, 1)


def test_a_completion_is_not_worked_out_before_it_is_asked_for() -> None:
    found, machine = completion(LISTS, characters("[]a"))
    assert found._known == {}
    assert found.within(machine.start, 2)
    assert found._known == {}  # the bytes say it


@settings(max_examples=40)
@given(random_rules(), LONGER, st.integers(0, 30))
def test_a_search_that_is_given_up_still_has_a_completion(
    rules: Rules, longer: list[bytes], limit: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_LOOKED_AT", limit)
        try:
            tokenizer = ToyTokenizer([b"a", b"b", b"c", *longer])
            grammar = TokenGrammar(rules, Vocabulary(tokenizer))
        except GrammarError:
            assume(False)
            raise
        assume(not goes_on_into_what_follows(rules))
        state = grammar.start()
        for token_id in (*longer, b"a", b"b"):
            ids = grammar.finish(state)
            end = state
            for i in ids:
                end = grammar.advance(end, i)
            assert grammar.may_end(end)
            assert grammar.can_finish(state, len(ids))
            i = tokenizer.id_of(token_id)
            state = grammar.advance(state, i) if grammar.mask(state)[i] else state


def test_a_completion_that_is_known_is_never_replaced_by_a_longer_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Spelled, the shortest text is bcccc; by tokens, bddddd is shorter.
    tokens = [*characters("abcd"), b"ddddd"]
    found, machine = completion("ab(cccc|ddddd)", tokens)
    behind = after(machine, b"ab")
    assert behind is not None
    assert len(found.tokens(behind) or ()) == 1
    monkeypatch.setattr(module, "MAX_LOOKED_AT", 0)
    assert len(found.tokens(machine.start) or ()) == 6
    assert len(found.tokens(behind) or ()) == 1


def doubling(n: int) -> Rules:
    rules: dict[str, Expression] = {
        str(i): Concatenation((Call(str(i + 1)), Call(str(i + 1)))) for i in range(n)
    }
    text = Alternation((literal("b"), Concatenation((literal("a"), Call("0")))))
    return Rules(text, {**rules, str(n): literal("a")})


def test_a_few_rules_may_ask_for_more_text_than_anybody_will_write() -> None:
    grammar = TokenGrammar(doubling(40), Vocabulary(ToyTokenizer(characters("ab"))))
    assert len(grammar.finish(grammar.start())) == 1
    inside = walk(grammar, [3])
    assert not grammar.can_finish(inside, 10**6)
    with pytest.raises(
        GrammarError, match=r"1,099,511,627,776 more bytes.*ask for less"
    ):
        grammar.finish(inside)


class Moody:
    """An engine and its session, with a random opinion at every position."""

    def __init__(self, seed: int, size: int) -> None:
        self.random, self.size = np.random.default_rng(seed), size
        self.tokenizer = SimpleNamespace(eos_ids=frozenset({EOS}))
        self.length, self.n_free = 1, 10_000

    def logits(self) -> np.ndarray:
        logits = 3 * self.random.standard_normal(self.size).astype(np.float32)
        logits[EOS] = -9
        return logits

    def last(self, n: int) -> list[int]:
        return []

    def decode(self, session: Any, token_id: int) -> np.ndarray:
        return self.logits()


ALONE = characters('[]{},:"\\ab-012nul')
ONLY_LONGER = [b'{"', b'":', b'"a', b'"', *characters("[],12}a"), b"-1", b'b"', b'\\"']


@pytest.mark.parametrize("tokens", [JSON_TOKENS, ALONE, ONLY_LONGER])
@settings(max_examples=25)
@given(seed=st.integers(0, 999), more=st.integers(0, 25))
def test_within_any_budget_a_text_of_recursive_rules_parses(
    tokens: list[bytes], seed: int, more: int
) -> None:
    tokenizer = ToyTokenizer(tokens)
    listed = Concatenation((literal("["), Call("value"), literal("]")))
    rules = Rules(listed, json_rules().rules)
    grammar = TokenGrammar(rules, Vocabulary(tokenizer))
    budget = len(grammar.finish(grammar.start())) + more
    lm: Any = Moody(seed, tokenizer.vocab_size)
    sampler = Sampler(temperature=2.0, seed=seed)
    steps = choose_tokens(lm, lm, lm.logits(), sampler, budget, grammar)
    ids = [choice.token_id for choice in steps]
    assert len(ids) <= budget
    text = tokenizer.text(ids).decode()
    json.loads(text)
    assert grammar.may_end(walk(grammar, ids))
