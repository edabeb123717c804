"""The tool that takes JSON apart and puts it together anew, with JMESPath."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict

from pydantic import Field, WithJsonSchema

from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.data.queries import LONGEST_QUERY, BadQuery, check_query, search

Operation = Literal["extract", "map", "filter", "sort"]
Json = Annotated[
    Any, WithJsonSchema({"type": ["object", "array", "string", "number", "boolean", "null"]}, mode="validation")
]
JsonOut = Annotated[Any, WithJsonSchema({"type": ["object", "array", "string", "number", "boolean", "null"]})]
Query = Annotated[str, Field(max_length=LONGEST_QUERY)]

DESCRIPTION = """\
Transform JSON data with JMESPath: extract a part (path), map every item to a new object (mapping), filter items \
(condition), or sort them (sort_by). path chooses where to work in the data, for example people[*].address.city."""


class TransformOutput(TypedDict):
    result: Annotated[JsonOut, Field(description="The data after the operation; null if nothing was found.")]
    operation: Annotated[str, Field(description="The operation that was done.")]
    expression: Annotated[str, Field(description="The whole JMESPath expression that was evaluated.")]


def json_transform_tool() -> Tool:
    """The tool `json-transform`."""

    @tool(
        name="json-transform",
        description=DESCRIPTION,
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="utility",
        examples=(
            {"data": {"a": {"b": [1, 2]}}, "operation": "extract", "path": "a.b[0]"},
            {"data": [{"n": "x", "v": 1}], "operation": "map", "mapping": {"name": "n", "double": "[v, v]"}},
            {"data": [{"v": 1}, {"v": 2}], "operation": "filter", "condition": {"v": 2}},
            {"data": [{"v": 1}, {"v": 2}], "operation": "filter", "condition": "v > `1`"},
            {"data": [{"v": 2}, {"v": 1}], "operation": "sort", "sort_by": "v", "descending": True},
        ),
    )
    def json_transform(
        data: Json,
        operation: Operation = "extract",
        path: Query = "@",
        mapping: dict[str, Query] | None = None,
        condition: dict[str, Json] | Query | None = None,
        sort_by: Query = "",
        descending: bool = False,
    ) -> TransformOutput:
        """Transform JSON data.

        Args:
            data: The JSON data to work on.
            operation: What to do with what path finds.
            path: A JMESPath expression for the part of the data to work on; @ is all of it.
            mapping: For map, the fields of each new object, each with the JMESPath expression of its value.
            condition: For filter, fields with the values they must have, or a JMESPath expression that must hold.
            sort_by: For sort, the JMESPath expression of what to compare, numbers or text; @ is the item itself.
            descending: For sort, whether the largest comes first.
        """
        try:
            step = _step(operation, mapping, condition, sort_by, descending=descending)
            found = search(check_query(path or "@"), data)
            expression = f"{path or '@'} | {step}" if step else path or "@"
            if operation == "map" and not isinstance(found, list):
                step, expression = step.removeprefix("[*]."), expression.replace(" | [*].", " | ", 1)
            result = search(step, _list(found, operation)) if step else found
        except BadQuery as wrong:
            raise ToolFailure(str(wrong), code=Code.INVALID_PARAMS) from None
        return {"result": result, "operation": operation, "expression": expression}

    return json_transform


def _list(found: Any, operation: Operation) -> Any:
    if operation in ("filter", "sort") and not isinstance(found, list):
        kind = "nothing" if found is None else f"{type(found).__name__}, not a list"
        raise BadQuery(f"{operation} works on a list, and path finds {kind}")
    return found


def _step(
    operation: Operation,
    mapping: Mapping[str, str] | None,
    condition: Mapping[str, Any] | str | None,
    sort_by: str,
    *,
    descending: bool,
) -> str:
    """The operation as JMESPath; empty where the path says it all. Raises BadQuery for what is missing or wrong."""
    match operation:
        case "extract":
            return ""
        case "map" if mapping:
            fields = (f"{json.dumps(name)}: {check_query(query)}" for name, query in mapping.items())
            return f"[*].{{{', '.join(fields)}}}"
        case "filter" if condition:
            return f"[?{check_query(condition) if isinstance(condition, str) else _equal(condition)}]"
        case "sort" if sort_by:
            return f"sort_by(@, &{check_query(sort_by)}){' | reverse(@)' if descending else ''}"
    needed = {"map": "mapping", "filter": "condition", "sort": "sort_by"}[operation]
    raise BadQuery(f"{operation} needs {needed}")


def _equal(condition: Mapping[str, Any]) -> str:
    return " && ".join(f"{_field(name)} == {_literal(value)}" for name, value in condition.items())


def _field(name: str) -> str:
    """A field may be a path; a name that is none is quoted."""
    try:
        return f"({check_query(name)})"
    except BadQuery:
        return json.dumps(name)


def _literal(value: Any) -> str:
    return "`{}`".format(json.dumps(value, ensure_ascii=False).replace("`", "\\`"))
