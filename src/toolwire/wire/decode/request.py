"""The door: a client's request body in any of the three dialects that clients speak, as a Request."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.chat import Request
from toolwire.protocol.tools import Tool
from toolwire.wire.decode import anthropic, openai_chat, openai_responses
from toolwire.wire.decode.fields import BadField, flag, number, positive, required_text
from toolwire.wire.decode.transcript import Transcript
from toolwire.wire.encode.losses import Loss

Body = Mapping[str, Any]


class DecodedRequest(Struct, frozen=True):
    """A client's request in our nouns.

    `extras` holds every field that has no place in a Request, as it came; under `tools` those tools that only
    the provider itself could run. `losses` says what of the conversation could not be kept.
    """

    request: Request
    model: str
    stream: bool = False
    extras: Mapping[str, Any] = field(default_factory=dict)
    losses: tuple[Loss, ...] = ()


class BadRequest(Struct, frozen=True):
    """The body is not a request of that dialect: which field is wrong, and what it must be."""

    message: str
    field: str = ""


class _Dialect(Struct, frozen=True):
    fields: frozenset[str]
    limits: tuple[str, ...]
    read_system: Callable[[Body, Transcript], str]
    read_messages: Callable[[Body, Transcript], None]
    read_tools: Callable[[Body], tuple[list[Tool], list[Body]]]
    may_not_call: Callable[[Body], bool]


def _of(module: Any, *limits: str) -> _Dialect:
    return _Dialect(
        module.FIELDS, limits, module.read_system, module.read_messages, module.read_tools, module.may_not_call
    )


_DIALECTS = {
    "openai": _of(openai_chat, "max_completion_tokens", "max_tokens"),
    "anthropic": _of(anthropic, "max_tokens"),
    "openai_responses": _of(openai_responses, "max_output_tokens"),
}
CLIENT_DIALECTS = tuple(_DIALECTS)


def decode_request(body: Any, dialect: str) -> DecodedRequest | BadRequest:
    """Read a decoded JSON body. `dialect` is one of CLIENT_DIALECTS; another one raises KeyError, nothing else does."""
    spoken = _DIALECTS[dialect]
    if not isinstance(body, Mapping):
        return BadRequest("the body must be a JSON object")
    try:
        return _decoded(body, spoken)
    except BadField as wrong:
        return BadRequest(str(wrong), wrong.field)


def _decoded(body: Body, spoken: _Dialect) -> DecodedRequest:
    said = Transcript()
    system = spoken.read_system(body, said)
    spoken.read_messages(body, said)
    tools, foreign = spoken.read_tools(body)
    _no_twins(tools)
    limits = (positive(body.get(name), name) for name in spoken.limits)
    request = Request(
        said.messages(), tuple(tools), system, tools_off=spoken.may_not_call(body),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        temperature=number(body.get("temperature"), "temperature"),
    )  # fmt: skip
    extras = {name: value for name, value in body.items() if name not in spoken.fields}
    if foreign:
        extras["tools"] = foreign
        said.lose("tools", f"{len(foreign)} tools that are not functions were left out")
    model, stream = required_text(body.get("model"), "model"), flag(body.get("stream"), "stream")
    return DecodedRequest(request, model, stream, extras, tuple(said.losses))


def _no_twins(tools: list[Tool]) -> None:
    seen: set[str] = set()
    for tool in tools:
        if tool.name in seen:
            raise BadField("tools", f"name {tool.name[:64]!r} twice")
        seen.add(tool.name)
