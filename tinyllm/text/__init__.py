"""Text <-> token ids: pre-tokenizers, byte-level BPE, tokenizer files, streams."""
