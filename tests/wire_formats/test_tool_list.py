"""The tools of a turn as its model sees them: an order that never changes, a list that only grows."""

from dataclasses import replace

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Request, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Tool
from toolwire.wire import openai
from toolwire.wire.request import RequestEncoder
from toolwire.wire.tool_list import ToolList

A, B, C = (Tool(name, f"Do {name}.") for name in "abc")


def test_the_order_does_not_depend_on_the_order_in_which_tools_came() -> None:
    assert ToolList.of([C, A, B]) == ToolList.of([B, C, A])


def test_later_tools_come_after_earlier_ones_so_that_what_was_sent_stays_a_prefix() -> None:
    listed = ToolList.of([B]).plus([C, A])

    assert listed.tools == (B, A, C)


def test_a_tool_that_goes_away_stays_listed_and_its_call_is_answered() -> None:
    listed = ToolList.of([A, B]).now([A])
    call = ToolCall("b", {}, id="c1")

    answer = listed.unavailable(call)

    assert listed.tools == (A, B)
    assert answer is not None
    assert (answer.call_id, answer.status) == ("c1", Status.FAILED)
    assert answer.error is not None
    assert answer.error.code is Code.UNAVAILABLE
    assert "temporarily unavailable" in answer.text
    assert listed.unavailable(ToolCall("a", {})) is None
    assert listed.unavailable(ToolCall("never", {})) is None


def test_a_tool_that_comes_back_can_be_called_again_and_is_told_as_before() -> None:
    listed = ToolList.of([A, B]).minus(["b"]).plus([replace(B, description="Changed meanwhile.")])

    assert listed.unavailable(ToolCall("b", {})) is None
    assert listed.tools == (A, B)


def test_nothing_new_is_the_very_same_list() -> None:
    listed = ToolList.of([A, B])

    assert listed.now([B, A]) is listed


def test_a_server_that_flaps_does_not_change_one_byte_of_what_comes_before_the_messages() -> None:
    encoder, listed, heads = RequestEncoder(openai.DIALECT), ToolList.of([A, B]), set()
    for there in ([A, B], [A], [B], [A, B]):
        listed = listed.now(there)
        body = encoder.encode(Request((UserMessage("hi"),), listed.tools), {"model": "m"})
        heads.add(body.partition(b'"messages"')[0])

    assert len(heads) == 1
