"""Write docs/READING.md and docs/PICO.md from the package itself.

    python tools/docs.py            write both
    python tools/docs.py --check    exit with 1 if one of them is out of step

READING.md follows the "Next: …" with which each module of the course ends its
docstring. PICO.md has a row for each function of pico.py: the chapter that builds it,
its line, and the function of the package that does the same, which is imported, so that
the table cannot name what is not there.
"""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
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
PICO = """\
# pico.py, line by line

Each row is a function of [`tinyllm/pico.py`](../tinyllm/pico.py), the chapter that
builds it, and the function of the package that does the same.
`.venv/bin/python tools/docs.py` makes
this table, and a test keeps it in step.

| chapter | pico.py | line | the package |
|---|---|---|---|
"""
READING = """\
# Reading the package

Read [`pico.py`](../tinyllm/pico.py) first: it is the whole idea in one file. Then read
the files below in this order. Each one ends its header with the names of the file
before it and the file after it. [PICO.md](PICO.md) says which of them does what a
function of `pico.py` does.

Read `errors`, `progress`, `atomic_file` and `strict_json` when you meet them: they
serve both parts of the package. **Skip the rest**, unless you need it: `formats` and
`models` (other people's files, and where models are), `grammar/jsonschema` (any JSON
Schema as a grammar), `server` (a model that a server runs), `evaluate` (held-out tasks
and the ablation), `cli` and `widgets`.
`.venv/bin/python tools/docs.py` makes this list, and a
test keeps it in step.
"""
FOLDERS = {
    "": "What everything asks of a model",
    "text": "Text to token ids and back",
    "model": "Token ids to logits, and the cache",
    "decode": "Logits to the next token",
    "grammar": "Which tokens are legal",
    "agent": "Thought, call, observation",
    "train": "Data to weights",
    "verify": "Does it still hold?",
}


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


def pico() -> str:
    """Return the text of docs/PICO.md."""
    lines = lines_of((ROOT / "tinyllm" / "pico.py").read_text(encoding="utf-8"))
    rows = [
        f"| {chapter} | `{name}` | {lines[name]} | {place(package)} |"
        for chapter, name, package in ROWS
    ]
    return PICO + "\n".join(rows) + "\n"


def docstring(name: str) -> str:
    """Return the docstring of a module, by its dotted name without "tinyllm."."""
    path = ROOT / "tinyllm" / f"{name.replace('.', '/')}.py"
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def neighbours(name: str) -> dict[str, str]:
    """Return what the last line of a module's docstring names Before and Next."""
    last = docstring(name).splitlines()[-1]
    return dict(re.findall(r"(Before|Next): ([\w.]+)\.(?: |$)", last))


def order() -> list[str]:
    """Return the modules of the course in reading order: each leads to the next."""
    found = ["pico"]
    while (after := neighbours(found[-1]).get("Next")) and after not in found:
        found.append(after)
    return found


def reading() -> str:
    """Return the text of docs/READING.md."""
    lines, folder = [READING], None
    for number, name in enumerate(order()[1:], 1):
        if (here := name.split(".")[0] if "." in name else "") != folder:
            folder = here
            lines.append(f"\n## {FOLDERS[folder]}{f' (`{folder}/`)' * bool(folder)}\n")
        about = " ".join(docstring(name).split("\n\n")[0].split())
        path = f"../tinyllm/{name.replace('.', '/')}.py"
        lines.append(f"{number}. [`{name}`]({path}) – {about}")
    return "\n".join(lines).replace("\n\n\n", "\n\n") + "\n"


def main(arguments: list[str]) -> int:
    """Write both files, or check them; return the exit code."""
    code = 0
    for name, text in {"READING.md": reading(), "PICO.md": pico()}.items():
        path = ROOT / "docs" / name
        if arguments != ["--check"]:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            print(f"docs/{name} is out of step: run python tools/docs.py")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
