"""Which tokens are legal: a JSON Schema or a regular expression becomes a mask.

Public: compile, TokenGrammar. In reading order: expression and utf8 (the tree), regex,
json_text and schema (what becomes a tree), automaton (tree to states), vocabulary (all
tokens of a state at once), completion (the shortest way to the end), mask (the whole).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyllm.grammar import regex, schema
from tinyllm.grammar.mask import TokenGrammar
from tinyllm.grammar.vocabulary import Tokenizer, Vocabulary

__all__ = ["TokenGrammar", "compile"]


def compile(source: Mapping[str, Any] | str, tokenizer: Tokenizer) -> TokenGrammar:
    """The grammar of a JSON Schema (dict) or a regular expression (str) over tokens.

    compile("[0-9]+", lm.tokenizer) allows one or more digits. GrammarError names what
    cannot be enforced, what grew too large or the byte that cannot be spelled.
    """
    parse = regex.parse if isinstance(source, str) else schema.parse
    return TokenGrammar(parse(source), Vocabulary(tokenizer))  # type: ignore[arg-type]
