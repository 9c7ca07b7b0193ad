"""Data -> weights: the corpus, the backward pass, the optimizer and the loop."""
