"""Token ids to logits: config, layers, cache and transformer, in that order."""
