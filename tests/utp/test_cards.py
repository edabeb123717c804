"""The cards of a call and of its result: read forgivingly about outcomes, never about whose call it was."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.utp.samples import (
    CALL_CARD,
    CALLBACK,
    COMMAND,
    RESULT_CARD,
    a_while,
    afters,
    counts,
    errors,
    extras,
    ids,
    json_values,
    maybe_ids,
    names,
    objects,
)
from toolwire.protocol.bus import AfterExecution, control_of
from toolwire.protocol.calls import Image, Text, ToolCall, ToolResult
from toolwire.protocol.outcomes import OUTCOMES, Code, Status
from toolwire.wire.utp.cards import (
    MAX_CARD_BYTES,
    ToolCallCard,
    ToolResultCard,
    call_card_violations,
    decode_call_card,
    decode_result_card,
    encode_call_card,
    encode_result_card,
    result_card_violations,
)
from toolwire.wire.utp.outcome import (
    CardError,
    CardOutcome,
    effective_after_execution,
    outcome_of,
    read_outcome,
    result_of,
    write_outcome,
)
from toolwire.wire.utp.violations import Refusal

CALL = ToolCall("web_search", {}, id="call_1")
SUSPEND, TERMINATE, DETACH = AfterExecution.SUSPEND, AfterExecution.TERMINATE, AfterExecution.DETACH

call_cards = st.builds(
    ToolCallCard, card_id=ids, project_id=ids, agent_turn_id=ids, tool_call_id=ids, tool_name=names, arguments=objects,
    step_id=maybe_ids, turn_epoch=counts, after_execution=st.none() | afters, author_id=maybe_ids, extra=extras,
    extra_content=extras, extra_metadata=extras,
)  # fmt: skip
ended = st.one_of(
    st.tuples(st.just(Status.SUCCESS), st.none()),
    st.tuples(st.just(Status.PARTIAL), st.none()),
    st.tuples(st.sampled_from([Status.FAILED, Status.TIMEOUT, Status.CANCELED, Status.PARTIAL]), errors),
)
results = st.dictionaries(st.sampled_from(["r_a", "r_b"]), json_values, min_size=1)
result_cards = st.builds(
    lambda status_and_error, **rest: ToolResultCard(status=status_and_error[0], error=status_and_error[1], **rest),
    ended, card_id=ids, project_id=ids, agent_turn_id=ids, tool_call_id=ids,
    result=st.none() | results,
    after_execution=st.none() | afters, function_name=st.just("") | names, step_id=maybe_ids, turn_epoch=counts,
    extra=extras, extra_content=extras, extra_metadata=extras,
)  # fmt: skip


def written(card: ToolCallCard | ToolResultCard) -> bytes:
    data = encode_call_card(card) if isinstance(card, ToolCallCard) else encode_result_card(card)
    assert isinstance(data, bytes), data
    return data


def content(card: ToolCallCard | ToolResultCard) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(written(card))["content"]
    return found


@a_while
@given(call_cards)
def test_a_call_card_that_is_written_is_read_as_it_was(card: ToolCallCard) -> None:
    assert decode_call_card(written(card)) == card


@a_while
@given(result_cards)
def test_a_result_card_that_is_written_is_read_as_it_was(card: ToolResultCard) -> None:
    assert decode_result_card(written(card)) == card


@pytest.mark.feature("F016")
def test_the_arguments_are_on_the_card_of_the_call() -> None:
    whole = json.loads(written(CALL_CARD))
    assert whole["type"] == "tool.call"
    assert whole["content"]["arguments"] == {"query": "tents"}
    assert (whole["content"]["tool_name"], whole["content"]["status"]) == ("web_search", "called")
    assert whole["metadata"]["agent_turn_id"] == "turn_1"


@pytest.mark.parametrize("arguments", [[], "x", '{"query": "x"}', 7, None, {"_": 1e999}])
def test_arguments_that_are_not_an_object_are_refused(arguments: Any) -> None:
    """Stored as text and handed on, they would reach the tool unread."""
    whole = json.loads(written(CALL_CARD))
    whole["content"]["arguments"] = arguments
    assert isinstance(decode_call_card(json.dumps(whole).encode()), Refusal)


@pytest.mark.parametrize("name", ["card_id", "project_id", "agent_turn_id", "tool_call_id"])
@pytest.mark.parametrize("card", [CALL_CARD, RESULT_CARD], ids=["call", "result"])
def test_a_card_that_does_not_say_whose_it_is_is_refused(name: str, card: ToolCallCard | ToolResultCard) -> None:
    decode = decode_call_card if isinstance(card, ToolCallCard) else decode_result_card
    for value in (None, "", "a b", 7):
        whole = json.loads(written(card))
        part = whole if name in whole else whole["metadata"]
        part[name] = value
        read = decode(orjson.dumps(whole))
        assert isinstance(read, Refusal)
        assert {one.field for one in read.violations} == {name}


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"\xff", b'{"type":"tool.call"}', b'{"type":"tool.result"}',
                                  b'{"type":"tool.result","content":[],"metadata":{}}'])  # fmt: skip
def test_what_is_not_a_card_is_refused(data: bytes) -> None:
    assert isinstance(decode_call_card(data), Refusal)
    assert isinstance(decode_result_card(data), Refusal)


def test_one_kind_of_card_is_not_taken_for_the_other() -> None:
    assert isinstance(decode_call_card(written(RESULT_CARD)), Refusal)
    assert isinstance(decode_result_card(written(CALL_CARD)), Refusal)


@a_while
@given(st.binary(max_size=200))
def test_any_bytes_are_a_card_or_refused(data: bytes) -> None:
    assert isinstance(decode_call_card(data), Refusal)
    assert isinstance(decode_result_card(data), Refusal)


def test_an_oversized_card_is_refused_and_an_oversized_result_says_so() -> None:
    assert isinstance(decode_call_card(b" " * (MAX_CARD_BYTES + 1)), Refusal)
    assert isinstance(encode_call_card(replace(CALL_CARD, arguments={"x": "x" * MAX_CARD_BYTES})), Refusal)
    card = decode_result_card(written(replace(RESULT_CARD, result="x" * MAX_CARD_BYTES)))
    assert isinstance(card, ToolResultCard)
    assert card.error is not None
    assert (card.status, card.error.code) == (Status.FAILED, "result_too_large")


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("result", [object(), {1, 2}, "\ud800", 2**80, {"a": b"x"}, nested(220), nested(5000)])
def test_a_result_that_is_not_json_is_a_failed_result(result: Any) -> None:
    card = decode_result_card(written(replace(RESULT_CARD, result=result)))
    assert isinstance(card, ToolResultCard)
    assert card.error is not None
    assert (card.status, card.error.code) == (Status.FAILED, "result_not_serializable")


def test_how_a_call_ended_stays_when_its_result_cannot_be_written() -> None:
    late = decode_result_card(
        written(replace(RESULT_CARD, status=Status.TIMEOUT, result=object(), error=CardError("tool_timeout", "Late.")))
    )
    assert isinstance(late, ToolResultCard)
    assert (late.status, late.error, late.result) == (Status.TIMEOUT, CardError("tool_timeout", "Late."), None)
    half = decode_result_card(written(replace(RESULT_CARD, status=Status.PARTIAL, result=object())))
    assert isinstance(half, ToolResultCard)
    assert half.error is not None
    assert half.status is Status.PARTIAL
    assert "cannot be written as JSON" in half.error.message


@pytest.mark.feature("F154")
@pytest.mark.parametrize("result", [None, {"hits": 3}, "some output", [1]])
def test_an_error_is_written_in_both_places(result: Any) -> None:
    error = CardError("tool_timeout", "It took too long.", detail={"after_s": 30})
    found = content(replace(RESULT_CARD, status=Status.TIMEOUT, result=result, error=error))
    assert found["error"] == {"code": "tool_timeout", "message": "It took too long.", "detail": {"after_s": 30}}
    assert found["result"]["error_code"] == "tool_timeout"
    assert found["result"]["error_message"] == "It took too long."


@pytest.mark.feature("F154")
def test_an_error_is_read_from_either_place_and_the_error_object_wins() -> None:
    mirrored = {"error_code": "auth_failed", "error_message": "No key."}
    outcome, _ = read_outcome({"status": "failed", "result": {**mirrored, "hits": 0}})
    assert outcome == CardOutcome(Status.FAILED, {"hits": 0}, CardError("auth_failed", "No key."))
    outcome, _ = read_outcome(
        {"status": "failed", "result": mirrored, "error": {"code": "bad_request", "message": "M"}}
    )
    assert outcome == CardOutcome(Status.FAILED, None, CardError("bad_request", "M"))


@pytest.mark.feature("F152")
@pytest.mark.parametrize(
    ("code", "ours", "status"),
    [("tool_timeout", Code.TIMEOUT, "timeout"), ("auth_failed", Code.PERMISSION_DENIED, "failed"),
     ("bad_request", Code.INVALID_PARAMS, "failed"), ("upstream_unavailable", Code.UNAVAILABLE, "failed"),
     ("internal_error", Code.EXECUTION_FAILED, "failed"), ("their_own_code", Code.EXECUTION_FAILED, "failed")],
)  # fmt: skip
def test_codes_of_the_protocol_become_ours(code: str, ours: Code, status: str) -> None:
    outcome, _ = read_outcome({"status": status, "error": {"code": code, "message": "M"}})
    result = result_of(outcome, CALL)
    assert result.error is not None
    assert (result.error.code, result.error.message, result.status.value) == (ours, "M", status)


@pytest.mark.feature("F152")
@pytest.mark.parametrize("code", Code)
def test_our_codes_become_those_of_the_protocol_and_come_back(code: Code) -> None:
    failed = ToolResult.failed(CALL, code, "It did not work.", detail={"x": 1})
    outcome = outcome_of(failed)
    content = write_outcome(outcome)
    assert content["error"]["code"] == OUTCOMES[code].commonground
    back = result_of(read_outcome(content)[0], CALL)
    assert (back.error, back.status, back.content) == (failed.error, failed.status, failed.content)


def test_a_code_of_ours_that_contradicts_the_protocols_is_not_believed() -> None:
    told = {"code": "auth_failed", "message": "M", "kind": "timeout"}
    outcome, _ = read_outcome({"status": "failed", "error": told})
    result = result_of(outcome, CALL)
    assert result.error is not None
    assert result.error.code is Code.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("content", "status", "code"),
    [({"status": "success", "error": {"code": "bad_request", "message": "M"}}, Status.FAILED, "bad_request"),
     ({"status": "success", "result": {"error_code": "bad_request"}}, Status.FAILED, "bad_request"),
     ({"status": "done"}, Status.FAILED, "invalid_status"), ({"status": None}, Status.FAILED, "invalid_status"),
     ({}, Status.FAILED, "invalid_status"), ({"status": ["success"]}, Status.FAILED, "invalid_status"),
     ({"status": "success", "after_execution": "explode"}, Status.FAILED, "invalid_after_execution"),
     ({"status": "failed"}, Status.FAILED, "unknown_error"), ({"status": "timeout"}, Status.TIMEOUT, "unknown_error"),
     ({"status": "failed", "error": "out of paper"}, Status.FAILED, "unknown_error"),
     ({"status": "failed", "error": {"code": 7, "message": 8}}, Status.FAILED, "unknown_error")],
)  # fmt: skip
def test_what_a_service_says_wrong_is_a_failed_result(content: Any, status: Status, code: str) -> None:
    outcome, _ = read_outcome(content)
    assert outcome.error is not None
    assert (outcome.status, outcome.error.code) == (status, code)
    assert outcome.after_execution in (None, SUSPEND)


@a_while
@given(st.dictionaries(st.sampled_from(["status", "after_execution", "result", "error", "x"]), json_values))
def test_any_content_is_an_outcome_and_a_result(content: dict[str, Any]) -> None:
    outcome, rest = read_outcome(content)
    assert rest == {name: item for name, item in content.items() if name == "x"}
    again, _ = read_outcome(write_outcome(outcome))
    assert again.status is outcome.status
    assert result_of(outcome, CALL).status is outcome.status


@pytest.mark.parametrize("status", Status)
def test_the_five_ways_to_end_are_known(status: Status) -> None:
    outcome, _ = read_outcome({"status": status.value, "result": {"hits": 3}})
    assert outcome.status is status


def test_override_wins_over_report_and_report_over_registry() -> None:
    said = CardOutcome(Status.SUCCESS, {"__cg_control": {"after_execution": "terminate"}}, None, None)
    plain = CardOutcome(Status.SUCCESS, {"hits": 3})
    assert after(said, SUSPEND, DETACH, controls=True) is TERMINATE
    assert after(plain, TERMINATE, SUSPEND, controls=True) is TERMINATE
    assert after(plain, None, TERMINATE, controls=True) is TERMINATE
    assert after(CardOutcome(Status.SUCCESS, None, None, TERMINATE), None, SUSPEND, controls=False) is TERMINATE


def test_a_result_steers_the_turn_only_where_its_tool_declares_it() -> None:
    """A page that a tool has fetched may contain the field."""
    said = CardOutcome(Status.SUCCESS, {"__cg_control": {"after_execution": "terminate"}})
    assert after(said, SUSPEND, SUSPEND, controls=False) is SUSPEND
    assert after(said, SUSPEND, SUSPEND, controls=True) is TERMINATE


def after(
    outcome: CardOutcome, reported: AfterExecution | None, registered: AfterExecution, *, controls: bool
) -> AfterExecution:
    return effective_after_execution(outcome, reported=reported, registered=registered, controls_turn=controls)


@pytest.mark.parametrize(
    "result",
    [None, "x", [], {"__cg_control": None}, {"__cg_control": "terminate"}, {"__cg_control": {"after_execution": "no"}},
     {"__cg_control": {"after_execution": ["terminate"]}}, {"x": {"__cg_control": {"after_execution": "terminate"}}}],
)  # fmt: skip
def test_an_override_that_is_not_valid_does_not_count(result: Any) -> None:
    assert control_of(result) is None


@pytest.mark.parametrize(
    ("change", "field"),
    [({"project_id": "other"}, "project_id"), ({"agent_turn_id": "turn_2"}, "agent_turn_id"),
     ({"tool_call_id": "call_2"}, "tool_call_id"), ({"tool_name": "bash"}, "tool_name"), ({"step_id": "x"}, "step_id"),
     ({"card_id": "card_2"}, "tool_call_card_id"), ({"after_execution": TERMINATE}, "after_execution"),
     ({"arguments_digest": "1" * 64}, "arguments_digest")],
)  # fmt: skip
def test_a_command_that_points_to_a_card_of_another_call_is_found(change: dict[str, Any], field: str) -> None:
    command = replace(COMMAND, arguments_digest="0" * 64)
    assert call_card_violations(command, CALL_CARD) == ()
    (found,) = call_card_violations(command, replace(CALL_CARD, **change))
    assert found.field == field


def test_what_a_command_may_leave_out_is_not_a_difference() -> None:
    assert call_card_violations(replace(COMMAND, step_id="", tool_name="", arguments_digest=""), CALL_CARD) == ()
    assert call_card_violations(replace(COMMAND, arguments_digest="0" * 64), replace(CALL_CARD, step_id="")) == ()


@pytest.mark.parametrize(
    ("change", "field"),
    [({"project_id": "other"}, "project_id"), ({"agent_turn_id": "turn_2"}, "agent_turn_id"),
     ({"tool_call_id": "call_2"}, "tool_call_id"), ({"step_id": "x"}, "step_id"),
     ({"card_id": "card_2"}, "tool_result_card_id"), ({"after_execution": TERMINATE}, "after_execution")],
)  # fmt: skip
def test_a_callback_that_points_to_a_card_of_another_call_is_found(change: dict[str, Any], field: str) -> None:
    assert result_card_violations(CALLBACK, RESULT_CARD) == ()
    (found,) = result_card_violations(CALLBACK, replace(RESULT_CARD, **change))
    assert found.field == field


def test_a_result_of_ours_is_told_by_its_value_its_text_or_its_blocks() -> None:
    text = ToolResult("call_1", "web_search", Status.SUCCESS, (Text("three hits"),))
    assert outcome_of(text).result == "three hits"
    value = ToolResult("call_1", "web_search", Status.SUCCESS, (Text("{}"),), structured={"hits": 3})
    assert outcome_of(value).result == {"hits": 3}
    picture = ToolResult("call_1", "web_search", Status.SUCCESS, (Image("aGk="),))
    assert outcome_of(picture).result == {"blocks": [{"image": "aGk=", "media_type": "image/png"}]}
    assert result_of(outcome_of(value), CALL).structured == {"hits": 3}
    assert result_of(outcome_of(text), CALL).text == "three hits"
