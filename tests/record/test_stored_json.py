"""The JSON in which nouns are stored: what goes in comes out, and what a newer version adds does no harm."""

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolwire.protocol.calls import ErrorText, Image, Problem, Resource, Text, ToolCall, ToolError, ToolResult
from toolwire.protocol.chat import Note, Reply, ResultsMessage, Usage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Grant, Tier
from toolwire.protocol.turns import Limits
from toolwire.wire.codecs import stored
from toolwire.wire.codecs.faithful import MAX_DEPTH, dump, load

texts = st.text(st.characters(exclude_categories=()), max_size=20)
numbers = st.integers() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False)
keys = texts | st.sampled_from(["$text", "$int", "$float", "$object", "$type", "$deep", "$ref"])
json_values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)
objects = st.dictionaries(keys, json_values, max_size=4)
maybe_text = st.none() | texts
floats = st.floats(allow_nan=False)
codes = st.sampled_from(Code)

calls = st.builds(ToolCall, texts, objects, texts, maybe_text, texts, floats, st.integers(0, 99), json_values, texts)
blocks = (
    st.builds(Text, texts) | st.builds(Image, texts, texts) | st.builds(Resource, texts, texts, texts)
    | st.builds(ErrorText, texts, codes)
)  # fmt: skip
errors = st.builds(ToolError, codes, texts, st.booleans(), json_values)
results = st.builds(
    ToolResult,
    call_id=texts,
    name=texts,
    status=st.sampled_from(Status),
    content=st.lists(blocks, max_size=3).map(tuple),
    structured=json_values,
    error=st.none() | errors,
    exit_code=st.none() | st.integers(-255, 255),
    stderr=texts,
    elapsed_ms=floats,
    queued_ms=floats,
    truncated=st.booleans(),
    handle=maybe_text,
    delivery=maybe_text,
    untrusted=st.booleans(),
    origins=st.lists(texts, max_size=3).map(tuple),
)
usages = st.builds(Usage, st.integers(0), st.integers(0), st.integers(0), st.none() | floats)
problems = st.builds(
    Problem, texts, texts, st.none() | st.integers(), st.none() | st.tuples(st.integers(), st.integers())
)
replies = st.builds(
    Reply,
    content=texts,
    reasoning=texts,
    calls=st.lists(calls, max_size=2).map(tuple),
    problems=st.lists(problems, max_size=2).map(tuple),
    finish_reason=texts,
    usage=usages,
    model=texts,
    carry=st.none() | objects,
)
messages = (
    st.builds(UserMessage, texts)
    | st.builds(Note, texts)
    | replies
    | st.builds(ResultsMessage, st.lists(results, max_size=2).map(tuple))
)
names = st.frozensets(texts.filter(str.strip), max_size=3)
grants = st.builds(
    Grant, st.sampled_from(Tier), names, names.map(tuple), names.map(tuple), texts, names, st.integers(0, 99)
)
counts = st.integers(1, 99)
amounts = st.floats(0, 1e9)
limits = st.builds(
    Limits,
    *[counts] * 5,
    tokens=st.none() | st.integers(0, 99),
    cost_usd=st.none() | amounts,
    deadline_s=st.none() | amounts,
    result_chars=counts,
    tools_enabled=st.booleans(),
    envelope=st.booleans(),
    own_time=st.booleans(),
    window_tokens=st.none() | counts,
)

KINDS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "call": (calls, stored.write_call, stored.read_call),
    "result": (results, stored.write_result, stored.read_result),
    "message": (messages, stored.write_message, stored.read_message),
    "usage": (usages, stored.write_usage, stored.read_usage),
    "problem": (problems, stored.write_problem, stored.read_problem),
    "grant": (grants, stored.write_grant, stored.read_grant),
    "limits": (limits, stored.write_limits, stored.read_limits),
}


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(data=st.data())
def test_a_noun_comes_back_as_it_went_in_and_its_json_is_stable(kind: str, data: st.DataObject) -> None:
    values, write, read = KINDS[kind]
    value = data.draw(values)

    kept = dump(write(value))

    assert read(load(kept)) == value
    assert dump(write(read(load(kept)))) == kept
    assert json.loads(kept) is not None


@pytest.mark.parametrize("kind", KINDS)
@settings(deadline=None)
@given(data=st.data())
def test_fields_that_a_newer_version_adds_are_ignored(kind: str, data: st.DataObject) -> None:
    values, write, read = KINDS[kind]
    value = data.draw(values)

    assert read(write(value) | {"added_later": {"x": 1}}) == value


@settings(deadline=None)
@given(json_values)
def test_any_json_value_comes_back_as_it_went_in(value: Any) -> None:
    assert load(dump(value)) == value


def test_numbers_that_json_cannot_say_come_back() -> None:
    kept = load(dump({"nan": float("nan"), "inf": [float("inf"), float("-inf")], "huge": 2**20_000, "low": -(2**64)}))

    assert math.isnan(kept.pop("nan"))
    assert kept.pop("huge") == 2**20_000
    assert kept == {"inf": [float("inf"), float("-inf")], "low": -(2**64)}


def test_what_is_no_json_at_all_is_kept_by_the_name_of_its_type() -> None:
    class Secret:
        def __str__(self) -> str:
            raise AssertionError("storage must not run foreign code")

    kept = load(dump({"a": {1, 2}, "b": Secret(), "c": b"bytes", "d": datetime(2026, 1, 2, tzinfo=UTC), "e": None}))

    assert kept == {
        "a": {"$type": "set"},
        "b": {"$type": "Secret"},
        "c": {"$type": "bytes"},
        "d": "2026-01-02T00:00:00+00:00",
        "e": None,
    }


def test_read_only_mappings_tuples_and_odd_keys_are_plain_data() -> None:
    assert load(dump(MappingProxyType({"a": (1, 2)}))) == {"a": [1, 2]}
    assert load(dump({1: "one", None: "none", (1, 2): "pair"})) == {1: "one", None: "none", (1, 2): "pair"}


def test_what_lies_too_deep_is_left_out_and_marked() -> None:
    value: Any = "bottom"
    for _ in range(MAX_DEPTH * 50):
        value = [value]

    kept = dump(value)

    assert "bottom" not in kept
    assert '{"$deep":true}' in kept
    value = {}
    for _ in range(MAX_DEPTH * 50):
        value = {"$odd": value}
    assert '{"$deep":true}' in dump(value)


@pytest.mark.threat("T17")
def test_a_model_cannot_pose_as_our_own_markers() -> None:
    posing = {"$text": "QUJD", "list": [{"$int": "0x10"}, {"$float": "nan"}, {"$object": [["a", 1]]}, {"$deep": True}]}

    assert load(dump(posing)) == posing


def test_the_stored_shape_of_a_result_is_what_stores_on_disk_hold() -> None:
    """A change of this sample breaks stores that exist."""
    error = ToolError(Code.UNAVAILABLE, "the sensor is silent", retryable=True, detail={"bus": 3})
    content = (Text("t"), Image("aGk="), Resource("file:///x", "x"), ErrorText("no", Code.TIMEOUT))
    result = ToolResult(
        "c1", "thermometer", Status.FAILED, content, {"k": 1}, error, 2, "err", 1.5, 0.5, True, "h", "user"
    )

    assert dump(stored.write_result(result)) == (
        '{"call_id":"c1","name":"thermometer","status":"failed","content":[{"text":"t"},'
        '{"image":"aGk=","media_type":"image/png"},{"uri":"file:///x","title":"x","media_type":""},'
        '{"error":"no","code":"timeout"}],"structured":{"k":1},"error":{"code":"unavailable",'
        '"message":"the sensor is silent","retryable":true,"detail":{"bus":3}},"exit_code":2,"stderr":"err",'
        '"elapsed_ms":1.5,"queued_ms":0.5,"truncated":true,"handle":"h","delivery":"user"}'
    )


def test_a_block_of_a_kind_that_is_not_known_yet_reads_as_a_sentence() -> None:
    data = {"call_id": "c", "name": "n", "status": "success", "content": [{"hologram": "…"}]}

    assert stored.read_result(data).content == (Text("[a block that this version cannot read]"),)


def test_a_message_of_a_kind_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValueError, match="no message of this kind"):
        stored.read_message({"opera": "la la"})
