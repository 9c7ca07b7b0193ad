"""Many prefixes at once, each with its stack, against one machine step at a time."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings

from tests.stack_simulator import random_rules
from tests.toy_tokenizer import after
from tinyllm.errors import GrammarError
from tinyllm.grammar.expression import (
    Alternation,
    Call,
    Concatenation,
    Rules,
    literal,
    optional,
)
from tinyllm.grammar.lazy import DEAD
from tinyllm.grammar.pushdown import Pushdown, State
from tinyllm.grammar.stacks import Stacks


def equal_single_steps(rules: Rules, letters: bytes, longest: int) -> int:
    """Read all texts up to a length at once; the number of those that were legal."""
    single, many = Pushdown(rules, letters, letters), Pushdown(rules, letters, letters)
    stacks, texts, n_legal = Stacks(many), [b""], 0
    if many.start.control == DEAD:
        return 0
    now, stack = np.array([many.start.control], np.int32), np.zeros(1, np.int64)
    for _ in range(longest):
        parent = np.repeat(np.arange(len(texts)), len(letters))
        texts = [text + bytes((letter,)) for text in texts for letter in letters]
        data = np.array([text[-1] for text in texts], np.uint8)
        now, stack = stacks.step(now[parent], stack[parent], data)
        dead = [after(single, text) is None for text in texts]
        assert (now == DEAD).tolist() == dead
        live = np.flatnonzero(now)
        now, stack, texts = now[live], stack[live], [texts[i] for i in live.tolist()]
        for i, text in enumerate(texts):
            state = State(int(now[i]), stacks.frames[int(stack[i])])
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


def test_without_a_frame_a_walk_stays_above_its_beginning() -> None:
    machine = Pushdown(
        Rules(Concatenation((Call("p"), literal("c"))), {"p": literal("ab")}),
        b"abc",
        b"abc",
    )
    state = after(machine, b"ab")
    assert state is not None
    assert Stacks(machine).next(state.control, 0, ord("c")) == (DEAD, 0)
    grounded = Stacks(machine, state.frame)
    control, number = grounded.next(state.control, 0, ord("c"))
    assert State(control, grounded.frames[number]) == after(machine, b"abc")
