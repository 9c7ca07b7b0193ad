"""The required tests of the official JSON Schema suite (draft 2020-12), counted.

Each instance is written compactly, declared keys first. Narrower is a valid instance
that cannot be written: an asserted format, 1.0 for 1, another order of keys.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.read import parse
from tinyllm.grammar.pushdown import Pushdown

IN_PLACE = ("allOf", "anyOf", "oneOf", "if", "then", "else", "not", "dependentSchemas")
SUITE = Path(os.environ.get("TINYLLM_DATA", "")) / "json-schema-test-suite"
RIGHT, NARROWER = 886, 21  # of 1,299; the rest is refused

pytestmark = pytest.mark.skipif(
    not (SUITE / "ref.json").is_file(),
    reason="TINYLLM_DATA names no folder with json-schema-test-suite",
)


def keys_of(schema: Any, root: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Declared keys in the order of the schema, each with the schema of its value."""
    if not isinstance(schema, dict) or depth > 9:
        return
    for keyword, value in schema.items():
        if keyword == "properties":
            yield from value.items()
        elif keyword in ("enum", "const"):
            given = [value] if keyword == "const" else value
            yield from ((key, True) for v in given if isinstance(v, dict) for key in v)
        elif keyword == "$ref" and value.startswith("#/"):
            target = root
            for name in value[2:].split("/"):
                name = name.replace("~1", "/").replace("~0", "~")
                target = target.get(name, {}) if isinstance(target, dict) else {}
            yield from keys_of(target, root, depth + 1)
        elif keyword in IN_PLACE:
            inside = value if isinstance(value, list) else [value]
            inside = value.values() if keyword == "dependentSchemas" else inside
            for option in inside:
                yield from keys_of(option, root, depth + 1)
    yield from ((key, True) for key in schema.get("required", []))
    for key, others in schema.get("dependentRequired", {}).items():
        yield from ((name, True) for name in (key, *others))


def in_order(value: Any, schema: Any, root: Any) -> Any:
    """The value with the keys of its objects in the order of the schema."""
    if isinstance(value, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [in_order(item, items, root) for item in value]
    if not isinstance(value, dict):
        return value
    declared: dict[str, Any] = {}
    for key, inside in keys_of(schema, root):
        declared.setdefault(key, inside)
    order = [key for key in declared if key in value]
    order += [key for key in value if key not in declared]
    return {key: in_order(value[key], declared.get(key), root) for key in order}


def verdicts(path: Path) -> Iterator[tuple[str, str]]:
    """Each test of a file: its name, and right, refused, narrower or wrong."""
    for group in json.loads(path.read_text(encoding="utf-8")):
        schema = group["schema"]
        try:
            machine = Pushdown(parse(schema), range(256), range(256))
        except GrammarError:
            yield from ((test["description"], "refused") for test in group["tests"])
            continue
        for test in group["tests"]:
            value = in_order(test["data"], schema, schema)
            text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            accepted = machine.accepts(text.encode())
            unlike = "wrong" if accepted else "narrower"
            verdict = "right" if accepted is test["valid"] else unlike
            yield f"{path.stem}: {group['description']}: {test['description']}", verdict


def test_no_invalid_instance_is_accepted_and_the_counts_only_get_better() -> None:
    rows = [row for path in sorted(SUITE.glob("*.json")) for row in verdicts(path)]
    assert len(rows) == 1299
    assert [name for name, verdict in rows if verdict == "wrong"] == []
    counts = Counter(verdict for _, verdict in rows)
    assert counts["right"] >= RIGHT
    assert counts["narrower"] <= NARROWER
