"""How a name on the command line becomes a model."""

from pathlib import Path

from toolwire.models.local import open_local
from toolwire.models.opening import open_model
from toolwire.protocol.chat import ChatModel

BASE = "local:smollm2-plain"
"""The model without training, which others are compared with."""


def open_spec(spec: str) -> ChatModel:
    """`local:smollm2`, `local:smollm2@adapter.gguf`, or any other model string that toolwire knows."""
    name, _, adapter = spec.partition("@")
    if adapter:
        return open_local(name.removeprefix("local:"), adapter=Path(adapter))
    return open_model(spec)
