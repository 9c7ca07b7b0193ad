"""Words, phrasings and stories from which the corpus is made."""
