"""Count the lines of code of the package, folder by folder, and hold it to its budget.

    python tools/budget.py          the table, and what is over the budget
    python tools/budget.py --all    every module

A line of code is a line with anything on it but a comment or a docstring. Word lists
and phrasings (train/data) are data. tests/project/test_house.py uses the same count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "tinyllm"
COMMON = ("errors", "atomic_file", "strict_json", "progress", "version")
COURSE = ("engine", "numpy_engine", "toy", "pico", *COMMON)
COURSE_FOLDERS = ("text", "model", "decode", "grammar", "agent", "train", "verify")
OUTSIDE = ("formats", "models", "server", "evaluate", "cli", "widgets")
PARTS = {"course": 6500, "outside world": 7500, "exercises": 3000}
MODULE, FUNCTION = 250, 40  # lines of code
DULL = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def part_of(name: str) -> str:
    """Return the part of the package to which a dotted module name belongs.

    >>> part_of("grammar.mask"), part_of("grammar.jsonschema.read"), part_of("errors")
    ('course', 'outside world', 'course')
    """
    first, *rest = name.split(".")
    if first == "exercises":
        return "exercises"
    if first in COURSE or (
        first in COURSE_FOLDERS and rest[:1] not in (["jsonschema"], ["data"])
    ):
        return "course"
    return "data" if rest[:1] == ["data"] else "outside world"


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in DULL:
            lines.update(range(token.start[0], token.end[0] + 1))
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, documented) and ast.get_docstring(node) is not None:
            text = node.body[0]
            lines -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return lines


def modules() -> dict[str, Path]:
    """Return the path of each module by its dotted name without "tinyllm."."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def long_functions(source: str) -> dict[str, int]:
    """Return the functions with more than FUNCTION lines of code, and how many."""
    lines, found = code_lines(source), {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = range(node.lineno, (node.end_lineno or node.lineno) + 1)
            n = sum(line in lines for line in inside)
            if n > FUNCTION:
                found[node.name] = n
    return found


def over_budget() -> list[str]:
    """Return a sentence for each part, module and function that is too long."""
    totals: dict[str, int] = defaultdict(int)
    faults = []
    for name, path in modules().items():
        source = path.read_text(encoding="utf-8")
        n = len(code_lines(source))
        totals[part_of(name)] += n
        if n > MODULE and part_of(name) != "data":
            faults.append(f"{name} has {n} lines of code, at most {MODULE}")
        for function, size in long_functions(source).items():
            faults.append(f"{name}.{function} has {size} lines, at most {FUNCTION}")
    for part, limit in PARTS.items():
        if totals[part] > limit:
            faults.append(f"the {part} has {totals[part]:,} lines, at most {limit:,}")
    return faults


def table(every: bool = False) -> str:
    """Return the lines and modules of each part and folder, or of every module."""
    rows: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, path in modules().items():
        folder = name if every else name.rpartition(".")[0]
        if path.name == "__init__.py" and not every:
            folder = name
        n = len(code_lines(path.read_text(encoding="utf-8")))
        rows[part_of(name), folder or "(top)"].append(n)
    lines = []
    for part in sorted({part for part, _ in rows}):
        sizes = [n for (p, _), row in rows.items() if p == part for n in row]
        limit = f" of {PARTS[part]:,}" if part in PARTS else ""
        lines.append(f"{part:24} {len(sizes):4} modules {sum(sizes):6,} lines{limit}")
        for (p, folder), row in sorted(rows.items()):
            if p == part:
                lines.append(f"  {folder:22} {len(row):4}         {sum(row):6,}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print the table and what is over the budget; return the exit code."""
    print(table(every=arguments == ["--all"]))
    faults = over_budget()
    print(*faults, sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
