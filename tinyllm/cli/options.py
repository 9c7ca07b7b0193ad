"""Options that several commands have: numbers, and how a model samples."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from tinyllm.errors import UsageError

if TYPE_CHECKING:
    from tinyllm.numpy_engine import NumpyEngine


def sampling_options(option: Any) -> None:
    """Declare which model is meant and how its tokens are chosen."""
    option("--model", default="agent", help="name or path (agent, the one inside)")
    option("--tokenizer", help="tokenizer.bin of a llama2.c model (the one beside it)")
    option(
        "--temperature", type=float, default=0.0, help="0 takes the likeliest token (0)"
    )
    option("--fast", action="store_true", help="fast mode: long prompts take less time")
    about = "use the first N positions of the context only (all)"
    option("--context", type=positive, metavar="N", help=about)
    option("--seed", type=whole, default=0, help="seed of random draws (0)")
    option("--json", action="store_true", help="print JSON for programs")


def load_model(args: argparse.Namespace) -> NumpyEngine:
    """Return the engine that --model, --tokenizer, --fast and --context name."""
    import tinyllm

    return tinyllm.load(args.model, not args.fast, args.tokenizer, args.context)


def read_text(given: str, what: str) -> str:
    """Return the text that was given, or standard input without its line break for -.

    UsageError where standard input is a terminal: nobody said what is meant.
    """
    if given != "-":
        return given
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError(f"give the {what}, or send it by a pipe: echo … | tinyllm …")
    return sys.stdin.read().removesuffix("\n").removesuffix("\r")


def whole(text: str, least: int = 0) -> int:
    """Return a whole number from `least`; ValueError makes argparse complain."""
    if (number := int(text)) < least:
        raise ValueError
    return number


def positive(text: str) -> int:
    """Return a whole number of 1 or more; ValueError tells argparse to complain."""
    return whole(text, 1)


def shown_json(text: str) -> str:
    """JSON text, in ASCII where standard output cannot show all of it."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        return text
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=2 if "\n" in text else None)
