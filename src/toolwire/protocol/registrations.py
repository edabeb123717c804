"""What services and their tools leave in a store: registered tools, and the cards of results."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct


class ToolRegistration(Struct, frozen=True):
    """A row of `resource.tools`: one version of a tool of a project, as it was registered.

    `digest` is the SHA-256 of what the row says. `parameters` and `options` have the arguments that a model must not
    see, so a row is shown to people and services only.
    """

    project: str
    name: str
    version: str
    description: str
    parameters: Mapping[str, Any]
    target_subject: str
    after_execution: str
    options: Mapping[str, Any]
    digest: str
    created_at: float = 0.0
    updated_at: float = 0.0


class ResultCard(Struct, frozen=True):
    """A card of type `tool.result` that a service has written, byte for byte. `digest` is the SHA-256 of its JSON."""

    project: str
    id: str
    turn_id: str
    call_id: str
    digest: str
    body: bytes
    author: str = ""
    created_at: float = 0.0
