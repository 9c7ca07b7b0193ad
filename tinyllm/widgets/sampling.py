"""Look at sampling: what settings make of a distribution, and which token is drawn.

`explorer(logits, tokenizer)` has sliders for temperature, top-k, top-p, min-p and seed.
Its static twins are `still(logits, tokenizer, *samplers)`, a picture with a column for
each `Sampler`, and `told(logits, tokenizer, sampler)`, one of them in words. `logits`
(V,) are a model's own. The number shown is the first that the sampler's seed gives; the
sampler itself draws nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

import ipywidgets as widgets
import numpy as np
from IPython.display import Image
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tinyllm.decode.sampling import GREEDY_BELOW, RULES, Sampler, softmax, top_k
from tinyllm.errors import UsageError
from tinyllm.model.layers import Array
from tinyllm.widgets import picture as look
from tinyllm.widgets.words import Words
from tinyllm.widgets.written import written

TOP = 9  # tokens with a bar of their own
NAMES = dict(zip(RULES, ("no chance", "top-k", "top-p", "min-p"), strict=True))
NAMES["several"] = "filters"  # among the others, where more than one removed some
LOOKS = {  # of what a rule removed: told apart by hatch, by colour and by name
    "impossible": {"edgecolor": look.GREY},
    "top_k": {"edgecolor": look.ORANGE, "hatch": "////"},
    "top_p": {"edgecolor": look.GREEN, "hatch": "...."},
    "min_p": {"edgecolor": look.GREY, "hatch": "xxxx"},
    "several": {"edgecolor": look.GREY, "hatch": "----"},
}
WIDE = 0.09  # a part of the line in which a label has room
THIN = 0.004  # parts under this are drawn as one


@dataclass(frozen=True)
class Bar:
    """One token, or all others together.

    `before` is its probability at temperature 1 without filters, `after` its chance to
    be drawn. Where a rule removed it, `lost` is what it had at the temperature. Of the
    others, some may be kept and some removed.
    """

    text: str
    before: float
    after: float
    lost: float = 0.0
    rule: str = ""
    drawn: bool = False

    @property
    def note(self) -> str:
        """What became of it, where there is something to say."""
        if self.rule and self.after:  # some of the others
            return f"{NAMES[self.rule]} took {self.lost:.2f}"
        return "drawn" if self.drawn else NAMES.get(self.rule, "")


def thrown(sampler: Sampler) -> float:
    """The first number from 0 to below 1 that the sampler's seed gives."""
    return float(np.random.default_rng(sampler.seed).random())


def drawn(logits: Array, sampler: Sampler) -> int:
    """The first token that the sampler would pick."""
    return sampler.kept(logits).draw(thrown(sampler))


def likeliest(logits: Array, samplers: Sequence[Sampler]) -> list[int]:
    """The ids with a bar: those the model holds likeliest, and all that are drawn."""
    ids = [int(i) for i in top_k(softmax(logits), TOP)]
    extra = sorted({drawn(logits, sampler) for sampler in samplers} - set(ids))
    return ids[: TOP - len(extra)] + extra


def bars(
    logits: Array, tokenizer: Any, sampler: Sampler, ids: Sequence[int]
) -> list[Bar]:
    """A bar for each of the ids, and the last for all others together."""
    before, kept = softmax(logits), sampler.kept(logits)  # (V,)
    after, lost = np.zeros_like(before), kept.probabilities.copy()  # (V,)
    after[kept.token_ids], lost[kept.token_ids] = kept.chances, 0
    rules = {int(i): gone.rule for gone in kept.removed for i in gone.token_ids}
    got = drawn(logits, sampler)

    def bar(i: int) -> Bar:
        """The bar of one id."""
        numbers = float(before[i]), float(after[i]), float(lost[i])
        return Bar(written(tokenizer, i), *numbers, rules.get(i, ""), i == got)

    rest = np.setdiff1d(np.arange(len(logits)), ids)
    if not len(rest):
        return [*map(bar, ids)]
    had, has, gone = (float(p[rest].sum()) for p in (before, after, lost))
    took = {rules[int(i)] for i in rest if lost[i] > 0}
    rule = "several" if len(took) > 1 else "".join(took)
    return [*map(bar, ids), Bar(f"{len(rest)} others", had, has, gone, rule)]


def settings(sampler: Sampler) -> list[str]:
    """The sampler's settings in words; a filter that is off is left out."""
    parts = [f"temperature {sampler.temperature:.2f}"]
    parts += [f"top-k {sampler.top_k}"] if sampler.top_k else []
    parts += [f"top-p {sampler.top_p:.2f}"] if sampler.top_p < 1 else []
    parts += [f"min-p {sampler.min_p:.2f}"] if sampler.min_p else []
    return [*parts, f"seed {sampler.seed}"]


def told(logits: Array, tokenizer: Any, sampler: Sampler) -> str:
    """One sampler in words: what each filter removes, what is drawn, and a table."""
    kept, got = sampler.kept(logits), drawn(logits, sampler)
    parts = [(NAMES[gone.rule], gone.token_ids, gone.mass) for gone in kept.removed]
    parts.append(("kept", kept.token_ids, float(kept.shares.sum())))
    lines = [", ".join(settings(sampler))]
    for name, ids, mass in parts:
        if len(ids) or f"{name} " in lines[0]:  # a filter that is on, but found nothing
            tokens = "token" if len(ids) == 1 else "tokens"
            lines.append(f"  {name:9} {len(ids):3} {tokens:6} that held {mass:.2f}")
    how = f"seed {sampler.seed} throws {thrown(sampler):.2f} and draws"
    if sampler.temperature < GREEDY_BELOW:
        how = "greedy throws no number and takes"
    lines.append(f"  {how} {written(tokenizer, got)}")
    found = bars(logits, tokenizer, sampler, likeliest(logits, [sampler]))
    width = max(len(bar.text) for bar in found)
    lines.append(f"{'':{width}}  before  after")
    for bar in found:
        after = "   –" if bar.rule and not bar.after else f"{bar.after:.2f}"
        lines.append(f"{bar.text:{width}}    {bar.before:.2f}   {after}  {bar.note}")
    return "\n".join(line.rstrip() for line in lines)


def draw(logits: Array, tokenizer: Any, *samplers: Sampler) -> Figure:
    """Bars before and under each sampler, then a line of all probability for each.

    The line has the kept tokens, best first, then what each filter removed, and a mark
    where the number falls. Raises UsageError unless there are 1 to 3 samplers.
    """
    n = len(samplers)
    if not 1 <= n <= 3:
        raise UsageError(f"{n} samplers were given; the picture has room for 1 to 3")
    ids = likeliest(logits, samplers)
    after = [bars(logits, tokenizer, sampler, ids) for sampler in samplers]
    with look.styled():
        fig = look.figure(7.2, 3.0 + 0.72 * n)
        rows = fig.add_gridspec(1 + n, 1, height_ratios=[2.7, *[0.55] * n])
        columns: Any = rows[0].subgridspec(1, 1 + n).subplots(sharex=True, sharey=True)
        plain = [Bar(bar.text, bar.before, bar.before) for bar in after[0]]
        for axes, found in zip(columns, [plain, *after], strict=True):
            _column(axes, found)
        for axes in columns[1:]:
            axes.set_xlabel("full: chance to be drawn\nhatched: removed", fontsize=8)
        columns[0].set_title("before", fontsize=8.5, loc="left")
        for number, sampler in enumerate(samplers, 1):
            name = f"{number}: " if n > 1 else ""
            words = (name + ", ".join(settings(sampler))).replace(" ", "\u00a0")
            title = wrap(words.replace(",\u00a0", ", "), 84 // (1 + n))
            columns[number].set_title("\n".join(title), fontsize=8.5, loc="left")
            _line(fig.add_subplot(rows[number]), logits, tokenizer, sampler, name)
        end = _end([bar for found in [plain, *after] for bar in found])
        columns[0].set_xlim(0, 1.6 * end)
        columns[0].set_xticks([0, end], ["0", f"{end:g}"])
    return fig


def _end(found: list[Bar]) -> float:
    """The axis ends at a quarter, a half or all, so that small bars can be read."""
    largest = max(bar.after + bar.lost for bar in found)
    return 0.25 if largest <= 0.25 else 0.5 if largest <= 0.5 else 1.0


def _column(axes: Axes, found: list[Bar]) -> None:
    """Full bars for the chance of what is kept, hatched ones for what was removed."""
    for at, bar in enumerate(found):
        width, text = bar.after + bar.lost, f"{bar.after or bar.lost:.2f}"
        if bar.after or not bar.lost:
            axes.barh(at, bar.after, **_look(""))
        if bar.lost:
            axes.barh(at, bar.lost, left=bar.after, **_look(bar.rule))
        text += f" + {bar.lost:.2f}" if bar.after and bar.lost else f" {bar.note}"
        style: Any = {"va": "center", "fontsize": 8, "color": look.GREY}
        style["weight"] = "bold" if bar.drawn else "normal"
        style |= {"textcoords": "offset points", "xytext": (4, 0)}
        text = text.replace("drawn", "← drawn")
        axes.annotate(text.rstrip(), (width, at), **style)
    names = [bar.text for bar in found]
    ticks: dict[str, Any] = {"family": "monospace", "parse_math": False}
    axes.set_yticks(range(len(found)), names, fontsize=8.5, **ticks)
    axes.set_ylim(len(found) - 0.4, -0.6)  # the likeliest on top
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("probability", fontsize=8)


def _look(rule: str) -> dict[str, Any]:
    """Blue for what is kept; for what is removed, the hatch and colour of its rule."""
    if not rule:
        return {"facecolor": look.BLUE, "edgecolor": "white", "linewidth": 0.6}
    return {"facecolor": "white"} | LOOKS[rule]


def _line(
    axes: Axes, logits: Array, tokenizer: Any, sampler: Sampler, name: str
) -> None:
    """All probability from 0 to 1: the kept tokens, then what each filter removed."""
    kept, end = sampler.kept(logits), 0.0
    for token_id, share in zip(kept.token_ids, kept.shares, strict=True):
        if share < THIN:
            break
        _part(axes, end, float(share), "", written(tokenizer, int(token_id)))
        end += float(share)
    mass = float(kept.shares.sum())
    _part(axes, end, mass - end, "", "others")
    words, end = [f"{name}kept {mass:.2f}"], mass
    for gone in reversed(kept.removed):
        if gone.mass > 0:
            _part(axes, end, gone.mass, gone.rule, NAMES[gone.rule])
            words.append(f"removed by {NAMES[gone.rule]} {gone.mass:.2f}")
            end += gone.mass
    axes.set(xlim=(0, 1), ylim=(-0.5, 1.35), xticks=[], yticks=[])
    axes.set_xlabel(", ".join(words), fontsize=8)
    axes.spines[:].set_visible(False)
    if sampler.temperature >= GREEDY_BELOW:
        token = written(tokenizer, drawn(logits, sampler))
        number = f"{thrown(sampler):.2f} of the kept part"
        text = f"seed {sampler.seed}: {number} draws {token}"
        _mark(axes, thrown(sampler) * mass, text)


def _part(axes: Axes, start: float, width: float, rule: str, text: str) -> None:
    """A part of the line, its name inside where there is room."""
    axes.barh(0, width, left=start, height=1, **_look(rule))
    if width < WIDE:
        return
    box = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
    style: Any = {"ha": "center", "va": "center", "fontsize": 8, "parse_math": False}
    axes.text(start + width / 2, 0, text, bbox=box, **style)


def _mark(axes: Axes, at: float, text: str) -> None:
    """A mark above the line, its words on the side that has room."""
    axes.plot([at, at], [-0.5, 0.75], color="black", lw=1.2)
    axes.plot([at], [0.8], marker="v", color="black", ms=6)
    side, shift = ("left", 0.012) if at < 0.6 else ("right", -0.012)
    style: Any = {"va": "center", "fontsize": 8, "parse_math": False}
    axes.text(at + shift, 0.95, text, ha=side, **style)


def still(logits: Array, tokenizer: Any, *samplers: Sampler) -> Image:
    """The picture as a cell shows it, with the words of `told` as alt text."""
    fig = draw(logits, tokenizer, *samplers)
    words = [told(logits, tokenizer, sampler) for sampler in samplers]
    return look.shown(fig, "\n\n".join(words))


def explorer(
    logits: Array, tokenizer: Any, sampler: Sampler | None = None
) -> widgets.VBox:
    """Sliders for the settings; the picture under them and the words follow.

    They open at those of the sampler; its penalty plays no part.
    """
    opened = Sampler(temperature=1.0) if sampler is None else sampler
    sliders = {
        "temperature": _slider(opened.temperature, 3.0, 0.05),
        "top_k": _slider(opened.top_k, 40),
        "top_p": _slider(opened.top_p, 1.0, 0.01),
        "min_p": _slider(opened.min_p, 1.0, 0.01),
        "seed": _slider(opened.seed, 99),
    }
    words = Words()
    picture = widgets.Image(format="png", width=720)

    def redraw(_: object = None) -> None:
        """The words first: they are there at once, and the picture takes a while."""
        now = Sampler(**{name: slider.value for name, slider in sliders.items()})
        words.value = look.pre("sampling", told(logits, tokenizer, now))
        picture.value = look.png(draw(logits, tokenizer, now))

    for name, slider in sliders.items():
        slider.description = NAMES.get(name, name)
        slider.observe(redraw, "value")
    redraw()
    return widgets.VBox([*sliders.values(), picture, words])


def _slider(value: float, largest: float, step: float = 1) -> Any:
    """A slider from 0 to `largest`, or further where the value lies beyond."""
    kind = widgets.IntSlider if step == 1 else widgets.FloatSlider
    slider = kind(value=value, min=0, max=max(value, largest), step=step)
    slider.continuous_update = False
    slider.style.description_width = "7.5em"
    return slider
