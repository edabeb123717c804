"""Upstreams that are a little off, and clients that take one call: what real servers do that no specification says."""

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.clients import CHAT, KINDS, MESSAGES, RESPONSES, Kind, chunk, framed_chat
from tests.gateway.stand import NAME, Stand
from tests.gateway.test_passing import KITCHEN, LEAKED, NATIVE, cut, each_api, whole_and_streamed, will
from tests.models.provider import Asked, Provider, answer, says
from toolwire import Agent
from toolwire.gateway.settings import TransferLimits
from toolwire.models.opening import open_model
from toolwire.protocol.chat import TextDelta
from toolwire.protocol.events import Event

SECOND = ("call_2", NAME, '{"room": "attic"}')
TWO = LEAKED + LEAKED.partition("\n")[2].replace("kitchen", "attic")
SINGLE: dict[str, dict[str, Any]] = {
    "openai": {"parallel_tool_calls": False},
    "openai_responses": {"parallel_tool_calls": False},
    "anthropic": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
}


@each_api
@whole_and_streamed
@pytest.mark.parametrize("text", ["", "I look."], ids=["calls alone", "text and calls"])
async def test_native_calls_say_why_the_answer_ended(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool, text: str
) -> None:
    will(upstream, kind, stream, text, [NATIVE], "stop")

    got = await kind.ask(await stand.gate(), stream=stream)

    assert (got.calls, got.text, got.ids) == ([KITCHEN], text, ["call_1"])
    assert got.ending == kind.endings["calls"]


@each_api
async def test_an_answer_that_says_why_it_ended_passes_byte_for_byte(
    stand: Stand, upstream: Provider, kind: Kind
) -> None:
    for calls, ending in (((), "stop"), ((), "length"), ([NATIVE], "calls")):
        body = json.dumps(kind.whole("Warm.", calls, kind.endings[ending]), indent=1).encode()
        upstream.will(answer(body))
        async with (await stand.gate()).http() as client:
            got = await client.post(kind.path, json=asked(kind))
        assert got.content == body


def asked(kind: Kind, **more: Any) -> Any:
    tool: dict[str, Any] = {"name": NAME, "input_schema": {}, "parameters": {}}
    return {"model": "m", "tools": [tool | {"type": "function", "function": tool}], **more}


@each_api
@pytest.mark.parametrize("label", ["text/plain", "application/json", "application/octet-stream", "text/html", ""])
async def test_a_stream_under_another_label_is_a_stream(
    stand: Stand, upstream: Provider, kind: Kind, label: str
) -> None:
    events = kind.framed(kind.events(cut(LEAKED), (), kind.endings["stop"]))
    for data in (events, b": hello\n\n" + events, b"\n" + events):
        upstream.will(answer(data, kind=label))

        got = await kind.ask(await stand.gate(), stream=True)

        assert (got.calls, got.text.strip(), got.ending) == ([KITCHEN], "Let me look.", kind.endings["calls"])


@pytest.mark.parametrize("label", ["application/json", "text/plain", "application/x-ndjson"])
async def test_lines_of_json_under_another_label_are_a_stream(stand: Stand, upstream: Provider, label: str) -> None:
    lines: list[dict[str, Any]] = [{"message": {"content": piece}, "done": False} for piece in cut(LEAKED)]
    lines.append({"message": {"content": ""}, "done": True, "done_reason": "stop"})
    upstream.will(answer(b"".join(json.dumps(line).encode() + b"\n" for line in lines), kind=label))

    for kind in KINDS:
        got = await kind.ask(await stand.gate("ollama"), stream=True)

        assert (got.calls, got.text.strip()) == ([KITCHEN], "Let me look.")


@pytest.mark.parametrize("label", ["text/plain", "application/json"])
async def test_an_agent_reads_a_stream_under_another_label(upstream: Provider, label: str) -> None:
    upstream.will(answer(CHAT.framed(CHAT.events(["It is ", "warm."], (), "stop")), kind=label))
    seen: list[Event] = []
    async with Agent(open_model("openai-compatible:m", base_url=f"{upstream.url}/v1")) as agent:
        done = await agent.ask("Hm?", on_event=seen.append)

    assert done.text == "It is warm."
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["It is ", "warm."]


@each_api
@pytest.mark.parametrize("empty", [b"data:\n\n", b"data: \n\n", b"data:\n\ndata:\n\n", b"event: ping\ndata:\n\n"])
async def test_empty_events_are_nothing(stand: Stand, upstream: Provider, kind: Kind, empty: bytes) -> None:
    events = kind.framed(kind.events(cut(LEAKED), (), kind.endings["stop"]))
    without_done = events.removesuffix(b"data: [DONE]\n\n")
    for data in (events + empty, without_done + empty, empty + events):
        upstream.will(answer(data, kind="text/event-stream"))

        got = await kind.ask(await stand.gate(), stream=True)

        assert (got.calls, got.ending) == ([KITCHEN], kind.endings["calls"])


class SlowUpstream:
    """Says nothing, not even its headers, until it is allowed to."""

    def __init__(self, said: bytes) -> None:
        self.said = said
        self.may_answer = asyncio.Event()
        self.asked: list[Asked] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await self.may_answer.wait()
        writer.write(self.said)
        await writer.drain()
        writer.close()


async def ask_slowly(stand: Stand, kind: Kind, said: bytes, dialect: str = "auto") -> tuple[int, bytes, bytes]:
    """The status, what came before the upstream said anything, and what came afterwards."""
    slow = SlowUpstream(said)
    server = await asyncio.start_server(slow.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        gate = await stand.gate(dialect, bounds=TransferLimits(keep_alive_s=0.02), url=url)
        async with (
            gate.http() as client,
            client.stream(
                "POST",
                kind.path,
                json=asked(kind, stream=True, messages=[{"role": "user", "content": "?"}], input="?", max_tokens=9),
            ) as got,
        ):
            pieces = got.aiter_bytes()
            before = await anext(pieces)
            slow.may_answer.set()
            return got.status_code, before, b"".join([piece async for piece in pieces])
    finally:
        slow.may_answer.set()
        server.close()


@each_api
async def test_a_client_hears_something_before_the_upstream_sends_its_headers(stand: Stand, kind: Kind) -> None:
    for scripted in (kind.streams(cut(LEAKED)), kind.says(LEAKED)):
        status, before, after = await ask_slowly(stand, kind, scripted.data)

        assert (status, before[:1]) == (200, b":")
        assert b"kitchen" in after
        assert NAME.encode() in after


@each_api
async def test_an_upstream_that_refuses_late_is_told_inside_the_stream(stand: Stand, kind: Kind) -> None:
    refusal = says({"error": {"message": "too many requests"}}, status=429).data

    status, before, after = await ask_slowly(stand, kind, refusal)

    assert (status, before[:1]) == (200, b":")
    assert b"too many requests" in after


async def test_a_late_word_that_an_api_is_missing_still_leads_to_the_other_one(stand: Stand) -> None:
    """Nothing but comments has been sent by then, so that the client's stream can still be any stream."""
    missing = says({"detail": "Not Found"}, status=404).data

    status, before, after = await ask_slowly(stand, MESSAGES, missing)

    assert (status, before[:1]) == (200, b":")
    assert b"event: error" in after


@each_api
@whole_and_streamed
@pytest.mark.parametrize("text", [False, True], ids=["native", "leaked"])
async def test_a_client_that_takes_one_call_at_a_time_gets_one(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool, text: bool
) -> None:
    gate = await stand.gate()
    will(
        upstream, kind, stream, TWO if text else "Well.", () if text else [NATIVE, SECOND], "stop" if text else "calls"
    )

    got = await kind.ask(gate, stream=stream, more=SINGLE[kind.name])

    assert (got.calls, got.ending) == ([KITCHEN], kind.endings["calls"])
    assert got.text.strip() == ("Let me look." if text else "Well.")
    assert gate.log[0].tally.problems == ["too_many_calls"]


@pytest.mark.parametrize("kind", [CHAT, RESPONSES], ids=lambda kind: kind.name)
@whole_and_streamed
async def test_one_call_at_a_time_holds_where_the_answer_is_translated(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    upstream.will(
        MESSAGES.streams(["Well."], [NATIVE, SECOND], "calls")
        if stream
        else MESSAGES.says("Well.", [NATIVE, SECOND], "calls")
    )

    got = await kind.ask(await stand.gate("anthropic"), stream=stream, more=SINGLE[kind.name])

    assert got.calls == [KITCHEN]


@each_api
@whole_and_streamed
async def test_both_calls_pass_where_the_client_takes_them(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, TWO)

    got = await kind.ask(await stand.gate(), stream=stream)

    assert got.calls == [KITCHEN, (NAME, {"room": "attic"})]


PARTS = [{"type": "text", "text": LEAKED[:20]}, {"type": "text", "text": LEAKED[20:]}]


async def test_a_leak_in_a_list_of_parts_becomes_a_call(stand: Stand, upstream: Provider) -> None:
    other = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    for parts in (PARTS, [{"type": "text", "text": LEAKED}], [other, *PARTS], [LEAKED]):
        whole = CHAT.whole(LEAKED, (), "stop")
        whole["choices"][0]["message"]["content"] = parts
        upstream.will(says(whole))
        async with (await stand.gate()).http() as client:
            got = (await client.post(CHAT.path, json=asked(CHAT))).json()["choices"][0]

        [call] = got["message"]["tool_calls"]
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == KITCHEN
        assert got["finish_reason"] == "tool_calls"
        kept = got["message"]["content"]
        assert [part for part in kept if part == other] == [part for part in parts if part == other]
        said = [part if isinstance(part, str) else part["text"] for part in kept if part != other]
        assert "".join(said).split() == ["Let", "me", "look."]


async def test_a_leak_in_streamed_parts_becomes_a_call(stand: Stand, upstream: Provider) -> None:
    other = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    events = [chunk({"role": "assistant", "content": [other]})]
    events += [chunk({"content": [{"type": "text", "text": piece}]}) for piece in cut(LEAKED)]
    upstream.will(answer(framed_chat([*events, chunk({}, "stop")]), kind="text/event-stream"))

    async with (await stand.gate()).http() as client:
        got = await client.post(CHAT.path, json=asked(CHAT, stream=True))

    frames = [line.removeprefix("data: ") for line in got.text.splitlines() if line.startswith("data: {")]
    deltas = [choice["delta"] for frame in frames for choice in json.loads(frame)["choices"]]
    assert [delta["content"] for delta in deltas if isinstance(delta.get("content"), list)] == [[other]]
    assert "".join(d["content"] for d in deltas if isinstance(d.get("content"), str)).strip() == "Let me look."
    [call] = [call for delta in deltas for call in delta.get("tool_calls", ())]
    assert call["function"]["name"] == NAME


async def test_a_leak_in_the_blocks_of_a_message_becomes_a_call(stand: Stand, upstream: Provider) -> None:
    for content in (PARTS, LEAKED):
        upstream.will(says(MESSAGES.whole("", (), "end_turn") | {"content": content}))

        got = await MESSAGES.ask(await stand.gate(), stream=False)

        assert (got.calls, got.text.strip(), got.ending) == ([KITCHEN], "Let me look.", "tool_use")


async def test_parts_without_a_leak_pass_as_they_are(stand: Stand, upstream: Provider) -> None:
    whole = CHAT.whole("", (), "stop")
    whole["choices"][0]["message"]["content"] = [{"type": "text", "text": " Warm.", "x": 1}]
    upstream.will(says(whole))
    async with (await stand.gate()).http() as client:
        got = await client.post(CHAT.path, json=asked(CHAT))

    assert got.json() == whole


@each_api
@pytest.mark.parametrize("reason", ["", None], ids=["empty", "null"])
async def test_a_whole_answer_without_a_reason_says_that_it_has_stopped(
    stand: Stand, upstream: Provider, kind: Kind, reason: str | None
) -> None:
    """As a stream without one does; what is whole cannot have been cut off."""
    gate = await stand.gate()
    for text, calls, said in (("Warm.", [], "stop"), (LEAKED, [KITCHEN], "calls")):
        upstream.will(says(kind.whole(text, (), reason)))

        got = await kind.ask(gate, stream=False)

        assert (got.calls, got.ending) == (calls, kind.endings[said])
        assert got.text.strip() == text.partition("\n")[0]


UNSAID = {"openai": 2, "anthropic": 2, "openai_responses": 1}


@each_api
async def test_a_stream_that_is_done_without_a_reason_says_that_it_has_stopped(
    stand: Stand, upstream: Provider, kind: Kind
) -> None:
    gate = await stand.gate()
    for text, calls, said in (("Warm.", [], "stop"), (LEAKED, [KITCHEN], "calls")):
        events = kind.events(cut(text), (), kind.endings["stop"])[: -UNSAID[kind.name]]
        data = kind.framed(events).removesuffix(b"data: [DONE]\n\n") + b"data: [DONE]\n\n"
        upstream.will(answer(data, kind="text/event-stream"))

        got = await kind.ask(gate, stream=True)

        assert (got.calls, got.ending) == (calls, kind.endings[said])
        assert got.text.strip() == text.partition("\n")[0]


@each_api
async def test_a_stream_that_does_not_say_that_it_is_over_is_an_error(
    stand: Stand, upstream: Provider, kind: Kind
) -> None:
    """A cut between two events looks complete to HTTP; as with agents, the missing end gives it away."""
    events = kind.events(cut(LEAKED), (), kind.endings["stop"])[: -UNSAID[kind.name]]
    data = kind.framed(events).removesuffix(b"data: [DONE]\n\n")
    upstream.will(answer(data, kind="text/event-stream"))

    async with (await stand.gate()).http() as client:
        got = await client.post(kind.path, json=asked(kind, stream=True))

    assert "before its answer was complete" in got.text
    assert NAME not in got.text
