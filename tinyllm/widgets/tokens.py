"""Look at a text as tokens: pieces, ids, bytes, and the merges that made them.

`explorer(tokenizer, text)` is a box to type in and a slider over the merges. Its static
twins: `still(tokenizer, text)`, a picture, and in words `told(tokenizer, text)` and
`told_merges(tokenizer, text)`. `compared(counts)` draws what several vocabularies need.
A tokenizer without merge ranks (SentencePiece) has pieces, but no slider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any, NamedTuple

import ipywidgets as widgets
from IPython.display import Image
from matplotlib.axes import Axes

from tinyllm.errors import TokenizationError
from tinyllm.text.bpe import merge, split
from tinyllm.widgets.picture import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    figure,
    pre,
    shown,
    styled,
)
from tinyllm.widgets.words import Words
from tinyllm.widgets.written import SHOWN_AS, written

MAX_CHARACTERS = 2000  # that the explorer takes
MAX_PIECES = 400  # that it draws
Pieces = tuple[tuple[int, ...], ...]  # token ids, word by word


class Step(NamedTuple):
    """One merge: its rank, the ids it joins into a new one, how often, the result."""

    rank: int
    pair: tuple[int, int]
    new_id: int
    times: int
    words: Pieces


def cut(tokenizer: Any, text: str) -> Pieces:
    """The bytes of `text` as token ids, one tuple for each word that merges stay in.

    Raises TokenizationError for what the tokenizer cannot spell, or for one that merges
    without ranks.
    """
    if not hasattr(tokenizer, "merges"):
        raise TokenizationError("this tokenizer merges by score and has no ranks")
    tokenizer.encode(text)  # raises where it cannot
    byte_ids = {data: i for i, data in enumerate(tokenizer.tokens) if len(data) == 1}
    return tuple(
        tuple(byte_ids[bytes([b])] for b in word.encode())
        for word in split(text, tokenizer.pre_tokenizer)
    )


def merge_steps(tokenizer: Any, text: str) -> list[Step]:
    """The merges that turn the bytes of `text` into tokens, in order of rank.

    tokenizer: a byte-level BPE whose merges are in the order learned. A step joins its
    pair wherever it stands; the words of the last step are what `encode` returns.
    """
    words = cut(tokenizer, text)
    ranks = {(a, b): (rank, new) for rank, (a, b, new) in enumerate(tokenizer.merges)}
    steps: list[Step] = []
    while found := {p for word in words for p in pairwise(word) if p in ranks}:
        pair = min(found, key=ranks.__getitem__)
        rank, new_id = ranks[pair]
        before = sum(map(len, words))
        words = tuple(tuple(merge(word, pair, new_id)) for word in words)
        times = before - sum(map(len, words))
        steps.append(Step(rank, pair, new_id, times, words))
    return steps


def seen(data: bytes) -> str:
    """The bytes of a token as a reader can see them: blanks as ␣, the rest escaped."""
    text = data.decode("utf-8", errors="backslashreplace")
    return "".join(
        SHOWN_AS.get(c) or (c if c.isprintable() else _code(c)) for c in text
    )


def _code(character: str) -> str:
    return character.encode("unicode_escape").decode()


def counted(text: str, n_tokens: int) -> str:
    """How long a text is, in all three units."""
    return f"characters: {len(text)}, bytes: {len(text.encode())}, tokens: {n_tokens}"


def told(tokenizer: Any, text: str) -> str:
    """The tokens of a text in words: a line each with id, bytes and piece."""
    ids = tokenizer.encode(text)
    data = [tokenizer.token_bytes(i) for i in ids]
    width = max([len("bytes"), *(len(d.hex(" ")) for d in data)])
    lines = [counted(text, len(ids)), f"{'id':>6}  {'bytes':{width}}  piece"]
    for token_id, d in zip(ids, data, strict=True):
        lines.append(f"{token_id:6}  {d.hex(' '):{width}}  {seen(d)}")
    return "\n".join(lines)


def told_merges(tokenizer: Any, text: str) -> str:
    """The merges of a text in words: a line each with rank, pair and result.

    A blank parts two pieces, a bar two words.
    """
    lines = [f"rank  {'joined':17}  pieces"]
    lines.append(f"{'':25}{_row(tokenizer, cut(tokenizer, text))}")
    for step in merge_steps(tokenizer, text):
        row = _row(tokenizer, step.words)
        lines.append(f"{step.rank:4}  {_joined(tokenizer, step):17}  {row}")
    return "\n".join(lines)


def _row(tokenizer: Any, words: Pieces) -> str:
    pieces = (" ".join(seen(tokenizer.token_bytes(i)) for i in word) for word in words)
    return " | ".join(pieces)


def _joined(tokenizer: Any, step: Step) -> str:
    return " + ".join(seen(tokenizer.token_bytes(i)) for i in step.pair)


def _done(tokenizer: Any, step: Step) -> str:
    times = "once" if step.times == 1 else f"{step.times} times"
    return f"rank {step.rank}, {_joined(tokenizer, step)}, {times}"


def still(tokenizer: Any, text: str, width: int = 62) -> Image:
    """The pieces of a text as boxes with their ids, `width` letters to a row.

    Two styles of box take turns, so that a border can be seen without colour.
    """
    ids = bounded(tokenizer, text)
    boxes, row, at = [], 0, 0.0
    for token_id in ids:
        label = written(tokenizer, token_id)
        size = max(len(label), 0.8 * len(str(token_id))) + 1.0
        if at and at + size > width:
            row, at = row + 1, 0.0
        boxes.append((label, token_id, at, row, size))
        at += size
    with styled():
        fig = figure(7.2, 0.55 * (row + 1) + 0.1)
        axes = fig.subplots()
        axes.set_axis_off()
        axes.set_xlim(-0.3, width + 0.3)
        axes.set_ylim(-row - 0.75, 0.55)
        for number, box in enumerate(boxes):
            _box(axes, number % 2 == 1, *box)
    return shown(fig, told(tokenizer, text))


def _box(
    axes: Axes, odd: bool, label: str, token_id: int, x: float, row: int, size: float
) -> None:
    colour = ORANGE if odd else BLUE
    axes.bar(
        x + 0.1, 0.5, size - 0.2, -row - 0.05, align="edge", color="white",
        edgecolor=colour, linestyle="--" if odd else "-", linewidth=1.3,
    )  # fmt: skip
    style: dict[str, Any] = {"ha": "center", "va": "center", "parse_math": False}
    middle = x + size / 2
    axes.text(middle, 0.2 - row, label, family="monospace", **style)
    axes.text(middle, -0.26 - row, str(token_id), fontsize=7, color=GREY, **style)


def compared(counts: Mapping[str, Mapping[str, int]]) -> Image:
    """Bars of how many tokens each vocabulary needs: {vocabulary: {text: tokens}}.

    Colour and hatch tell up to four vocabularies apart; the number stands at each bar.
    """
    looks = [(BLUE, ""), (ORANGE, "////"), (GREEN, "...."), (GREY, "xxxx")]
    texts = list(next(iter(counts.values())))
    step = 0.84 / len(counts)  # of a text's row
    with styled():
        fig = figure(7.2, 0.17 * len(counts) * len(texts) + 0.7)
        axes = fig.subplots()
        for k, (name, row) in enumerate(counts.items()):
            colour, hatch = looks[k % len(looks)]
            places = [i + step * (k - (len(counts) - 1) / 2) for i in range(len(texts))]
            bars = axes.barh(
                places, [row[t] for t in texts], 0.9 * step, label=name, hatch=hatch,
                facecolor="white" if hatch else colour, edgecolor=colour,
            )  # fmt: skip
            axes.bar_label(bars, padding=3, fontsize=7.5, color=GREY)
        axes.set_yticks(range(len(texts)), texts)
        axes.invert_yaxis()
        axes.set_xlabel("tokens")
        fig.legend(frameon=False, loc="outside upper center", ncols=len(counts))
    return shown(fig, told_compared(counts))


def told_compared(counts: Mapping[str, Mapping[str, int]]) -> str:
    """The same counts as a table: a row for each text, a column for each vocabulary."""
    lines = [f"{'':10}" + "".join(f"{name:>12}" for name in counts)]
    for text in next(iter(counts.values())):
        lines.append(
            f"{text:10}" + "".join(f"{row[text]:12}" for row in counts.values())
        )
    return "\n".join(lines)


# The reader's page may be dark, so each box brings its own background.
BOX = (
    "display:inline-block;margin:2px 1px;padding:1px 4px;color:#222;text-align:center;"
    "font-family:monospace;line-height:1.25;white-space:pre;vertical-align:top;"
)
LOOKS = (
    f"border:2px solid {BLUE};background:#fff",
    f"border:2px dashed {ORANGE};background:#f3f3f3",
)


def boxes(tokenizer: Any, words: Pieces) -> str:
    """HTML of the pieces, id and bytes under each; a gap parts two words."""
    html, number = [], 0
    for word in words:
        if number == MAX_PIECES:
            break
        for token_id in word[: MAX_PIECES - number]:
            data = tokenizer.token_bytes(token_id)
            under = f"<small>{token_id}<br>{data.hex(' ')}</small>"
            style = f"class='piece' style='{BOX}{LOOKS[number % 2]}'"
            html.append(f"<span {style}>{escape(seen(data))}<br>{under}</span>")
            number += 1
        html.append("<span style='display:inline-block;width:8px'></span>")
    left = sum(map(len, words)) - number
    more = f"<p>… and {left} more</p>" if left else ""
    return f"<div class='tinyllm-tokens'>{''.join(html)}</div>{more}"


def explorer(tokenizer: Any, text: str) -> widgets.VBox:
    """A box to type in; pieces, ids and bytes follow, as far as the merges are done."""
    wide = widgets.Layout(width="720px")
    box = widgets.Textarea(text, description="text", layout=wide, rows=2)
    slider = widgets.IntSlider(min=0, max=1, description="merges", layout=wide)
    words, pieces = Words(), widgets.HTML(layout=wide)
    steps: list[Step] = []

    def say(line: str) -> None:
        words.value = pre("counts", line)

    def redraw(_: object = None) -> None:
        k = min(slider.value, len(steps))
        found = words_after(tokenizer, box.value, steps[:k])
        lines = [counted(box.value, sum(map(len, found)))]
        if k:
            lines.append(f"merge {k} of {len(steps)}: {_done(tokenizer, steps[k - 1])}")
        say("\n".join(lines))
        pieces.value = boxes(tokenizer, found)

    def typed(_: object = None) -> None:
        try:
            steps[:] = steps_of(tokenizer, box.value)
        except TokenizationError as error:
            steps.clear()
            slider.disabled, pieces.value = True, ""
            return say(str(error))
        slider.disabled = not steps
        slider.max = max(1, len(steps))  # a slider needs two ends
        slider.value = len(steps)
        return redraw()

    box.observe(typed, "value")
    slider.observe(redraw, "value")
    typed()
    has_merges = hasattr(tokenizer, "merges")
    return widgets.VBox([box, *([slider] if has_merges else []), words, pieces])


def steps_of(tokenizer: Any, text: str) -> list[Step]:
    """The merges of what was typed, none for a tokenizer without ranks.

    Raises TokenizationError for a text that is too long or cannot be spelled.
    """
    bounded(tokenizer, text)
    return merge_steps(tokenizer, text) if hasattr(tokenizer, "merges") else []


def bounded(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text short enough to be drawn; TokenizationError for another."""
    if len(text) > MAX_CHARACTERS:
        raise TokenizationError(
            f"the text has {len(text)} characters, expected at most {MAX_CHARACTERS}: "
            "take a part of it"
        )
    ids: list[int] = tokenizer.encode(text)
    return ids


def words_after(tokenizer: Any, text: str, steps: Sequence[Step]) -> Pieces:
    """The tokens after these merges; before any, bytes, or what there is without."""
    if steps:
        return steps[-1].words
    if hasattr(tokenizer, "merges"):
        return cut(tokenizer, text)
    return (tuple(tokenizer.encode(text)),)
