"""The keywords that speak about arrays and objects, as sets of values.

Public: arrays, objects, names, dependent_required, dependent_schemas, Places.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from tinyllm.grammar.jsonschema import values
from tinyllm.grammar.jsonschema.checks import Schema, bounds, found_pattern, keys, texts
from tinyllm.grammar.jsonschema.containers import (
    EVERY,
    NEVER,
    Arrays,
    Both,
    Objects,
    Side,
    both,
)
from tinyllm.grammar.jsonschema.document import RefusedError, inner
from tinyllm.grammar.jsonschema.values import ALL, Values

ARRAY_KEYWORDS = ("prefixItems", "items", "minItems", "maxItems", "unevaluatedItems")
OBJECT_KEYWORDS = {"properties", "patternProperties", "additionalProperties"}
OBJECT_KEYWORDS |= {"unevaluatedProperties", "required"}
OBJECT_KEYWORDS |= {"minProperties", "maxProperties"}
_IN_PLACE = {"$ref", "allOf", "anyOf", "oneOf", "not", "if", "dependentSchemas"}
_IN_PLACE |= {"$dynamicRef", "contains"}


class Places(Protocol):
    """What a keyword asks of the reader of the whole schema."""

    def child(self, *names: str | int) -> Both:
        """The conjunction of the place below a place."""

    def read(self, path: str) -> Values:
        """The values that the schema at a place allows."""


def arrays(reader: Places, path: str, schema: Schema) -> Values:
    """prefixItems, items, minItems, maxItems, and unevaluatedItems beside them."""
    _beside(path, schema, "unevaluatedItems")
    prefix = schema.get("prefixItems", [])
    if not isinstance(prefix, list):
        raise RefusedError(path, "prefixItems", "must be a list of schemas")
    if isinstance(schema.get("items"), list):
        raise RefusedError(path, "items", "must be one schema: write prefixItems")
    places = tuple(reader.child(path, "prefixItems", i) for i in range(len(prefix)))
    word = next((k for k in ("items", "unevaluatedItems") if k in schema), None)
    rest = reader.child(path, word) if word else EVERY
    least, most = bounds(path, schema, "minItems", "maxItems")
    met = Arrays(places, rest).meet(Arrays(least=least, most=most))
    return replace(ALL, arrays=met)


def objects(reader: Places, path: str, schema: Schema) -> Values:
    """properties, required, additional and pattern properties, and counts."""
    _beside(path, schema, "unevaluatedProperties")
    names = list(keys(path, schema, "properties"))
    patterns = list(keys(path, schema, "patternProperties"))
    tests = tuple(
        (
            (found_pattern(path, pattern, "patternProperties"),),
            reader.child(path, "patternProperties", pattern),
        )
        for pattern in patterns
    )
    words = ("additionalProperties", "unevaluatedProperties")
    word = next((keyword for keyword in words if keyword in schema), None)
    side = Side(tests, reader.child(path, word) if word else EVERY)
    sides = () if side == Side() else (side,)
    open_side = replace(side, additional=EVERY)
    declared = tuple((k, reader.child(path, "properties", k)) for k in names)
    least, most = bounds(path, schema, "minProperties", "maxProperties")
    required = texts(path, schema.get("required", []), "required")
    # A pattern speaks about declared keys too; additionalProperties does not.
    patterned = Objects(sides=(open_side,) if tests else ())
    own = tuple((k, both(v, patterned.of(k))) for k, v in declared)
    met = Objects(own, (), sides).meet(Objects((), required, (), least, most))
    return replace(ALL, objects=met)


def names(reader: Places, path: str, schema: Schema) -> Values:
    """propertyNames: a key that its schema does not allow must be absent."""
    strings = reader.read(inner(path, "propertyNames")).strings
    side = Side(((strings, EVERY),), NEVER)
    return replace(ALL, objects=(Objects(sides=(side,)),))


def dependent_required(reader: Places, path: str, schema: Schema) -> Values:
    """dependentRequired: either a key is absent, or others are present too."""
    found = ALL
    for key in keys(path, schema, "dependentRequired"):
        others = schema["dependentRequired"][key]
        needed = texts(path, others, "dependentRequired")
        present = Objects(required=(key, *needed))
        found = values.meet(found, _either(key, replace(ALL, objects=(present,))))
    return found


def dependent_schemas(reader: Places, path: str, schema: Schema) -> Values:
    """dependentSchemas: either a key is absent, or a schema is fulfilled too."""
    found = ALL
    for key in keys(path, schema, "dependentSchemas"):
        then = reader.read(inner(path, "dependentSchemas", key))
        present = replace(ALL, objects=(Objects(((key, EVERY),), (key,)),))
        # Its own order of keys, if it declares this one; else this key comes first.
        declares = any(key in dict(held.properties) for held in then.objects)
        pair = (then, present) if declares else (present, then)
        found = values.meet(found, _either(key, values.meet(*pair)))
    return found


def _either(key: str, otherwise: Values) -> Values:
    """The values without a key, or with it and in another set; ALL but objects."""
    absent = Objects(properties=((key, NEVER),))
    objects = values.join([replace(ALL, objects=(absent,)), otherwise]).objects
    return replace(ALL, objects=objects)


def _beside(path: str, schema: Schema, keyword: str) -> None:
    """Refuse unevaluated… beside what evaluates in other schemas."""
    beside = sorted(_IN_PLACE & set(schema))
    if keyword in schema and schema[keyword] is not True and beside:
        raise RefusedError(
            path, keyword, f"cannot be enforced beside {', '.join(beside)}"
        )
