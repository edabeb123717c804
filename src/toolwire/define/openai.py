"""OpenAI-style tool dictionaries, as programs already have them."""

from collections.abc import Mapping
from typing import Any

from toolwire.define.functions import tool_name
from toolwire.define.schemas import plain_copy
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Tool


def tool_from_openai(entry: Mapping[str, Any]) -> Tool:
    """A tool without a target from one entry of a `tools` list, in the nested (Chat) or flat (Responses) form.

    Raises `DefinitionError` for anything else. The schema is compiled only when arguments are checked.
    """
    if not isinstance(entry, Mapping):
        raise DefinitionError(f"a tool entry is an object, not {type(entry).__name__}")
    function = entry.get("function", entry)
    if entry.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise DefinitionError(f'a tool entry has "type": "function", not {str(entry.get("type"))[:80]!r}')
    name = tool_name(function.get("name"))
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    description = function.get("description")
    return Tool(
        name=name,
        description=description if isinstance(description, str) else "",
        input_schema=plain_copy(parameters, f"parameters of tool {name!r}"),
    )
