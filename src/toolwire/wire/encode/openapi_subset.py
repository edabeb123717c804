"""JSON Schema in the part of OpenAPI that Gemini takes. What cannot be said there is a Loss; our check knows it all."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from toolwire.protocol.tools import JsonObject, Tool
from toolwire.wire.encode.losses import Loss
from toolwire.wire.encode.outbound import to_json
from toolwire.wire.lenient.coerce import kind_of

Json = dict[str, Any]

MAX_DEPTH = 32
MAX_NODES = 5000  # references can make a small schema unfold without end
_KEPT_SCHEMAS, _LARGEST_KEPT = 512, 16_384

_KEPT = frozenset({"title", "description", "default", "minItems", "maxItems", "minProperties", "maxProperties",
                   "minLength", "maxLength", "minimum", "maximum", "pattern"})  # fmt: skip
_HANDLED = frozenset({"type", "format", "enum", "const", "properties", "required", "items", "prefixItems", "anyOf",
                      "oneOf", "allOf", "nullable", "$ref"})  # fmt: skip
_SILENT = frozenset({"$schema", "$id", "$defs", "definitions", "$comment", "$anchor", "examples", "example",
                     "deprecated", "readOnly", "writeOnly", "propertyOrdering"})  # fmt: skip
_FORMATS = {"string": {"date-time", "enum"}, "number": {"float", "double"}, "integer": {"int32", "int64"}}
_ANYTHING: Json = {"type": "string"}

_fitted: OrderedDict[bytes, tuple[Json, tuple[Loss, ...]]] = OrderedDict()


def fit(schema: JsonObject) -> tuple[Json, tuple[Loss, ...]]:
    """The schema in that subset, and what was lost. Equal schemas are fitted once; a large one each time."""
    key = to_json(schema)
    found = _fitted.get(key)
    if found is None:
        fitting = _Fitting(schema)
        found = (fitting.fit(schema, "", 0, ()), tuple(fitting.losses))
        if len(key) <= _LARGEST_KEPT:
            _fitted[key] = found
        if len(_fitted) > _KEPT_SCHEMAS:
            _fitted.popitem(last=False)
    return found


def losses(tools: Iterable[Tool]) -> tuple[Loss, ...]:
    """What these tools lose, each place under the name of its tool."""
    return tuple(Loss(f"{tool.name}{loss.where}", loss.what) for tool in tools for loss in fit(tool.input_schema)[1])


class _Fitting:
    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._nodes = 0
        self.losses: list[Loss] = []

    def fit(self, schema: Any, where: str, depth: int, seen: tuple[str, ...]) -> Json:
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            return self._lost(where, "is too deep or too large and was cut; any text is offered")
        if not isinstance(schema, Mapping):
            return self._lost(where, "takes any value; a text is offered")
        schema, seen = self._resolved(schema, where, seen)
        if schema is None:
            return {"type": "object"}
        out = self._plain_fields(schema, where)
        variants = schema.get("anyOf") or schema.get("oneOf")
        if isinstance(variants, list) and variants:
            return self._variants(out, schema, variants, where, depth, seen)
        return self._typed(out, schema, where, depth, seen)

    def _lost(self, where: str, what: str) -> Json:
        self.losses.append(Loss(where, what))
        return dict(_ANYTHING)

    def _resolved(self, schema: JsonObject, where: str, seen: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
        """The schema behind a reference, with the parts of `allOf` put together; None where it contains itself."""
        while isinstance(target := schema.get("$ref"), str):
            if target in seen:
                self._lost(where, "contains itself and was cut; any object is offered")
                return None, seen
            seen = (*seen, target)
            own = {name: value for name, value in schema.items() if name != "$ref"}
            schema = {**self._at(target, where), **own}
        for part in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
            inner, seen = self._resolved(part, where, seen) if isinstance(part, Mapping) else (None, seen)
            schema = _merged(schema, inner or {})
        return schema, seen

    def _at(self, target: str, where: str) -> JsonObject:
        here: Any = self._root
        for step in target.removeprefix("#").split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            here = here.get(key) if isinstance(here, Mapping) else None
        if isinstance(here, Mapping) and target.startswith("#"):
            return here
        self._lost(where, f"refers to {target[:80]!r}, which is not in the schema")
        return _ANYTHING

    def _plain_fields(self, schema: JsonObject, where: str) -> Json:
        out: Json = {}
        for name, value in schema.items():
            if name in _KEPT:
                out[name] = value
            elif name == "additionalProperties":
                if value is not False:
                    self.losses.append(Loss(where, "its further properties cannot be described"))
            elif name not in _HANDLED and name not in _SILENT:
                self.losses.append(Loss(where, f"{name[:40]} was left out"))
        if schema.get("nullable") is True:
            out["nullable"] = True
        return out

    def _variants(
        self, out: Json, schema: JsonObject, variants: list[Any], where: str, depth: int, seen: tuple[str, ...]
    ) -> Json:
        kept = [one for one in variants if not (isinstance(one, Mapping) and one.get("type") == "null")]
        if len(kept) < len(variants):
            out["nullable"] = True
        if "oneOf" in schema and len(kept) > 1:
            self.losses.append(Loss(where, "that exactly one variant holds was left out"))
        if len(kept) == 1:
            return {**self.fit(kept[0], where, depth + 1, seen), **out}
        fitted = [self.fit(one, f"{where}<{n}>", depth + 1, seen) for n, one in enumerate(kept)]
        # The API takes nothing beside anyOf, so what is said about all variants is said by each.
        return {"anyOf": [out | one for one in fitted]} if fitted else dict(_ANYTHING, nullable=True)

    def _typed(self, out: Json, schema: JsonObject, where: str, depth: int, seen: tuple[str, ...]) -> Json:
        kinds = _kinds(schema)
        if "null" in kinds:
            out["nullable"] = True
            kinds = [kind for kind in kinds if kind != "null"]
        if len(kinds) > 1:
            each = [self._typed({}, {**schema, "type": kind}, where, depth, seen) for kind in kinds]
            return {"anyOf": [out | one for one in each]}
        kind = kinds[0] if kinds else ""
        if not kind:
            return self._lost(where, "takes any value; a text is offered") | out
        out = {"type": kind, **out}
        match kind:
            case "object":
                self._object(out, schema, where, depth, seen)
            case "array":
                out["items"] = self._items(schema, where, depth, seen)
            case _:
                self._scalar(out, schema, kind, where)
        return out

    def _object(self, out: Json, schema: JsonObject, where: str, depth: int, seen: tuple[str, ...]) -> None:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return
        out["properties"] = {
            name: self.fit(inner, f"{where}.{name}", depth + 1, seen) for name, inner in properties.items()
        }
        required = schema.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        if named := [name for name in names if name in properties]:
            out["required"] = named

    def _items(self, schema: JsonObject, where: str, depth: int, seen: tuple[str, ...]) -> Json:
        items, places = schema.get("items"), schema.get("prefixItems")
        if isinstance(items, list):
            items, places = None, items
        if isinstance(places, list) and places:
            self.losses.append(Loss(where, "a type for each place was left out"))
            items = items if isinstance(items, Mapping) else {"anyOf": places}
        return self.fit(items, f"{where}[]", depth + 1, seen)

    def _scalar(self, out: Json, schema: JsonObject, kind: str, where: str) -> None:
        form = schema.get("format")
        if isinstance(form, str) and form in _FORMATS.get(kind, ()):
            out["format"] = form
        elif form is not None:
            self.losses.append(Loss(where, f"format {str(form)[:40]!r} was left out"))
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        if not isinstance(values, list):
            return
        if None in values:
            out["nullable"] = True
        texts = [value for value in values if isinstance(value, str) and value]
        if kind == "string" and len(texts) == len([value for value in values if value is not None]):
            out["enum"] = texts
            return
        self.losses.append(Loss(where, "only texts can be listed; the values are told in the description"))
        told = f"One of: {to_json(values).decode()[:500]}"
        out["description"] = f"{out['description']} {told}" if isinstance(out.get("description"), str) else told


def _kinds(schema: JsonObject) -> list[str]:
    """The types that a schema names or, where it names none, implies."""
    named = schema.get("type")
    if isinstance(named, str):
        return [named]
    if isinstance(named, list):
        return [kind for kind in named if isinstance(kind, str)]
    if "properties" in schema:
        return ["object"]
    if "items" in schema or "prefixItems" in schema:
        return ["array"]
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return list(dict.fromkeys(kind_of(value) for value in values)) if isinstance(values, list) else []


def _merged(schema: JsonObject, part: JsonObject) -> JsonObject:
    """Both schemas at once: properties and required names together, otherwise the outer word."""
    out = {**part, **{name: value for name, value in schema.items() if name != "allOf"}}
    for name in ("properties", "required"):
        mine, theirs = schema.get(name), part.get(name)
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            out[name] = {**theirs, **mine}
        elif isinstance(mine, list) and isinstance(theirs, list):
            out[name] = [*theirs, *(one for one in mine if one not in theirs)]
    return out
