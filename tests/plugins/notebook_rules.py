"""What must be true of a stored notebook, as sentences about those where it is not."""

from __future__ import annotations

import ast
import json
import re

SHOWN = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.BinOp, ast.Compare,
         ast.List, ast.Tuple, ast.Dict, ast.JoinedStr)  # fmt: skip
FORBIDDEN = {
    "an absolute path": r"(?<![\w.:/<])/(home|root|Users|tmp|work|usr|opt|var)/\w"
    r"|[A-Z]:\\\\?Users",
    "a memory address": r"\b0x[0-9a-f]{6,16}\b",
    "a timing": r"\b\d+(\.\d+)? ?(ms|µs|us|ns|seconds|it/s|tokens/s)\b|\bper loop\b",
    "a float with more than 8 decimals": r"\d\.\d{9,}",
}


def code_cells(nb):
    """The code cells that hold code."""
    return [c for c in nb.cells if c.cell_type == "code" and c.source.strip()]


def text_of(output):
    """All that an output shows as text, escapes of colours removed."""
    data = output.get("data", {})
    parts = [output.get("text", "")]
    parts += [v if isinstance(v, str) else json.dumps(v) for k, v in data.items()
              if not k.startswith("image/")]  # fmt: skip
    return re.sub(r"\x1b\[[0-9;]*m", "", "".join(parts))


def shows_something(source):
    """Whether a cell surely prints or ends in a value: then it must have outputs."""
    lines = [line for line in source.splitlines() if not line.lstrip().startswith("%")]
    try:
        body = ast.parse("\n".join(lines)).body
    except SyntaxError:
        return False
    calls = [s.value for s in body
             if isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)]  # fmt: skip
    if any(isinstance(c.func, ast.Name) and c.func.id == "print" for c in calls):
        return True
    last = body[-1].value if body and isinstance(body[-1], ast.Expr) else None
    return isinstance(last, SHOWN) and not source.rstrip().endswith(";")


def order_faults(nb):
    """Cells that were not run, or not from top to bottom in a fresh kernel."""
    counts = [cell.execution_count for cell in code_cells(nb)]
    if counts != [*range(1, len(counts) + 1)]:
        return [f"cells were not run in order 1..{len(counts)}: {counts}"]
    return []


def output_faults(nb):
    """Missing, forbidden and accidental outputs."""
    faults = []
    for n, cell in enumerate(code_cells(nb), 1):
        if shows_something(cell.source) and not cell.outputs:
            faults.append(f"cell {n} shows something but has no output")
        for output in cell.outputs:
            if output.get("name") == "stderr":
                faults.append(f"cell {n} wrote to stderr: {output.text[:60]!r}")
            for what, pattern in FORBIDDEN.items():
                if found := re.search(pattern, text_of(output)):
                    faults.append(f"cell {n} shows {what}: {found.group()!r}")
    return faults


def has_picture(cell):
    """Whether a cell draws."""
    return any(k.startswith("image/") for o in cell.outputs for k in o.get("data", {}))


def has_words(cell):
    """Whether a cell prints, or shows a value other than <Figure …>."""
    texts = [text_of(o).strip() for o in cell.outputs]
    return any(text and not re.fullmatch(r"<[^<>]*>", text) for text in texts)


def picture_faults(nb):
    """Pictures without words: neither the cell nor the next one says the same."""
    cells = code_cells(nb)
    return [
        f"cell {n} draws a picture; neither it nor the next cell prints what it shows"
        for n, cell in enumerate(cells, 1)
        if has_picture(cell) and not any(map(has_words, cells[n - 1 : n + 1]))
    ]


def metadata_faults(nb):
    """What a front end leaves behind and `make notebooks` takes away."""
    faults = []
    if "version" in nb.metadata.get("language_info", {}):
        faults.append("language_info.version is stored")
    if "widgets" in nb.metadata:
        faults.append("widget state is stored")
    for n, cell in enumerate(nb.cells, 1):
        if "execution" in cell.metadata:
            faults.append(f"cell {n} of all stores when it was run")
        for output in cell.get("outputs", []):
            if "application/vnd.jupyter.widget-view+json" in output.get("data", {}):
                faults.append(f"cell {n} of all stores a widget's random id")
    return faults


def all_faults(nb):
    """Every fault of a notebook; an empty list is what is wanted."""
    rules = (order_faults, output_faults, picture_faults, metadata_faults)
    return [fault for rule in rules for fault in rule(nb)]
