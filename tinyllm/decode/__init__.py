"""Logits to next tokens: sampling, session, generate."""
