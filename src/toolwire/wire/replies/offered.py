"""The tools that a reply may call, indexed once for each list of tools."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema_rs

from toolwire.protocol.tools import Tool
from toolwire.wire.lenient.coerce import types_of

_PREFIXES = ("functions.", "default_api.", "tools.", "functions:", "default_api:")
_MOST_PREFIXES = 8
_KEPT_LISTS = 64
_UNCHECKED: Mapping[str, Any] = {}
_ANY: frozenset[str] = frozenset()
# The validator cannot take lone surrogates, integers beyond its range, or very deep values.
_UNCHECKABLE = (ValueError, TypeError, OverflowError, RecursionError)


class Offer:
    """One offered tool: its name, the names of its parameters, and the check of its schema.

    `misspelled` is the name that a model wrote in its place; empty where it wrote the right one.
    """

    __slots__ = ("_types", "_validator", "closed", "misspelled", "name", "properties", "required", "schema")

    def __init__(self, name: str, schema: Mapping[str, Any]) -> None:
        properties = schema.get("properties")
        required = schema.get("required")
        self.name = name
        self.misspelled = ""
        self.schema = schema
        self.properties: Mapping[str, Any] = properties if isinstance(properties, Mapping) else _UNCHECKED
        names = required if isinstance(required, list | tuple) else ()
        self.required = frozenset(name for name in names if isinstance(name, str))
        self.closed = "properties" in schema and not schema.get("additionalProperties", False)
        if "patternProperties" in schema:
            self.closed = False
        self._validator: Any = None
        self._types: dict[str, frozenset[str]] = {}

    def types(self, parameter: str) -> frozenset[str]:
        """The JSON types that a parameter may have; empty when the schema does not say."""
        if parameter not in self.properties:
            return _ANY
        if parameter not in self._types:
            self._types[parameter] = types_of(self.properties[parameter], self.schema)
        return self._types[parameter]

    def knows(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments name nothing that a closed schema does not have."""
        return not self.closed or arguments.keys() <= self.properties.keys()

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        """Whether the arguments satisfy the schema and name nothing that it does not know."""
        if not self.knows(arguments):
            return False
        try:
            return bool(self._check().is_valid(arguments))
        except _UNCHECKABLE:
            return False

    def complaint(self, arguments: Mapping[str, Any]) -> str:
        """What is wrong with the arguments, in one sentence; empty when nothing is."""
        unknown = sorted(str(name) for name in arguments.keys() - self.properties.keys()) if self.closed else []
        if unknown:
            return f"{self.name} has no parameter {', '.join(unknown[:3])}"
        try:
            error = next(iter(self._check().iter_errors(arguments)), None)
        except _UNCHECKABLE:
            return f"{self.name}: the arguments hold half a character or a number too large to check"
        return "" if error is None else f"{self.name}: {str(error.message)[:300]}"

    def called(self, name: str) -> "Offer":
        """The same tool, called by another name."""
        self._check()  # so that both share one validator
        other = copy.copy(self)
        other.misspelled = name
        return other

    def _check(self) -> Any:
        if self._validator is None:
            self._validator = _compile(self.schema)
        return self._validator


def _compile(schema: Mapping[str, Any]) -> Any:
    """A validator that never reaches out and never backtracks; a schema that cannot be used accepts everything."""
    try:
        return jsonschema_rs.validator_for(
            dict(schema), offline=True, pattern_options=jsonschema_rs.RegexOptions(), validate_formats=False
        )
    except (ValueError, TypeError, jsonschema_rs.ReferencingError):
        return jsonschema_rs.validator_for({})


class Offered:
    """Every tool of one request, found by the name on the wire."""

    __slots__ = ("_folded", "by_name", "kept")

    def __init__(self, tools: Sequence[Any]) -> None:
        self.kept = tuple(tools)  # the cache below is keyed by identity, which holds only while they live
        self.by_name: dict[str, Offer] = {}
        for tool in tools:
            name, schema = _name_and_schema(tool)
            if name:
                self.by_name[name] = Offer(name, schema)
        self._folded: dict[str, str] | None = None

    def get(self, name: str) -> Offer | None:
        """The tool of that name, perhaps behind a namespace prefix or doubled namespace; else the nearest."""
        for _ in range(_MOST_PREFIXES):  # a name may be a megabyte of them
            found = self.by_name.get(name)
            if found is not None or not name:
                return found
            inner = _without_namespace(name)
            if inner == name:
                break
            name = inner
        first, dot, rest = name.partition(".")
        doubled = self.by_name.get(rest) if dot and (first == rest or rest.startswith(first + ".")) else None
        return doubled or self._nearest(name)

    def by_arguments(self, arguments: Mapping[str, Any]) -> Offer | None:
        """The only tool that these arguments fit."""
        fitting = [
            offer
            for offer in self.by_name.values()
            if arguments and offer.required <= arguments.keys() <= offer.properties.keys()
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _nearest(self, name: str) -> Offer | None:
        """The only tool whose name differs in case or in dashes alone, as it was called."""
        if self._folded is None:
            self._folded = {}
            for known in self.by_name:
                folded = fold_name(known)
                self._folded[folded] = "" if folded in self._folded else known
        found = self.by_name.get(self._folded.get(fold_name(name.rpartition("functions.")[2].strip()), ""))
        return found.called(name) if found is not None else None


def _without_namespace(name: str) -> str:
    if "<|" in name:  # gpt-oss: a channel marker behind the name
        return name.partition("<|")[0]
    return name[len(next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")) :]


_FOLDED = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ-", "abcdefghijklmnopqrstuvwxyz_")


def fold_name(name: str) -> str:
    """A name without what models get wrong in names: ASCII case, and dashes for underscores."""
    return name.translate(_FOLDED)


def _name_and_schema(tool: Any) -> tuple[str, Mapping[str, Any]]:
    if isinstance(tool, Tool):
        return tool.name, tool.input_schema
    if not isinstance(tool, Mapping):
        return "", _UNCHECKED
    inner = tool.get("function")
    described = inner if isinstance(inner, Mapping) else tool
    name = described.get("name")
    for key in ("parameters", "input_schema", "inputSchema"):
        schema = described.get(key)
        if isinstance(schema, Mapping):
            return str(name or ""), schema
    return str(name or ""), _UNCHECKED


_indexed: dict[tuple[int, ...], Offered] = {}


def index_tools(tools: Sequence[Any]) -> Offered:
    """Index a list of Tool values or OpenAI-style dicts. The same values are indexed once."""
    key = tuple(map(id, tools))
    found = _indexed.get(key)
    if found is None:
        if len(_indexed) >= _KEPT_LISTS:
            _indexed.pop(next(iter(_indexed)), None)
        found = _indexed[key] = Offered(tools)
    return found
