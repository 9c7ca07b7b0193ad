"""Which tokens are legal: a JSON Schema or a regular expression becomes a mask.

Public: compile, receipt, TokenGrammar, Vocabulary. In reading order: expression (the
tree), utf8, characters and regex (what becomes a tree), lazy, automaton and regular
(trees without calls), schema/ (JSON Schema to rules), network and controls (rules made
deterministic), pushdown (states with a stack), stacks and vocabulary (all tokens of a
state at once), completion (the shortest way to the end), empty, explain, mask.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tinyllm.engine import Tokens
from tinyllm.grammar import regex
from tinyllm.grammar.expression import Rules
from tinyllm.grammar.jsonschema.read import parse
from tinyllm.grammar.jsonschema.receipt import receipt
from tinyllm.grammar.mask import TokenGrammar
from tinyllm.grammar.vocabulary import Vocabulary

__all__ = ["TokenGrammar", "Vocabulary", "compile", "receipt"]


def compile(
    source: Mapping[str, Any] | bool | str,
    tokenizer: Tokens | Vocabulary,
    *,
    spaces: bool = False,
) -> TokenGrammar:
    """The grammar of a JSON Schema (dict) or a regular expression (str) over tokens.

    compile("[0-9]+", lm.tokenizer) allows one or more digits. JSON is compact; with
    `spaces`, one space may follow each comma and colon. For several grammars over one
    large vocabulary make its `Vocabulary` once. GrammarError names what cannot be
    enforced, what grew too large or the byte that cannot be spelled.
    """
    if not isinstance(tokenizer, Vocabulary):
        tokenizer = Vocabulary(tokenizer)
    if isinstance(source, str):
        return TokenGrammar(Rules(regex.parse(source)), tokenizer)
    return TokenGrammar(parse(source, spaces), tokenizer)
