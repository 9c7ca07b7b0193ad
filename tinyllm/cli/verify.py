"""`tinyllm verify kv | cache`: does it still hold, on this machine and this model?"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any

from tinyllm.cli.options import load_model, model_options
from tinyllm.errors import UsageError
from tinyllm.progress import Progress

if TYPE_CHECKING:
    from tinyllm.numpy_engine import NumpyEngine

PROMPT = (
    "Once upon a time, there was a little girl named Lily. She had 4871 blue kites and "
    "209 red ones."
)


def run_verify(args: argparse.Namespace) -> int:
    """Prove the cache on one model: logits (kv) or the agent's transcripts (cache)."""
    run = {"kv": _kv, "cache": _cache}[args.what]
    passed, report, shown = run(lambda: load_model(args), args.prompt)
    print(json.dumps(report, indent=2) if args.json else shown)
    return 0 if passed else 1


def verify_options(option: Any) -> None:
    """Declare the options of `tinyllm verify`."""
    about = (
        "kv: split, rewound and one-pass logits are equal, and injected bugs are "
        "noticed; cache: warm, interleaved and cold runs write the same"
    )
    option("what", choices=("kv", "cache"), help=about)
    about = "the prompt of kv, or a task of cache, which may be repeated"
    option("--prompt", action="append", default=[], help=about)
    model_options(option)


Report = tuple[bool, dict[str, Any], str]


def _kv(load: Callable[[], NumpyEngine], texts: list[str]) -> Report:
    from tinyllm.text.stream import after_bos
    from tinyllm.verify.equivalence import SURVIVAL, blind_spots, verify_kv

    if len(texts) > 1:
        raise UsageError(f"kv takes one --prompt, not {len(texts)}")
    lm = load()
    ids = after_bos(lm.tokenizer, lm.tokenize(texts[0] if texts else PROMPT))
    with Progress(2 * len(ids) - 1, "verify kv", "cases") as progress:
        checks = verify_kv(lm, ids, _counting(progress))
    late, same = blind_spots(lm, ids)
    passed = all(check.passed for check in checks)
    lines = [
        f"{lm!r}, a prompt of {len(ids)} tokens: logits compared",
        *map(str, checks),
        "what such a check cannot see:",
        f"      every position one late: logits differ by {late:.1e} only",
        f"      decode one position late: greedy text the same for {same} tokens"
        + " or more" * (same == SURVIVAL),
        "PASS" if passed else "FAIL",
    ]
    report = {
        "engine": repr(lm),
        "prompt_tokens": len(ids),
        "checks": [_plain(asdict(check)) for check in checks],
        "all_late_difference": late,
        "greedy_tokens_the_same": same,
        "passed": passed,
    }
    return passed, report, "\n".join(lines)


def _plain(check: dict[str, Any]) -> dict[str, Any]:
    """Return a check that JSON can express: it has no infinity."""
    finite = check["difference"] < float("inf")
    return check if finite else check | {"difference": None}


def _cache(load: Callable[[], NumpyEngine], texts: list[str]) -> Report:
    from tinyllm.agent.tools import default
    from tinyllm.verify.warm_cold import TASKS, n_runs, summary, verify_cache

    tasks = list(dict.fromkeys(texts)) or list(TASKS)
    with Progress(n_runs(tasks), "verify cache", "runs") as progress:
        verdicts = verify_cache(load, default(), tasks, on_run=_counting(progress))
    lm = load()
    lines = [f"{lm!r}: does the agent write what it writes in a cold run?"]
    for verdict in verdicts:
        words = [f"{way} {'yes' if ok else 'NO'}" for way, ok in verdict.same.items()]
        lines += [f"{verdict.task}  ({verdict.arm})", f"    {', '.join(words)}"]
        for way, run in verdict.runs.items():
            if run.token_ids != verdict.cold.token_ids:
                lines += _both(lm, verdict.cold.token_ids, way, run.token_ids)
    diverged = sum(not verdict.passed for verdict in verdicts)
    report = {
        "engine": repr(lm),
        "ways": list(verdicts[0].same),
        "prompts": [
            {"task": verdict.task, "arm": verdict.arm, "same": verdict.same}
            for verdict in verdicts
        ],
        "diverged": diverged,
        "passed": not diverged,
    }
    return not diverged, report, "\n".join([*lines, summary(verdicts)])


def _both(
    lm: NumpyEngine, cold: tuple[int, ...], way: str, ids: tuple[int, ...]
) -> list[str]:
    """Return two transcripts that differ, each under its name."""
    return [
        line
        for name, found in (("cold", cold), (way, ids))
        for line in (f"  {name}:", *lm.detokenize(found).splitlines())
    ]


def _counting(progress: Progress) -> Callable[[], object]:
    """Return a function to call after each case: it moves the progress on by one."""
    done = count(1)
    progress.update(0)
    return lambda: progress.update(next(done))
