"""JSON Schemas of every message and card, made from the same tables that read them."""

from collections.abc import Iterable
from typing import Any

from toolwire.protocol.bus import CONTROL
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.subjects import TOKEN, VERSIONS
from toolwire.wire.utp.cards import (
    CALL_CONTENT,
    CALL_METADATA,
    CALL_REQUIRED,
    CALL_TYPE,
    HEAD_FIELDS,
    RESULT_METADATA,
    RESULT_REQUIRED,
    RESULT_TYPE,
    ROLE,
)
from toolwire.wire.utp.fields import (
    ADDRESS,
    AFTER,
    BANNED,
    CALLBACK_FIELDS,
    CALLBACK_REQUIRED,
    COMMAND_FIELDS,
    COUNT,
    PMO_REQUIRED,
    STATUS,
    TOOL_REQUIRED,
    VERSION_HEADER,
    WAKEUP_FIELDS,
    WAKEUP_REQUIRED,
    Json,
    WireField,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_HEADER_COUNT = {"type": "string", "pattern": "^(?:0|[1-9][0-9]{0,15})$"}


def schemas() -> dict[str, Json]:
    """All schemas by the names of their files."""
    made = {
        "tool-command": _message("A command for a tool service: cmd.tool.<target>", COMMAND_FIELDS, TOOL_REQUIRED),
        "pmo-command": _message(
            "A command for a built-in tool of the PMO: cmd.sys.pmo.internal.<tool>", COMMAND_FIELDS, PMO_REQUIRED
        ),
        "tool-callback": _message(
            "The report of a result: cmd.sys.execution.report", CALLBACK_FIELDS, CALLBACK_REQUIRED
        ),
        "wakeup": _message("The doorbell of an agent: cmd.agent.<target>.wakeup", WAKEUP_FIELDS, WAKEUP_REQUIRED),
        "command-headers": _headers("The headers of a command", COMMAND_FIELDS),
        "callback-headers": _headers("The headers of a callback", CALLBACK_FIELDS),
        "tool-call-card": _card(CALL_TYPE, _call_content(), CALL_METADATA, CALL_REQUIRED),
        "tool-result-card": _card(RESULT_TYPE, _result_content(), RESULT_METADATA, RESULT_REQUIRED),
    }
    return {name: {"$schema": DIALECT, "$id": f"toolwire/{name}.schema.json", **one} for name, one in made.items()}


def _message(title: str, fields: tuple[WireField, ...], required: tuple[str, ...]) -> Json:
    address = {name: {"type": "string", "pattern": f"^(?:{TOKEN})$"} for name, _ in ADDRESS}
    return {
        "title": title,
        "type": "object",
        "properties": {**address, **_properties(fields, required)},
        "required": sorted(required),
        # Content belongs into cards. Unknown fields are allowed, and ignored by receivers.
        "propertyNames": {"not": {"pattern": f"^(?:{'|'.join(map(_in_any_case, sorted(BANNED)))})$"}},
    }


def _properties(fields: Iterable[WireField], required: tuple[str, ...]) -> Json:
    """What may be left out may also be null."""
    return {
        one.name: _described(one.kind.schema, one.about)
        if one.name in required
        else {"anyOf": [one.kind.schema, {"type": "null"}], "description": one.about}
        for one in fields
    }


def _described(schema: Json, about: str) -> Json:
    return {**schema, "description": about}


def _in_any_case(name: str) -> str:
    return "".join(f"[{letter.upper()}{letter}]" for letter in name)


def _headers(title: str, fields: tuple[WireField, ...]) -> Json:
    named = {one.header: _header_schema(one) for one in fields if one.header}
    address = {header: {"type": "string", "pattern": f"^(?:{TOKEN})$"} for _, header in ADDRESS}
    version = {VERSION_HEADER: {"type": "string", "enum": sorted(VERSIONS)}}
    return {"title": title, "type": "object", "properties": {**version, **address, **named}}


def _header_schema(one: WireField) -> Json:
    return _described(_HEADER_COUNT if one.kind is COUNT else one.kind.schema, one.about)


def _card(kind: str, content: Json, metadata: tuple[WireField, ...], required: tuple[str, ...]) -> Json:
    meta = {
        "type": "object",
        "properties": {**_properties(metadata, required), **_role(kind)},
        "required": sorted(one.name for one in metadata if one.name in required),
    }
    return {
        "title": f"A card of type {kind}",
        "type": "object",
        "properties": {
            **_properties(HEAD_FIELDS, required),
            "type": {"const": kind},
            "content": content,
            "metadata": meta,
        },
        "required": ["card_id", "content", "metadata", "project_id", "type"],
    }


def _role(kind: str) -> Json:
    return {"role": {"const": ROLE}} if kind == RESULT_TYPE else {}


def _call_content() -> Json:
    return {
        "type": "object",
        "properties": {**_properties(CALL_CONTENT, CALL_REQUIRED), "status": {"const": "called"}},
        "required": ["arguments", "tool_name"],
    }


def _result_content() -> Json:
    """As a service should write it. What it gets wrong is read as a failure, and not refused."""
    unsuccessful = [status.value for status in Status if status not in (Status.SUCCESS, Status.PARTIAL)]
    return {
        "type": "object",
        "properties": {
            "status": _described(STATUS.schema, "How the call ended."),
            "after_execution": _described(AFTER.schema, "As in the command."),
            "result": {
                "description": "Anything. A failed one has error_code and error_message, as in error.",
                "properties": {"error_code": _text(), "error_message": _text(), CONTROL: _control()},
            },
            "error": _error(),
        },
        "required": ["status"],
        "allOf": [
            {
                "if": {"properties": {"status": {"enum": unsuccessful}}},
                "then": {"required": ["error"]},
            },
            {"if": {"properties": {"status": {"const": "success"}}}, "then": {"not": {"required": ["error"]}}},
        ],
    }


def _control() -> Json:
    about = "What the turn does next. Heeded only for tools whose registration says controls_turn."
    return {"type": "object", "properties": {"after_execution": AFTER.schema}, "description": about}


def _error() -> Json:
    codes = "tool_timeout, auth_failed, bad_request, upstream_unavailable, internal_error, or one of the service's own"
    return {
        "type": "object",
        "properties": {
            "code": {"type": "string", "minLength": 1, "maxLength": 200, "description": codes},
            "message": {"type": "string", "minLength": 1, "description": "A sentence that the model reads."},
            "detail": {"description": "Anything more."},
            "retryable": {"type": "boolean", "description": "Whether the same call may succeed later."},
            "kind": {"type": "string", "enum": [code.value for code in Code], "description": "toolwire's own code."},
        },
        "required": ["code", "message"],
    }


def _text() -> dict[str, Any]:
    return {"type": "string"}
