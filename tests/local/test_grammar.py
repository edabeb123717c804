"""Grammars made from schemas, tried on the engine that must accept them."""

import json
import re
from typing import Any

import jsonschema_rs
import pytest

from toolwire.models.local_engine import Engine, find_weights, shared_engine
from toolwire.models.local_grammar import faithful_grammar, json_grammar, literal, words_of

NUMBER = {"type": "number"}
TEXT = {"type": "string"}


def of(*required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return shared_engine(find_weights("smollm2"))


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
def test_what_is_written_under_a_grammar_fits_the_schema(engine: Engine, schema: dict[str, Any]) -> None:
    grammar = json_grammar(schema, words_of("blue 42 7"))
    written = engine.write("Arguments as JSON: ", slot=1, max_tokens=200, grammar=grammar)
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
def test_a_schema_beyond_a_grammar_makes_it_looser_and_never_fails(engine: Engine, schema: dict[str, Any]) -> None:
    grammar = json_grammar(schema)
    assert len(grammar) < 200_000
    engine.write("{", slot=1, max_tokens=1, grammar=grammar)


def test_copied_arguments_hold_only_words_and_numbers_of_the_request(engine: Engine) -> None:
    grammar = json_grammar(of("n", "text", n={"type": "integer"}, text=TEXT), words_of("paint 42 doors"))
    written = engine.write("Sky is blue. JSON: ", slot=1, max_tokens=250, grammar=grammar)
    arguments = json.loads(written.text)
    assert abs(arguments["n"]) == 42
    assert set(re.findall(r"\w+", arguments["text"])) <= {"paint", "42", "doors"}


def test_words_are_taken_whole_and_numbers_also_alone() -> None:
    assert words_of('Open "data/report.txt", then 23*19?') == ("Open", "data/report.txt", "then", "23*19", "23", "19")


def test_words_of_a_huge_text_are_few() -> None:
    assert len(words_of(" ".join(f"word{n}" for n in range(100_000)))) <= 160


def test_told_numbers_are_the_known_ones(engine: Engine) -> None:
    written = engine.write("2 + 2 =", slot=1, max_tokens=12, grammar=faithful_grammar("the answer is 5"))
    assert set(filter(str.isdigit, written.text)) <= {"5"}
    assert "\n" not in written.text


def test_a_literal_keeps_quotes_backslashes_and_controls_apart() -> None:
    assert literal('a"\\\n') == '"a\\"\\\\\\x0A"'
