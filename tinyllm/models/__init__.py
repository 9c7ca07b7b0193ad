"""Models by name or path: what is known, where it lies, how to get it."""
