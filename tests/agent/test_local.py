"""The local backend: slots as ids, masks, token limits, counts, a cache that lasts."""

from __future__ import annotations

import numpy as np
import pytest

from tests.scripted_lm import (
    BOS,
    EOS,
    PAD,
    ByteTokenizer,
    ScriptedLM,
    call,
    spelled,
    untrained_lm,
)
from tinyllm.agent import tools
from tinyllm.agent.local import LocalBackend, OneLine
from tinyllm.agent.loop import Agent
from tinyllm.agent.protocol import MAX_CALL, MAX_THOUGHT, parse_call
from tinyllm.agent.tools import Registry
from tinyllm.errors import ContextFullError, GrammarError, UsageError
from tinyllm.grammar import calls

PROMPT = [BOS, *spelled("TASK: x")]
ADD = call("calc", expression="1+1")
TWO = Registry([tools.calc, tools.answer])


def test_a_thought_ends_at_the_line_break_which_is_not_kept():
    slot = LocalBackend(ScriptedLM("hm, 4 1\nCALL: x"), TWO).thought(PROMPT)
    assert slot.token_ids == tuple(spelled("hm, 4 1"))
    assert (slot.text, slot.tokens) == ("hm, 4 1", 7)
    assert (slot.constrained, slot.legal_min, slot.forced) == (False, None, False)


def test_the_ids_of_a_slot_are_those_the_model_produced():
    lm = ScriptedLM([*spelled("4"), *spelled("1"), *spelled("\n")])
    slot = LocalBackend(lm, TWO).thought(PROMPT)
    assert list(slot.token_ids) == spelled("41") != lm.tokenizer.encode("41")


def test_a_thought_has_at_most_24_tokens():
    slot = LocalBackend(ScriptedLM("x" * 99), TWO).thought(PROMPT)
    assert slot.tokens == MAX_THOUGHT == 24


def test_the_limits_of_tokens_are_options_of_the_backend_and_the_agent():
    long = call("answer", text="y" * 200)
    for limit in (1, 7, 40):
        backend = LocalBackend(ScriptedLM("x" * 99), TWO, max_thought=limit)
        assert backend.thought(PROMPT).tokens == limit
    backend = LocalBackend(ScriptedLM(long, long), TWO, max_call=300)
    assert (backend.call(PROMPT).text, backend.call(PROMPT).forced) == (long, False)
    cut = LocalBackend(ScriptedLM(long), TWO, max_call=50).call(PROMPT)
    assert (cut.forced, cut.tokens <= 50) == (True, True)
    parse_call(cut.text)
    free = LocalBackend(ScriptedLM(long), TWO, constrain=False, max_call=50)
    assert free.call(PROMPT).tokens == 50
    agent = Agent(ScriptedLM("x" * 99, long), TWO, max_thought=5, max_call=300)
    (step,) = agent.run("t").steps
    assert (step.slots[0].tokens, step.answer) == (5, "y" * 200)


def test_a_limit_that_no_call_keeps_is_refused_when_the_tools_are_known():
    shortest = LocalBackend(ScriptedLM(), TWO)._grammar
    least = len(shortest.finish(shortest.start()))
    assert LocalBackend(ScriptedLM("{"), TWO, max_call=least).call(PROMPT).forced
    with pytest.raises(UsageError, match=f"max_call is {least - 1} tokens"):
        LocalBackend(ScriptedLM(), TWO, max_call=least - 1)
    LocalBackend(ScriptedLM(), TWO, max_call=1, constrain=False)


@pytest.mark.parametrize("name", ["max_thought", "max_call"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9", None])
def test_a_senseless_limit_of_tokens_is_refused_by_name(name, value):
    for made in (LocalBackend, Agent):
        with pytest.raises(UsageError, match=f"{name} must be a whole number of 1"):
            made(ScriptedLM(), TWO, **{name: value})


def test_a_line_may_not_hold_a_break_nor_a_special_token_but_eos_may_end_it():
    tokenizer = ByteTokenizer()
    mask = OneLine(tokenizer).mask(0)
    illegal = [PAD, BOS] + [tokenizer.merge(m) for m in (b"\n\n", b"}\n", b"a\nb")]
    assert sorted(np.flatnonzero(~mask)) == sorted(illegal)
    assert mask.dtype == bool
    assert not mask.flags.writeable


def test_after_the_line_break_nothing_is_legal():
    line = OneLine(ByteTokenizer())
    (line_break,) = spelled("\n")
    end = line.advance(line.start(), line_break)
    assert not line.mask(end).any()
    assert line.advance(line.start(), spelled("x")[0]) == line.start()
    with pytest.raises(GrammarError):
        line.advance(end, line_break)


def test_eos_ends_a_thought_and_is_not_part_of_the_transcript():
    slot = LocalBackend(ScriptedLM([*spelled("hm"), EOS]), TWO).thought(PROMPT)
    assert (slot.token_ids, slot.text) == (tuple(spelled("hm")), "hm")
    trace = Agent(ScriptedLM([EOS], call("answer", text="5")), TWO).run("x")
    assert (trace.answer, trace.steps[0].thought) == ("5", "")
    assert EOS not in trace.token_ids


def stopped(*stops, wish="so. And more\n"):
    """The thought of a model with this wish, its session, and the pieces reported."""
    lm, pieces = ScriptedLM(wish), []
    backend = LocalBackend(lm, TWO, stop_thought=stops)
    return backend.thought(PROMPT, pieces.append), lm.only, pieces


def test_a_stop_string_ends_a_thought_and_is_dropped_with_all_that_follows():
    slot, session, pieces = stopped(" And", ".")
    assert slot.token_ids == tuple(spelled("so"))
    assert (slot.text, slot.tokens) == ("so", 2)
    assert "".join(pieces) == "so"
    assert session.length <= len(PROMPT) + 3, "nothing was forwarded after the stop"
    assert stopped("so")[0].token_ids == ()
    assert stopped("xyz")[0].text == "so. And more"
    assert stopped()[0].text == "so. And more"


def test_a_stop_string_in_pieces_is_held_back_and_comes_if_it_turns_out_not_to_be_one():
    slot, _, pieces = stopped("and", wish="an ant and\n")
    assert slot.text == "an ant"
    assert "".join(pieces) == "an ant "
    assert stopped("ants", wish="an ant\n")[2][-1] == "ant"


def test_a_token_that_belongs_to_a_stop_string_in_part_goes_with_it():
    bytes_ = ByteTokenizer()
    wish = [*spelled("x"), bytes_.merge(b"ab"), *spelled("c\n")]
    slot, _, pieces = stopped("bc", wish=wish)
    assert slot.token_ids == tuple(spelled("x"))
    assert slot.text == "".join(pieces) == "x"


def test_no_half_of_a_character_is_left_before_a_stop_string():
    wish = [*spelled("aé"), *spelled("b.\n")]
    assert stopped("éb", wish=wish)[0].token_ids == tuple(spelled("a"))
    assert stopped(".", wish=wish)[0].text == "aéb"


def test_a_call_does_not_stop_at_the_stop_string_of_a_thought():
    for constrain in (True, False):
        backend = LocalBackend(
            ScriptedLM(ADD + "\n"), TWO, constrain=constrain, stop_thought=["args"]
        )
        assert backend.call(PROMPT).text == ADD


@pytest.mark.parametrize("stops", [[""], [7], None])
def test_senseless_stop_strings_are_refused_when_the_backend_is_made(stops):
    with pytest.raises(UsageError, match="stop"):
        LocalBackend(ScriptedLM(), TWO, stop_thought=stops)


def test_a_call_under_the_grammar_parses_whatever_the_model_wants():
    for wish in (ADD, "no", "{}" * 50, [EOS] * 200, "\nCALL: ", call("nix", x=1)):
        slot = LocalBackend(ScriptedLM(wish), TWO).call(PROMPT)
        tool, args = parse_call(slot.text)
        assert tool in TWO
        assert all(isinstance(value, str) for value in args.values())
        assert slot.constrained
        assert slot.tokens <= MAX_CALL


def test_a_willing_model_gets_its_call_as_it_wrote_it():
    backend = LocalBackend(ScriptedLM(ADD), TWO)
    slot = backend.call(PROMPT)
    assert slot.token_ids == tuple(spelled(ADD))
    assert (slot.text, slot.forced) == (ADD, False)
    assert slot.legal_min is not None
    assert 1 <= slot.legal_min < 10


def test_the_token_limit_forces_a_finish_that_parses():
    endless = '{"tool":"answer","args":{"text":"' + "x" * 200
    slot = LocalBackend(ScriptedLM(endless), TWO).call(PROMPT)
    assert slot.forced
    assert slot.tokens <= MAX_CALL
    assert parse_call(slot.text)[1]["text"].startswith("xxxx")


def test_a_call_that_just_fits_the_context_is_kept_and_one_that_is_cut_is_not():
    for room in range(1, 60):
        lm = ScriptedLM(ADD, n_ctx=len(PROMPT) + room)
        if room < len(ADD):
            with pytest.raises(ContextFullError):
                LocalBackend(lm, TWO).call(PROMPT)
        else:
            assert LocalBackend(lm, TWO).call(PROMPT).text == ADD
        assert lm.only.length <= lm.only.n_ctx


def test_a_free_call_cut_short_by_the_context_is_no_call_either():
    for room in range(1, 60):
        lm = ScriptedLM(ADD + "\n", n_ctx=len(PROMPT) + room)
        backend = LocalBackend(lm, TWO, constrain=False)
        if room <= len(ADD):
            with pytest.raises(ContextFullError):
                backend.call(PROMPT)
            assert (backend.calls, backend.tokens) == (0, room)
        else:
            assert backend.call(PROMPT).text == ADD
    endless = LocalBackend(ScriptedLM("x" * 200), TWO, constrain=False).call(PROMPT)
    assert endless.tokens == MAX_CALL, "the token limit is another matter"


def test_no_room_for_a_reply_is_an_error_before_anything_is_fed():
    for room, ask in ((0, "thought"), (10, "call")):
        lm = ScriptedLM("x", n_ctx=len(PROMPT) + room)
        with pytest.raises(ContextFullError, match=f"{len(PROMPT)} of {lm.only.n_ctx}"):
            getattr(LocalBackend(lm, TWO), ask)(PROMPT)
        assert lm.only.trace == []


def test_a_free_call_is_the_line_stripped():
    lm = ScriptedLM("  I would rather talk. \nTASK: more")
    slot = LocalBackend(lm, TWO, constrain=False).call(PROMPT)
    assert slot.text == "I would rather talk."
    assert slot.token_ids == tuple(spelled("  I would rather talk. "))
    assert (slot.constrained, slot.legal_min) == (False, None)


def test_a_free_call_may_end_with_eos_which_is_not_kept():
    slot = LocalBackend(ScriptedLM("no"), TWO, constrain=False).call(PROMPT)
    assert slot.token_ids == tuple(spelled("no"))


def test_constrained_without_tools_is_an_error():
    for nothing in (None, Registry([])):
        with pytest.raises(UsageError, match="tools"):
            LocalBackend(ScriptedLM(), nothing)
    backend = LocalBackend(ScriptedLM(), TWO)
    with pytest.raises(UsageError):
        backend.set_tools(None)
    assert backend.tools is TWO
    assert LocalBackend(ScriptedLM(), constrain=False).tools.describe() == ""


def test_swapped_tools_change_the_mask_and_are_compiled_once(monkeypatch):
    compiled = []
    real = calls.rules_of

    def counted(registry):
        compiled.append(registry)
        return real(registry)

    monkeypatch.setattr(calls, "rules_of", counted)
    lm = ScriptedLM(*[ADD] * 3)
    backend = LocalBackend(lm, TWO)
    used = []
    for registry in (
        TWO,
        Registry([tools.answer]),
        Registry([tools.calc, tools.answer]),
    ):
        backend.set_tools(registry)
        used.append(parse_call(backend.call(PROMPT).text)[0])
    assert used == ["calc", "answer", "calc"]
    assert len(compiled) == 2


def test_calls_parsed_calls_and_tokens_are_counted():
    lm = ScriptedLM("hm\n", ADD + "\n", "no\n")
    backend = LocalBackend(lm, TWO, constrain=False)
    slots = [backend.thought(PROMPT), backend.call(PROMPT), backend.call(PROMPT)]
    assert (backend.calls, backend.parsed) == (2, 1)
    assert (backend.thought_tokens, backend.call_tokens) == (2, len(ADD) + 2)
    assert backend.tokens == sum(slot.tokens for slot in slots) == 2 + len(ADD) + 2


def test_after_a_reply_only_what_follows_it_is_forwarded():
    lm = ScriptedLM("hm\n", ADD)
    backend = LocalBackend(lm, TWO)
    thought = backend.thought(PROMPT)
    label = lm.tokenizer.encode("\nCALL: ")
    grown = [*PROMPT, *thought.token_ids, *label]
    backend.call(grown)
    feeds = [entry for entry in lm.only.trace if entry[0] == "feed"]
    assert feeds == [
        ("feed", len(PROMPT), len(PROMPT)),
        ("feed", len(grown), len(label)),
    ]


def test_a_slot_reports_what_it_forwarded_and_reused():
    backend = LocalBackend(ScriptedLM("hm\n", "ok\n", "so\n"), TWO)
    first, *others = [backend.thought(PROMPT) for _ in range(3)]
    assert (first.forwarded, first.reused) == (len(PROMPT) + 2, 0)
    for slot in others:
        assert (slot.forwarded, slot.reused) == (1 + 2, len(PROMPT) - 1)


def test_choices_are_kept_on_request_only():
    for keep in (False, True):
        lm = ScriptedLM(ADD)
        slot = LocalBackend(lm, TWO, keep_choices=keep).call(PROMPT)
        ids = tuple(choice.token_id for choice in slot.choices)
        assert ids == (slot.token_ids if keep else ())
    assert all(choice.mask.sum() == choice.legal for choice in slot.choices)


def test_the_text_is_streamed_in_whole_characters():
    pieces: list[str] = []
    slot = LocalBackend(ScriptedLM("é ok\n"), TWO).thought(PROMPT, pieces.append)
    assert "".join(pieces) == slot.text == "é ok"
    assert "\ufffd" not in pieces


def test_reset_makes_the_next_run_as_the_first():
    lm = ScriptedLM("hm\n", "hm\n")
    backend = LocalBackend(lm, TWO)
    first = backend.thought(PROMPT)
    backend.reset()
    assert backend.thought(PROMPT) == first


def test_the_retained_mass_is_the_mean_probability_of_legal_tokens_over_the_call():
    lm = ScriptedLM(ADD)
    slot = LocalBackend(lm, TWO, keep_choices=True).call(PROMPT)
    masses = [choice.mass_kept for choice in slot.choices]
    assert slot.mass_kept == pytest.approx(sum(masses) / len(masses))
    assert 0.9 < slot.mass_kept <= 1
    unwilling = LocalBackend(ScriptedLM("no" * 60), TWO).call(PROMPT)
    assert unwilling.mass_kept < 0.9
    assert LocalBackend(ScriptedLM("hm\n"), TWO).thought(PROMPT).mass_kept is None


def test_a_free_call_that_does_not_parse_is_asked_again_and_all_of_it_is_paid_for():
    lm = ScriptedLM("no\n", "nay\n", ADD + "\n", ADD + "\n")
    backend = LocalBackend(lm, TWO, constrain=False, attempts=4)
    slot = backend.call(PROMPT)
    assert (slot.text, slot.attempts) == (ADD, 3)
    assert slot.token_ids == tuple(spelled(ADD))
    assert slot.tokens == backend.tokens == 2 + 3 + len(ADD)
    assert slot.forwarded == lm.only.forwarded
    assert slot.reused == 2 * (len(PROMPT) - 1)
    assert (backend.calls, backend.parsed) == (1, 1)


def test_the_last_reply_is_kept_where_none_parses():
    lm = ScriptedLM("no\n", "nay\n", "nix\n")
    slot = LocalBackend(lm, TWO, constrain=False, attempts=2).call(PROMPT)
    assert (slot.text, slot.attempts) == ("nay", 2)


def test_a_call_with_several_attempts_is_reported_in_one_piece_at_the_end():
    pieces: list[str] = []
    lm = ScriptedLM("no\n", ADD + "\n")
    backend = LocalBackend(lm, TWO, constrain=False, attempts=2)
    backend.call(PROMPT, pieces.append)
    assert pieces == [ADD]


def test_a_second_try_is_not_the_first_again():
    lm = untrained_lm(1024)
    one, four = (
        LocalBackend(lm, TWO, constrain=False, attempts=n).call(PROMPT) for n in (1, 4)
    )
    assert one.attempts == 1
    assert four.attempts == 4
    assert four.text != one.text


def test_a_call_under_a_grammar_needs_no_second_try():
    backend = LocalBackend(ScriptedLM("no" * 99, ADD), TWO, attempts=4)
    assert backend.call(PROMPT).attempts == 1


@pytest.mark.parametrize("attempts", [0, -1, 1.5, None, True])
def test_senseless_attempts_are_refused_by_name(attempts):
    with pytest.raises(UsageError, match="attempts"):
        LocalBackend(ScriptedLM(), TWO, attempts=attempts)


def test_the_sampler_of_a_second_attempt_restarts_with_each_run():
    backend = LocalBackend(untrained_lm(1024), TWO, constrain=False, attempts=4)
    seen = []
    for _ in range(2):
        backend.reset()
        seen.append(backend.call(PROMPT))
    assert seen[0].attempts > 1
    assert seen[0] == seen[1]


def test_tools_that_differ_in_a_type_alone_have_masks_of_their_own():
    def number(of: int) -> str:
        """Take a number."""
        return str(of)

    def text(of: str) -> str:
        """Take a text."""
        return of

    text.__name__ = "number"
    backend = LocalBackend(ScriptedLM(*[call("number", of=7)] * 2), Registry([number]))
    assert parse_call(backend.call(PROMPT).text)[1] == {"of": 7}
    backend.set_tools(Registry([text]))
    assert isinstance(parse_call(backend.call(PROMPT).text)[1]["of"], str)


def test_tokens_that_the_limit_forced_count_in_the_retained_mass():
    endless = '{"tool":"answer","args":{"text":"' + "x" * 200
    lm = ScriptedLM(endless)
    slot = LocalBackend(lm, TWO, keep_choices=True).call(PROMPT)
    masses = [choice.mass_kept for choice in slot.choices]
    assert any(choice.forced for choice in slot.choices)
    assert slot.mass_kept == pytest.approx(sum(masses) / len(masses))


@pytest.mark.parametrize("constrain", ["no", 1, None])
def test_constrain_is_true_or_false(constrain):
    with pytest.raises(UsageError, match="constrain"):
        LocalBackend(ScriptedLM(), TWO, constrain=constrain)
