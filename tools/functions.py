"""Write docs/PICO.md: a function of a chapter, its line in pico.py, the package's own.

    python tools/functions.py            write the table
    python tools/functions.py --check    exit with 1 if it is out of step

Lines are read from pico.py's syntax tree, and each name of the package is imported, so
the table cannot name what is not there.
"""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "docs" / "PICO.md"
# chapter, function of pico.py, function of the package ("" where it has no such piece)
ROWS = [
    ("01", "encode", "tinyllm.text.bpe:BPE.encode"),
    ("01", "decode", "tinyllm.text.vocabulary:Vocabulary.decode"),
    ("02", "rms_norm", "tinyllm.model.layers:rms_norm"),
    ("02", "rope", "tinyllm.model.layers:rope"),
    ("02", "softmax", "tinyllm.decode.sampling:softmax"),
    ("02", "attention", "tinyllm.model.layers:attention"),
    ("02", "swiglu", "tinyllm.model.layers:swiglu"),
    ("02", "layer", "tinyllm.model.transformer:Layer"),
    ("02", "forward", "tinyllm.model.transformer:Model.forward"),
    ("03", "top_p", "tinyllm.decode.sampling:top_p"),
    ("03", "draw", "tinyllm.decode.sampling:Kept.draw"),
    ("03", "pick", "tinyllm.decode.sampling:Sampler.pick"),
    ("04", "Cache", "tinyllm.model.cache:KVCache"),
    ("04", "rewind", "tinyllm.decode.session:Session.rewind"),
    ("04", "feed", "tinyllm.decode.session:Session.feed"),
    ("05", "derive", "tinyllm.grammar.pushdown:Pushdown.next"),
    ("05", "ends", "tinyllm.grammar.pushdown:Pushdown.may_end"),
    ("05", "call", "tinyllm.grammar.calls:rules_of"),
    ("05", "mask", "tinyllm.grammar.mask:TokenGrammar.mask"),
    ("05", "shortest", "tinyllm.grammar.mask:TokenGrammar.finish"),
    ("06", "calc", "tinyllm.agent.calculator:calc"),
    ("06", "reader", "tinyllm.agent.tools:read_file"),
    ("06", "write", "tinyllm.agent.local:LocalBackend.call"),
    ("06", "run", "tinyllm.agent.loop:Agent.run"),
    ("11", "load", "tinyllm.numpy_engine:load"),
]
HEADER = """\
# pico.py, line by line

Each row is a function of [`tinyllm/pico.py`](../tinyllm/pico.py), the chapter that
builds it, and the function of the package that does the same.
`python tools/functions.py` makes this table, and a test keeps it in step.

| chapter | pico.py | line | the package |
|---|---|---|---|
"""


def lines_of(source: str) -> dict[str, int]:
    """Return the line on which each function and class at the top level begins."""
    kinds = ast.FunctionDef | ast.ClassDef
    body = ast.parse(source).body
    return {node.name: node.lineno for node in body if isinstance(node, kinds)}


def place(name: str) -> str:
    """Return "module.py: name" of what a "module:name" names; it must be there."""
    module_name, _, path = name.partition(":")
    module = importlib.import_module(module_name)
    found: object = module
    for part in path.split("."):
        found = getattr(found, part)
    file = Path(str(module.__file__)).relative_to(ROOT)
    return f"[`{file.relative_to('tinyllm')}`](../{file}) `{path}`"


def table() -> str:
    """Return the text of docs/PICO.md."""
    source = (ROOT / "tinyllm" / "pico.py").read_text(encoding="utf-8")
    lines = lines_of(source)
    rows = [
        f"| {chapter} | `{name}` | {lines[name]} | {place(package)} |"
        for chapter, name, package in ROWS
    ]
    return HEADER + "\n".join(rows) + "\n"


def main(arguments: list[str]) -> int:
    """Write the table, or check it; return the exit code."""
    text = table()
    if arguments == ["--check"]:
        same = TABLE.exists() and TABLE.read_text(encoding="utf-8") == text
        if not same:
            print(f"{TABLE.name} is out of step: run python tools/functions.py")
        return 0 if same else 1
    TABLE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
