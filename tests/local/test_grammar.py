"""Grammars made from schemas, tried on the engine that must accept them."""

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from toolwire.models.local_engine import LocalEngine, shared_engine
from toolwire.models.local_grammar import dialogue_grammar, json_grammar, literal
from toolwire.models.weights import weights_of
from toolwire.protocol.tools import Tool

NUMBER = {"type": "number"}
TEXT = {"type": "string"}


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.fixture(scope="module")
def engine() -> LocalEngine:
    return shared_engine(weights_of("smollm2"))


SCHEMAS: dict[str, dict[str, Any]] = {
    "a string": of("text", text=TEXT),
    "an integer": of("n", n={"type": "integer"}),
    "a number": of("n", n=NUMBER),
    "a boolean": of("on", on={"type": "boolean"}),
    "null": of("none", none={"type": "null"}),
    "an enum": of("unit", unit={"enum": ["km", 'mi"le', 3, None]}),
    "a constant": of("kind", kind={"const": {"a": [1]}}),
    "several types": of("x", x={"type": ["integer", "null"]}),
    "alternatives": of("x", x={"anyOf": [{"type": "integer"}, {"type": "boolean"}]}),
    "exclusive alternatives": of("x", x={"oneOf": [NUMBER, {"type": "null"}]}),
    "one of all": of("x", x={"allOf": [NUMBER]}),
    "an array": of("xs", xs={"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2}),
    "an empty array": of("xs", xs={"type": "array", "maxItems": 0}),
    "a nested object": of("at", at=of("lat", lat=NUMBER, lon=NUMBER)),
    "only optional inputs": of(a={"type": "integer"}, b={"type": "boolean"}, c=NUMBER),
    "an optional one before a required one": of("b", a={"type": "integer"}, b={"type": "boolean"}),
    "a reference": {**of("x", x={"$ref": "#/$defs/X"}), "$defs": {"X": {"type": "integer"}}},
    "no inputs": {"type": "object", "properties": {}},
    "nothing said": {"type": "object"},
    "a name with quotes": of('a"b\\c', **{'a"b\\c': {"type": "boolean"}}),
}


@pytest.mark.parametrize("schema", SCHEMAS.values(), ids=SCHEMAS.keys())
def test_what_is_written_under_a_grammar_fits_the_schema(engine: LocalEngine, schema: dict[str, Any]) -> None:
    grammar = json_grammar(schema)
    written = engine.write("Arguments as JSON: ", slot=1, max_tokens=400, grammar=grammar)
    jsonschema_rs.validate(schema, json.loads(written.text))


LOOSE: dict[str, dict[str, Any]] = {
    "a schema that refers to itself": {**of(x={"$ref": "#"})},
    "a reference to nowhere": of(x={"$ref": "#/$defs/Lost"}),
    "a pattern": of(x={"type": "string", "pattern": "(a+)+$"}),
    "an unknown type": of(x={"type": "tensor"}),
    "a type that is no word": of(x={"type": {"is": 1}}),
    "conditions": of(x={"if": {"type": "string"}, "then": {"minLength": 2}, "not": {}}),
    "a schema that is a number": of(x=5),
    "a required list that is none": {"type": "object", "properties": {"x": NUMBER}, "required": 5},
    "thousands of properties": of(**{f"p{n}": of(a=TEXT) for n in range(3000)}),
    "a million choices": of(x={"enum": list(range(1_000_000))}),
    "control characters": of(**{"a\nb\x00\u2028": {"enum": ["\x1b[0m", "😀", "\ud800"]}}),
}


@pytest.mark.parametrize("schema", LOOSE.values(), ids=LOOSE.keys())
def test_a_schema_beyond_a_grammar_makes_it_looser_and_never_fails(engine: LocalEngine, schema: dict[str, Any]) -> None:
    grammar = json_grammar(schema)
    assert len(grammar) < 200_000
    engine.write("{", slot=1, max_tokens=1, grammar=grammar)


TOOLS = (Tool("add", "Add.", of("a", "b", a=NUMBER, b=NUMBER)), Tool("odd name", "", of(x={"enum": ["@x {}"]})))


def test_one_turn_is_calls_of_the_offered_tools_or_words(engine: LocalEngine) -> None:
    only_calls = dialogue_grammar(TOOLS).replace(" | words\n", "\n", 1)
    called = engine.write("Add 2 and 3: ", slot=1, max_tokens=60, grammar=only_calls)
    assert called.text.startswith(("@add {", "@odd name {"))
    spoken = engine.write("Hello", slot=1, max_tokens=4, grammar=dialogue_grammar(()))
    assert not spoken.text.startswith(("@", " "))


def test_told_numbers_are_the_known_ones_or_small(engine: LocalEngine) -> None:
    grammar = dialogue_grammar((), "the answer is 575")
    written = engine.write("25 * 23 =", slot=1, max_tokens=12, grammar=grammar)
    assert {number for number in re.findall(r"\d+", written.text) if int(number) > 12} <= {"575"}


def test_a_text_full_of_numbers_leaves_the_words_free(engine: LocalEngine) -> None:
    grammar = dialogue_grammar((), " ".join(map(str, range(1000))))
    assert engine.write("2 + 2 =", slot=1, max_tokens=2, grammar=grammar).text


def test_thirty_tools_with_large_schemas_make_a_grammar_that_the_engine_takes(engine: LocalEngine) -> None:
    many = [Tool(f"tool_{n}", "", of(**{f"p{k}": of(a=TEXT, b=NUMBER) for k in range(40)})) for n in range(30)]
    assert engine.write("@", slot=1, max_tokens=1, grammar=dialogue_grammar(many)).text


def test_a_literal_keeps_quotes_backslashes_and_controls_apart() -> None:
    assert literal('a"\\\n') == '"a\\"\\\\\\x0A"'
