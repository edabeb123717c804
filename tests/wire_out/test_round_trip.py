"""What is written can be read: calls survive every dialect, and a history made on one provider replays on any other."""

from random import Random
from typing import Any

import pytest
from benchmarks.roundtrip import TOOLS, as_answer, random_call, read_back, survived
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.wire.decode.request import CLIENT_DIALECTS, DecodedRequest, decode_request
from toolwire.wire.encode.request import Dialect, encode_request
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.replies.reply import StreamParser

from .conversation import CAMERA, IN_ATTIC, IN_KITCHEN, PICTURE, THERMOMETER

NATIVE = {name: dialect for name, dialect in DIALECTS.items() if not dialect.prompted}
every_dialect = pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS)
HOUSE = (THERMOMETER, CAMERA)


@every_dialect
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_random_calls_come_back_as_they_went(dialect: Dialect, seed: int) -> None:
    """A short run of what `python -m benchmarks.roundtrip` does a hundred thousand times."""
    dice = Random(seed)
    reply = Reply(calls=tuple(random_call(dice, n) for n in range(1 + dice.randrange(4))))

    assert survived(reply, read_back(dialect, reply))


@every_dialect
def test_what_was_said_beside_the_calls_comes_back_too(dialect: Dialect) -> None:
    reply = Reply("I will look.", calls=(IN_KITCHEN, IN_ATTIC))

    found = read_back(dialect, reply, HOUSE)

    assert survived(reply, found)
    assert "I will look." in (found.content, found.reasoning)


@pytest.mark.parametrize("name", ["hermes", "qwen_xml", "rcrt", "grammar"])
def test_calls_told_in_text_survive_a_stream_cut_anywhere(name: str) -> None:
    reply = Reply("I will look.", calls=(IN_KITCHEN, PICTURE))
    parser = StreamParser(HOUSE)
    for char in as_answer(DIALECTS[name], reply):
        parser.feed(char)

    assert survived(reply, parser.finish())


def numbered(reply: Reply) -> Reply:
    """What the runtime does to every reply: its calls get ids of their own."""
    return replace(reply, calls=tuple(replace(call, id=f"018f-{n}") for n, call in enumerate(reply.calls)))


@pytest.mark.feature("F165")
@pytest.mark.parametrize("there", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("here", NATIVE.values(), ids=NATIVE)
def test_a_history_made_on_one_provider_replays_on_another(here: Dialect, there: Dialect) -> None:
    """For each pair: one assistant message with all its calls, then exactly one result for each, in order."""
    reply = numbered(read_back(here, Reply("I will look.", calls=(IN_KITCHEN, IN_ATTIC)), HOUSE))
    answers = tuple(ToolResult(one.id, one.name, Status.SUCCESS, (Text(f"answer {one.id}"),)) for one in reply.calls)
    request = Request((UserMessage("go"), reply, ResultsMessage(answers), Reply("Done.")), HOUSE)

    body = encode_request(there, request, {})

    assert survived(reply, read_back(there, reply, HOUSE))
    calls, results = ids(body[there.messages_field])
    assert calls == results
    assert len(set(calls)) == len(calls)
    text = str(body)
    assert 0 < text.index("answer 018f-0") < text.index("answer 018f-1") < text.index("Done.")
    assert text.count("answer 018f-") == 2


def ids(messages: Any) -> tuple[list[str], list[str]]:
    """The ids of all calls and of all results, wherever a provider writes them; none where it has none."""
    calls, results = [], []
    for item in walk(messages):
        match item:
            case {"functionCall": {"id": found}} | {"toolUse": {"toolUseId": found}}:
                calls.append(found)
            case {"type": "tool_use", "id": found} | {"type": "function_call", "call_id": found}:
                calls.append(found)
            case {"function": _, "id": found}:
                calls.append(found)
            case {"functionResponse": {"id": found}} | {"toolResult": {"toolUseId": found}}:
                results.append(found)
            case {"tool_use_id": found} | {"type": "function_call_output", "call_id": found} | {"tool_call_id": found}:
                results.append(found)
    return calls, results


def walk(value: Any) -> Any:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if isinstance(value, dict):
        yield value
    for one in inner:
        yield from walk(one)


def as_client_sees_it() -> tuple[Message, ...]:
    """A conversation in which our ids are the wire's, since a client knows no others."""
    kitchen, attic, picture = (
        ToolCall(call.name, call.arguments, alias, alias)
        for call, alias in ((IN_KITCHEN, "call_a"), (IN_ATTIC, "call_b"), (PICTURE, "call_c"))
    )
    return (
        UserMessage("How warm is it?"),
        Reply("I will look.", calls=(kitchen, attic)),
        ResultsMessage(
            (
                ToolResult("call_a", kitchen.name, Status.SUCCESS, (Text("21.5"),)),
                ToolResult.failed(attic, Code.NOT_FOUND, "there is no sensor in 'attic'"),
            )
        ),
        Reply(calls=(picture,)),
        ResultsMessage((ToolResult("call_c", picture.name, Status.SUCCESS, (Text("done"),)),)),
        Reply("21.5 °C."),
        UserMessage("Thanks."),
    )


@pytest.mark.parametrize("upstream", DIALECTS.values(), ids=DIALECTS)
@pytest.mark.parametrize("client", CLIENT_DIALECTS)
def test_a_clients_request_reaches_any_provider_as_if_it_had_been_ours(client: str, upstream: Dialect) -> None:
    request = Request(as_client_sees_it(), HOUSE, "You look after a house.", max_tokens=9, temperature=0.5)
    body = encode_request(DIALECTS[client], request, DIALECTS[client].frame(request, "m"))

    found = decode_request(body, client)

    assert isinstance(found, DecodedRequest)
    assert found.losses == ()
    ours = encode_request(upstream, request, upstream.frame(request, "m"))
    assert encode_request(upstream, found.request, upstream.frame(found.request, "m")) == ours


def test_the_tools_of_the_random_calls_include_one_whose_name_must_be_changed() -> None:
    assert TOOLS[0].name != DIALECTS["openai"].wire_name(TOOLS[0].name)
