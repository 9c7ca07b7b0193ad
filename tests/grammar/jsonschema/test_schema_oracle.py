"""jsonschema as judge: random schemas, random instances, and random walks of the masks.

Whatever the grammar accepts must be valid; whatever a walk over legal tokens writes
must parse and be valid.
"""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.toy_tokenizer import byte_level
from tinyllm import grammar
from tinyllm.decode.generate import choose_tokens
from tinyllm.errors import GrammarError
from tinyllm.grammar.jsonschema.read import parse
from tinyllm.grammar.pushdown import Pushdown

VOCABULARY = grammar.Vocabulary(
    byte_level(b'{"', b'":', b'"}', b"}}", b"]]", b'","', b"],", b"12", b'":"', b"ab")
)
TYPES = ["string", "integer", "number", "null", "boolean", "array", "object"]
KEYS = st.sampled_from("abcd")
SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 2, -3, 1.5, 7, 10, "", "a", "ab", "bb", "é"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from("abcde"), inner, max_size=3)
    ),
    max_leaves=6,
)
PATTERNS = st.sampled_from(["^a", "b$", "a|^b", "^[ab]*$", "^$", "é", "(^a|b)b"])
SMALL = st.integers(0, 2)


def keywords(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Schemas of some keywords, whose parts are drawn from `inner`."""
    lists = st.lists(inner, min_size=1, max_size=2)
    by_key = st.dictionaries(KEYS, inner, min_size=1, max_size=3)
    bound = st.sampled_from([0, 1, 2, -3, 1.5, 7])
    choices: dict[str, st.SearchStrategy[Any]] = {
        "type": st.sampled_from(TYPES)
        | st.lists(st.sampled_from(TYPES), min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=4),
        "const": VALUES,
        "minimum": bound,
        "exclusiveMaximum": bound,
        "multipleOf": st.sampled_from([1, 2, 3]),
        "minLength": SMALL,
        "maxLength": SMALL,
        "pattern": PATTERNS,
        "prefixItems": lists,
        "items": inner,
        "minItems": SMALL,
        "maxItems": SMALL,
        "properties": by_key,
        "required": st.lists(KEYS, min_size=1, max_size=2, unique=True),
        "additionalProperties": inner,
        "patternProperties": st.dictionaries(PATTERNS, inner, min_size=1, max_size=1),
        "maxProperties": SMALL,
        "allOf": lists,
        "anyOf": lists,
        "oneOf": lists,
        "not": inner,
        "if": inner,
        "then": inner,
        "$ref": st.sampled_from(["#/$defs/x", "#"]),
        "dependentRequired": st.dictionaries(
            KEYS, st.lists(KEYS, max_size=1), max_size=1
        ),
    }
    return st.lists(
        st.sampled_from(sorted(choices)), min_size=1, max_size=4, unique=True
    ).flatmap(lambda names: st.fixed_dictionaries({n: choices[n] for n in names}))


PLAIN = st.booleans() | st.sampled_from(TYPES).map(lambda name: {"type": name})
SCHEMAS = st.builds(
    lambda schema, x: schema | {"$defs": {"x": x}},
    keywords(st.recursive(PLAIN, keywords, max_leaves=4)),
    PLAIN,
)


def machine_of(schema: Any) -> Pushdown:
    """The machine of a schema; the example is dropped where it is refused."""
    try:
        return Pushdown(parse(schema), range(256), range(256))
    except GrammarError:
        assume(False)
        raise


def is_valid(schema: Any, value: Any) -> bool:
    """What jsonschema says; a schema that refers to itself at once is dropped."""
    try:
        return bool(Draft202012Validator(schema).is_valid(value))
    except RecursionError:
        assume(False)
        raise


# many random schemas are refused, and then the example is dropped
MANY_DROPPED = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@settings(max_examples=150, deadline=None, suppress_health_check=MANY_DROPPED)
@given(SCHEMAS, st.lists(VALUES, min_size=5, max_size=10))
def test_no_invalid_instance_of_a_random_schema_is_accepted(
    schema: Any, values: list[Any]
) -> None:
    machine = machine_of(schema)
    for value in values:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if machine.accepts(text.encode()):
            assert is_valid(schema, value), text


class Dice:
    """An engine and its session: its logits are random, it wants nothing."""

    tokenizer = SimpleNamespace(eos_ids=frozenset(VOCABULARY.eos_ids))

    def __init__(self, seed: int, n_free: int) -> None:
        self.random, self.n_free, self.length = random.Random(seed), n_free, 0

    def last(self, n: int) -> list[int]:
        return []

    def logits(self) -> Any:
        drawn = [self.random.random() for _ in range(VOCABULARY.size)]
        return np.array(drawn, np.float32)

    def decode(self, session: Any, token_id: int) -> Any:
        self.length += 1
        self.n_free -= 1
        return self.logits()


class First:
    """A sampler that takes the largest logit."""

    looks_back = 0

    def pick(self, logits: Any, before: Any = ()) -> int:
        return int(logits.argmax())


@settings(max_examples=100, deadline=None, suppress_health_check=MANY_DROPPED)
@given(SCHEMAS, st.integers(0, 1000), st.integers(0, 40))
def test_what_random_choices_under_the_mask_write_is_valid_within_any_budget(
    schema: Any, seed: int, budget: int
) -> None:
    try:
        made = grammar.compile(schema, VOCABULARY)
        lm: Any = Dice(seed, 500)
        sampler: Any = First()
        choices = choose_tokens(lm, lm, lm.logits(), sampler, budget, made)
        ids = [choice.token_id for choice in choices]
    except GrammarError:  # refused, without any text, or longer than the budget
        assume(False)
        raise
    data = b"".join(VOCABULARY.token_bytes[i] for i in ids)
    assert len(ids) <= budget
    assert is_valid(schema, json.loads(data)), data
