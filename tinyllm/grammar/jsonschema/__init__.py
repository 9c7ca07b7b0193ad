"""JSON Schema, read into rules, or refused by keyword and place.

In reading order: document (places and references), checks, values with numbers, strings
and containers (sets of values that unite, meet and have complements), given, counts,
emptiness, formats, then scalar_keywords, member_keywords and keywords (what each says),
parts (which parts there are, which recur), scalars and json_text with spelling, letters
and digits (their texts), read (the whole), receipt.
"""
