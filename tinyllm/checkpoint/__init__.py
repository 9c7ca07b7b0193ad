"""Files to weights and back: safetensors, model folders, where named models are."""
