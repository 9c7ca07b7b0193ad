"""The agent on a model that an OpenAI-compatible server runs."""
