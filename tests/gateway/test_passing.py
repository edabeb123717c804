"""The same API on both sides: everything passes, and calls that leaked into text become calls."""

import asyncio
import json
from typing import Any

import pytest

from tests.gateway.clients import CHAT, KINDS, MESSAGES, Kind, chunk, framed_chat, framed_named, read_completion
from tests.gateway.stand import BOUND_S, NAME, ROOM, Stand
from tests.models.provider import Provider, answer, half, says

KITCHEN = (NAME, {"room": "kitchen"})
LEAKED = 'Let me look.\n<tool_call>\n{"name": "read_temperature", "arguments": {"room": "kitchen"}}\n</tool_call>'
NATIVE = ("call_1", NAME, '{"room": "kitchen"}')

each_api = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def cut(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def will(upstream: Provider, kind: Kind, stream: bool, text: str, calls: Any = (), ending: str = "stop") -> None:
    upstream.will(kind.streams(cut(text), calls, ending) if stream else kind.says(text, calls, ending))


@each_api
@whole_and_streamed
async def test_a_call_that_leaked_into_text_reaches_the_client_as_a_call(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, LEAKED)

    got = await kind.ask(await stand.gate(), stream=stream)

    assert got.calls == [KITCHEN]
    assert got.text.strip() == "Let me look."
    assert got.ending == kind.endings["calls"]
    assert len(got.ids[0]) == 9
    assert got.tokens == 27


@each_api
@whole_and_streamed
async def test_a_native_call_passes_with_its_own_id(stand: Stand, upstream: Provider, kind: Kind, stream: bool) -> None:
    will(upstream, kind, stream, "I look.", [NATIVE], "calls")

    got = await kind.ask(await stand.gate(), stream=stream)

    assert (got.text, got.calls, got.ids) == ("I look.", [KITCHEN], ["call_1"])
    assert got.ending == kind.endings["calls"]


@each_api
@whole_and_streamed
async def test_text_that_only_looks_like_a_call_stays_text_where_no_tools_are_offered(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, LEAKED)

    got = await kind.ask(await stand.gate(), stream=stream, tools=False)

    assert (got.text, got.calls) == (LEAKED, [])
    assert got.ending == kind.endings["stop"]


@each_api
async def test_an_answer_that_needs_nothing_passes_byte_for_byte(stand: Stand, upstream: Provider, kind: Kind) -> None:
    whole = kind.whole("It is warm. 2 < 3, {braces} and [brackets].", [NATIVE], kind.endings["calls"])
    body = json.dumps(whole, indent=1).encode()
    upstream.will(answer(body, x_ratelimit_remaining_requests="7", set_cookie="a=b"))
    tool: dict[str, Any] = {"name": NAME, "input_schema": ROOM, "parameters": ROOM}
    asked = {"model": "m", "tools": [tool | {"type": "function", "function": tool}]}

    async with (await stand.gate()).http() as client:
        got = await client.post(kind.path, json=asked)

    assert got.content == body
    assert got.headers["x-ratelimit-remaining-requests"] == "7"
    assert "set-cookie" not in got.headers


@each_api
@whole_and_streamed
async def test_a_request_reaches_the_upstream_as_it_was_written(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, "Hello.")
    more = {"extra_body": {"top_k": 5, "x_unknown": [1, {"deep": None}], "logit_bias": {"1": -100}}}

    await kind.ask(await stand.gate(), stream=stream, more=more)

    [asked] = upstream.asked
    assert asked.path == kind.path
    assert asked.body["top_k"] == 5
    assert asked.body["x_unknown"] == [1, {"deep": None}]
    assert asked.body["logit_bias"] == {"1": -100}


async def test_the_bytes_of_a_request_are_not_rewritten(stand: Stand, upstream: Provider) -> None:
    upstream.will(says({"choices": []}))
    body = b'{ "model":"m",  "seed": 18446744073709551615, "temperature": 1.0e0, "messages": [] }'

    async with (await stand.gate()).http() as client:
        await client.post("/v1/chat/completions", content=body)

    assert upstream.asked[0].headers["content-length"] == str(len(body))


@each_api
@whole_and_streamed
async def test_broken_arguments_of_a_native_call_are_repaired(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    broken = ("call_1", NAME, "{'room': 'kitchen',}")
    if kind is MESSAGES:
        upstream.will(kind.streams([], [broken], "calls"))
    else:
        will(upstream, kind, stream, "", [broken], "calls")

    got = await kind.ask(gate := await stand.gate(), stream=stream or kind is MESSAGES)

    assert got.calls == [KITCHEN]
    assert gate.log[0].tally.repaired == 1


@each_api
@whole_and_streamed
async def test_arguments_that_nobody_can_read_reach_the_client_as_they_were_written(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    """The client's own checking then tells the model. Anthropic's form for it is the key INVALID_JSON."""
    hopeless = "room is the kitchen"
    if kind is MESSAGES:
        upstream.will(kind.streams([], [("call_1", NAME, hopeless)], "calls"))
    else:
        will(upstream, kind, stream, "", [("call_1", NAME, hopeless)], "calls")

    got = await kind.ask(gate := await stand.gate(), stream=stream or kind is MESSAGES)

    assert got.calls == [(NAME, {"INVALID_JSON": hopeless} if kind is MESSAGES else hopeless)]
    assert gate.log[0].tally.problems == ["malformed"]


@each_api
@whole_and_streamed
async def test_repeated_and_missing_ids_become_unique(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    hall = '{"room": "hall"}'
    will(upstream, kind, stream, "", [NATIVE, ("call_1", NAME, hall), ("", NAME, hall)], "calls")

    got = await kind.ask(await stand.gate(), stream=stream)

    assert got.calls == [KITCHEN, (NAME, {"room": "hall"}), (NAME, {"room": "hall"})]
    assert got.ids[0] == "call_1"
    assert len(set(got.ids)) == 3
    assert all(got.ids)


@whole_and_streamed
async def test_an_id_that_the_conversation_has_used_before_is_not_used_again(
    stand: Stand, upstream: Provider, stream: bool
) -> None:
    will(upstream, CHAT, stream, "", [NATIVE], "calls")
    before = {"id": "call_1", "type": "function", "function": {"name": NAME, "arguments": "{}"}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [before]},
        {"role": "tool", "tool_call_id": "call_1", "content": "21"},
    ]

    got = await CHAT.ask(await stand.gate(), stream=stream, more={"messages": messages})

    assert got.calls == [KITCHEN]
    assert got.ids != ["call_1"]


@each_api
@whole_and_streamed
async def test_a_call_that_was_cut_off_is_not_passed_on(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, 'One moment. <tool_call>{"name": "read_temperature", "argum', (), "length")

    got = await kind.ask(gate := await stand.gate(), stream=stream)

    assert (got.text.strip(), got.calls) == ("One moment.", [])
    assert got.ending == kind.endings["length"]
    assert gate.log[0].tally.problems == ["truncated"]


@each_api
@whole_and_streamed
async def test_thinking_that_leaked_into_text_is_kept_apart_where_tools_are_offered(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, "<think>The kitchen, then.</think>" + LEAKED)

    got = await kind.ask(await stand.gate(), stream=stream)

    assert got.thought.strip() == "The kitchen, then."
    assert got.text.strip() == "Let me look."
    assert got.calls == [KITCHEN]


@whole_and_streamed
async def test_every_choice_is_read_by_itself(stand: Stand, upstream: Provider, stream: bool) -> None:
    first, second = CHAT.whole(LEAKED, (), "stop"), CHAT.whole("No need.", (), "stop")
    both = first | {"choices": [first["choices"][0], second["choices"][0] | {"index": 1}]}
    events = [chunk({"content": piece}, index=at) for piece in cut(LEAKED) for at in (0, 1)]
    events += [chunk({}, "stop", 0), chunk({}, "stop", 1)]
    upstream.will(answer(framed_chat(events), kind="text/event-stream") if stream else says(both))
    gate = await stand.gate()

    async with gate.openai() as client:
        tool: Any = {"type": "function", "function": {"name": NAME, "parameters": ROOM}}
        given: Any = {"model": "m", "n": 2, "messages": [{"role": "user", "content": "?"}], "tools": [tool]}
        if stream:
            async with client.chat.completions.stream(**given) as running:
                completion: Any = await running.get_final_completion()
        else:
            completion = await client.chat.completions.create(**given)

    assert read_completion(completion, 0).calls == [KITCHEN]
    assert read_completion(completion, 1).calls == ([KITCHEN] if stream else [])


@pytest.mark.contrast("T64")
async def test_a_very_large_answer_is_read_too(stand: Stand, upstream: Provider) -> None:
    upstream.will(CHAT.says("word " * 200_000 + LEAKED))

    got = await CHAT.ask(await stand.gate(), stream=False)

    assert got.calls == [KITCHEN]
    assert len(got.text) > 900_000


async def test_log_probabilities_and_vendor_fields_of_a_stream_pass(stand: Stand, upstream: Provider) -> None:
    logprobs: Any = {"content": [{"token": "Hi", "logprob": -0.1, "bytes": None, "top_logprobs": []}], "refusal": None}
    said = chunk({"content": "Hi"})
    said["choices"][0]["logprobs"] = logprobs
    said["x_vendor"] = {"speed": 12}
    upstream.will(answer(framed_chat([said, chunk({}, "stop")]), kind="text/event-stream"))
    gate = await stand.gate()

    async with gate.openai() as client:
        tool: Any = {"type": "function", "function": {"name": NAME, "parameters": ROOM}}
        given: Any = {"model": "m", "messages": [], "tools": [tool], "stream": True}
        chunks: list[Any] = [one async for one in await client.chat.completions.create(**given)]

    assert chunks[0].choices[0].logprobs.content[0].logprob == -0.1
    assert chunks[0].x_vendor == {"speed": 12}
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_text_is_shown_while_the_upstream_is_still_writing(stand: Stand, upstream: Provider) -> None:
    begun = framed_chat([chunk({"content": "It is warm "}), chunk({"content": "today, and"})]).removesuffix(
        b"data: [DONE]\n\n"
    )
    upstream.will(half(begun, kind="text/event-stream", then="hang"))
    gate = await stand.gate()

    async with gate.openai() as client, asyncio.timeout(BOUND_S):
        tool: Any = {"type": "function", "function": {"name": NAME, "parameters": ROOM}}
        given: Any = {"model": "m", "messages": [], "tools": [tool], "stream": True}
        stream: Any = await client.chat.completions.create(**given)
        first = await anext(stream)
        await stream.close()

    assert first.choices[0].delta.content == "It is warm "


async def test_what_else_a_provider_says_about_a_call_stays_with_it(stand: Stand, upstream: Provider) -> None:
    """Gemini's compatible API signs its calls and wants the signature back."""
    signed = {"google": {"thought_signature": "c2lnbmVk"}}
    call = {"index": 0, "id": "call_1", "type": "function", "extra_content": signed}
    events = [
        chunk({"tool_calls": [call | {"function": {"name": NAME, "arguments": ""}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"room": "kitchen"}'}}]}),
        chunk({}, "tool_calls"),
    ]
    upstream.will(answer(framed_chat(events), kind="text/event-stream"))

    async with (await stand.gate()).openai() as client:
        tool: Any = {"type": "function", "function": {"name": NAME, "parameters": ROOM}}
        given: Any = {"model": "m", "messages": [], "tools": [tool], "stream": True}
        chunks: list[Any] = [one async for one in await client.chat.completions.create(**given)]

    [entry] = [call for one in chunks for choice in one.choices for call in choice.delta.tool_calls or []]
    assert entry.extra_content == signed
    assert entry.id == "call_1"


async def test_other_blocks_of_a_message_pass_in_their_places(stand: Stand, upstream: Provider) -> None:
    thinking = [{"type": "thinking_delta", "thinking": "Hm."}, {"type": "signature_delta", "signature": "c2ln"}]
    events = MESSAGES.events(cut(LEAKED), (), "end_turn")
    opened = [
        {
            "type": "content_block_start",
            "index": 9,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        *({"type": "content_block_delta", "index": 9, "delta": delta} for delta in thinking),
        {"type": "content_block_stop", "index": 9},
    ]
    upstream.will(answer(framed_named([*events[:2], *opened, *events[2:]]), kind="text/event-stream"))

    async with (await stand.gate()).anthropic() as client:
        tools: Any = [{"name": NAME, "input_schema": ROOM}]
        given: Any = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "?"}], "tools": tools}
        async with client.messages.stream(**given) as running:
            message = await running.get_final_message()

    kinds = [block.type for block in message.content]
    assert kinds == ["thinking", "text", "tool_use"]
    assert message.content[0].signature == "c2ln"  # type: ignore[union-attr]  # its kind was checked above


JSON = '{"name": "read_temperature", "arguments": {"room": "kitchen"}}'
ONLY_SHOWN = [
    f"Never send this:\n<tool_call>{JSON}</tool_call>",
    f"This is the call:\n```json\n{JSON}\n```",
    f"The client sends “{JSON}” and waits.",
    f"<!-- <tool_call>{JSON}</tool_call> -->\nis in the page.",
    f"Shall I run {JSON} now?",
]


@each_api
@whole_and_streamed
async def test_B3_a_call_that_is_shown_or_unclear_stays_visible_once(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    gate = await stand.gate()
    for text in ONLY_SHOWN:
        will(upstream, kind, stream, text)

        got = await kind.ask(gate, stream=stream)

        assert (got.text, got.calls, got.ending) == (text, [], kind.endings["stop"])
