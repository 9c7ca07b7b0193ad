"""The machine of some rules, against a reader that keeps all stacks at once."""

from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
from hypothesis import assume, given, settings

from tests.stack_simulator import (
    Simulator,
    Stacks,
    goes_on_into_what_follows,
    random_rules,
)
from tests.toy_tokenizer import after, json_rules
from tinyllm.errors import GrammarError
from tinyllm.grammar import states
from tinyllm.grammar.expression import (
    NOTHING,
    Alternation,
    ByteSet,
    Call,
    Concatenation,
    Expression,
    Repetition,
    Rules,
    literal,
    optional,
)
from tinyllm.grammar.pushdown import Pushdown, State

BYTES = range(256)
NESTED = Alternation(
    (literal("a"), Concatenation((literal("["), Repetition(Call("v")), literal("]"))))
)


def machine_of(rules: Rules, spelled: bytes = b"abc") -> Pushdown:
    """Or, for a rule that calls itself, a rejected example."""
    try:
        return Pushdown(rules, spelled, spelled)
    except GrammarError as error:
        assume("calls itself" not in str(error))
        raise


def pairs(
    machine: Pushdown, reader: Simulator, longest: int
) -> dict[tuple[State, Stacks], bytes]:
    """Where the machine and the reader stand after all texts, and one such text."""
    level = {(machine.start, reader.start): b""} if machine.start.dfa.positions else {}
    found = dict(level)
    for _ in range(longest):
        level = {
            (state, reader.next(stacks, byte)): text + bytes((byte,))
            for (now, stacks), text in level.items()
            for byte in b"abc"
            if (state := machine.next(now, byte)) is not None
        }
        found = level | found
    return found


@settings(max_examples=60)
@given(random_rules())
def test_all_texts_up_to_seven_bytes_are_read_as_by_a_set_of_stacks(
    rules: Rules,
) -> None:
    machine = machine_of(rules)
    assume(not goes_on_into_what_follows(rules))
    reader = Simulator(rules)
    assert bool(machine.start.dfa.positions) == bool(reader.start)
    for (state, stacks), text in pairs(machine, reader, 7).items():
        assert machine.legal_bytes(state) == reader.bytes_from(stacks), text
        assert machine.may_end(state) == (() in stacks), text
        left = min(sum(map(reader.shortest, stack)) for stack in stacks)
        assert machine.least(state) == left, text
        rest = machine.rest(state)
        assert len(rest) == left
        assert () in reader.after(text + rest)


@settings(max_examples=40)
@given(random_rules())
def test_a_rule_that_goes_on_too_long_makes_the_language_narrower_and_never_wider(
    rules: Rules,
) -> None:
    machine, reader = machine_of(rules), Simulator(rules)
    for (state, stacks), text in pairs(machine, reader, 6).items():
        assert machine.legal_bytes(state) <= reader.bytes_from(stacks), text
        assert machine.may_end(state) <= (() in stacks), text
        assert machine.legal_bytes(state) or machine.may_end(state), text


def two_ways(closer: str) -> Expression:
    """a, then again what both rules can be, then what tells them apart."""
    inner = optional(Alternation((Call("x"), Call("y"))))
    return Concatenation((literal("a"), inner, literal(closer)))


def test_calls_that_begin_alike_are_told_apart_later() -> None:
    rules = Rules(
        Alternation((Call("x"), Call("y"))), {"x": two_ways("b"), "y": two_ways("c")}
    )
    machine, reader = machine_of(rules), Simulator(rules)
    for (state, stacks), text in pairs(machine, reader, 9).items():
        assert machine.legal_bytes(state) == reader.bytes_from(stacks), text


def test_beyond_max_open_the_machine_is_narrower_but_has_no_dead_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(states, "MAX_OPEN", 2)
    rules = Rules(
        Alternation((Call("x"), Call("y"))), {"x": two_ways("b"), "y": two_ways("c")}
    )
    machine, reader = machine_of(rules), Simulator(rules)
    found = pairs(machine, reader, 9)
    for (state, stacks), text in found.items():
        assert machine.legal_bytes(state) <= reader.bytes_from(stacks), text
        assert machine.may_end(state) <= (() in stacks), text
        assert machine.legal_bytes(state) or machine.may_end(state), text
    assert any(text.startswith(b"aaaa") for text in found.values())


@settings(max_examples=40)
@given(random_rules())
def test_any_rules_stay_sound_and_alive_beyond_max_open(rules: Rules) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "MAX_OPEN", 1)
        machine, reader = machine_of(rules), Simulator(rules)
        for (state, stacks), text in pairs(machine, reader, 6).items():
            assert machine.legal_bytes(state) <= reader.bytes_from(stacks), text
            assert machine.legal_bytes(state) or machine.may_end(state), text


def test_a_deep_ambiguous_text_is_never_a_dead_end() -> None:
    rules = Rules(
        Alternation((Call("x"), Call("y"))), {"x": two_ways("b"), "y": two_ways("c")}
    )
    machine = machine_of(rules)
    state = after(machine, b"a" * 200)
    for _ in range(200):
        assert state is not None
        assert not machine.may_end(state)
        byte = min(machine.legal_bytes(state) - {ord("a")})
        state = machine.next(state, byte)
    assert state is not None
    assert machine.may_end(state)


@pytest.mark.parametrize("end", [NOTHING, literal("é")], ids=["nothing", "unspelled"])
def test_a_call_behind_which_no_end_can_come_is_not_opened(end: Expression) -> None:
    # Both calls begin with a: before, the machine went on into x, where it was stuck.
    start = Alternation(
        (Concatenation((Call("x"), end)), Concatenation((Call("y"), literal("c"))))
    )
    rules = Rules(start, {"x": literal("abb"), "y": literal("acc")})
    machine = machine_of(rules)
    state = after(machine, b"a")
    assert state is not None
    assert machine.legal_bytes(state) == frozenset(b"c")


def test_the_same_path_gives_the_same_state() -> None:
    machine = machine_of(Rules(Call("v"), {"v": NESTED}), b"[a]")
    first, second = after(machine, b"[a[["), after(machine, b"[[[]]a[[")
    assert first == second != after(machine, b"[a[")
    assert hash(first) == hash(second)
    assert first is not None
    assert machine.next(first, ord("]")) == after(machine, b"[a[a")


def test_a_frame_takes_a_few_hundred_bytes() -> None:
    machine = machine_of(Rules(Call("v"), {"v": NESTED}), b"[a]")
    after(machine, b"[[a]]")
    tracemalloc.start()
    state = after(machine, b"[" * 10_000)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert state is not None
    assert size < 600 * 10_000


def test_a_hundred_thousand_brackets_open_and_close_again() -> None:
    machine = machine_of(Rules(Call("v"), {"v": NESTED}), b"[a]")
    depth = 100_000
    state = after(machine, b"[" * depth)
    assert state is not None
    assert machine.least(state) == depth
    assert machine.n_states < 10
    middle = state
    for _ in range(depth):
        assert not machine.may_end(state)
        state = machine.next(state, ord("]"))
        assert state is not None
    assert machine.may_end(state)
    assert machine.least(middle) == depth  # a state of before is as it was
    del middle
    left = [*machine._frames.values()]  # dropped at once, without recursion
    assert left == [machine.ground]


def test_the_last_call_of_a_rule_needs_no_frame() -> None:
    rest = Alternation((literal("b"), Concatenation((literal("a"), Call("list")))))
    machine = machine_of(Rules(Call("list"), {"list": rest}))
    state = after(machine, b"a" * 1000)
    assert state is not None
    assert state.frame is None


def test_a_thousand_rules_that_begin_with_each_other_do_not_overflow() -> None:
    rules: dict[str, Expression] = {
        str(i): Concatenation((Call(str(i + 1)), literal("bc"[i % 2])))
        for i in range(1000)
    }
    machine = machine_of(Rules(Call("0"), {**rules, "1000": literal("a")}))
    end = after(machine, b"a" + b"cb" * 500)
    assert end is not None
    assert machine.may_end(end)
    assert after(machine, b"a" + b"cb" * 500 + b"b") is None
    assert after(machine, b"ab") is None  # the innermost returns first


def test_moves_are_forgotten_and_made_again_while_states_stay_what_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # More than a million sets of positions: which of the last 20 bytes were an a.
    a_or_b = ByteSet(frozenset(b"ab"))
    tail = Repetition(a_or_b, 20, 20)
    rules = {"v": Concatenation((Repetition(a_or_b), literal("a"), tail, literal("c")))}
    monkeypatch.setattr(states, "MAX_ROWS", 50)
    machine = machine_of(Rules(Call("v"), rules))
    text = random.Random(1).choices(b"ab", k=2000)
    visited: list[State] = [machine.start]
    for byte in text:
        now = machine.next(visited[-1], byte)
        assert now is not None
        visited.append(now)
    for i in range(0, 1980, 97):
        state: State | None = visited[i]  # forgotten long ago, but kept here
        for byte in text[i : i + 20]:
            state = state and machine.next(state, byte)
        assert state == visited[i + 20]
        assert state is not None
        legal = machine.legal_bytes(state)
        assert (ord("c") in legal) == (i + 20 >= 21 and text[i - 1] == ord("a"))
    del visited, state, now
    gc.collect()
    assert machine.n_states < 200


def test_texts_of_json_are_read_and_no_others() -> None:
    machine = Pushdown(json_rules(), BYTES, BYTES)
    for text in (b'[{"a":[12,-0,"\\"b"]},null,[]]', b"{}", b"-20", b'"a"'):
        state = after(machine, text)
        assert state is not None
        assert machine.may_end(state), text
    for text in (b"[1,]", b'{"a"}', b"]", b"[}", b"01", b'{"a":1,}', b"1]", b"[] "):
        assert after(machine, text) is None, text
