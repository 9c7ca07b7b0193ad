from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinyllm.errors import InvalidTokenError
from tinyllm.text.bpe import BPE
from tinyllm.text.stream import TextStream

BYTES = BPE.from_merges([])  # every character beyond ASCII spans several tokens


def pushed(ids: list[int]) -> tuple[TextStream, list[str]]:
    stream = TextStream(BYTES)
    return stream, [stream.push(i) for i in ids]


def test_a_character_comes_whole_with_its_last_token():
    _, parts = pushed(BYTES.encode("a🦙b"))
    assert parts == ["a", "", "", "", "🦙", "b"]


def test_a_stream_knows_whether_it_holds_half_a_character():
    stream, held = TextStream(BYTES), []
    for token_id in BYTES.encode("aéb"):
        stream.push(token_id)
        held.append(stream.unfinished)
    assert held == [False, True, False, False]


def test_what_is_left_at_the_end_is_one_replacement_character():
    stream, parts = pushed(BYTES.encode("a🦙")[:-1])
    assert parts == ["a", "", "", ""]
    assert stream.flush() == "\ufffd"
    assert stream.flush() == ""


@given(st.text(st.characters(exclude_characters="\ufffd", exclude_categories=["Cs"])))
def test_no_replacement_character_comes_half_way(text):
    stream, parts = pushed(BYTES.encode(text))
    assert "\ufffd" not in "".join(parts)
    assert "".join(parts) + stream.flush() == text


@given(st.binary())
def test_any_bytes_give_what_decoding_at_once_gives(data):
    ids = [BYTES.tokens.index(bytes([b])) for b in data]
    stream, parts = pushed(ids)
    assert "".join(parts) + stream.flush() == BYTES.decode(ids)


def test_a_stream_in_the_middle_of_a_text_drops_no_space():
    _, parts = pushed(BYTES.encode(" a"))
    assert parts == [" ", "a"]


def test_special_ids_add_nothing_and_do_not_cut_a_character():
    first, *rest = BYTES.encode("é")
    _, parts = pushed([BYTES.bos_id, first, BYTES.bos_id, *rest])
    assert parts == ["", "", "", "é"]


def test_an_id_outside_the_vocabulary_is_refused():
    with pytest.raises(InvalidTokenError):
        TextStream(BYTES).push(BYTES.vocab_size)
