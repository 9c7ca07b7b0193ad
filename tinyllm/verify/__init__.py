"""Does it still hold: held-out tasks, and later equivalence, warm/cold and ablation."""
