"""Servers differ: each kind of reply is read for what it is, each refusal is met."""

from __future__ import annotations

import json

import pytest

from tests.scripted_lm import call
from tests.scripted_server import (
    IDS,
    TWO,
    Answer,
    Pauses,
    ScriptedServer,
    backend,
    called,
    delta,
    event,
    failure,
    plain,
    refusal,
    says,
    streamed,
    thought,
    usage,
    whole,
)
from tinyllm.agent.backend import Listener
from tinyllm.agent.loop import Agent
from tinyllm.errors import ContextFullError, ServerError, TimeUpError, UsageError
from tinyllm.server.backend import HttpBackend
from tinyllm.server.stream import events

pytest.importorskip("openai", reason="the extra `http` is not installed")

ADD = call("calc", expression="4871*209")
DONE = call("answer", text="1018039")
ARGUMENTS = '{"expression": "4871*209"}'
END = delta(None, "stop")
DONE_MARK = event("[DONE]")


# what a server refuses


@pytest.mark.parametrize("status", [400, 422, 500])
@pytest.mark.parametrize(
    "message",
    [
        "System role not supported",
        "Only user and assistant roles are supported!",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Input should be 'user' or 'assistant', not 'system'",
    ],
)
def test_without_a_system_role_the_instructions_begin_the_user_s_message(
    message, status
):
    no = refusal(message, status)
    with ScriptedServer(no, says("hm"), says(ADD)) as server:
        lm = backend(server)
        assert (lm.thought(IDS).text, lm.call(IDS).text) == ("hm", ADD)
    system, user = server.sent[0]["messages"]
    for body in server.sent[1:]:
        assert [message["role"] for message in body["messages"]] == ["user"]
        assert body["messages"][0]["content"].startswith(system["content"])
        assert body["messages"][0]["content"].endswith(user["content"])


def test_a_template_that_fails_without_a_word_may_have_failed_over_the_system_role():
    no = Answer([b"Internal Server Error"], 500)  # all that transformers serve says
    slot, _, server = thought(no, says("hm"))
    assert (slot.text, len(server.sent)) == ("hm", 2)
    message, server = failure(*[no] * 9)
    assert "says 500 (3 tries): Internal Server Error" in message
    assert len(server.requests) == 1 + 3
    assert [len(body["messages"]) for body in server.sent] == [2, 1, 1, 1]


def test_without_a_system_role_a_wrong_call_is_still_followed_by_its_reason():
    no = refusal("System role not supported")
    slot, _, server = called(no, says("no"), says(ADD))
    assert (slot.text, slot.attempts) == (ADD, 2)
    roles = [message["role"] for message in server.sent[2]["messages"]]
    assert roles == ["user", "assistant", "user"]


@pytest.mark.parametrize(
    "answer",
    [
        plain({"error": {"message": "not allowed", "param": "stream"}}, 400),
        refusal("Streaming is not supported by this model"),
    ],
)
def test_a_server_that_refuses_to_stream_is_asked_without(answer):
    slot, told, server = thought(answer, whole("I see."))
    assert slot.text == "".join(told) == "I see."
    assert "stream" in server.sent[0]
    assert not {"stream", "stream_options"} & set(server.sent[1])


def test_stream_options_are_given_up_before_the_stream():
    no = refusal("'stream_options' is not known, 'stream' is")
    _, _, server = thought(no, says("I see."))
    assert server.sent[1]["stream"] is True
    assert "stream_options" not in server.sent[1]


@pytest.mark.parametrize("status", [400, 413, 422])
@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 64 tokens",
        "the request exceeds the available context size",
        "context_length_exceeded",
        "prompt is too long: 300 tokens > 200 maximum",
    ],
)
def test_a_context_that_is_too_small_is_a_full_context(message, status):
    with (
        ScriptedServer(refusal(message, status)) as server,
        pytest.raises(ContextFullError, match=message[:9]),
    ):
        backend(server).thought(IDS)
    assert len(server.requests) == 1


def test_a_413_about_something_else_is_an_error_of_the_server():
    assert "says 413" in failure(refusal("Request Entity Too Large", 413))[0]


LOADING = refusal("Loading model", 503)


def test_a_server_that_loads_its_model_is_waited_for_as_long_as_a_reply_may_take():
    pauses = Pauses()
    script = [LOADING] * 9, says("hm")
    assert thought(*script[0], script[1], sleep=pauses)[0].text == "hm"
    assert pauses == [0.5, 1, 2, *[4] * 6]
    pauses = Pauses()
    message, _ = failure(*[LOADING] * 30, sleep=pauses)
    assert "still loading after 60 seconds: try more timeout" in message
    assert 50 < sum(pauses) <= 60


def test_another_busy_server_is_not_waited_for_that_long():
    pauses = Pauses()
    failure(*[refusal("overloaded", 503)] * 9, sleep=pauses)
    assert pauses == [0.5, 1.0]


# what a server sends


PARTS = [{"type": "text", "text": "I "}, {"type": "text", "text": "see."}]


@pytest.mark.parametrize("parts", [PARTS, ["I ", "see."], [*PARTS, {"type": "image"}]])
def test_a_list_of_parts_is_their_text(parts):
    assert thought(whole(parts))[0].text == "I see."
    assert thought(streamed(delta(None, None, content=parts), END))[0].text == "I see."


@pytest.mark.parametrize("pieces", [["<think>Two", "\ndigits.</think>\n", "I add."]])
def test_a_thought_is_what_follows_the_reasoning(pieces):
    text = "".join(pieces)
    for cut in range(len(text)):
        slot, told, _ = thought(says(text[:cut], text[cut:]))
        assert slot.text == "".join(told) == "I add."


@pytest.mark.parametrize(
    "text",
    [
        f"<think>a call: {DONE}</think>\n\n{ADD}",
        f"\n<think>\n</think>{ADD}",
        f"I add.\n</think>\n{ADD}",  # the template wrote the opening tag
    ],
)
def test_a_call_is_what_follows_the_reasoning(text):
    slot, *_ = called(says(text))
    assert (slot.text, slot.attempts) == (ADD, 1)


def test_the_end_of_a_reasoning_in_an_argument_is_text():
    said = call("answer", text="it is </think> so")
    assert called(says(said))[0].text == said


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_in_a_field_of_its_own_is_dropped_if_there_is_a_text(name):
    thinks = delta(None, None, **{name: "Two digits."})
    assert thought(streamed(thinks, delta("I add."), END))[0].text == "I add."
    assert called(streamed(thinks, delta(ADD), END))[0].text == ADD


@pytest.mark.parametrize(
    "reply",
    [
        streamed(delta(None, None, reasoning_content="\nTwo "), delta(None, "length")),
        streamed(delta("<think>\nTwo "), delta(None, "length")),
        whole(None, "length", reasoning_content="Two"),
    ],
)
def test_reasoning_alone_is_a_thought_but_never_a_call(reply):
    slot, told, _ = thought(reply)
    assert slot.text == "".join(told) == "Two"
    slot, _, server = called(reply, says(ADD))
    assert (slot.text, slot.attempts) == (ADD, 2)
    assert "must begin with" in server.sent[1]["messages"][-1]["content"]


def test_a_reasoning_as_long_as_it_likes_is_not_taken_for_the_thought():
    long = delta(None, None, reasoning_content="word " * 99)
    assert thought(streamed(*[long] * 9, delta("I add."), END))[0].text == "I add."
    long = "<think>" + "word " * 999
    assert thought(says(long, "</think>I add."))[0].text == "I add."


NAMED = {"name": "calc", "arguments": json.loads(ARGUMENTS)}
TWICE = {"name": "calc", "arguments": ARGUMENTS}


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(NAMED),
        json.dumps(TWICE),
        json.dumps({"name": "calc", "parameters": NAMED["arguments"]}),
        json.dumps({"tool": "calc", "args": ARGUMENTS}),
        json.dumps({"type": "function", "function": TWICE}),
        json.dumps({"id": "7", "type": "function", **TWICE}),
        f"<tool_call>\n{json.dumps(NAMED)}\n</tool_call>",
        f"<tool_call>{ADD}</tool_call>\n<tool_call>{DONE}</tool_call>",
        f"<think>hm</think>\n<tool_call>{json.dumps(TWICE)}</tool_call>",
        f"```json\n{json.dumps(NAMED)}\n```",
    ],
)
def test_a_call_in_other_words_is_the_same_call(text):
    slot, told, _ = called(says(text))
    assert slot.text == "".join(told) == ADD
    assert slot.attempts == 1


@pytest.mark.parametrize(
    "text",
    [
        '{"name": "calc", "tool": "answer", "args": {"text": "5"}}',
        '{"name": "calc", "arguments": "1+1"}',
        '{"name": "calc", "arguments": {"expression": "1"}, "why": "so"}',
        '{"name": "calc"}',
        '{"function": "calc", "arguments": {"expression": "1"}}',
        '["calc", {"expression": "1"}]',
    ],
)
def test_what_is_not_clearly_a_call_is_asked_for_again(text):
    slot, *_ = called(says(text), says(ADD))
    assert (slot.text, slot.attempts) == (ADD, 2)


def tool_call(name=None, arguments=None, index=0, **more) -> dict:
    return {"index": index, "function": {"name": name, "arguments": arguments}} | more


PIECES = [
    tool_call("calc", "", id="one", type="function"),
    tool_call(None, ARGUMENTS[:9]),
    tool_call("answer", '{"text":"5"}', index=1, id="two"),
    tool_call(None, ARGUMENTS[9:]),
]


@pytest.mark.parametrize(
    "reply",
    [
        streamed(
            *[delta(None, tool_calls=[piece]) for piece in PIECES],
            delta(None, "tool_calls"),
        ),
        whole(None, "tool_calls", tool_calls=[{"function": TWICE}, {"function": {}}]),
        whole("I call a tool.", "tool_calls", tool_calls=[{"function": NAMED}]),
        whole("", "function_call", function_call=TWICE),
        streamed(
            *[
                delta(None, tool_calls=[tool_call("calc", ARGUMENTS, id=x)])
                for x in "ab"  # both with index 0
            ],
            END,
        ),
    ],
)
def test_a_call_beside_the_text_is_the_call_and_the_first_one(reply):
    slot, told, _ = called(reply)
    assert slot.text == "".join(told) == ADD
    assert (slot.attempts, slot.constrained) == (1, False)


@pytest.mark.parametrize("ends", [[DONE_MARK], []])
def test_a_stream_without_a_finish_is_a_whole_reply_if_a_text_came(ends):
    assert thought(streamed(delta("I see."), *ends))[0].text == "I see."
    assert called(streamed(delta(ADD), *ends))[0].text == ADD


def test_nothing_is_read_after_the_mark_at_the_end():
    def body():
        yield delta("I see.") + DONE_MARK
        raise AssertionError("the reader went on")

    assert len(list(events("text/event-stream", body()))) == 1


def test_a_stream_is_over_at_its_mark_although_the_server_does_not_hang_up():
    with ScriptedServer(streamed(delta("I see."), DONE_MARK, hold=True)) as server:
        assert backend(server).thought(IDS).text == "I see."
        assert server.gone.wait(10)


def test_a_call_that_breaks_off_without_a_finish_is_asked_for_again():
    slot, *_ = called(streamed(delta(ADD[:20])), says(ADD))
    assert (slot.text, slot.attempts) == (ADD, 2)


@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_a_stream_with_the_type_of_another_thing_is_a_stream(kind):
    stream = [b": hi\n\n", delta("I "), delta("see."), delta(None, "stop")]
    answer = Answer([*stream, DONE_MARK], headers={"Content-Type": kind})
    slot, told, _ = thought(answer)
    assert slot.text == "I see."
    assert [piece for piece in told if piece] == ["I", " see."]


def test_a_whole_reply_with_the_type_of_a_stream_is_whole():
    body = b"\r\n" + b"".join(whole("I see.").pieces)
    answer = Answer([body], headers={"Content-Type": "text/event-stream"})
    slot, _, server = thought(answer)
    assert (slot.text, len(server.requests)) == ("I see.", 1)


# what is known of a constraint


def test_a_call_is_constrained_once_the_server_has_shown_that_it_enforces_a_schema():
    with ScriptedServer(says(ADD), says(DONE)) as server:
        lm = backend(server)
        slots = [lm.call(IDS) for _ in range(2)]
    assert [(slot.asked, slot.constrained) for slot in slots] == [(True, True)] * 2
    (probe,) = server.probes  # once for all calls
    form, asked = json.dumps(probe["response_format"]), json.dumps(probe["messages"])
    assert "zq7x_calc" in form
    assert "calc" not in asked
    assert "expression" in form  # the same shape as the schema that is meant


@pytest.mark.parametrize(
    "probed",
    [
        says("hello"),
        says(""),
        says(ADD),  # a model that always writes a call
        refusal("no", 404),
        whole(None, tool_calls=[{"function": NAMED}]),
    ],
)
def test_a_call_that_fits_is_no_evidence_of_a_constraint(probed):
    with ScriptedServer(says("hm"), says(DONE), probed=probed) as server:
        trace = Agent(backend(server), TWO).run("t")
    assert trace.answer == "1018039"
    slot = trace.steps[0].slots[1]
    assert (slot.asked, slot.constrained) == (True, False)
    assert "schema sent, perhaps ignored" in str(trace)
    assert "constrained" not in str(trace)


@pytest.mark.parametrize("first", ["Sure!", f"Sure: {ADD}", f"```\n{ADD}\n```"])
def test_a_reply_that_no_schema_allows_is_not_constrained_whatever_the_probe_says(
    first,
):
    slot, *_ = called(says(first), says(ADD))
    assert (slot.text, slot.asked, slot.constrained) == (ADD, True, False)


def test_each_set_of_tools_is_shown_for_itself_and_its_tokens_are_counted():
    probed = says("hello", counts=usage(5, 9))
    script = [says(DONE, counts=usage(3, 9))] * 3
    with ScriptedServer(*script, probed=probed) as server:
        lm = backend(server)
        for tools in (TWO, TWO, type(TWO)([*TWO][1:])):
            lm.set_tools(tools)
            lm.call(IDS)
    assert len(server.probes) == 2
    assert lm.tokens == 3 * 3 + 2 * 5


# the time of a run


class Clock:
    """A clock that stands still until it is told to go on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("raw", [True, False])
def test_a_silent_server_ends_the_run_when_its_time_is_up(raw):
    clock = Clock()

    with ScriptedServer(says("hm"), says(ADD), Answer(hold=True, raw=raw)) as server:
        lm = backend(server, clock=clock)
        agent = Agent(lm, TWO, max_seconds=600, clock=clock)

        def on_step(step) -> None:
            clock.now = 599.99  # 10 ms are left to wait for the next thought

        trace = agent.run("t", on_step=on_step)
        assert server.gone.wait(10)
    assert (trace.reason, len(trace.steps)) == ("time_up", 1)
    assert bytes(trace.token_ids).endswith(b"\nTHOUGHT: ")
    assert len(server.requests) == 3  # it was not asked again


def test_the_shorter_of_the_two_limits_says_what_happened():
    clock = Clock()
    with ScriptedServer(Answer(hold=True)) as server:
        lm = backend(server, clock=clock, timeout=0.01)
        with pytest.raises(ServerError, match=r"no whole reply in 0\.01 seconds"):
            Agent(lm, TWO, max_seconds=600, clock=clock).run("t")


@pytest.mark.parametrize("busy", [LOADING, refusal("overloaded", 503)])
def test_a_server_that_is_waited_for_is_not_waited_for_beyond_the_run(busy):
    clock, pauses = Clock(), []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.now += seconds

    with ScriptedServer(*[busy] * 9) as server:
        lm = backend(server, clock=clock, sleep=sleep, retries=9)
        trace = Agent(lm, TWO, max_seconds=10, clock=clock).run("t")
    assert trace.reason == "time_up"
    assert pauses == [0.5, 1.0, 2.0, 4.0, 2.5]
    assert clock.now == 10.0


def test_a_time_that_is_over_asks_nothing():
    clock = Clock()

    def on_event(kind: str, text: str) -> None:
        clock.now += 6.0

    with ScriptedServer() as server:
        lm = backend(server, clock=clock)
        trace = Agent(lm, TWO, max_seconds=5, clock=clock).run("t", on_event)
        assert trace.reason == "time_up"
    assert server.requests == []


def test_a_run_without_time_makes_no_request_and_a_short_one_a_short_connect():
    asked = []
    with ScriptedServer() as server:
        lm = backend(server, retries=0)
        with pytest.raises(TimeUpError):
            lm.thought(IDS, Listener(asked.append, lambda: 0.0))
        lm._server._post = lambda **options: asked.append(options["options"])
        for seconds in (3.0, 600.0):
            with pytest.raises(ServerError):
                lm.thought(IDS, Listener(asked.append, lambda left=seconds: left))
    assert server.requests == []
    assert asked == [{"timeout": 3.0}, {"timeout": 60.0}]


def test_a_backend_without_a_run_has_all_the_time_that_a_reply_may_take():
    clock = Clock()
    with ScriptedServer(says("hm"), says(DONE), says("ah")) as server:
        lm = backend(server, clock=clock)
        Agent(lm, TWO, max_seconds=5, clock=clock).run("t")
        clock.now = 99.0
        assert lm.thought(IDS).text == "ah"


# what was done is kept


def test_an_error_of_the_server_has_the_steps_that_were_done():
    told = []
    with ScriptedServer(says("hm"), says(ADD), says("so"), refusal("x", 404)) as server:
        agent = Agent(backend(server), TWO)
        with pytest.raises(ServerError, match="says 404") as caught:
            agent.run("What is it?", on_step=told.append)
    trace = caught.value.trace
    assert list(trace.steps) == told
    assert (len(told), trace.answer, trace.reason) == (1, None, "server_error")
    assert trace.task == "What is it?"
    assert bytes(trace.token_ids).endswith(b"\nTHOUGHT: so\nCALL: ")
    assert "STOPPED: server_error" in str(trace)


# limits of tokens


def test_the_tokens_of_a_thought_and_of_a_call_are_options():
    with ScriptedServer(says("hm"), says(DONE)) as server:
        Agent(backend(server, max_thought=7, max_call=300)).run("t")
    assert [body["max_tokens"] for body in server.sent] == [7, 300]
    assert thought(says("x" * 999), max_thought=7)[0].text == "x" * 7 * 16


@pytest.mark.parametrize("name", ["max_thought", "max_call"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9", None])
def test_a_senseless_limit_of_tokens_is_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"{name} must be a whole number of 1"):
        HttpBackend("http://h/v1", "m", **{name: value})


# the key

KEY = "sk-Zq7LmN2pXw9RtY4u"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"http://h/v1?key={KEY}", "'http://h/v1' and more"),
        (f"http://h/v1#{KEY}", "'http://h/v1' and more"),
        (f"http://{KEY}@h/v1", ""),
        (f"http://me:{KEY}@h/v1?key={KEY}", ""),
        (KEY, ""),
        (f"h/v1?{KEY}", ""),
    ],
)
def test_a_key_in_the_address_is_refused_and_not_shown(url, shown):
    with pytest.raises(UsageError, match=r"without user, password, \?") as caught:
        HttpBackend(url, "m")
    assert str(caught.value).endswith(f", not {shown}" if shown else "#")
    assert KEY not in str(caught.value)


def test_the_key_itself_as_a_part_of_the_address_is_refused_and_not_shown():
    with pytest.raises(UsageError, match="has the API key in it") as caught:
        HttpBackend(f"http://h/{KEY}/v1", "m", api_key=KEY)
    assert KEY not in str(caught.value)


def test_a_key_that_the_reply_breaks_off_in_is_redacted():
    for cut in range(8, len(KEY)):
        for ends in ([DONE_MARK], []):
            slot, told, _ = thought(
                streamed(delta(f"I see {KEY[:cut]}"), *ends), api_key=KEY
            )
            assert slot.text == "".join(told) == f"I see {'*' * cut}"


@pytest.mark.parametrize("spell", [str, lambda x: f"\\u{ord(x):04x}"])
def test_a_key_in_a_call_beside_the_text_or_in_a_reasoning_is_redacted(spell):
    spelled = "".join(map(spell, KEY))
    function = {"name": "answer", "arguments": f'{{"text":"{spelled}"}}'}
    slot, told, _ = called(
        whole(None, tool_calls=[{"function": function}]), api_key=KEY
    )
    assert slot.text == "".join(told) == call("answer", text="*" * len(KEY))
    slot, told, _ = thought(
        streamed(
            delta(None, reasoning=KEY[:9]), delta(None, "stop", reasoning=KEY[9:])
        ),
        api_key=KEY,
    )
    assert slot.text == "".join(told) == "*" * len(KEY)


def test_the_time_of_a_run_is_an_error_of_its_own():
    assert not issubclass(TimeUpError, ServerError)
