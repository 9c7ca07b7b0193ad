"""Options that several commands have: numbers, and how a model samples."""

from __future__ import annotations

import json
import sys
from typing import Any


def sampling_options(option: Any) -> None:
    """Declare which model is meant and how its tokens are chosen."""
    option("--model", default="agent", help="name or path (agent, the one inside)")
    option("--tokenizer", help="tokenizer.bin of a llama2.c model (the one beside it)")
    option(
        "--temperature", type=float, default=0.0, help="0 takes the likeliest token (0)"
    )
    option("--seed", type=whole, default=0, help="chooses the dice of temperature (0)")
    option("--json", action="store_true", help="print JSON for programs")


def whole(text: str, least: int = 0) -> int:
    """A whole number of `least` or more; ValueError tells argparse to complain."""
    if (number := int(text)) < least:
        raise ValueError
    return number


def positive(text: str) -> int:
    """A whole number of 1 or more; ValueError tells argparse to complain."""
    return whole(text, 1)


def shown_json(text: str) -> str:
    """JSON text, in ASCII where standard output cannot show all of it."""
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
        return text
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), indent=2 if "\n" in text else None)
