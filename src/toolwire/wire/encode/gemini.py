"""Gemini's generateContent, outbound: contents made of parts, schemas in its subset of OpenAPI, signatures in place."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from toolwire.protocol.calls import Image, Resource, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode import openapi_subset
from toolwire.wire.encode.outbound import CallIds, Json, images, is_failure, once_per_tool, words
from toolwire.wire.encode.pictures import written_parts
from toolwire.wire.encode.request import Dialect
from toolwire.wire.encode.tool_names import alphabet

wire_name = alphabet("A-Za-z_", "A-Za-z0-9_.-", 64)
NOTHING = "(nothing)"
# What the API says to send where a model that wants signatures reads calls it did not make itself.
UNSIGNED = "skip_thought_signature_validator"


def encode_tools(tools: Iterable[Tool]) -> list[Json]:
    """The tools as function declarations. Without parameters there is no schema: an empty one is refused."""
    return _declarations(tools)


@once_per_tool
def _declarations(tool: Tool) -> Json:
    declared: Json = {"name": wire_name(tool.name), "description": tool.description or tool.name}
    schema, _ = openapi_subset.fit(tool.input_schema)
    return declared | {"parameters": schema} if schema.get("properties") else declared


def _placed(declarations: list[Any]) -> Json:
    return {"tools": [{"functionDeclarations": declarations}]}


def encode_message(message: Message, ids: CallIds) -> list[Json]:
    """One message as contents. A reply without anything in it is left out: empty parts are refused."""
    match message:
        case Reply():
            return _model(_reply_parts(message, ids))
        case ResultsMessage(results):
            return encode_results(results, ids)
        case UserMessage(parts=parts) if parts:
            return [{"role": "user", "parts": written_parts(message, _text, _shown)}]
        case UserMessage(text) | Note(text):
            return [{"role": "user", "parts": [_text(text if text.strip() else NOTHING)]}]


def _encode_signed(message: Message, ids: CallIds) -> list[Json]:
    """The same for models that refuse a first call without a signature."""
    encoded = encode_message(message, ids)
    if isinstance(message, Reply) and message.calls:
        parts = encoded[0]["parts"]
        first = next(part for part in parts if "functionCall" in part)
        first.setdefault("thoughtSignature", UNSIGNED)
    return encoded


def encode_results(results: Sequence[ToolResult], ids: CallIds) -> list[Json]:
    """One response part per result; images follow in a content of their own, since responses must stand alone."""
    answers: Json = {"role": "user", "parts": [_response(result, ids) for result in results]}
    shown = [_shown(image) for result in results for image in images(result)]
    return [answers, {"role": "user", "parts": [_text("Shown by the tools:"), *shown]}] if shown else [answers]


def _text(text: str) -> Json:
    return {"text": text}


def _shown(picture: Image | Resource) -> Json | None:
    """A picture as a part. One that lies elsewhere would first have to be given to the provider."""
    if isinstance(picture, Resource):
        return None
    return {"inlineData": {"mimeType": picture.media_type, "data": picture.data}}


def frame(request: Request, model: str = "", *, stream: bool = False) -> Json:  # noqa: ARG001 -- both are in the URL
    """Every field of a request body but its tools and contents."""
    fields: Json = {}
    if request.system:
        fields["systemInstruction"] = {"parts": [{"text": request.system}]}
    wanted = {"maxOutputTokens": request.max_tokens, "temperature": request.temperature}
    if config := {name: value for name, value in wanted.items() if value is not None}:
        fields["generationConfig"] = config
    if request.tools and request.tools_off:
        fields["toolConfig"] = {"functionCallingConfig": {"mode": "NONE"}}
    return fields


def _model(parts: list[Json]) -> list[Json]:
    return [{"role": "model", "parts": parts}] if parts else []


def _reply_parts(reply: Reply, ids: CallIds) -> list[Json]:
    signatures = _signatures(reply)
    parts: list[Json] = []
    if reply.content.strip():
        parts.append(_signed({"text": reply.content}, signatures.get(None)))
    parts.extend(_signed(_call(call, ids), signatures.get(at)) for at, call in enumerate(reply.calls))
    return parts


def _signatures(reply: Reply) -> dict[int | None, Any]:
    """The signatures of this very provider, by the place of their call; None is the text's."""
    if reply.carry is None or reply.carry.get("provider") != "gemini":
        return {}
    return {item.get("call"): item.get("thoughtSignature") for item in reply.carry.get("items", ())}


def _signed(part: Json, signature: Any) -> Json:
    return part if signature is None else part | {"thoughtSignature": signature}


def _call(call: ToolCall, ids: CallIds) -> Json:
    return {"functionCall": {"id": ids.claim(call), "name": wire_name(call.name), "args": call.arguments}}


def _response(result: ToolResult, ids: CallIds) -> Json:
    said = {"error" if is_failure(result) else "output": words(result)}
    return {"functionResponse": {"id": ids.of(result), "name": wire_name(result.name), "response": said}}


DIALECT = Dialect(
    "gemini",
    encode_tools,
    encode_message,
    wire_name=wire_name,
    frame=frame,
    messages_field="contents",
    place_tools=_placed,
    losses=openapi_subset.losses,
)
SIGNED = replace(DIALECT, encode_message=_encode_signed)


def dialect_for(model: str) -> Dialect:
    """From the third generation on, the models refuse calls without a signature."""
    generation = model.rpartition("/")[2].removeprefix("gemini-").partition("-")[0].partition(".")[0]
    return SIGNED if generation.isdecimal() and int(generation[:4]) >= 3 else DIALECT
