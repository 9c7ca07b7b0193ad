"""Tokens to actions: tools, the protocol of a transcript, the loop and its backends."""
