"""`submit_result`: the tool by which a model ends its turn with a value of a shape that the caller has asked for.

It is no tool of the protocol between processes: it runs where the turn runs, and what it is given is the deliverable.
"""

from typing import Any

from toolwire.define.functions import from_schema
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.tools import ENDS_TURN, Effect, JsonObject, Tier, Tool

SUBMIT_RESULT = "submit_result"
FIELDS: JsonObject = {
    "type": "object",
    "properties": {
        "fields": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string", "minLength": 1}, "value": {}},
                "required": ["name", "value"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["fields"],
    "additionalProperties": False,
}
"""What a result looks like where its caller has not said."""

_ABOUT = "Ends this turn with its result. Call it alone, once you have everything that the result needs."


def submit_result_tool(schema: JsonObject = FIELDS) -> Tool:
    """The tool that takes a result of this schema. Raises `DefinitionError` for a schema that is wrong."""
    return from_schema(
        SUBMIT_RESULT,
        _ABOUT,
        {"type": "object", "properties": {"result": dict(schema)}, "required": ["result"]},
        _submit,
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category=ENDS_TURN,
        after_execution=AfterExecution.TERMINATE,
    )


def _submit(result: Any) -> Any:
    return result
