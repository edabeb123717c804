"""Schemas in the smaller languages of some providers, and what is said about everything left behind."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.wire.test_native import completion
from toolwire.protocol.chat import Request, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode import gemini, openai_chat, openapi_subset, strict_schema
from toolwire.wire.encode.request import encode_request
from toolwire.wire.replies.reply import parse_reply


def gemini_schema(schema: dict[str, Any]) -> tuple[Any, list[str]]:
    tool = Tool("t", "Do.", {"type": "object", "properties": {"p": schema}})
    body = encode_request(gemini.DIALECT, Request((UserMessage("hi"),), (tool,)), {})
    (declared,) = body["tools"][0]["functionDeclarations"]
    return declared["parameters"]["properties"]["p"], [str(loss) for loss in gemini.DIALECT.losses((tool,))]


@pytest.mark.parametrize(
    ("schema", "sent", "lost"),
    [
        ({"type": "string", "description": "A name."}, {"type": "string", "description": "A name."}, []),
        ({"type": ["integer", "null"]}, {"type": "integer", "nullable": True}, []),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"type": "string", "nullable": True}, []),
        ({"type": ["integer", "string"]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}, []),
        ({"const": "on"}, {"type": "string", "enum": ["on"]}, []),
        ({"enum": ["a", "b", None]}, {"type": "string", "enum": ["a", "b"], "nullable": True}, []),
        (
            {"enum": [1, 2], "description": "How many."},
            {"type": "integer", "description": "How many. One of: [1,2]"},
            ["t.p: only texts can be listed; the values are told in the description"],
        ),
        ({"type": "string", "format": "uuid"}, {"type": "string"}, ["t.p: format 'uuid' was left out"]),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}, []),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer"}, ["t.p: exclusiveMinimum was left out"]),
        ({"type": "object", "additionalProperties": False}, {"type": "object"}, []),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            {"type": "object"},
            ["t.p: its further properties cannot be described"],
        ),
        ({"type": "array"}, {"type": "array", "items": {"type": "string"}},
         ["t.p[]: takes any value; a text is offered"]),
        ({}, {"type": "string"}, ["t.p: takes any value; a text is offered"]),
        (
            {"oneOf": [{"type": "string"}, {"type": "boolean"}], "description": "Either."},
            {"anyOf": [{"description": "Either.", "type": "string"}, {"description": "Either.", "type": "boolean"}]},
            ["t.p: that exactly one variant holds was left out"],
        ),
        (
            {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                       {"properties": {"b": {"type": "number"}}, "required": ["b"]}]},
            {"type": "object", "properties": {"b": {"type": "number"}, "a": {"type": "string"}},
             "required": ["b", "a"]},
            [],
        ),
    ],
)  # fmt: skip
def test_gemini_is_sent_its_own_subset_and_every_loss_has_words(schema: Any, sent: Any, lost: list[str]) -> None:
    assert gemini_schema(schema) == (sent, lost)


def test_references_are_unfolded_for_gemini_and_a_schema_within_itself_is_cut() -> None:
    tree = {"type": "object", "properties": {"name": {"type": "string"}, "child": {"$ref": "#/$defs/tree"}}}
    root = {"type": "object", "properties": {"top": {"$ref": "#/$defs/tree"}}, "$defs": {"tree": tree}}

    fitted, lost = openapi_subset.fit(root)

    assert fitted["properties"]["top"]["properties"]["name"] == {"type": "string"}
    assert fitted["properties"]["top"]["properties"]["child"] == {"type": "object"}
    assert [loss.where for loss in lost] == [".top.child"]


def test_a_schema_that_would_unfold_without_end_is_cut() -> None:
    """Twenty references, each used twice by the one before: a million objects unless they are counted."""
    defs: dict[str, Any] = {
        f"d{n}": {"type": "object", "properties": {side: {"$ref": f"#/$defs/d{n + 1}"} for side in "ab"}}
        for n in range(20)
    }
    defs["d20"] = {"type": "string"}

    _, lost = openapi_subset.fit({"type": "object", "properties": {"p": {"$ref": "#/$defs/d0"}}, "$defs": defs})

    assert any("too large" in loss.what for loss in lost)


def test_a_tool_without_parameters_has_no_schema_for_gemini() -> None:
    assert gemini.encode_tools([Tool("now", "Tell the time.")]) == [{"name": "now", "description": "Tell the time."}]


def test_strict_mode_closes_every_object_and_asks_for_every_property() -> None:
    schema = {
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "lines": {"type": "integer"},
            "mode": {"enum": ["r", "w"]},
            "more": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["path"],
    }
    tool = Tool("read", "Read.", schema)
    body = encode_request(openai_chat.STRICT, Request((UserMessage("hi"),), (tool,)), {})

    (function,) = [one["function"] for one in body["tools"]]
    closed = {"type": ["object", "null"], "properties": {}, "required": [], "additionalProperties": False}
    assert function["strict"] is True
    assert function["parameters"] == {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "lines": {"type": ["integer", "null"]},
            "mode": {"anyOf": [{"enum": ["r", "w"]}, {"type": "null"}]},
            "more": closed,
        },
        "required": ["path", "lines", "mode", "more"],
        "additionalProperties": False,
    }
    assert [str(loss) for loss in openai_chat.STRICT.losses((tool,))] == [
        "read.path: minLength was left out",
        "read.more: its further properties cannot be given",
    ]


def test_a_null_that_strict_mode_asked_for_is_taken_out_again() -> None:
    """Of an optional property that has no null of its own; a null that the tool knows stays."""
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "b": {"type": ["string", "null"]},
            "c": {"type": "object", "properties": {"d": {"type": "integer"}}},
            "e": {"type": "array", "items": {"$ref": "#/$defs/step"}},
        },
        "$defs": {"step": {"type": "object", "properties": {"f": {"enum": ["x"]}}}},
    }
    written = {"a": None, "b": None, "c": {"d": None}, "e": [{"f": None}]}

    reply = parse_reply(completion(written, name="read"), [Tool("read", "Read.", schema)])

    assert [call.arguments for call in reply.calls] == [{"b": None, "c": {}, "e": [{}]}]


def test_a_null_for_what_must_be_given_stays_wrong() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

    reply = parse_reply(completion({"a": None}, name="read"), [Tool("read", "Read.", schema)])

    assert [problem.code for problem in reply.problems] == ["invalid_arguments"]


KEYS = st.sampled_from(
    (
        "type",
        "properties",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "enum",
        "const",
        "$ref",
        "$defs",
        "required",
        "format",
        "a",
    )
)
WORDS = st.sampled_from(["object", "array", "string", "null", "#", "#/properties/a", "#/$defs/a", "a"])
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(KEYS, ANY, max_size=5))
@example({"type": "string", "format": []})
def test_no_schema_is_too_odd_to_be_sent(schema: dict[str, Any]) -> None:
    openapi_subset.fit(schema)
    strict_schema.fit(schema)
