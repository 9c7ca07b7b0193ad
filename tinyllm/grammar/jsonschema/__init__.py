"""Any JSON Schema, read into rules, or refused by keyword and place.

The course does not need this folder: an agent's grammar is made by grammar/calls.py.
Only `grammar.compile` and `grammar.receipt` of a schema come here, and only when they
are called.

In reading order: document (places and references), automaton, letters and spelling
(patterns over few letters, and how a letter is written), strings, digits and numbers,
containers and values (sets of values with intersection, union and complement), formats,
one_type and keywords (what each keyword says), read (the whole), receipt.
"""
