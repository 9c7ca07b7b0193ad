"""The tokenizer explorer: its merges end in the ids, its views say what the ids say."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("ipywidgets", reason="the notebooks extra is not installed")
pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

import tinyllm
from tinyllm.errors import TokenizationError
from tinyllm.formats.tokenizer_json import load
from tinyllm.text.bpe import BPE, train
from tinyllm.text.sentencepiece import Kind, SentencePiece
from tinyllm.widgets import tokens

CORPUS = ["the cat and the hat that the man had", "aaaaaaaa aaaa aab", "añb añb 🦙🦙"]
TOKENIZER = BPE.from_merges(train(CORPUS * 3, 290))
BYTES = BPE.from_merges([])  # id 3 + b stands for byte b
FOLDER = Path(tinyllm.__file__).parent / "embedded" / "agent"
EMBEDDED = load(FOLDER / "tokenizer.json")
DENSE = st.text(alphabet="ab", max_size=40) | st.text(alphabet="thea n1", max_size=40)


def pieces(*texts):
    """A SentencePiece tokenizer of the 256 bytes and these pieces, best first."""
    raw = [f"<0x{b:02X}>" for b in range(256)]
    names = ["<unk>", "<s>", "</s>", *raw, *texts]
    kinds = [Kind.UNKNOWN, *[Kind.CONTROL] * 2, *[Kind.BYTE] * 256]
    kinds += [Kind.NORMAL] * len(texts)
    scores = [0.0] * 259 + [-float(i) for i in range(len(texts))]
    return SentencePiece(names, scores, kinds, bos_id=1, eos_ids={2})


SPM = pieces("ab", " ab", " ", "a", "b")


def flat(words):
    return [token_id for word in words for token_id in word]


@given(DENSE | st.text(st.characters(exclude_categories=["Cs"])))
def test_the_last_merge_leaves_what_encode_returns(text):
    steps = tokens.merge_steps(TOKENIZER, text)
    assert flat(tokens.words_after(TOKENIZER, text, steps)) == TOKENIZER.encode(text)


@given(st.text(alphabet='the calc{"}: 1', max_size=60))
def test_it_does_so_with_the_merges_of_the_embedded_model(text):
    steps = tokens.merge_steps(EMBEDDED, text)
    assert flat(tokens.words_after(EMBEDDED, text, steps)) == EMBEDDED.encode(text)


@given(DENSE)
def test_ranks_rise_and_every_step_spells_the_text(text):
    steps = tokens.merge_steps(TOKENIZER, text)
    ranks = [step.rank for step in steps]
    assert ranks == sorted(set(ranks))
    for step in steps:
        assert TOKENIZER.decode(flat(step.words)) == text
        assert TOKENIZER.merges[step.rank] == (*step.pair, step.new_id)


@given(DENSE)
def test_each_merge_takes_one_token_away_each_time(text):
    left = len(text.encode())
    for step in tokens.merge_steps(TOKENIZER, text):
        left -= step.times
        assert len(flat(step.words)) == left


def test_no_merge_crosses_a_cut():
    merged = BPE.from_merges([(3 + ord("e"), 3 + ord(" "))])  # "e " is never one piece
    assert tokens.merge_steps(merged, "the end") == []


def test_the_merges_in_words_show_pieces_and_words():
    # h + a, then ha + t: by hand
    tokenizer = BPE.from_merges([(107, 100), (259, 119)])
    assert tokens.told_merges(tokenizer, "that hat").splitlines() == [
        "rank  joined             pieces",
        "                         t h a t | ␣ h a t",
        "   0  h + a              t ha t | ␣ ha t",
        "   1  ha + t             t hat | ␣ hat",
    ]


def test_the_words_name_id_bytes_and_piece_of_every_token():
    assert tokens.told(BYTES, "é\n").splitlines() == [
        "characters: 2, bytes: 3, tokens: 3",
        "    id  bytes  piece",
        r"   198  c3     \xc3",
        r"   172  a9     \xa9",
        "    13  0a     ⏎",
    ]


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b" a", "␣a"),
        ("你🦙".encode(), "你🦙"),
        (b"\xf0\x9f", r"\xf0\x9f"),
        (b"\x00\t", r"\x00\t"),
        ("\u202e\u3000".encode(), r"\u202e\u3000"),  # turns the writing round; a blank
    ],
)
def test_every_byte_of_a_token_can_be_seen(data, shown):
    assert tokens.seen(data) == shown


def parts(text, tokenizer=TOKENIZER):
    return tokens.explorer(tokenizer, text).children


def test_typing_makes_new_pieces_and_new_merges():
    box, slider, words, view = parts("the cat")
    first = view.value
    box.value = "that hat"
    assert view.value != first
    n = len(TOKENIZER.encode("that hat"))
    assert f"tokens: {n}" in words.value
    assert view.value.count("class='piece'") == n
    steps = tokens.merge_steps(TOKENIZER, "that hat")
    assert slider.value == slider.max == len(steps)


def test_the_slider_takes_merges_back_and_does_them_again():
    _, slider, words, view = parts("that hat")
    done = (words.value, view.value)
    steps = tokens.merge_steps(TOKENIZER, "that hat")
    slider.value = 0
    assert view.value.count("class='piece'") == 8
    assert "merge" not in words.value
    slider.value = 1
    assert view.value.count("class='piece'") == 8 - steps[0].times
    assert f"merge 1 of {len(steps)}: rank {steps[0].rank}, " in words.value
    slider.value = len(steps)
    assert (words.value, view.value) == done


def test_a_text_of_fewer_merges_does_not_keep_the_old_ones():
    box, slider, words, view = parts("the cat and the hat")
    box.value = "a"
    assert view.value.count("class='piece'") == 1
    assert slider.disabled
    assert slider.max > slider.min  # the browser refuses a slider of one place
    box.value = "the"
    assert not slider.disabled
    assert "merge 1 of 2" in words.value or "merge 2 of 2" in words.value


def test_pieces_alternate_in_line_and_colour():
    view = parts("ab", BYTES)[3].value
    assert view.count("solid") == view.count("dashed") == 1


def test_what_is_typed_never_becomes_html():
    text = "<script>alert('x')</script>&amp;\"<img src=x onerror=y>"
    assert "<script" not in parts(text, BYTES)[3].value
    joined = BPE.from_merges([(3 + ord("<"), 3 + ord("/"))])  # a token that opens a tag
    _, _, words, view = parts("</p>", joined)
    assert "</p" not in view.value
    assert "&lt;/<br><small>259<" in view.value
    assert "&lt; + /, once" in words.value


def test_a_text_too_long_is_refused_in_words_and_the_next_one_is_not():
    box, slider, words, view = parts("a")
    box.value = "a" * 2001
    assert "the text has 2001 characters, expected at most 2000" in words.value
    assert (view.value, slider.disabled) == ("", True)
    box.value = "a" * 2000
    assert "characters: 2000" in words.value


def test_many_pieces_are_counted_and_not_all_drawn():
    _, slider, words, view = parts("ab " * 300)
    slider.value = 0
    assert "tokens: 900" in words.value
    assert view.value.count("class='piece'") == 400
    assert "… and 500 more" in view.value


def test_a_lone_surrogate_is_a_message_and_no_traceback():
    box, _, words, view = parts("a")
    box.value = "\ud83e"
    assert "lone surrogate" in words.value
    assert view.value == ""


def test_a_byte_that_a_vocabulary_lacks_is_named_by_its_own_error():
    poor = BPE([b"", b"a"], [], {"<|eos|>": 0}, bos_id=0, eos_ids={0})
    with pytest.raises(TokenizationError):
        tokens.merge_steps(poor, "ab")


def test_an_empty_text_has_no_tokens():
    _, slider, words, view = parts("")
    assert "tokens: 0" in words.value
    assert "piece" not in view.value
    assert slider.disabled
    assert tokens.told(TOKENIZER, "").splitlines()[0].endswith("tokens: 0")
    assert tokens.still(TOKENIZER, "").data.startswith(b"\x89PNG")


def test_without_ranks_there_is_no_slider_but_pieces_ids_and_bytes():
    box, words, view = parts("ab", SPM)
    assert "tokens: 1" in words.value
    assert "␣ab<br><small>260<br>20 61 62</small>" in view.value
    box.value = "é"
    assert "tokens: 3" in words.value  # the space in front, and two bytes
    assert r"\xc3<br><small>198<br>c3</small>" in view.value


def test_the_picture_is_the_same_each_time_and_carries_its_words():
    one, two = (tokens.still(TOKENIZER, "the $x$ 🦙 " * 9) for _ in range(2))
    assert one.data == two.data
    assert one.alt == tokens.told(TOKENIZER, "the $x$ 🦙 " * 9)
    assert tokens.still(SPM, "ab é").alt == tokens.told(SPM, "ab é")


COUNTS = {"ours": {"English": 31, "code": 7}, "theirs": {"English": 14, "code": 26}}


def test_the_comparison_says_in_words_what_it_draws():
    assert tokens.told_compared(COUNTS).splitlines() == [
        "                  ours      theirs",
        "English             31          14",
        "code                 7          26",
    ]
    picture = tokens.compared(COUNTS)
    assert picture.alt == tokens.told_compared(COUNTS)
    assert picture.data == tokens.compared(COUNTS).data


@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_the_bars_of_a_text_stay_in_its_row_and_look_unlike(monkeypatch, n):
    monkeypatch.setattr(tokens, "shown", lambda fig, alt: fig)
    counts = {f"vocabulary {k}": {"English": 31, "code": 7 + k} for k in range(n)}
    bars = tokens.compared(counts).axes[0].patches
    rows = sorted((b.get_y(), b.get_y() + b.get_height()) for b in bars)
    assert all(end < start for (_, end), (start, _) in pairwise(rows))
    assert [round((low + high) / 2) for low, high in rows] == [0] * n + [1] * n
    assert len({(b.get_edgecolor(), b.get_hatch()) for b in bars}) == n
    assert len({b.get_hatch() for b in bars}) == n  # without colour, too


def test_without_ranks_what_cannot_be_spelled_is_said_and_merges_are_not_told():
    box, words, view = parts("ab", SPM)
    box.value = "\ud800"
    assert "surrogate" in words.value
    assert view.value == ""
    with pytest.raises(TokenizationError, match="no ranks"):
        tokens.told_merges(SPM, "ab")


def test_a_text_too_long_to_be_drawn_is_refused_in_a_picture_too():
    with pytest.raises(TokenizationError, match="take a part"):
        tokens.still(SPM, "ab" * 2000)
