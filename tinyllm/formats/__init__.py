"""Files of others: checkpoints and tokenizers, read and written."""
