"""Options that several commands have: numbers, and how a model samples."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tinyllm.errors import UsageError

if TYPE_CHECKING:
    from tinyllm.numpy_engine import NumpyEngine


def model_options(option: Any) -> None:
    """Declare which model is meant, how it computes, and JSON as a form of output."""
    option("--model", default="agent", help="name or path (agent, the one inside)")
    option("--tokenizer", help="tokenizer.bin of a llama2.c model (the one beside it)")
    about = "fast mode: long prompts take less time, equal up to rounding"
    option("--fast", action="store_true", help=about)
    about = "use the first N positions of the context only (all)"
    option("--context", type=positive, metavar="N", help=about)
    option("--json", action="store_true", help="print JSON for programs")


def sampling_options(option: Any) -> None:
    """Declare the model, and how its tokens are chosen."""
    model_options(option)
    about = "0 takes the likeliest token (0)"
    option("--temperature", type=float, default=0.0, help=about)
    option("--seed", type=whole, default=0, help="seed of random draws (0)")


def load_model(args: argparse.Namespace) -> NumpyEngine:
    """Return the engine that --model, --tokenizer, --fast and --context name."""
    import tinyllm

    return tinyllm.load(args.model, not args.fast, args.tokenizer, args.context)


def read_text(given: str, what: str) -> str:
    """Return the text that was given, or standard input without its line break for -.

    UsageError where standard input is a terminal, so that nothing was given, or is not
    text in the encoding of the terminal.
    """
    if given != "-":
        return given
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(f"give the {what}, or send it by a pipe: echo … | tinyllm …")
    try:
        text = sys.stdin.read()
        text.encode()  # some locales let bytes through as halves of surrogate pairs
    except UnicodeError:
        raise UsageError(
            f"the {what} on standard input is not {sys.stdin.encoding}: convert it"
        ) from None
    return text.removesuffix("\n").removesuffix("\r")


def whole(text: str, least: int = 0) -> int:
    """Return a whole number from `least`; ValueError makes argparse complain."""
    if (number := int(text)) < least:
        raise ValueError
    return number


def positive(text: str) -> int:
    """Return a whole number of 1 or more; ValueError tells argparse to complain."""
    return whole(text, 1)


def shown_json(text: str) -> str:
    """Return JSON text, in ASCII where standard output cannot show all of it."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        return text
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=2 if "\n" in text else None)
