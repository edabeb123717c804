"""What an answer says besides its calls stays with it, even where something had to be mended."""

import json
from typing import Any

import openai
import pytest

from tests.gateway.clients import CHAT, MESSAGES, RESPONSES, Kind, chunk, framed_chat, framed_named
from tests.gateway.stand import NAME, ROOM, Stand
from tests.gateway.test_passing import cut, each_api, whole_and_streamed, will
from tests.models.provider import Provider, answer, says
from toolwire.testing import ScriptedModel

FUNCTION = {"name": NAME, "parameters": ROOM}
OFFERS: dict[str, Any] = {
    "openai": {"messages": [{"role": "user", "content": "?"}], "tools": [{"type": "function", "function": FUNCTION}]},
    "anthropic": {
        "messages": [{"role": "user", "content": "?"}],
        "max_tokens": 9,
        "tools": [{"name": NAME, "input_schema": ROOM}],
    },
    "openai_responses": {"input": "?", "tools": [{"type": "function"} | FUNCTION]},
}
SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
MENDED: dict[str, tuple[Kind, Any, Any]] = {
    "chat completions": (
        CHAT,
        {"id": "", "type": "function", "function": {"name": NAME, "arguments": "{'room': 'hall'}"}},
        lambda answer: answer["choices"][0]["message"]["tool_calls"][0],
    ),
    "messages": (
        MESSAGES,
        {"type": "tool_use", "id": "", "name": NAME, "input": {"room": "hall"}},
        lambda answer: answer["content"][0],
    ),
    "responses": (
        RESPONSES,
        {"type": "function_call", "id": "fc_1", "call_id": "", "name": NAME, "arguments": "{'room': 'hall'}"},
        lambda answer: answer["output"][0],
    ),
}


def holding(kind: Kind, call: Any) -> Any:
    """A whole answer with just this call."""
    whole = kind.whole("", (), kind.endings["calls"])
    if kind is CHAT:
        whole["choices"][0]["message"]["tool_calls"] = [call]
        return whole
    return whole | {"content" if kind is MESSAGES else "output": [call]}


@pytest.mark.parametrize("api", MENDED)
async def test_a_call_that_was_mended_keeps_what_else_was_said_about_it(
    stand: Stand, upstream: Provider, api: str
) -> None:
    """Gemini's compatible API wants its signature back, Anthropic's programs the caller of a call."""
    kind, call, find = MENDED[api]
    upstream.will(says(holding(kind, call | {"extra_content": SIGNED})))

    async with (await stand.gate()).http() as client:
        got = await client.post(kind.path, json={"model": "m"} | OFFERS[kind.name])

    found = find(got.json())
    assert found["extra_content"] == SIGNED
    assert "hall" in json.dumps(found)
    assert found.get("call_id") or found["id"]


@each_api
async def test_two_hopeless_calls_of_one_tool_keep_their_own_words(
    stand: Stand, upstream: Provider, kind: Kind
) -> None:
    hopeless = [("call_1", NAME, "in the kitchen"), ("call_2", NAME, "in the hall")]
    upstream.will(kind.streams([], hopeless, "calls"))

    got = await kind.ask(await stand.gate(), stream=True)

    words = [words for _, _, words in hopeless]
    assert got.calls == [(NAME, {"INVALID_JSON": said} if kind is MESSAGES else said) for said in words]


@each_api
@whole_and_streamed
async def test_an_answer_that_lost_its_call_says_so_even_if_the_upstream_does_not(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, 'One moment. <tool_call>{"name": "read_temperature", "argum')

    got = await kind.ask(await stand.gate(), stream=stream)

    assert (got.text.strip(), got.calls) == ("One moment.", [])
    assert got.ending == kind.endings["length"]


@whole_and_streamed
@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "pause_turn", "a word of next year"])
async def test_why_a_message_ended_stays_the_upstreams_word(
    stand: Stand, upstream: Provider, stream: bool, reason: str
) -> None:
    text = "<think>Hm.</think>It is warm."
    events = framed_named(MESSAGES.events(cut(text), (), reason))
    upstream.will(
        answer(events, kind="text/event-stream") if stream else says(MESSAGES.whole(text, (), reason)),
    )

    got = await MESSAGES.ask(await stand.gate(), stream=stream)

    assert (got.thought, got.text.strip(), got.ending) == ("Hm.", "It is warm.", reason)


async def test_a_response_that_failed_reaches_the_client_as_it_is(stand: Stand, upstream: Provider) -> None:
    failed = RESPONSES.whole("", (), "failed") | {"error": {"code": "server_error", "message": "out of luck"}}
    upstream.will(says(failed))

    got = await RESPONSES.ask(await stand.gate(), stream=False)

    assert got.ending == "failed: out of luck"


async def test_a_long_list_of_models_is_turned_page_by_page(stand: Stand, upstream: Provider) -> None:
    described = {"type": "model", "display_name": "M", "created_at": "2025-01-01T00:00:00Z"}
    pages = [
        {"data": [{"id": "a"} | described], "has_more": True, "first_id": "a", "last_id": "a"},
        {"data": [{"id": "b"} | described], "has_more": False, "first_id": "b", "last_id": "b"},
    ]
    upstream.will(*map(says, pages))

    async with (await stand.gate()).anthropic() as client:
        found = [model.id async for model in client.models.list(limit=1)]

    assert found == ["a", "b"]
    assert [asked.path for asked in upstream.asked] == ["/v1/models?limit=1", "/v1/models?limit=1&after_id=a"]


async def test_one_model_can_be_asked_for(stand: Stand, upstream: Provider) -> None:
    upstream.will(says({"object": "list", "data": [{"id": "org/m:8b", "object": "model", "max_model_len": 4096}]}))

    async with (await stand.gate()).openai() as client:
        found: Any = await client.models.retrieve("org/m:8b")
        with pytest.raises(openai.NotFoundError, match="no model"):
            await client.models.retrieve("../secret")

    assert found.max_model_len == 4096
    assert {asked.path for asked in upstream.asked} == {"/v1/models"}


async def test_headers_in_any_alphabet_pass(stand: Stand, upstream: Provider) -> None:
    upstream.will(CHAT.says("Hello."))
    headers = {b"authorization": "Bearer clé".encode(), b"openai-next-year": b"kept", b"x-other": b"dropped"}

    async with (await stand.gate()).http() as client:
        got = await client.post(CHAT.path, json={"model": "m", "messages": []}, headers=headers)

    sent = upstream.asked[0].headers
    assert got.status_code == 200
    assert sent["authorization"].encode("latin-1") == "Bearer clé".encode()
    assert (sent["openai-next-year"], sent.get("x-other")) == ("kept", None)


FOUND = {"type": "web_search_result_location", "url": "https://example.org", "cited_text": "warm", "title": "t"}


async def test_blocks_around_a_leaked_call_stay_in_their_places_with_their_sources(
    stand: Stand, upstream: Provider
) -> None:
    cited = {"type": "text", "text": "It should be warm.", "citations": [FOUND]}
    searched = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "?"}}
    leaked = 'I look. <tool_call>{"name": "read_temperature", "arguments": {"room": "hall"}}</tool_call>'
    last = {"type": "text", "text": "One moment.", "citations": None}
    blocks = [cited, searched, {"type": "text", "text": leaked}, last]
    upstream.will(says(MESSAGES.whole("", (), "end_turn") | {"content": blocks}))

    async with (await stand.gate()).http() as client:
        got = (await client.post(MESSAGES.path, json={"model": "m"} | OFFERS["anthropic"])).json()

    assert got["content"][:4] == [cited, searched, {"type": "text", "text": "I look."}, last]
    assert [block["type"] for block in got["content"][4:]] == ["tool_use"]


async def test_messages_around_a_leaked_call_keep_their_annotations(stand: Stand, upstream: Provider) -> None:
    def message(text: str, annotations: list[Any]) -> Any:
        part = {"type": "output_text", "text": text, "annotations": annotations}
        return {"type": "message", "id": f"m{len(text)}", "role": "assistant", "content": [part]}

    cited = message("It should be warm.", [{"type": "url_citation", "url": "https://example.org"}])
    leak = message('<tool_call>{"name": "read_temperature", "arguments": {"room": "hall"}}</tool_call>', [])
    searched = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    upstream.will(says(RESPONSES.whole("", (), "completed") | {"output": [cited, searched, leak]}))

    async with (await stand.gate()).http() as client:
        got = (await client.post(RESPONSES.path, json={"model": "m"} | OFFERS["openai_responses"])).json()

    assert got["output"][:2] == [cited, searched]
    assert [item["type"] for item in got["output"][2:]] == ["function_call"]


BEARER, PLAIN = {"authorization": "Bearer theirs"}, {"x-api-key": "theirs"}
VERSION = {"anthropic-version": "2023-06-01"}


@pytest.mark.parametrize(
    ("kind", "given", "dialect", "shown"),
    [
        (MESSAGES, PLAIN | VERSION, "openai", PLAIN | BEARER),
        (MESSAGES, PLAIN | VERSION, "auto", PLAIN | BEARER),
        (MESSAGES, PLAIN | VERSION, "anthropic", PLAIN),
        (MESSAGES, BEARER | VERSION, "anthropic", BEARER),
        (CHAT, BEARER, "anthropic", PLAIN),
        (CHAT, BEARER, "openai", BEARER),
        (CHAT, {}, "openai", {}),
    ],
)
async def test_a_clients_key_arrives_where_the_upstream_looks_for_it(
    stand: Stand, upstream: Provider, kind: Kind, given: dict[str, str], dialect: str, shown: dict[str, str]
) -> None:
    """Chat completions want a bearer; Anthropic's SDKs have sent either, and its API tells them apart."""
    upstream.will({"openai": CHAT, "anthropic": MESSAGES}.get(dialect, kind).says("Hello."))

    async with (await stand.gate(dialect)).http() as client:
        await client.post(kind.path, json={"model": "m"} | OFFERS[kind.name], headers=given)

    sent = upstream.asked[0].headers
    assert {name: sent[name] for name in ("authorization", "x-api-key") if name in sent} == shown


async def test_a_chat_client_can_list_the_models_of_anthropic(stand: Stand, upstream: Provider) -> None:
    upstream.will(says({"data": [{"id": "m", "type": "model"}], "has_more": False}))

    async with (await stand.gate("anthropic")).openai() as client:
        assert [model.id async for model in client.models.list()] == ["m"]

    sent = upstream.asked[0].headers
    assert (sent["x-api-key"], "anthropic-version" in sent) == ("client-key", True)


NO = "I cannot help with that."


def _refusal_events() -> list[Any]:
    whole = RESPONSES.whole("", (), "completed")
    part = {"type": "refusal", "refusal": NO}
    item = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [part]}
    where = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    steps: list[Any] = [
        {"type": "response.created", "response": whole | {"output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {"type": "response.content_part.added", **where, "part": part | {"refusal": ""}},
        {"type": "response.refusal.delta", **where, "delta": NO[:9]},
        {"type": "response.refusal.delta", **where, "delta": NO[9:]},
        {"type": "response.refusal.done", **where, "refusal": NO},
        {"type": "response.content_part.done", **where, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole | {"output": [item]}},
    ]
    return [step | {"sequence_number": at} for at, step in enumerate(steps)]


@whole_and_streamed
async def test_a_refusal_stays_a_refusal(stand: Stand, upstream: Provider, stream: bool) -> None:
    events = _refusal_events()
    whole = says(events[-1]["response"])
    upstream.will(answer(framed_named(events), kind="text/event-stream") if stream else whole)

    async with (await stand.gate()).openai() as client:
        given: Any = {"model": "m"} | OFFERS["openai_responses"]
        response: Any
        if stream:
            async with client.responses.stream(**given) as running:
                response = await running.get_final_response()
        else:
            response = await client.responses.create(**given)

    [message] = response.output
    assert message.content[0].refusal == NO


@whole_and_streamed
async def test_a_refusal_is_heard_in_an_api_that_has_no_word_for_it(
    stand: Stand, upstream: Provider, stream: bool
) -> None:
    whole = CHAT.whole("", (), "stop")
    whole["choices"][0]["message"] |= {"content": None, "refusal": NO}
    events = [chunk({"refusal": NO[:9]}), chunk({"refusal": NO[9:]}), chunk({}, "stop")]
    upstream.will(answer(framed_chat(events), kind="text/event-stream") if stream else says(whole))

    got = await MESSAGES.ask(await stand.gate("openai"), stream=stream)

    assert got.text == NO


@pytest.mark.parametrize("choice", ["auto", "none"])
async def test_a_choice_that_our_own_model_honours_is_not_named_as_lost(stand: Stand, choice: str) -> None:
    model = ScriptedModel("It is warm.")

    async with (await stand.gate(model=model)).http() as client:
        got = await client.post(CHAT.path, json={"model": "m", "tool_choice": choice} | OFFERS["openai"])

    assert got.json()["choices"][0]["message"]["content"] == "It is warm."
    assert "x-toolwire-left-out" not in got.headers


async def test_pictures_for_the_embedded_model_are_named_as_lost_and_told_in_words(stand: Stand) -> None:
    model = ScriptedModel("A cat?", name="local:small")
    shown = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    asked = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}, shown]}]

    async with (await stand.gate(model=model)).http() as client:
        got = await client.post(CHAT.path, json={"model": "m", "messages": asked})

    assert got.headers["x-toolwire-left-out"] == "images were left out"
    [request] = model.requests
    assert request.messages[0].text == "What is it?\n\n[image image/png]"  # type: ignore[union-attr]  # a user's


async def test_a_call_of_a_free_text_tool_passes_byte_for_byte(stand: Stand, upstream: Provider) -> None:
    call = {"id": "call_1", "type": "custom", "custom": {"name": "run_sql", "input": "SELECT '{';"}}
    upstream.will(says(whole := holding(CHAT, call)))

    async with (await stand.gate()).http() as client:
        got = await client.post(CHAT.path, json={"model": "m"} | OFFERS["openai"])

    assert got.content == json.dumps(whole).encode()


async def test_a_call_of_a_free_text_tool_is_streamed_whole(stand: Stand, upstream: Provider) -> None:
    begun = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "run_sql", "input": "SELECT "}}
    rest = {"index": 0, "custom": {"input": "'{';"}}
    events = [chunk({"tool_calls": [begun]}), chunk({"tool_calls": [rest]}), chunk({}, "tool_calls")]
    upstream.will(answer(framed_chat(events), kind="text/event-stream"))

    async with (await stand.gate()).http() as client:
        got = await client.post(CHAT.path, json={"model": "m", "stream": True} | OFFERS["openai"])

    frames = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
    [entry] = [call for one in frames for call in one["choices"][0]["delta"].get("tool_calls", ())]
    assert entry == begun | {"custom": {"name": "run_sql", "input": "SELECT '{';"}}
