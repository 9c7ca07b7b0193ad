"""How often the agent is right: held-out tasks and the ablation."""
