"""The mask explorer: words, picture and buttons say what the walk says."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("ipywidgets", reason="the notebooks extra is not installed")
pytest.importorskip("matplotlib", reason="the notebooks extra is not installed")

from tests.table_engine import table_engine
from tests.toy_tokenizer import EOS, N_SPECIAL, ToyTokenizer, byte_level
from tinyllm import grammar
from tinyllm.errors import UsageError
from tinyllm.grammar.expression import Call, Concatenation, Repetition, Rules, literal
from tinyllm.widgets import mask_explorer as look
from tinyllm.widgets.mask_explorer import listed, mark, trail
from tinyllm.widgets.walk import Walk


class Decoding(ToyTokenizer):
    """A toy tokenizer that turns ids into text, too."""

    def decode(self, token_ids):
        """The text of some tokens."""
        return self.text(list(token_ids)).decode()


TOKENIZER = Decoding(byte_level(b"12", b"1,", b"<b>", b"$x").tokens[N_SPECIAL:])
LIST = grammar.compile(r"\[[0-9]{1,8}\]|\(<b>\)", TOKENIZER)
WANTS = {b",": 5, b"12": 4, b"7": 3, b"[": 2, b"]": 1}  # the comma is never legal


def walked(budget=5, made=LIST, **extra):
    """A walk of a model that always wants the same, most of all a comma."""
    row = np.zeros(TOKENIZER.vocab_size, np.float32)
    for data, value in {**WANTS, **extra}.items():
        row[TOKENIZER.id_of(data)] = value
    walk = Walk(table_engine(row, TOKENIZER), [5], made, budget)
    walk.go_on()
    return walk


def one(data):
    return TOKENIZER.id_of(data)


def test_the_words_name_counts_budget_and_whom_each_token_is_owed_to():
    lines = look.told(walked(), TOKENIZER, 4).splitlines()
    assert lines[0] == "token 5 of 5, after '[121212'"
    assert lines[1].startswith("legal: 12 of 263 tokens, which held 0.")
    assert lines[2] == "wanted ,, got ] (forced: the ceiling is near)"
    assert lines[3].startswith("state: DFA state {")
    assert lines[3].endswith(", no rule open")
    assert lines[4] == "tokens to close: 1 needed, 1 left of 5"
    assert lines[5] == "[★ 12★ 12★ 12★ »]▼«"


def test_what_a_hand_chose_is_told_as_such():
    walk = walked()
    walk.take(1, one(b"7"))
    words = look.told(walk, TOKENIZER, 1)
    assert "wanted ,, got 7 (chosen by hand)" in words
    assert words.endswith("[★ »7◆«")
    assert [mark(step) for step in walk.steps] == ["★", "◆"]


def test_a_step_without_a_choice_says_so():
    walk = walked()
    walk.take(0, one(b"("))
    walk.go_on()
    first, last = (look.told(walk, TOKENIZER, i) for i in (0, len(walk.steps) - 1))
    assert "nothing else was legal" not in first
    assert "legal: 1 of 263" in last
    assert "nothing else was legal" in last


def test_the_first_byte_that_fails_is_named_with_what_could_stand_there():
    assert look.why(walked(), TOKENIZER, 1, one(b"1,")).splitlines() == [
        "1, is illegal at token 2",
        "the model gave it 0.00",
        "fits:     '1'",
        "fails:    ',', byte 2 of 2",
        "expected: '0' to '9', ']'",
    ]


def test_where_the_text_may_end_the_end_is_expected_too():
    walk = walked(made=grammar.compile("[0-9]*", TOKENIZER))
    assert look.why(walk, TOKENIZER, 1, one(b",")).endswith("'9', or the end")


@pytest.mark.parametrize(
    ("token_id", "words"),
    [
        (one(b"12"), "12 is legal at token 2"),
        (one(b"12"), "each byte fits"),
        (one(b","), "the model gave it 0.30"),
        (EOS, "the text is not complete, expected '0' to '9'"),
        (0, "it stands for no text"),
        (900, "<900> is illegal at token 2"),
        (900, "the ids 0 to 262"),
    ],
)
def test_every_token_has_its_reason(token_id, words):
    assert words in look.why(walked(), TOKENIZER, 1, token_id)


def test_the_stack_is_told_from_the_top():
    pair = Concatenation((literal("("), Repetition(Call("pair")), literal(")")))
    made = grammar.TokenGrammar(
        Rules(Repetition(Call("pair")), {"pair": pair}), grammar.Vocabulary(TOKENIZER)
    )
    state = made.start()
    assert look.stacked(state).endswith("no rule open")
    seen = []
    for _ in range(7):
        state = made.advance(state, one(b"("))
        seen.append(look.stacked(state))
    outer, back = (
        "{" + ",".join(str(n) for n in sorted(n for n, _ in dfa.positions)) + "}"
        for dfa in (made.start().dfa, state.frame.state)
    )
    assert seen[0].endswith(f"1 rule open, to return to {outer}")
    assert seen[1].endswith(f"2 rules open, to return to {back}, {outer}")
    assert seen[6].endswith(f"to return to {', '.join([str(back)] * 5)}, …")


def test_the_list_has_what_was_wanted_then_legal_tokens_then_illegal_ones():
    choice = walked().steps[1].choice
    ids = listed(walked(), 1)
    legal = choice.mask.nonzero()[0]
    assert ids[:3] == [one(b","), one(b"12"), one(b"7")]
    assert set(ids[1 : 1 + len(legal)]) == set(legal)
    assert len(ids) == len(set(ids)) == len(legal) + 60


def test_a_step_that_there_is_not_is_refused():
    walk = walked()
    with pytest.raises(UsageError, match="step is 5; expected 0 to 4"):
        look.told(walk, TOKENIZER, 5)
    empty = Walk(walk.lm, [5], LIST)
    with pytest.raises(UsageError, match="call go_on first"):
        look.explorer(empty, TOKENIZER)


def parts(walk, step=0):
    """Slider, words, picture, list, reason, the three buttons and the deeds."""
    slider, words, picture, below, done = look.explorer(walk, TOKENIZER, step).children
    tokens, side = below.children
    reason, buttons = side.children
    return slider, words, picture, tokens, reason, *buttons.children, done


def test_the_slider_redraws_words_picture_and_list():
    slider, words, picture, tokens, reason, *_ = parts(walked())
    first = words.value, picture.value, tokens.options, reason.value
    slider.value = 2
    assert "token 2 of 5" in words.value
    assert tokens.value == one(b"12")
    assert "12 is legal at token 2" in reason.value
    assert all(a != b for a, b in zip(
        first, (words.value, picture.value, tokens.options, reason.value), strict=True
    ))  # fmt: skip
    slider.value = 1
    assert (words.value, picture.value, tokens.options, reason.value) == first


def test_a_click_tells_why_and_only_a_legal_token_can_be_taken():
    _, _, _, tokens, reason, take, *_ = parts(walked(), 1)
    assert take.disabled  # it is the one that stands there
    tokens.value = one(b",")
    assert "fails:" in reason.value
    assert "illegal" in dict(map(reversed, tokens.options))[one(b",")]
    assert take.disabled
    tokens.value = one(b"7")
    assert "7 is legal" in reason.value
    assert not take.disabled


def test_take_go_on_and_undo():
    walk = walked()
    slider, words, _, tokens, _, take, on, undo, done = parts(walk, 3)
    before = words.value
    assert on.disabled
    slider.value = 2
    tokens.value = one(b"7")
    take.click()
    assert "token 2 of 2" in words.value
    assert "token 2 chosen by hand: forwarded 0" in done.value
    assert not on.disabled
    on.click()
    assert "token 2 of 5" in words.value
    assert "the model chose 3 tokens: forwarded 3, reused 2" in done.value
    undo.click()
    undo.click()
    assert undo.disabled
    slider.value = 4
    assert words.value == before


def test_a_walk_of_one_token_has_a_slider_that_stays_there():
    walk = walked()
    walk.take(0, one(b"["))
    slider, words, *_ = parts(walk)
    slider.value = 2
    assert slider.value == 1
    assert "token 1 of 1" in words.value


def test_what_goes_wrong_is_told_and_changes_nothing():
    walk = walked()
    *_, tokens, reason, take, _, _, done = parts(walk, 4)
    tokens.value = one(b"7")
    before = done.value
    take.click()
    assert "needs 1 more, and 0 are left" in reason.value
    assert done.value == before
    assert len(walk.steps) == 5


def test_text_of_the_model_is_escaped_and_a_dollar_is_no_formula():
    made = grammar.compile(r"(<b>|\$x)+", TOKENIZER)
    walk = walked(made=made, budget=3)
    walk.take(0, one(b"$x"))
    assert bytes(parts(walk)[2].value).startswith(b"\x89PNG")
    walk.take(0, one(b"<b>"))
    _, words, _, _, reason, *_ = parts(walk)
    assert "&lt;b&gt;" in words.value
    assert "&lt;b&gt;" in reason.value
    assert "<b>" not in words.value + reason.value


def test_the_same_step_gives_the_same_bytes_and_its_words_as_alt_text():
    walk = walked()
    first, again = (look.still(walk, TOKENIZER, 1) for _ in range(2))
    assert first.data == again.data
    assert first.alt == look.told(walk, TOKENIZER, 1)


def test_a_long_text_is_drawn_around_the_token_looked_at():
    walk = walked(budget=60, made=grammar.compile(r"\[[0-9]{100}\]", TOKENIZER))
    assert len(walk.steps) > 50
    assert len(trail(walk, TOKENIZER, 30)) == len(walk.steps)
    first, last = (look.still(walk, TOKENIZER, i) for i in (0, len(walk.steps) - 1))
    assert first.data != last.data
