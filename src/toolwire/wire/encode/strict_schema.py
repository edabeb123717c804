"""JSON Schema as OpenAI's strict mode wants it: every object closed, every property required, few keywords."""

from collections.abc import Iterable, Mapping
from typing import Any

from toolwire.protocol.tools import JsonObject, Tool
from toolwire.wire.encode.losses import Loss

Json = dict[str, Any]

MAX_DEPTH = 32
_KEPT = frozenset({"type", "title", "description", "enum", "const", "pattern", "format", "multipleOf", "minimum",
                   "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "$ref"})  # fmt: skip
_SILENT = frozenset({"$schema", "$id", "$comment", "examples", "deprecated", "readOnly", "writeOnly", "required",
                     "nullable"})  # fmt: skip


def fit(schema: JsonObject) -> tuple[Json, tuple[Loss, ...]]:
    """The schema in that form, and what was lost. An optional property becomes one that may be null."""
    losses: list[Loss] = []
    out = _fit(schema, "", 0, losses)
    if out.get("type") != "object":
        losses.append(Loss("", "arguments must be one object; an empty one is offered"))
        out = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return out, tuple(losses)


def losses(tools: Iterable[Tool]) -> tuple[Loss, ...]:
    """What these tools lose, each place under the name of its tool."""
    return tuple(Loss(f"{tool.name}{loss.where}", loss.what) for tool in tools for loss in fit(tool.input_schema)[1])


def _fit(schema: Any, where: str, depth: int, losses: list[Loss]) -> Json:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        losses.append(Loss(where, "takes any value; a text is offered"))
        return {"type": "string"}
    out: Json = {}
    for name, value in schema.items():
        if name in _KEPT:
            out[name] = value
        elif name in ("anyOf", "oneOf") and isinstance(value, list):
            out["anyOf"] = [_fit(one, f"{where}<{n}>", depth + 1, losses) for n, one in enumerate(value)]
            if name == "oneOf":
                losses.append(Loss(where, "that exactly one variant holds was left out"))
        elif name in ("$defs", "definitions") and isinstance(value, Mapping):
            out[name] = {key: _fit(one, f"{where}.{key}", depth + 1, losses) for key, one in value.items()}
        elif name == "items":
            out["items"] = _fit(value, f"{where}[]", depth + 1, losses)
        elif name not in ("properties", "additionalProperties") and name not in _SILENT:
            losses.append(Loss(where, f"{name[:40]} was left out"))
    if schema.get("type") == "object" or "properties" in schema:
        _close(out, schema, where, depth, losses)
    return out


def _close(out: Json, schema: JsonObject, where: str, depth: int, losses: list[Loss]) -> None:
    if schema.get("additionalProperties", False) is not False:
        losses.append(Loss(where, "its further properties cannot be given"))
    given, named = schema.get("properties"), schema.get("required")
    properties: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    required = frozenset(name for name in named if isinstance(name, str)) if isinstance(named, list) else frozenset()
    fitted = {name: _fit(inner, f"{where}.{name}", depth + 1, losses) for name, inner in properties.items()}
    out["type"] = "object"
    out["properties"] = {name: one if name in required else _nullable(one) for name, one in fitted.items()}
    out["required"] = list(fitted)
    out["additionalProperties"] = False


def _nullable(schema: Json) -> Json:
    if _may_be_null(schema):
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema and "const" not in schema:
        return schema | {"type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def _may_be_null(schema: JsonObject) -> bool:
    kind, values, variants = schema.get("type"), schema.get("enum"), schema.get("anyOf") or schema.get("oneOf")
    if isinstance(variants, list):
        return any(isinstance(one, Mapping) and _may_be_null(one) for one in variants)
    if isinstance(values, list):
        return None in values
    return kind == "null" or (isinstance(kind, list) and "null" in kind)
