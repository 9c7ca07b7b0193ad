"""`tinyllm generate`: continue a text, printed as it is made."""

from __future__ import annotations

import argparse
import json
from typing import Any

from tinyllm.cli.options import (
    load_model,
    read_text,
    sampling_options,
    shown_json,
    whole,
)


def generate_options(option: Any) -> None:
    """Declare the options of `tinyllm generate`."""
    about = "the text to continue (-: standard input, as when it is left out)"
    option("prompt", nargs="?", default="-", help=about)
    option("--max-new-tokens", type=whole, default=100, help="at most so many (100)")
    option("--top-k", type=whole, default=0, help="keep the k likeliest (0: all)")
    option("--top-p", type=float, default=1.0, help="keep this much probability (1)")
    option(
        "--min-p", type=float, default=0.0, help="drop what is below this x the best"
    )
    about = "above 1: what was said lately is less likely (1)"
    option("--repetition-penalty", type=float, default=1.0, help=about)
    option("--stop", action="append", default=[], help="end before this text")
    sampling_options(option)


def run_generate(args: argparse.Namespace) -> int:
    """Continue a text, printed as it is made."""
    from tinyllm.decode.generate import stream

    prompt, lm = read_text(args.prompt, "prompt"), load_model(args)
    names = "max_new_tokens temperature top_k top_p min_p repetition_penalty seed stop"
    options = {name: getattr(args, name) for name in names.split()}
    if args.json:
        made = lm.generate(prompt, **options)
        shown = {"text": made.text, "token_ids": list(made.token_ids)}
        shown |= {"stop_reason": made.stop_reason}
        print(shown_json(json.dumps(shown, ensure_ascii=False)))
        return 0
    pieces = stream(lm, prompt, **options)
    first = next(pieces, "")  # before anything is printed, all options are checked
    print(prompt + first, end="", flush=True)
    for piece in pieces:
        print(piece, end="", flush=True)
    print()
    return 0
