"""One look for all pictures: fixed sizes, colours for every eye, PNG with alt text.

`figure(width, height)` makes an empty figure, `png(figure)` its bytes, and
`shown(figure, alt)` what a notebook cell displays. The same values give the same bytes.
`pre(name, text)` is the text that stands beside it in a widget.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from html import escape
from typing import Any

from IPython.display import Image
from matplotlib import rc_context
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by readers with any kind of colour blindness.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
}
DPI = 100


def styled() -> AbstractContextManager[None]:
    """The look of the course, for as long as a figure is being drawn."""
    return rc_context(STYLE)


def figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, bound to no window."""
    return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def png(fig: Figure) -> bytes:
    """The figure as PNG, without a trace of the program or the time."""
    buffer = io.BytesIO()
    with styled():
        fig.savefig(buffer, format="png", dpi=DPI, metadata={"Software": None})
    return buffer.getvalue()


def shown(fig: Figure, alt: str) -> Image:
    """The figure as the value of a cell; `alt` says the same in words."""
    return Image(data=png(fig), format="png", alt=alt)  # type: ignore[no-untyped-call]


def pre(name: str, text: str) -> str:
    """The text as HTML, escaped, its lines as they are, under the class tinyllm-name.

    >>> pre("mask", "a < b")
    "<pre class='tinyllm-mask'>a &lt; b</pre>"
    """
    return f"<pre class='tinyllm-{name}'>{escape(text)}</pre>"
