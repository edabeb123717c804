"""Different APIs on the two sides: any client, any upstream, by way of our nouns."""

import json
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.gateway.clients import CHAT, KINDS, MESSAGES, RESPONSES, Got, Kind
from tests.gateway.stand import NAME, QUICK, ROOM, Stand
from tests.gateway.test_faults import ended, refusal
from tests.gateway.test_passing import KITCHEN, LEAKED, NATIVE, cut, each_api, whole_and_streamed
from tests.models.provider import Provider, Scripted, answer, half, says
from toolwire.models.opening import open_model
from toolwire.wire.formats.preference import FormatChoice

USAGE = {"prompt_eval_count": 20, "eval_count": 7}


def ollama_line(message: Any, **more: Any) -> Any:
    return {"model": "m", "message": {"role": "assistant", "content": ""} | message, "done": False} | more


def ollama(text: str, calls: Any, *, stream: bool) -> Scripted:
    entries = [{"function": {"name": name, "arguments": json.loads(args)}} for _, name, args in calls]
    last = {"done": True, "done_reason": "stop"} | USAGE
    if not stream:
        message = {"content": text} | ({"tool_calls": entries} if entries else {})
        return says(ollama_line(message, **last))
    lines = [ollama_line({"content": piece}) for piece in cut(text)]
    lines += [ollama_line({"tool_calls": entries})] if entries else []
    body = b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, ollama_line({}, **last)])
    return answer(body, kind="application/x-ndjson")


def speaks(dialect: str, text: str, calls: Any = (), *, stream: bool, ending: str = "stop") -> Scripted:
    """How an upstream of this dialect says something."""
    if dialect == "ollama":
        return ollama(text, calls, stream=stream)
    kind = {"openai": CHAT, "anthropic": MESSAGES}[dialect]
    return kind.streams(cut(text), calls, ending) if stream else kind.says(text, calls, ending)


PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "ollama": "/api/chat"}
PAIRS = [(kind, dialect) for kind in KINDS for dialect in PATHS if kind.name != dialect]
each_pair = pytest.mark.parametrize(("kind", "dialect"), PAIRS, ids=[f"{kind.name}-{to}" for kind, to in PAIRS])


@each_pair
@whole_and_streamed
async def test_any_client_can_ask_any_upstream(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str, stream: bool
) -> None:
    upstream.will(speaks(dialect, "It is warm.", stream=stream))

    got = await kind.ask(await stand.gate(dialect), stream=stream)

    assert got == Got("It is warm.", ending=kind.endings["stop"], tokens=got.tokens)
    assert got.tokens == 27 or (stream and kind is CHAT)  # a chat client has to ask for usage in a stream
    [asked] = upstream.asked
    assert asked.path == PATHS[dialect]
    assert asked.body["model"] == "m"
    assert NAME in json.dumps(asked.body["tools"])
    assert "How warm is the kitchen?" in json.dumps(asked.body["messages"])


@each_pair
@whole_and_streamed
async def test_calls_cross_whether_they_leaked_or_not(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str, stream: bool
) -> None:
    gate = await stand.gate(dialect)

    upstream.will(speaks(dialect, LEAKED, stream=stream))
    leaked = await kind.ask(gate, stream=stream)
    upstream.will(speaks(dialect, "", [NATIVE], stream=stream, ending="calls"))
    native = await kind.ask(gate, stream=stream)

    assert leaked.calls == native.calls == [KITCHEN]
    assert leaked.text.strip() == "Let me look."
    assert leaked.ending == native.ending == kind.endings["calls"]
    assert leaked.ids != [""]
    assert native.ids == ["call_1"] or dialect == "ollama"


@each_pair
async def test_thinking_crosses(stand: Stand, upstream: Provider, kind: Kind, dialect: str) -> None:
    upstream.will(speaks(dialect, "<think>Hm.</think>It is warm.", stream=True))

    got = await kind.ask(await stand.gate(dialect), stream=True)

    assert (got.thought.strip(), got.text.strip()) == ("Hm.", "It is warm.")


HISTORIES: dict[str, dict[str, Any]] = {
    "openai": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "How warm?"},
            {"role": "assistant", "content": None, "tool_calls": [
                {"id": "call_9", "type": "function", "function": {"name": NAME, "arguments": '{"room": "hall"}'}}]},
            {"role": "tool", "tool_call_id": "call_9", "content": "21.5 degrees"},
        ],
    },
    "anthropic": {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "How warm?"},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "call_9", "name": NAME, "input": {"room": "hall"}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_9", "content": "21.5 degrees"}]},
        ],
    },
    "openai_responses": {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": "How warm?"},
            {"type": "function_call", "call_id": "call_9", "name": NAME, "arguments": '{"room": "hall"}'},
            {"type": "function_call_output", "call_id": "call_9", "output": "21.5 degrees"},
        ],
    },
}  # fmt: skip


@each_pair
async def test_a_conversation_with_calls_and_results_crosses_whole(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str
) -> None:
    upstream.will(speaks(dialect, "It is warm.", stream=False))

    await kind.ask(await stand.gate(dialect), stream=False, more=HISTORIES[kind.name])

    sent = upstream.asked[0].body
    written = json.dumps([sent.get("system"), sent["messages"]])
    for words in ("Be brief.", "How warm?", "call_9", "hall", "21.5 degrees"):
        assert words in written
    roles = [message["role"] for message in sent["messages"] if message["role"] != "system"]
    assert roles == ["user", "assistant", "user" if dialect == "anthropic" else "tool"]


@each_pair
async def test_an_upstreams_error_keeps_its_status_and_speaks_the_clients_dialect(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str
) -> None:
    upstream.will(says({"error": {"message": "slow down please"}}, status=429, retry_after="3"))

    for stream in (False, True):
        error = await refusal(kind, await stand.gate(dialect), stream=stream)
        assert isinstance(error, anthropic.RateLimitError if kind is MESSAGES else openai.RateLimitError)
        assert "slow down please" in error.message
        assert error.response.headers["retry-after"] == "3"


@each_pair
async def test_a_translated_stream_that_breaks_ends_with_an_error(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str
) -> None:
    begun = speaks(dialect, "It is warm and so on.", stream=True).data.partition(b"\r\n\r\n")[2]
    kind_of_stream = "application/x-ndjson" if dialect == "ollama" else "text/event-stream"
    upstream.will(half(begun[: len(begun) // 2], kind=kind_of_stream))

    assert "closed the connection" in await ended(kind, await stand.gate(dialect, bounds=QUICK))


@whole_and_streamed
async def test_a_tool_whose_name_the_upstream_would_refuse_keeps_its_name_for_the_client(
    stand: Stand, upstream: Provider, stream: bool
) -> None:
    dotted = {"tools": [{"name": "rooms.read", "input_schema": ROOM}]}

    upstream.will(speaks("openai", "Hello.", stream=stream))
    await MESSAGES.ask(await stand.gate("openai"), stream=stream, more=dotted)
    on_the_wire = upstream.asked[0].body["tools"][0]["function"]["name"]
    upstream.will(speaks("openai", "", [("call_1", on_the_wire, '{"room": "kitchen"}')], stream=stream, ending="calls"))
    got = await MESSAGES.ask(await stand.gate("openai"), stream=stream, more=dotted)

    assert on_the_wire.replace("_", "").isalnum()
    assert got.calls == [("rooms.read", {"room": "kitchen"})]


SHAPE = {"type": "json_schema", "schema": ROOM}


@pytest.mark.parametrize(
    ("kind", "options", "dialect", "sent"),
    [
        (CHAT, {"tool_choice": "required", "stop": ["END"], "top_p": 0.5}, "anthropic",
         {"tool_choice": {"type": "any"}, "stop_sequences": ["END"], "top_p": 0.5}),
        (CHAT, {"tool_choice": {"type": "function", "function": {"name": NAME}}, "stop": "END"}, "anthropic",
         {"tool_choice": {"type": "tool", "name": NAME}, "stop_sequences": ["END"]}),
        (MESSAGES, {"tool_choice": {"type": "tool", "name": NAME}, "stop_sequences": ["END"]}, "openai",
         {"tool_choice": {"type": "function", "function": {"name": NAME}}, "stop": ["END"]}),
        (RESPONSES, {"tool_choice": {"type": "function", "name": NAME}, "top_p": 0.5}, "openai",
         {"tool_choice": {"type": "function", "function": {"name": NAME}}, "top_p": 0.5}),
        (CHAT, {"stop": ["END"], "temperature": 0.25}, "ollama", {"options": {"temperature": 0.25, "stop": ["END"]}}),
        (CHAT, {"seed": 7, "frequency_penalty": 0.5, "response_format": {"type": "json_object"}}, "ollama",
         {"options": {"seed": 7, "frequency_penalty": 0.5}, "format": "json"}),
        (CHAT, {"parallel_tool_calls": False}, "anthropic",
         {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        (CHAT, {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": ROOM}}}, "anthropic",
         {"output_config": {"format": SHAPE}}),
        (MESSAGES, {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}, "openai",
         {"tool_choice": "required", "parallel_tool_calls": False}),
        (MESSAGES, {"extra_body": {"top_k": 5}, "output_config": {"format": SHAPE}}, "ollama",
         {"options": {"num_predict": 50, "top_k": 5}, "format": ROOM}),
        (RESPONSES, {"parallel_tool_calls": False, "reasoning": {"effort": "low"}}, "openai",
         {"parallel_tool_calls": False, "reasoning_effort": "low"}),
        (RESPONSES, {"text": {"format": SHAPE | {"name": "r", "strict": True}}}, "openai",
         {"response_format": {"type": "json_schema", "json_schema": {"name": "r", "schema": ROOM, "strict": True}}}),
    ],
)  # fmt: skip
async def test_options_cross_under_their_other_names(
    stand: Stand, upstream: Provider, kind: Kind, options: Any, dialect: str, sent: Any
) -> None:
    upstream.will(speaks(dialect, "Hello.", stream=False))

    await kind.ask(await stand.gate(dialect), stream=False, more=options)

    body = upstream.asked[0].body
    assert {name: body[name] for name in sent} == sent


async def test_a_response_that_builds_on_one_kept_elsewhere_is_refused(stand: Stand, upstream: Provider) -> None:
    with pytest.raises(openai.BadRequestError, match="send the whole input"):
        await RESPONSES.ask(await stand.gate("openai"), stream=False, more={"previous_response_id": "resp_1"})

    assert upstream.asked == []


async def test_a_translated_stream_from_an_upstream_that_answers_whole(stand: Stand, upstream: Provider) -> None:
    upstream.will(speaks("openai", LEAKED, stream=False))

    got = await MESSAGES.ask(await stand.gate("openai"), stream=True)

    assert got.calls == [KITCHEN]


DATA, ADDRESS = "aGk=", "https://example.org/cat.png"
SEEN: dict[str, list[Any]] = {
    "openai": [
        {"type": "text", "text": "What are these?"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{DATA}"}},
        {"type": "image_url", "image_url": {"url": ADDRESS}},
    ],
    "anthropic": [
        {"type": "text", "text": "What are these?"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "image", "source": {"type": "url", "url": ADDRESS}},
    ],
    "openai_responses": [
        {"type": "input_text", "text": "What are these?"},
        {"type": "input_image", "image_url": f"data:image/png;base64,{DATA}"},
        {"type": "input_image", "image_url": ADDRESS},
    ],
}


@each_pair
async def test_pictures_cross(stand: Stand, upstream: Provider, kind: Kind, dialect: str) -> None:
    """Ollama takes a picture only with its data: one that lies elsewhere is named to the model."""
    upstream.will(speaks(dialect, "Cats.", stream=False))
    field = "input" if kind is RESPONSES else "messages"
    asked = [{"role": "user", "content": SEEN[kind.name]}]

    async with (await stand.gate(dialect)).http() as client:
        got = await client.post(kind.path, json={"model": "m", "max_tokens": 50, field: asked})

    [sent] = upstream.asked[0].body["messages"]
    if dialect == "ollama":
        assert (sent["content"], sent["images"]) == (f"What are these?\n\n[image: {ADDRESS}]", [DATA])
    else:
        assert sent == {"role": "user", "content": SEEN[dialect]}
    assert "image" not in got.headers.get("x-toolwire-left-out", "")


async def test_what_cannot_cross_is_named(stand: Stand, upstream: Provider) -> None:
    upstream.will(speaks("openai", "A cat.", stream=False))
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="}}
    content = [{"type": "text", "text": "What is this?"}, document]
    body = {"model": "m", "max_tokens": 5, "top_k": 3, "messages": [{"role": "user", "content": content}]}

    async with (await stand.gate("openai")).http() as client:
        got = await client.post("/v1/messages", json=body)

    assert got.json()["content"] == [{"type": "text", "text": "A cat."}]
    left_out = got.headers["x-toolwire-left-out"]
    assert "a document was left out" in left_out
    assert "top_k was ignored" in left_out


async def test_what_strict_mode_cannot_say_of_a_tool_is_named(stand: Stand, upstream: Provider) -> None:
    upstream.will(speaks("openai", "Warm.", stream=False))
    model = open_model(
        "vllm:m", base_url=f"{upstream.url}/v1", api_key="k", environ={}, preference=FormatChoice("openai_strict")
    )
    schema = {"type": "object", "properties": {"room": {"type": "string", "maxLength": 9}}}
    tools = [{"type": "function", "function": {"name": NAME, "parameters": schema}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": tools}

    async with (await stand.gate(model=model)).http() as client:
        got = await client.post(CHAT.path, json=body)

    assert upstream.asked[0].body["tools"][0]["function"]["strict"] is True
    assert got.headers["x-toolwire-left-out"] == f"{NAME}.room: maxLength was left out"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"n": 2, "seed": 1, "logprobs": False}, {"n was ignored", "seed was ignored"}),
        ({"n": 1, "user": "u", "tool_choice": "none", "parallel_tool_calls": True, "stop": None}, set()),
        ({"response_format": {"type": "json_object"}}, {"response_format was ignored"}),
    ],
)
async def test_only_what_would_have_made_a_difference_is_named(
    stand: Stand, upstream: Provider, options: Any, named: set[str]
) -> None:
    upstream.will(speaks("anthropic", "A cat.", stream=False))
    tools = [{"type": "function", "function": {"name": NAME, "parameters": ROOM}}]
    body = {"model": "m", "messages": [{"role": "user", "content": "?"}], "tools": tools} | options

    async with (await stand.gate("anthropic")).http() as client:
        got = await client.post(CHAT.path, json=body)

    assert set(filter(None, got.headers.get("x-toolwire-left-out", "").split("; "))) == named


@each_pair
async def test_a_request_that_makes_no_sense_is_refused_before_anyone_is_asked(
    stand: Stand, upstream: Provider, kind: Kind, dialect: str
) -> None:
    async with (await stand.gate(dialect)).http() as client:
        got = await client.post(kind.path, json={"model": "m", "max_tokens": 5, "messages": 5, "input": 5})

    assert got.status_code == 400
    assert upstream.asked == []


MISSING = {
    "FastAPI": says({"detail": "Not Found"}, status=404),
    "llama.cpp": says({"error": {"code": 404, "message": "File Not Found", "type": "not_found_error"}}, status=404),
    "Go": answer(b"404 page not found", status=404, kind="text/plain"),
    "LM Studio": says({"error": "Unexpected endpoint or method. (POST /v1/messages)"}, status=405),
    "old LM Studio": says({"error": "Unexpected endpoint or method. (POST /v1/messages). Returning 200 anyway"}),
}


@pytest.mark.parametrize("kind", [MESSAGES, RESPONSES], ids=lambda kind: kind.name)
@pytest.mark.parametrize("server", MISSING)
async def test_an_upstream_without_the_clients_api_is_asked_for_chat_completions(
    stand: Stand, upstream: Provider, kind: Kind, server: str
) -> None:
    upstream.will(MISSING[server], CHAT.says(LEAKED))
    gate = await stand.gate(url=f"{upstream.url}/{server.replace(' ', '')}{kind.name}")

    first = await kind.ask(gate, stream=False)
    again = await kind.ask(gate, stream=False)

    assert first.calls == again.calls == [KITCHEN]
    asked = [one.path.rpartition("/v1/")[2] for one in upstream.asked]
    assert asked == [kind.path.removeprefix("/v1/"), "chat/completions", "chat/completions"]


@each_api
async def test_a_missing_model_is_no_missing_api(stand: Stand, upstream: Provider, kind: Kind) -> None:
    upstream.will(says({"error": {"message": "model 'm' not found, try pulling it first"}}, status=404))

    error = await refusal(kind, await stand.gate(), stream=False)

    assert error.status_code == 404
    assert "try pulling it" in error.message
    assert len(upstream.asked) == 1


async def test_the_models_of_an_upstream_are_listed_for_both_sdks(stand: Stand, upstream: Provider) -> None:
    upstream.will(says({"models": [{"name": "qwen3:8b"}, {"name": "llama3"}]}))
    gate = await stand.gate("ollama")

    async with gate.openai() as client:
        chat = [model.id async for model in client.models.list()]
    async with gate.anthropic() as other:
        messages = [model.id async for model in other.models.list()]

    assert chat == messages == ["qwen3:8b", "llama3"]
    assert {asked.path for asked in upstream.asked} == {"/api/tags"}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/embeddings", "/v1/messages/count_tokens"])
async def test_other_routes_pass_as_they_are(stand: Stand, upstream: Provider, path: str) -> None:
    gate = await stand.gate()
    dialect = "error" if "messages" in path else None
    async with gate.http() as client:
        upstream.will(answer(b'{"input_tokens":  14}'))
        got = await client.post(path, content=b'{"model":  "m"}', headers={"x-api-key": "theirs"})
        upstream.will(says({"detail": "no such model"}, status=404))
        refused = await client.post(path, json={"model": "m"})
        upstream.will(half(b"data: {}", kind="text/event-stream"))
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post(path, json={"model": "m", "stream": True})

    assert got.content == b'{"input_tokens":  14}'
    assert (upstream.asked[0].path, upstream.asked[0].headers["x-api-key"]) == (path, "theirs")
    assert (refused.status_code, refused.json()["error"]["message"]) == (404, "no such model")
    assert refused.json().get("type") == dialect


async def test_a_list_of_models_passes_with_what_else_it_says(stand: Stand, upstream: Provider) -> None:
    theirs = {"object": "list", "data": [{"id": "m", "object": "model", "max_model_len": 4096}]}
    upstream.will(says(theirs))

    async with (await stand.gate()).http() as client:
        got = await client.get("/v1/models", headers={"authorization": "Bearer theirs"})

    assert got.json() == theirs
    assert upstream.asked[0].headers["authorization"] == "Bearer theirs"


@pytest.mark.parametrize(
    ("script", "status"),
    [
        (says({"object": "list", "data": []}), 200),
        (says({"error": {"message": "key?"}}, status=401), 200),
        (says({"error": {"message": "loading"}}, status=503), 503),
    ],
    ids=["up", "wants a key", "loading"],
)
async def test_readiness_is_whether_the_upstream_answers(
    stand: Stand, upstream: Provider, script: Scripted, status: int
) -> None:
    upstream.will(script)
    gate = await stand.gate(url=f"{upstream.url}/ready{script.data.count(b'key')}{status}")

    async with gate.http() as client:
        ready = await client.get("/readyz")
        healthy = await client.get("/healthz")

    assert (ready.status_code, healthy.status_code) == (status, 200)


@whole_and_streamed
async def test_a_client_that_knows_functions_only_is_answered_in_its_own_words(
    stand: Stand, upstream: Provider, stream: bool
) -> None:
    upstream.will(speaks("anthropic", "", [NATIVE], stream=stream, ending="calls"))
    given: Any = {"messages": [{"role": "user", "content": "?"}], "functions": [{"name": NAME, "parameters": ROOM}]}
    given |= {"model": "m", "function_call": {"name": NAME}, "stream": stream}

    async with (await stand.gate("anthropic")).http() as client:
        got = await client.post(CHAT.path, json=given)

    found = got.text
    assert "function_call" in found
    assert "tool_calls" not in found
    assert "kitchen" in found
    assert upstream.asked[0].body["tool_choice"] == {"type": "tool", "name": NAME}
    assert "x-toolwire-left-out" not in got.headers
