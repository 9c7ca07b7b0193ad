"""What a server may do wrong: each is a typed error or the right text."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import traceback
from itertools import chain, count, repeat

import pytest

from tests.scripted_lm import call
from tests.scripted_server import (
    IDS,
    NOWHERE,
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
    whole,
)
from tinyllm.errors import ContextFullError, ServerError
from tinyllm.server import client
from tinyllm.server.backend import HttpBackend

pytest.importorskip("openai", reason="the extra `http` is not installed")

ADD = call("calc", expression="4871*209")
KEY = "sk-Zq7LmN2pXw9RtY4u"

# faults


@pytest.mark.parametrize("status", [200, 307, 400, 500])
def test_a_body_that_never_ends_is_held_to_a_size(status, monkeypatch):
    monkeypatch.setattr(client, "BYTE_LIMIT", 20_000)
    message, server = failure(Answer(repeat(b"x" * 99), status))
    assert "more than 20000 bytes" in message
    assert server.gone.wait(10)


def test_no_answer_within_the_time_is_an_error_and_not_tried_again():
    ticks = iter(chain([0.0], repeat(59.99)))  # a hundredth of a second is left
    message, server = failure(Answer(hold=True, raw=True), clock=lambda: next(ticks))
    assert "no whole reply in 60 seconds" in message
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n: ",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 500 Oh\r\n\r\n",
    ],
)
def test_a_server_that_drips_is_held_to_the_time_for_the_whole_reply(start):
    seconds = count()  # each look at the clock is a second later
    drip = Answer(chain([start], repeat(b"x")), raw=True)
    told, server = failure(drip, clock=lambda: next(seconds))
    assert "no whole reply in 60 seconds" in told
    assert server.gone.wait(10)


@pytest.mark.parametrize("status", [401, 403])
def test_a_key_that_is_refused_is_not_tried_again(status):
    message, server = failure(refusal("wrong key", status))
    assert str(status) in message
    assert "api_key" in message
    assert len(server.requests) == 1


def test_a_server_that_is_busy_is_asked_again_when_it_says():
    busy = plain({}, 429, Retry_After="7")
    pauses = Pauses()
    assert thought(busy, says("hm"), sleep=pauses)[0].text == "hm"
    assert pauses == [7.0]


def test_a_server_that_is_busy_for_an_hour_is_not_waited_for():
    pauses = Pauses()
    busy = plain({}, 429, Retry_After="3600")
    message, server = failure(busy, says("hm"), sleep=pauses)
    assert "429" in message
    assert "3600 seconds" in message
    assert (pauses, len(server.requests)) == ([], 1)


def test_the_longest_pause_is_waited_for():
    pauses = Pauses()
    busy = plain({}, 503, Retry_After="20")
    assert thought(busy, says("hm"), sleep=pauses)[0].text == "hm"
    assert pauses == [20.0]


@pytest.mark.parametrize("after", ["Fri, 31 Dec 1999 23:59:59 GMT", "nan", "-1", ""])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_broken_server_is_asked_again_after_growing_pauses(status, after):
    broken = plain({"error": "oh dear"}, status, Retry_After=after)
    pauses = Pauses()
    message, server = failure(*[broken] * 4, sleep=pauses, retries=3)
    assert f"says {status} (4 tries)" in message
    assert "oh dear" in message
    assert pauses == [0.5, 1.0, 2.0]
    assert len(server.requests) == 4


def test_a_server_that_is_not_there_is_tried_again():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    pauses = Pauses()
    with pytest.raises(ServerError, match=r"cannot be reached.*Refused") as caught:
        HttpBackend(url, "m", TWO, sleep=pauses).thought(IDS)
    assert caught.value.__context__ is None
    assert pauses == [0.5, 1.0]


def test_a_server_that_hangs_up_without_a_word_is_tried_again():
    silent = Answer(raw=True)
    assert thought(silent, says("hm"))[0].text == "hm"
    message, server = failure(*[silent] * 3)
    assert "cannot be reached" in message
    assert len(server.requests) == 3


STREAM = {"Content-Type": "text/event-stream"}
HTML = b"<html><body>Welcome to nginx</body></html>"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (Answer([HTML], headers={"Content-Type": "text/html"}), "check its address"),
        (Answer([HTML], headers=STREAM), "sent no choices"),
        (Answer([HTML]), "check its address"),
        (Answer(), "check its address"),
        (plain({"choices": []}), "sent no choices"),
        (plain({"error": {"message": "no model"}}), "reports an error: .*no model"),
        (plain([1, 2]), "sent no choices"),
        (plain({"choices": 7}), "no chat completion"),
        (plain({"choices": [{"message": {"content": 7}}]}), "no chat completion"),
        (streamed(event({"choices": []}), event("[DONE]")), "sent no choices"),
        (streamed(event({"error": {"message": "boom"}})), "reports an error: .*boom"),
        (streamed(event("[1, 2")), "no chat completion"),
        (streamed(event("7")), "no chat completion|no choices"),
        (streamed(event("[" * 100_000)), "no chat completion"),
        (streamed(delta(None)), "sent no choices"),
        (streamed(delta("I see"), delta(None)[:40]), "no chat completion"),
        (streamed(delta("I see"), "data: é".encode()[:-1]), "UnicodeDecodeError"),
        (streamed(delta("I see"), b'data: {"choi\n\n'), "no chat completion"),
        (Answer([b"SSH-2.0-OpenSSH_9.6\r\n"], raw=True), "broke off"),
        (Answer([b"x"], headers=STREAM | {"Content-Encoding": "gzip"}), "compress"),
        (
            Answer([b"y" * 9], status=307, headers={"Location": NOWHERE}),
            "says 307: check its address",
        ),
    ],
)
def test_what_is_no_reply_is_an_error_that_says_so(answer, told):
    message, _ = failure(answer, answer, answer)
    assert re.search(told, message), message


def test_a_chunked_stream_that_breaks_off_is_an_error():
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    chunk = b"Transfer-Encoding: chunked\r\n\r\nfff\r\n" + delta("I see")
    message, _ = failure(Answer([head, chunk], raw=True))
    assert "broke off" in message


def test_a_server_that_does_not_stream_is_understood():
    counts = {"completion_tokens": 3, "prompt_tokens": 9}
    choice = {"message": {"content": "Ça va."}, "finish_reason": "stop"}
    slot, told, _ = thought(plain({"choices": [choice], "usage": counts}))
    assert (slot.text, slot.tokens) == ("Ça va.", 3)
    assert [piece for piece in told if piece] == ["Ça va."]
    assert called(whole(ADD))[0].text == ADD


def test_a_server_that_swallows_its_error_when_it_streams_is_asked_to_say_it():
    no = refusal("This model's maximum context length is 64 tokens")
    with ScriptedServer(streamed(), no) as server, pytest.raises(ContextFullError):
        backend(server).thought(IDS)
    assert [body.get("stream", False) for body in server.sent] == [True, False]
    assert "stream_options" not in server.sent[1]
    assert thought(streamed(), whole("hm"))[0].text == "hm"


def test_a_stream_without_done_and_a_character_over_two_packets_are_fine():
    raw = delta("é🦙", "stop").replace(rb"\u00e9\ud83e\udd99", "é🦙".encode())
    assert "é🦙".encode() in raw
    at = raw.index("🦙".encode()) + 2
    assert thought(streamed(raw[:at], raw[at:]))[0].text == "é🦙"


@pytest.mark.parametrize("cut", range(1, 5))
@pytest.mark.parametrize("kind", ["stream", "whole"])
def test_a_byte_order_mark_before_the_body_is_ignored(kind, cut):
    answer = says("I ", "see.") if kind == "stream" else whole("I see.")
    body = b"\xef\xbb\xbf" + b"".join(answer.pieces)
    # a chunk is a read of its own
    parts = [b"%x\r\n%b\r\n" % (len(x), x) for x in (body[:cut], body[cut:])]
    headers = answer.headers["Content-Type"].encode(), b"Transfer-Encoding: chunked"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\n%b\r\n\r\n" % headers
    answer = Answer([head, *parts, b"0\r\n\r\n"], raw=True)
    assert thought(answer)[0].text == "I see."


@pytest.mark.parametrize("no_end", ["", False, 0])
def test_an_empty_finish_is_no_end(no_end):
    pieces = delta("I ", no_end), delta("see.", no_end)
    assert thought(streamed(*pieces, delta(None, "stop")))[0].text == "I see."
    nothing = delta("", no_end)
    assert "sent no choices" in failure(streamed(nothing))[0]


def test_a_whole_reply_needs_no_finish():
    message = {"content": "I see."}
    assert thought(whole("I see.", None))[0].text == "I see."
    assert thought(plain({"choices": [{"message": message}]}))[0].text == "I see."


def test_a_redirect_is_not_followed():
    with ScriptedServer(says("hm")) as other:
        there = {"Location": other.url + "/chat/completions"}
        failure(Answer(status=308, headers=there), api_key=KEY)
    assert other.requests == []


# interrupts


def test_an_interrupt_comes_out_at_once_and_leaves_the_backend_usable():
    def interrupt(text: str) -> None:
        if text:
            raise KeyboardInterrupt

    script = streamed(delta("hm"), hold=True), says("ah")
    with ScriptedServer(*script) as server:
        lm = backend(server)
        with pytest.raises(KeyboardInterrupt):
            lm.thought(IDS, interrupt)
        assert server.gone.wait(10)
        assert lm.thought(IDS).text == "ah"


def test_an_interrupt_while_the_server_is_waited_for_hangs_up():
    looks = count()

    def clock() -> float:
        if next(looks) == 2:  # the first is for the end, the second for the head
            raise KeyboardInterrupt
        return 0.0

    with ScriptedServer(streamed(delta("hm"), hold=True), says("ah")) as server:
        lm = backend(server, clock=clock)
        with pytest.raises(KeyboardInterrupt):
            lm.thought(IDS)
        assert server.gone.wait(10)
        assert lm.thought(IDS).text == "ah"


# the key

END = delta(None, "stop")


def test_only_the_key_that_was_given_is_sent(monkeypatch):
    for name in ("API_KEY", "ADMIN_KEY", "ORG_ID", "PROJECT_ID"):
        monkeypatch.setenv(f"OPENAI_{name}", "sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Mine: sk-of-somebody-else")
    monkeypatch.setenv("OPENAI_BASE_URL", NOWHERE)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, NOWHERE)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    _, _, without = thought(says("hm"))
    _, _, with_key = thought(says("hm"), api_key=KEY)
    assert "somebody" not in str(without.requests) + str(with_key.requests)
    assert "Authorization" not in without.requests[0].headers
    assert with_key.requests[0].headers["Authorization"] == f"Bearer {KEY}"


ECHOES = [
    refusal(f"Incorrect API key provided: {KEY}", 401),
    refusal(f"Incorrect API key provided: {KEY[:12]}…", 400),
    refusal(f"no such path for {KEY}", 404),
    refusal(f"overloaded: Bearer {KEY[4:]}", 503),
    plain({"error": KEY}, 418),
    Answer([KEY.encode()], 500),
    Answer(
        status=302, headers={"Location": f"{NOWHERE}?key={KEY}", "X-Request-Id": KEY}
    ),
    Answer([f"HTTP/1.1 429 {KEY}\r\nRetry-After: {KEY}\r\n\r\n".encode()], raw=True),
    Answer([f"HTTP/1.1 {KEY}\r\n\r\n".encode()], raw=True),
    Answer([KEY.encode() + b"\r\n\r\n"], raw=True),
    plain({"error": {"message": KEY}}),
    Answer([KEY.encode()]),
    streamed(event({"error": {"message": f"bad {KEY}"}})),
    streamed(event(KEY)),
    streamed(delta(KEY[:5]), delta(KEY[5:]), event(KEY)),
    Answer([f"HTTP/1.1 200 OK\r\n{KEY}: {KEY}\r\n\r\n".encode()], raw=True),
]


@pytest.mark.parametrize("echo", ECHOES)
def test_the_key_is_in_no_log_and_no_message_even_if_the_server_sends_it_back(
    echo, caplog
):
    caplog.set_level(logging.DEBUG)
    for name in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        caplog.set_level(logging.DEBUG, logger=name)
    with ScriptedServer(*[echo] * 6) as server:
        lm = backend(server, api_key=KEY)
        with pytest.raises(ServerError) as caught:
            lm.thought(IDS)
    assert server.requests[0].headers["Authorization"].endswith(KEY)
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text + repr(lm)
    shown += repr(caught.value) + repr(vars(lm)) + "".join(map(repr, caplog.records))
    for start in range(len(KEY) - 7):
        assert KEY[start : start + 8] not in shown


@pytest.mark.parametrize("cut", range(1, len(KEY)))
def test_a_key_in_two_pieces_of_a_reply_is_redacted_and_no_part_is_told(cut):
    echo = streamed(delta("I see " + KEY[:cut]), delta(KEY[cut:] + "."), END)
    slot, told, _ = thought(echo, api_key=KEY)
    assert slot.text == "".join(told) == "I see " + "*" * len(KEY) + "."
    assert next(filter(None, told)) == "I see"


def test_what_may_become_the_key_is_not_told_where_the_reply_breaks_off():
    told: list[str] = []
    echo = streamed(delta("I see " + KEY[:-1]), b'data: {"choi\n\n')
    with ScriptedServer(echo) as server, pytest.raises(ServerError, match="sent no"):
        backend(server, api_key=KEY).thought(IDS, told.append)
    assert "".join(told) == "I see"


def test_what_only_begins_like_the_key_is_told_at_the_end():
    slot, told, _ = thought(says("I see s", "k"), api_key=KEY)
    assert slot.text == "".join(told) == "I see sk"
    slot, told, _ = thought(says("I see s", "kill"), api_key=KEY)
    assert slot.text == "".join(told) == "I see skill"


@pytest.mark.parametrize("spell", [str, lambda x: f"\\u{ord(x):04x}"])
def test_a_call_that_spells_the_key_is_redacted(spell):
    spelled = "".join(map(spell, KEY))
    slot, told, _ = called(
        says(call("answer", text="KEY").replace("KEY", spelled)), api_key=KEY
    )
    assert slot.text == "".join(told) == call("answer", text="*" * len(KEY))


@pytest.mark.parametrize("spell", [str, lambda x: f"\\u{ord(x):04x}"])
def test_the_reason_why_a_call_does_not_fit_never_shows_the_key(spell):
    wrong = f'{{"{"".join(map(spell, KEY))}":1}}'
    slot, told, server = called(says(wrong), says(wrong), api_key=KEY, attempts=2)
    assert KEY not in slot.text + "".join(told) + str(server.sent)


@pytest.mark.parametrize("key", [KEY, "12345678", "a&/b<=>+~;:,."])
@pytest.mark.parametrize(
    "shape",
    [
        lambda key: {"error": {"message": f"bad {key}"}},
        lambda key: {"error": {"message": json.dumps({"bad": key})}},
        lambda key: [key],
        lambda key: {"error": {"message": f"bad {key[:8]}"}},
        lambda key: {"error": {"message": f"bad {key[-8:]}"}},
    ],
)
def test_a_key_or_a_part_of_it_is_redacted_in_an_error(key, shape):
    message, _ = failure(plain(shape(key), 418), api_key=key)
    shown = message.split(" says 418")[1]
    assert "*" * 8 in shown
    for part in (key[:4], key[-4:]):
        assert part not in shown


@pytest.mark.parametrize("cut", [1, len(KEY) // 2, len(KEY) - 1])
@pytest.mark.parametrize("head", ["HTTP/1.1 {}", "HTTP/1.1 200 OK\r\nX: {}"])
def test_a_key_that_comes_in_two_reads_is_in_no_log(head, cut, caplog):
    caplog.set_level(logging.DEBUG)
    before, _, after = head.partition("{}")
    first, last = before + KEY[:cut], KEY[cut:] + after + f"{KEY}\r\n\r\n"

    def two_reads():
        yield first.encode()
        assert read.wait(10)
        yield last.encode()

    read, looks = threading.Event(), count()

    def clock() -> float:
        if next(looks) == 2:  # so the first half was read
            read.set()
        return 0.0

    answer = Answer(two_reads(), raw=True)
    message, _ = failure(answer, clock=clock, api_key=KEY, retries=0)
    assert "sent the API key back" in message
    shown = message + caplog.text
    for start in range(len(KEY) - 7):
        assert KEY[start : start + 8] not in shown


@pytest.mark.parametrize("key", ["EMPTY", "none", "1", "1234567"])
def test_a_key_too_short_to_be_secret_is_a_word_like_any_other(key):
    assert (
        thought(says(f"The {key} it is."), api_key=key)[0].text == f"The {key} it is."
    )
    assert f"no {key} here" in failure(refusal(f"no {key} here", 404), api_key=key)[0]
