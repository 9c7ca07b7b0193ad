"""Does it still hold: equal logits, equal texts warm and cold, held-out tasks."""
