"""Commands, callbacks and wakeups: read from payload and headers, written to both, refused with reasons."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.utp.samples import CALLBACK, COMMAND, PMO_COMMAND, WAKEUP, a_while, callbacks, commands, json_values
from toolwire.protocol.bus import AfterExecution, BusMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.subjects import Subject
from toolwire.wire.utp.cards import decode_result_card, encode_result_card
from toolwire.wire.utp.fields import CALLBACK_REQUIRED, PMO_REQUIRED, TOOL_REQUIRED
from toolwire.wire.utp.messages import (
    CallOrigin,
    ToolCallback,
    ToolCommand,
    callback_of,
    callback_violations,
    decode_callback,
    decode_command,
    decode_wakeup,
    encode_callback,
    encode_command,
    encode_wakeup,
    repeat_violations,
)
from toolwire.wire.utp.refusals import refusal_callback, refusal_card
from toolwire.wire.utp.violations import Refusal, ViolationCode

HEADERS = {
    "agent_id": "CG-Agent-Id", "agent_turn_id": "CG-Turn-Id", "turn_epoch": "CG-Turn-Epoch", "step_id": "CG-Step-Id",
    "tool_call_id": "CG-Tool-Call-Id",
}  # fmt: skip


def sent(value: Any) -> BusMessage:
    match value:
        case ToolCommand():
            message = encode_command(value)
        case ToolCallback():
            message = encode_callback(value)
        case _:
            message = encode_wakeup(value)
    assert isinstance(message, BusMessage), message
    return message


def payload(message: BusMessage) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message.data)
    return found


def altered(message: BusMessage, fields: dict[str, Any], *, without: tuple[str, ...] = ()) -> BusMessage:
    """The same message with other fields in the payload, and without some in payload and headers."""
    body = {name: item for name, item in {**payload(message), **fields}.items() if name not in without}
    gone = {HEADERS.get(name) for name in without}
    headers = {name: item for name, item in message.headers.items() if name not in gone}
    return BusMessage(message.subject, orjson.dumps(body), headers)


def codes(read: object) -> set[tuple[str, str]]:
    assert isinstance(read, Refusal), read
    return {(one.code.value, one.field) for one in read.violations}


@a_while
@given(commands)
def test_a_command_that_is_written_is_read_as_it_was(command: ToolCommand) -> None:
    assert decode_command(sent(command)) == command
    headers_only = encode_command(command, headers_only=True)
    assert isinstance(headers_only, BusMessage)
    assert decode_command(headers_only) == command


@a_while
@given(callbacks)
def test_a_callback_that_is_written_is_read_as_it_was(callback: ToolCallback) -> None:
    assert decode_callback(sent(callback)) == callback


def test_a_wakeup_that_is_written_is_read_as_it_was() -> None:
    assert decode_wakeup(sent(WAKEUP)) == WAKEUP
    assert codes(decode_wakeup(altered(sent(WAKEUP), {}, without=("agent_id",)))) == {("missing_field", "agent_id")}


@pytest.mark.feature("F014")
@pytest.mark.feature("F015")
@pytest.mark.parametrize("value", [COMMAND, PMO_COMMAND, CALLBACK], ids=["tool", "pmo", "callback"])
def test_agent_turn_epoch_step_and_call_are_in_payload_and_headers(value: Any) -> None:
    message = sent(value)
    for name, header in HEADERS.items():
        assert payload(message)[name] == getattr(value, name)
        assert message.headers[header] == str(getattr(value, name))
    assert message.headers["CG-Project-Id"] == payload(message)["project_id"] == "acme"
    assert message.headers["CG-Channel-Id"] == payload(message)["channel_id"] == "public"
    assert message.headers["CG-Version"] == "v1r4"


def test_the_identity_in_headers_alone_or_in_the_payload_alone_is_enough() -> None:
    """The published protocol names payload fields, its implementation reads headers: we chose to understand both."""
    message = sent(COMMAND)
    only_payload = replace_headers(message, {})
    assert decode_command(only_payload) == COMMAND
    headers_only = encode_command(COMMAND, headers_only=True)
    assert isinstance(headers_only, BusMessage)
    assert payload(headers_only).keys() == {"tool_call_card_id", "tool_name", "after_execution"}
    assert decode_command(headers_only) == COMMAND


def replace_headers(message: BusMessage, headers: Any) -> BusMessage:
    return BusMessage(message.subject, message.data, headers)


def test_headers_are_known_in_any_case() -> None:
    message = encode_command(COMMAND, headers_only=True)
    assert isinstance(message, BusMessage)
    lowered = {name.lower(): item for name, item in message.headers.items()}
    assert decode_command(replace_headers(message, lowered)) == COMMAND


@pytest.mark.parametrize("name", HEADERS)
def test_payload_and_header_that_differ_are_refused(name: str) -> None:
    other = 4 if name == "turn_epoch" else "another"
    read = decode_command(altered(sent(COMMAND), {name: other}))
    assert codes(read) == {("conflicting_fields", name)}
    assert isinstance(read, Refusal)
    assert name not in read.known


@pytest.mark.parametrize("name", ["project_id", "channel_id"])
@pytest.mark.parametrize("place", ["payload", "header"])
def test_a_message_that_names_another_project_or_channel_than_its_subject_is_refused(name: str, place: str) -> None:
    message = sent(COMMAND)
    if place == "payload":
        message = altered(message, {name: "other"})
    else:
        header = {"project_id": "CG-Project-Id", "channel_id": "CG-Channel-Id"}[name]
        message = replace_headers(message, {**message.headers, header: "other"})
    read = decode_command(message)
    assert codes(read) == {("conflicting_fields", name)}
    assert isinstance(read, Refusal)
    assert read.known["project_id"] == "acme"


@pytest.mark.feature("F199")
def test_a_version_that_is_not_understood_is_refused_before_anything_else_is_read() -> None:
    message = sent(COMMAND)
    other = BusMessage(message.subject.replace("v1r4", "v9"), b"not JSON", message.headers)
    assert codes(decode_command(other)) == {("wrong_version", "")}
    differing = replace_headers(message, {**message.headers, "CG-Version": "v9"})
    assert codes(decode_command(differing)) == {("conflicting_fields", "CG-Version")}


@pytest.mark.parametrize("name", TOOL_REQUIRED)
def test_a_command_without_a_required_field_is_refused(name: str) -> None:
    for message in (altered(sent(COMMAND), {}, without=(name,)), altered(sent(COMMAND), {name: None}, without=())):
        if name in HEADERS and name in payload(message):
            continue  # the header still has it
        assert codes(decode_command(message)) == {("missing_field", name)}


@pytest.mark.parametrize("name", PMO_REQUIRED)
def test_a_command_for_the_pmo_needs_its_step_and_tool_as_well(name: str) -> None:
    assert codes(decode_command(altered(sent(PMO_COMMAND), {}, without=(name,)))) == {("missing_field", name)}


def test_a_command_for_a_service_needs_neither_step_nor_tool_name() -> None:
    read = decode_command(altered(sent(COMMAND), {}, without=("step_id", "tool_name")))
    assert read == replace(COMMAND, step_id="", tool_name="")


@pytest.mark.parametrize("name", CALLBACK_REQUIRED)
def test_a_callback_without_a_required_field_is_refused(name: str) -> None:
    assert codes(decode_callback(altered(sent(CALLBACK), {}, without=(name,)))) == {("missing_field", name)}


def test_a_callback_may_leave_out_its_step() -> None:
    read = decode_callback(altered(sent(CALLBACK), {}, without=("step_id",)))
    assert isinstance(read, ToolCallback)
    assert callback_violations(COMMAND, read) == ()


@pytest.mark.feature("F016")
@pytest.mark.feature("F230")
def test_a_command_carries_the_card_and_the_name_of_the_tool_and_no_arguments() -> None:
    body = payload(sent(COMMAND))
    assert (body["tool_call_card_id"], body["tool_name"]) == ("card_1", "web_search")
    assert not body.keys() & {"args", "arguments", "result"}


@pytest.mark.feature("F017")
@pytest.mark.parametrize("name", ["args", "arguments", "result", "Args", "RESULT"])
@pytest.mark.parametrize("value", [{}, None, {"query": "x"}, "[]"])
@pytest.mark.parametrize("kind", ["command", "callback"])
def test_inline_content_is_refused(name: str, value: Any, kind: str) -> None:
    if kind == "command":
        read: object = decode_command(altered(sent(COMMAND), {name: value}))
    else:
        read = decode_callback(altered(sent(CALLBACK), {name: value}))
    assert codes(read) == {("inline_content", name)}
    assert isinstance(encode_command(replace(COMMAND, extra={name: value})), Refusal)


@pytest.mark.feature("F018")
def test_a_missing_pointer_gives_a_failed_result_and_a_callback_to_it() -> None:
    read = decode_command(altered(sent(COMMAND), {}, without=("tool_call_card_id",)))
    assert isinstance(read, Refusal)
    assert read.error.code is Code.INVALID_PARAMS

    card = refusal_card(read, card_id="card_77", author_id="service")
    assert card is not None
    data = encode_result_card(card)
    assert isinstance(data, bytes)
    content = json.loads(data)["content"]
    assert (content["status"], content["error"]["code"]) == ("failed", "bad_request")
    assert "tool_call_card_id is missing" in content["error"]["message"]

    callback = refusal_callback(read, card)
    assert decode_callback(sent(callback)) == callback
    assert callback_violations(COMMAND, callback) == ()
    assert (callback.tool_result_card_id, callback.status) == ("card_77", Status.FAILED)


@pytest.mark.parametrize("name", ["agent_id", "agent_turn_id", "turn_epoch", "tool_call_id"])
def test_a_refused_command_without_an_identity_is_answered_to_no_one(name: str) -> None:
    read = decode_command(altered(sent(COMMAND), {}, without=(name,)))
    assert isinstance(read, Refusal)
    assert refusal_card(read, card_id="card_77") is None


@pytest.mark.feature("F019")
@pytest.mark.parametrize(
    ("name", "value"),
    [("agent_turn_id", "turn_2"), ("turn_epoch", 2), ("turn_epoch", 4), ("tool_call_id", "call_2"),
     ("after_execution", AfterExecution.TERMINATE), ("agent_id", "writer"), ("step_id", "step_9"),
     ("subject", Subject.report("other", "public")), ("subject", Subject.report("acme", "private"))],
)  # fmt: skip
def test_a_callback_that_changes_what_must_stay_is_found(name: str, value: Any) -> None:
    callback = callback_of(COMMAND, card_id="card_9", status=Status.SUCCESS)
    assert callback_violations(COMMAND, callback) == ()
    (found,) = callback_violations(COMMAND, replace(callback, **{name: value}))
    assert found.code is ViolationCode.CHANGED_FIELD


@pytest.mark.feature("F019")
def test_a_repeated_callback_points_to_the_same_card() -> None:
    assert repeat_violations(CALLBACK, CALLBACK) == ()
    (found,) = repeat_violations(CALLBACK, replace(CALLBACK, tool_result_card_id="card_10"))
    assert found.field == "tool_result_card_id"


@pytest.mark.feature("F020")
@a_while
@given(st.dictionaries(st.text(max_size=10), json_values, max_size=5))
def test_unknown_fields_are_ignored_and_kept(extra: dict[str, Any]) -> None:
    known = set(payload(sent(COMMAND))) | {"args", "arguments", "result", "context_box_id", "arguments_digest"}
    known |= {"parent_agent_id", "parent_agent_turn_id", "parent_step_id", "traceparent", "tracestate"}
    unknown = {name: item for name, item in extra.items() if name.lower() not in known | {"parent_traceparent"}}
    read = decode_command(altered(sent(COMMAND), unknown))
    assert read == replace(COMMAND, extra=unknown)


@pytest.mark.feature("F195")
def test_a_command_may_name_a_box_of_context() -> None:
    command = replace(COMMAND, context_box_id="box_5")
    assert payload(sent(command))["context_box_id"] == "box_5"
    assert decode_command(sent(command)) == command


@pytest.mark.parametrize(
    ("name", "value"),
    [("turn_epoch", -1), ("turn_epoch", True), ("turn_epoch", "3"), ("turn_epoch", 3.5), ("turn_epoch", 2**53),
     ("agent_id", ""), ("agent_id", "a b"), ("agent_id", "a\r\nX: y"), ("agent_id", "é"), ("agent_id", "a" * 201),
     ("agent_id", 7), ("agent_id", ["a"]), ("after_execution", "stop"), ("after_execution", "Suspend"),
     ("tool_name", "rm -rf"), ("arguments_digest", "abc"), ("tool_call_card_id", {}), ("recursion_depth", "x")],
)  # fmt: skip
def test_a_field_of_the_wrong_kind_is_refused(name: str, value: Any) -> None:
    bare = replace_headers(sent(COMMAND), {})
    assert codes(decode_command(altered(bare, {name: value}))) == {("invalid_field", name)}


@pytest.mark.parametrize("text", ["", "-1", "+3", "03", "3.0", "9" * 30, "٣", "0x3", " 3"])
def test_an_epoch_in_a_header_is_plain_digits(text: str) -> None:
    message = sent(COMMAND)
    read = decode_command(replace_headers(message, {**message.headers, "CG-Turn-Epoch": text}))
    assert codes(read) == {("invalid_field", "turn_epoch")}


def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    """JSON has one kind of number; our JSON Schema says integer, which 3.0 is."""
    bare = BusMessage(str(COMMAND.subject), sent(COMMAND).data.replace(b'"turn_epoch":3', b'"turn_epoch":3.0'))
    assert decode_command(bare) == COMMAND


def test_a_wrong_trace_never_stops_a_call() -> None:
    message = sent(COMMAND)
    traced = replace_headers(message, {**message.headers, "traceparent": "nonsense"})
    assert decode_command(traced) == COMMAND
    parent = f"00-{'a' * 32}-{'b' * 16}-01"
    read = decode_command(replace_headers(message, {**message.headers, "traceparent": parent}))
    assert read == replace(COMMAND, origin=CallOrigin(traceparent=parent))


@pytest.mark.parametrize(
    "data",
    [b"", b"null", b"[]", b'"x"', b"7", b"{", b"\xff\xfe", b'{"agent_id":"a","agent_id":"b"}', b'{"a":NaN}',
     b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}", b'{"a":1e999}', b'{"a":"\\ud800"}', b'{"a":' + b"9" * 5000 + b"}"],
)  # fmt: skip
def test_a_payload_that_is_not_a_json_object_is_refused(data: bytes) -> None:
    read = decode_command(BusMessage(str(COMMAND.subject), data, sent(COMMAND).headers))
    assert codes(read) == {("not_json", "")}


def test_an_oversized_message_is_refused_unread() -> None:
    big = BusMessage(str(COMMAND.subject), b"x" * (64 * 1024 + 1))
    assert codes(decode_command(big)) == {("too_large", "")}
    padded = BusMessage(str(COMMAND.subject), sent(COMMAND).data.ljust(64 * 1024))
    assert decode_command(padded) == COMMAND
    many = replace_headers(sent(COMMAND), {f"X-{place}": "x" for place in range(65)})
    assert codes(decode_command(many)) == {("too_large", "")}
    long = replace_headers(sent(COMMAND), {"X-Long": "x" * 20_000})
    assert codes(decode_command(long)) == {("too_large", "")}
    assert isinstance(encode_command(replace(COMMAND, extra={"x_big": "x" * 70_000})), Refusal)


def test_headers_that_are_not_texts_are_refused() -> None:
    assert codes(decode_command(replace_headers(sent(COMMAND), {"CG-Agent-Id": ["a", "b"]}))) == {
        ("invalid_field", "headers")
    }


@pytest.mark.parametrize(
    "headers", [{"X-A": "a\r\nCG-Agent-Id: b"}, {"X A": "a"}, {"X:A": "a"}, {"": "a"}, {"X": " a"}]
)
def test_headers_that_could_add_others_are_not_written(headers: dict[str, str]) -> None:
    assert isinstance(encode_command(replace(COMMAND, extra_headers=headers)), Refusal)


def test_an_extra_field_cannot_pose_as_one_of_the_protocol() -> None:
    assert isinstance(encode_command(replace(COMMAND, extra={"agent_id": "researcher"})), Refusal)
    assert isinstance(encode_command(replace(COMMAND, extra={"x": object()})), Refusal)
    assert isinstance(encode_command(replace(COMMAND, extra_headers={"cg-agent-id": "other"})), Refusal)


@pytest.mark.parametrize("name", ["agent_id", "agent_turn_id", "tool_call_card_id", "step_id"])
def test_a_command_that_could_not_be_read_is_not_written(name: str) -> None:
    """An agent's name comes from settings: one with a line break in it must not become a header of its own."""
    change: dict[str, Any] = {name: "a\r\nb"}
    assert isinstance(encode_command(replace(COMMAND, **change)), Refusal)


odd = st.sampled_from(["", " a", "a b", "a\n", "\ud800", "x" * 201, 0, 3.0, True, -1, 2**53, "\u00e9", "3"])


@a_while
@given(commands, st.dictionaries(st.sampled_from(sorted({*HEADERS, "tool_name", "arguments_digest"})), odd, max_size=2))
def test_a_command_is_written_if_and_only_if_it_can_be_read(command: ToolCommand, change: dict[str, Any]) -> None:
    """What is plain is not read once more before it is sent: it must be clear that it could be."""
    changed = replace(command, **change)
    message, unread = encode_command(changed), encode_command(changed, is_checked=True)

    assert isinstance(unread, BusMessage)
    read = decode_command(unread)
    if isinstance(message, BusMessage):
        assert isinstance(read, ToolCommand)
        assert (message, read) == (unread, changed)
    else:
        assert isinstance(read, Refusal) or any(text != text.strip() for text in unread.headers.values())


def test_a_message_at_the_subject_of_another_kind_is_refused() -> None:
    assert codes(decode_command(sent(CALLBACK))) == {("bad_subject", "")}
    assert codes(decode_callback(sent(COMMAND))) == {("bad_subject", "")}
    assert codes(decode_wakeup(sent(COMMAND))) == {("bad_subject", "")}
    assert codes(decode_command(BusMessage("cg.v1r4.a.b.evt.tool.x.y"))) == {("bad_subject", "")}
    for decode in (decode_command, decode_callback, decode_wakeup):
        assert codes(decode(BusMessage("elsewhere", sent(COMMAND).data))) == {("bad_subject", "")}
        assert codes(decode(BusMessage("cg.v2.a.b.cmd.tool.x", sent(COMMAND).data))) == {("wrong_version", "")}


def test_a_command_for_the_pmo_names_the_tool_of_its_subject() -> None:
    assert codes(decode_command(altered(sent(PMO_COMMAND), {"tool_name": "fork_join"}))) == {
        ("conflicting_fields", "tool_name")
    }


@a_while
@given(st.binary(max_size=300), st.dictionaries(st.text(max_size=20), st.text(max_size=20), max_size=5))
def test_any_bytes_are_read_or_refused(data: bytes, headers: dict[str, str]) -> None:
    for subject, decode in (
        (COMMAND.subject, decode_command),
        (CALLBACK.subject, decode_callback),
        (WAKEUP.subject, decode_wakeup),
    ):
        assert isinstance(decode(BusMessage(str(subject), data, headers)), Refusal)


@a_while
@given(st.dictionaries(st.sampled_from([*payload(sent(COMMAND)), "status", "x"]), json_values, max_size=12))
def test_any_fields_are_read_or_refused_with_reasons(fields: dict[str, Any]) -> None:
    read = decode_command(BusMessage(str(COMMAND.subject), orjson.dumps(fields)))
    if isinstance(read, Refusal):
        assert read.violations
        card = refusal_card(read, card_id="card_1")
        if card is not None:
            data = encode_result_card(card)
            assert isinstance(data, bytes)
            assert not isinstance(decode_result_card(data), Refusal)
    else:
        assert decode_command(sent(read)) == read
