"""The timeline widget: events, words, picture and slider say what a session did."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ipywidgets", reason="the notebooks extra is not installed")
pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

from tests.conftest import TINY, random_weights
from tests.table_engine import table_engine
from tinyllm.decode.session import Session
from tinyllm.errors import ContextFullError, InferenceError, UsageError
from tinyllm.model.transformer import Model
from tinyllm.text.bpe import BPE
from tinyllm.toy import WordTokenizer
from tinyllm.widgets import timeline
from tinyllm.widgets.recorder import Recorder

TOKENIZER = BPE.from_merges([])  # id 3 + b stands for byte b
WORDS = WordTokenizer(["the", *[" cat", " dog", " saw", " the", " ran"]])
TOY = table_engine(np.eye(WORDS.vocab_size, dtype=np.float32), WORDS, n_ctx=300)


BYTES = table_engine(np.eye(259, dtype=np.float32), TOKENIZER, n_ctx=300)


def ids(text):
    return [3 + b for b in text.encode()]


def recorded(*calls, engine=TOY):
    """The events of calls such as ("feed", [2, 3]) on a new session."""
    recorder = Recorder(engine.session())
    for name, *arguments in calls:
        getattr(recorder, name)(*arguments)
    return recorder.events


HISTORY = recorded(
    ("feed", ids("abcdef")),
    ("extend", ids("gh")),
    ("feed", ids("abcxyz")),
    ("rewind", 2),
    ("feed", ids("abQ")),
    ("reset",),
    engine=BYTES,
)


def counts(event):
    return event.reused, event.forwarded, event.given_up, len(event.beyond)


def test_each_call_has_its_counts():
    assert [counts(event) for event in HISTORY] == [
        (0, 6, 0, 0),
        (0, 2, 0, 0),
        (3, 3, 5, 2),  # def is overwritten, gh stays behind
        (0, 0, 4, 6),
        (2, 1, 0, 5),
        (0, 0, 3, 8),
    ]


def test_what_lies_beyond_the_end_is_what_the_slots_still_hold():
    beyond = [TOKENIZER.decode(event.beyond) for event in HISTORY]
    assert beyond == ["", "", "gh", "cxyzgh", "xyzgh", "abQxyzgh"]


def test_the_ids_beyond_the_end_are_those_of_the_keys_in_memory():
    model = Model(TINY, random_weights(TINY))
    recorder = Recorder(Session(model))
    recorder.feed([5, 6, 7, 8, 9])
    recorder.feed([5, 6, 30])
    event, k = recorder.events[-1], recorder.session.cache.k
    cold = Session(model)
    cold.feed([5, 6, 7, *event.beyond])
    assert event.beyond == (8, 9)
    assert np.array_equal(k[0, :, 3:5], cold.cache.k[0, :, 3:5])


def test_a_fork_has_nothing_beyond_its_end_and_leaves_its_origins_alone():
    recorder = Recorder(TOY.session())
    recorder.feed([2, 3, 4, 5])
    recorder.rewind(3)
    fork = Recorder(recorder.session.fork())
    fork.feed([2, 3, 6])
    assert counts(fork.events[-1]) == (2, 1, 1, 0)
    recorder.rewind(2)
    assert recorder.events[-1].beyond == (4, 5)


def test_the_recorder_gives_what_the_session_gives():
    recorder, session = Recorder(TOY.session()), TOY.session()
    assert np.array_equal(recorder.feed([2, 3]), session.feed([2, 3]))
    assert np.array_equal(recorder.extend([4]), session.extend([4]))
    assert recorder.session.token_ids == session.token_ids


def test_a_call_that_raises_is_no_event():
    recorder = Recorder(TOY.session())
    recorder.feed([2, 3])
    with pytest.raises(InferenceError, match="cannot rewind to 3"):
        recorder.rewind(3)
    with pytest.raises(ContextFullError):
        recorder.feed([2] * 301)
    assert len(recorder.events) == 1


def test_what_others_did_in_between_is_seen():
    recorder = Recorder(TOY.session())
    recorder.feed([2, 3])
    recorder.session.feed([2, 4, 5])
    recorder.rewind(1)
    assert recorder.events[-1].before == (2, 4, 5)
    assert recorder.events[-1].beyond == (4, 5)


prompts = st.lists(st.integers(0, 4), min_size=1, max_size=6)
calls = st.one_of(
    st.tuples(st.just("feed"), prompts),
    st.tuples(st.just("extend"), prompts),
    st.tuples(st.just("rewind"), st.integers(0, 3)),
    st.just(("reset",)),
)


@given(st.lists(calls, min_size=1, max_size=8))
def test_the_events_add_up_whatever_is_called(steps):
    recorder = Recorder(TOY.session())
    for name, *arguments in steps:
        if name == "rewind" and arguments[0] > recorder.session.length:
            continue
        getattr(recorder, name)(*arguments)
    held, memory = (), 0
    for event in recorder.events:
        assert event.before == held
        assert len(held) + event.forwarded - event.given_up == len(event.after)
        assert event.after[: event.kept] == held[: event.kept]
        memory = max(memory, len(event.after))
        assert len(event.after) + len(event.beyond) == memory
        held = event.after
        found = timeline.runs(event)
        assert [a.stop for a in found[:-1]] == [b.first for b in found[1:]]
        assert sum(r.stop - r.first for r in found) == memory
    assert sum(e.forwarded for e in recorder.events) == recorder.session.forwarded


def test_the_runs_show_the_shared_prefix_and_where_the_ways_part():
    assert timeline.runs(HISTORY[2]) == [
        (0, 3, ("asked", "kept", "kept")),
        (3, 6, ("asked", "left", "forwarded")),
        (6, 8, ("", "left", "left")),
    ]
    assert timeline.runs(HISTORY[1])[-1] == (6, 8, ("asked", "", "forwarded"))
    assert timeline.runs(HISTORY[3])[-1] == (6, 8, ("", "", "left"))


def test_the_words_name_counts_places_and_texts():
    assert timeline.told(HISTORY, TOKENIZER, 2).splitlines() == [
        "step 3 of 6: feed 6 ids",
        "  held before: 8, held now: 6 of 300",
        "  reused:      3, positions 0 to 2: abc",
        "  forwarded:   3, positions 3 to 5: xyz",
        "  given up:    5, positions 3 to 7: defgh",
        "  beyond the end: 2 in memory, never read",
    ]
    kept = "reused:      0 by a search, {} kept without one"
    assert kept.format(6) in timeline.told(HISTORY, TOKENIZER, 1)
    assert kept.format(2) in timeline.told(HISTORY, TOKENIZER, 3)
    assert "reused:      0\n" in timeline.told(HISTORY, TOKENIZER, 5)
    assert "rewind to 2\n" in timeline.told(HISTORY, TOKENIZER, 3)
    assert "forwarded:   1, position 2: Q" in timeline.told(HISTORY, TOKENIZER, 4)
    one = recorded(("feed", [2]), ("feed", [2]))
    assert "feed 1 id\n" in timeline.told(one, TOY.tokenizer, 1)


def test_a_long_text_is_cut_in_the_middle_of_the_words():
    events = recorded(("feed", ids("a" * 100 + "z" * 100)), engine=BYTES)
    line = timeline.told(events, TOKENIZER, 0).splitlines()[3]
    assert line.endswith(f": {'a' * 22} … {'z' * 22}")


def test_a_long_run_shows_its_ends_and_how_many_lie_between():
    events = recorded(("feed", ids("a" * 250)), engine=BYTES)
    found = timeline.cells(events[0], TOKENIZER)
    places = [cell.position for cell in found]
    assert places == [0, 1, 2, 3, None, 246, 247, 248, 249]
    assert found[4].texts == ("… 242 …", "", "… 242 …")


@pytest.mark.parametrize("n", [1, 8, 9, 10, 11])
def test_no_gap_stands_for_a_single_token(n):
    events = recorded(("feed", ids("a" * n)), engine=BYTES)
    found = timeline.cells(events[0], TOKENIZER)
    assert len(found) == min(n, 9)
    assert (found[len(found) // 2].position is None) == (n > 9)


def test_neighbouring_columns_do_not_overlap():
    for event in HISTORY:
        for a, b in pairwise(timeline.cells(event, TOKENIZER)):
            assert a.x + a.size == b.x


LONG = recorded(
    ("feed", ids("TOOLS: calc(expression)\nTASK: " * 7)),
    ("feed", ids("TOOLS: calc(expression)\nTASK: " * 3 + "another 12345")),
    ("rewind", 40),
    ("feed", ids("TOOLS: calc(expression)\nTASK: " * 5)),
    ("reset",),
    ("reset",),
    engine=BYTES,
)
EMPTY = recorded(("reset",))


@pytest.mark.parametrize("events", [HISTORY, LONG, EMPTY])
def test_nothing_lies_outside_the_picture_and_no_label_outside_its_cell(events):
    for step in range(len(events)):
        fig = timeline.draw(events, TOKENIZER, step)
        fig.draw_without_rendering()
        (axes,) = fig.axes
        width, height = fig.bbox.size
        box = axes.get_tightbbox()
        assert 0 <= box.x0 < box.x1 <= width
        assert 0 <= box.y0 < box.y1 <= height
        cells = [p.get_window_extent() for p in axes.patches]
        mono = [t for t in axes.texts if t.get_fontfamily() == ["monospace"]]
        for label in (t.get_window_extent() for t in mono):
            around = [c for c in cells if c.x0 < label.x0 + 2 and label.x1 - 2 < c.x1]
            assert any(c.y0 < label.y0 and label.y1 < c.y1 for c in around)


def test_a_call_that_takes_no_ids_says_so_in_the_row_of_what_was_asked():
    drawn = [timeline.draw(HISTORY, TOKENIZER, step).axes[0] for step in (2, 3, 5)]
    said = [[t.get_text() for t in axes.texts if "no ids" in t.get_text()]
            for axes in drawn]  # fmt: skip
    assert said == [[], ["rewind takes no ids"], ["reset takes no ids"]]


def test_kept_forwarded_and_left_differ_in_fill_and_hatch():
    looks = [timeline.LOOKS[name] for name in timeline.LEGEND]
    assert len({(look["facecolor"], look.get("hatch")) for look in looks}) == 3
    assert len({look.get("hatch") for look in looks}) == 3


def test_a_step_that_is_not_there_is_refused_by_name():
    with pytest.raises(UsageError, match="step is 6; expected 0 to 5"):
        timeline.told(HISTORY, TOKENIZER, 6)
    with pytest.raises(UsageError, match="step is -1"):
        timeline.draw(HISTORY, TOKENIZER, -1)
    with pytest.raises(UsageError, match="nothing was recorded"):
        timeline.explorer((), TOKENIZER)


@pytest.mark.parametrize(
    "text", ["the cat", "the cat saw", "the dog", "the", "the cat ran"]
)
def test_the_answer_is_what_feed_then_does(text):
    recorder = Recorder(TOY.session())
    recorder.feed([0, *TOY.tokenizer.encode("the cat saw")])
    said = timeline.answer(recorder.events[-1], TOY.tokenizer, text)
    recorder.feed([0, *TOY.tokenizer.encode(text)])
    done = recorder.events[-1]
    assert f"reuse {done.reused} and forward {done.forwarded}" in said


def test_the_answer_says_where_the_ways_part():
    event = recorded(("feed", [0, *TOY.tokenizer.encode("the cat saw")]))[0]

    def said(text):
        return timeline.answer(event, TOY.tokenizer, text).splitlines()[-1]

    assert said("the dog ran") == "they part at position 2: held ␣cat, new ␣dog"
    assert said("the cat") == (
        "all of it is held; the last id is forwarded all the same"
    )
    assert said("the cat saw the") == "it goes on where what is held ends"
    assert "lone surrogate" in said("the \ud800")
    assert said("the" + " the" * 299) == "301 ids: feed would refuse more than 300"
    (empty,) = recorded(("reset",))
    lines = timeline.answer(empty, TOY.tokenizer, "").splitlines()
    assert lines == [
        "1 id: feed would reuse 0 and forward 1",
        "nothing is held, so all of it is new",
    ]


SPOKEN = recorded(
    ("feed", [1, *ids("abcdef")]),
    ("extend", ids("gh")),
    ("feed", [1, *ids("abcxyz")]),
    engine=BYTES,
)


def test_the_slider_redraws_words_picture_and_answer():
    box = timeline.explorer(SPOKEN, TOKENIZER, step=1, text="abcdefgh")
    slider, words, picture, _, reply = box.children
    assert (slider.value, slider.min, slider.max) == (2, 1, 3)
    assert "step 2 of 3: extend" in words.value
    assert "all of it is held" in reply.value
    first = (words.value, picture.value, reply.value)
    slider.value = 3
    assert "step 3 of 3: feed 7 ids" in words.value
    assert "they part at position 4: held x, new d" in reply.value
    assert picture.value == timeline.still(SPOKEN, TOKENIZER, 2).data
    slider.value = 2
    assert (words.value, picture.value, reply.value) == first


def test_typing_changes_the_answer_and_nothing_else():
    box = timeline.explorer(SPOKEN, TOKENIZER, text="abc")
    _, words, picture, prompt, reply = box.children
    before = words.value, picture.value
    assert "reuse 3 and forward 1" in reply.value
    prompt.value = "abcdeZ"
    assert (words.value, picture.value) == before
    assert "reuse 6 and forward 1" in reply.value
    assert "held f, new Z" in reply.value


def test_one_event_needs_no_slider():
    slider, words, *_ = timeline.explorer(EMPTY, TOKENIZER).children
    assert slider.disabled
    assert "step 1 of 1: reset" in words.value


def test_what_the_text_holds_is_escaped_and_no_formula():
    events = recorded(("feed", [1, *ids("<b>$x$")]), engine=BYTES)
    box = timeline.explorer(events, TOKENIZER, text="<i>")
    _, words, _, prompt, reply = box.children
    assert "&lt;b&gt;$x$" in words.value
    assert "held b, new i" in reply.value
    prompt.value = "a"
    assert "held &lt;, new a" in reply.value


def test_the_same_events_give_the_same_bytes_and_their_words_as_alt_text():
    one, two = (timeline.still(HISTORY, TOKENIZER, 2) for _ in range(2))
    assert one.data == two.data
    assert one.alt == timeline.told(HISTORY, TOKENIZER, 2)


def test_ids_from_a_generator_are_written_down():
    (event,) = recorded(("feed", (i for i in (2, 3))))
    assert event.asked == (2, 3)


def test_after_a_failure_nothing_beyond_the_end_is_claimed():
    recorder = Recorder(TOY.session())
    recorder.feed([2, 3, 4, 5])
    recorder.rewind(2)
    with pytest.raises(InferenceError):
        recorder.rewind(9)
    recorder.extend([6])
    assert recorder.events[-1].beyond == ()
