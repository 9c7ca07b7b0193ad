"""The command line: agent, generate, evaluate, ablate, verify, train, models.

Exit codes: 0 when it worked, 1 when it did not (the reason is on stderr), 2 for a
command that makes no sense, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from tinyllm.cli.ablate import ablate_options, run_ablate
from tinyllm.cli.agent import agent_options, run_agent
from tinyllm.cli.evaluate import evaluate_options, run_evaluate
from tinyllm.cli.generate import generate_options, run_generate
from tinyllm.cli.models import models_options, run_models
from tinyllm.cli.verify import run_verify, verify_options
from tinyllm.errors import TinyllmError, UsageError
from tinyllm.version import __version__

EXAMPLES = """examples:
  tinyllm agent "What is 4871 * 209?"
  tinyllm agent "Read notes.txt." --root notebooks/data
  tinyllm agent "Read the first file." --root notebooks/data/files --all-tools
  tinyllm agent "What is 4871 * 209?" --no-grammar --json
  tinyllm agent "What is 2 + 2?" --server http://127.0.0.1:8000/v1 --model NAME
  tinyllm generate "Once upon a time" --temperature 0.8 --seed 3
  echo "Once upon a time" | tinyllm generate
  tinyllm evaluate --tasks 50
  tinyllm ablate --tasks 5
  tinyllm verify kv --prompt "Once upon a time"
  tinyllm verify cache --model smollm2
  tinyllm train agent --out my-model
  tinyllm models
  tinyllm generate "The capital of France is" --model smollm2

All of it runs offline on the model inside the package; only `tinyllm models get NAME`
downloads. --model takes a name, a folder with config.json, safetensors and
tokenizer.json, a .gguf file, or a llama2.c .bin beside its tokenizer.bin.
"""


def run_train(args: argparse.Namespace) -> int:
    """Rebuild a model from nothing: tokenizer, corpus, training, files."""
    from tinyllm.train.command import train

    train(args.name, args.out, args.steps)
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the commands and their options."""
    top = argparse.ArgumentParser(
        prog="tinyllm",
        description="A language-model agent built from nothing but numpy.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"tinyllm {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, run: Callable[[argparse.Namespace], int]) -> Any:
        about = (run.__doc__ or "").strip()
        command = commands.add_parser(name, help=about, description=about)
        command.set_defaults(run=run)
        return command.add_argument

    agent_options(add("agent", run_agent))
    generate_options(add("generate", run_generate))
    evaluate_options(add("evaluate", run_evaluate))
    ablate_options(add("ablate", run_ablate))
    verify_options(add("verify", run_verify))
    option = add("train", run_train)
    option("name", choices=("agent", "stories"), help="the recipe to follow")
    option("--out", required=True, help="the folder to write the model to")
    option("--steps", type=int, help="stop after so many steps (the recipe's own)")
    models_options(add("models", run_models))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that cannot show an é
        sys.stdout.reconfigure(errors="replace")
    args = parser().parse_args(argv)
    try:
        code = int(args.run(args))
        if sys.stdout is not None:  # a full disk shows itself here, not at the end
            sys.stdout.flush()
        return code
    except UsageError as error:
        return _complain(error, 2)
    except TinyllmError as error:
        return _complain(error, 1)
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _complain(f"{where}{error.strerror or error}", 1)
    except KeyboardInterrupt:
        return _complain("stopped", 130)


def _complain(error: object, code: int) -> int:
    print(f"tinyllm: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
