"""Files with which a device, its broker and its orchestrator know each other: what `toolwire edge init` writes."""
