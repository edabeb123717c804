"""Types of records, as `schema.def.v1` records define them: what their context must be, and their hints for models.

    {"schema_name": "schema.def.v1", "tags": ["defines:note.v1"],
     "context": {"defines_schema": "note.v1", "json_schema": {"type": "object", "required": ["text"]}},
     "llm_hints": {"include": ["text"]}}

A definition is tried when it is written: one that no context can be checked against in bounded time is refused.
"""

from collections.abc import Mapping
from typing import Any

from jsonschema_rs import ValidationError, Validator
from msgspec import Struct

from toolwire.breadcrumbs.new_records import check_hints
from toolwire.breadcrumbs.rules.schemas import SCHEMA_DEF, defined_by, defining_tag
from toolwire.define.effort import effort
from toolwire.define.faults import sentences
from toolwire.define.quoting import path_text
from toolwire.define.references import is_recursive
from toolwire.define.schemas import compile_schema
from toolwire.errors import DefinitionError, InvalidRecord
from toolwire.protocol.breadcrumbs import Record, RecordQuery
from toolwire.record.contract import RecordStore

JSON_SCHEMA = "json_schema"
_DEFINING = ("defines_schema", JSON_SCHEMA, "llm_hints", "description", "category", "version", "examples")
# Checking a context against a schema that refers to itself takes at most this many steps: a fraction of a second.
_MOST_STEPS = 50_000
_MOST_KNOWN = 256


class RecordType(Struct, frozen=True):
    """A type as a record defines it. Without a schema, every object is a context of it."""

    name: str
    defined_in: str
    version: int
    schema: Mapping[str, Any] | None
    validator: Validator | None
    llm_hints: Mapping[str, Any] | None

    def check(self, context: dict[str, Any], *, quotes: bool = True) -> None:
        """Raises `InvalidRecord` for a context that this type does not have; one of a secret is not quoted."""
        if self.validator is None or self.schema is None:
            return
        if is_recursive(self.schema) and effort(self.schema, context, _MOST_STEPS) >= _MOST_STEPS:
            raise InvalidRecord(f"context is nested too deeply to be checked against {self.name}; make it smaller")
        try:
            self.validator.validate(context)
        except ValidationError as first:  # all of them could be as many as a context has items
            said = _sentence(first, self.schema) if quotes else path_text(first.instance_path)
            raise InvalidRecord(f"context does not fit {self.name} (record {self.defined_in}): {said}") from None
        except ValueError:
            raise InvalidRecord(f"context cannot be checked against {self.name}; look at its definition") from None


def _sentence(first: ValidationError, schema: Mapping[str, Any]) -> str:
    return sentences([first], schema)[0].removeprefix("arguments: ")


def read_definition(record_id: str, version: int, context: Mapping[str, Any], hints: Any) -> RecordType:
    """The type that a definition defines. Raises `InvalidRecord` for one that is broken."""
    name = defined_by(context)
    _require_defining(context)
    inner = context.get("llm_hints")
    if hints is None and inner is not None:
        hints = check_hints(inner, "context.llm_hints")
    schema = context.get(JSON_SCHEMA)
    if schema is None and hints is None:
        raise InvalidRecord(f"the definition says nothing about {name}: give context.{JSON_SCHEMA}, llm_hints, or both")
    if schema is None:
        return RecordType(name, record_id, version, None, None, hints)
    if not isinstance(schema, Mapping):
        raise InvalidRecord(f"context.{JSON_SCHEMA} must be a JSON Schema, which is an object")
    try:
        validator = compile_schema(schema, f"context.{JSON_SCHEMA}")
    except DefinitionError as wrong:
        raise InvalidRecord(str(wrong)) from None
    return RecordType(name, record_id, version, schema, validator, hints)


def _require_defining(context: Mapping[str, Any]) -> None:
    """Raises `InvalidRecord` for a name that no definition has: a schema under another one would check nothing."""
    for key in context:
        if key not in _DEFINING:
            raise InvalidRecord(
                f"context.{str(key)[:40]} has no meaning in a definition; there are {', '.join(_DEFINING)}, and the "
                f"schema of a type is {JSON_SCHEMA}"
            )


class RecordTypes:
    """The types of a project. A definition is compiled once for each of its versions."""

    def __init__(self, store: RecordStore, project: str) -> None:
        self._store = store
        self._project = project
        self._known: dict[str, tuple[tuple[str, int, float], RecordType]] = {}

    async def named(self, name: str) -> RecordType | None:
        """The type of this name, as it is defined now; None for one that no record defines."""
        record = await self._definition(name)
        if record is None:
            self._known.pop(name, None)
            return None
        which, known = self._known.get(name, (None, None))
        version = (record.id, record.version, record.updated_at)  # one that was deleted and written anew has its id
        if known is None or which != version:
            while len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            known = read_definition(record.id, record.version, record.context, record.llm_hints)
            self._known[name] = (version, known)
        return known

    async def other_definition(self, name: str, record_id: str) -> str:
        """The id of another record that defines this type; empty where there is none."""
        other = await self._definition(name)
        return other.id if other is not None and other.id != record_id else ""

    async def _definition(self, name: str) -> Record | None:
        query = RecordQuery(schema_name=SCHEMA_DEF, all_tags=(defining_tag(name),))
        rows = await self._store.records(query, limit=1, project=self._project)
        return rows[0].value if rows else None
