"""One suite over the three HTTP clients, against a provider on loopback that sends the shapes of the real APIs."""

import asyncio
import gzip
import inspect
import json
import logging
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from toolwire import Agent, Limits
from toolwire.errors import ModelError, ModelRefused, ModelUnavailable, SettingsError
from toolwire.models.anthropic import AnthropicChat
from toolwire.models.endpoint import RequestPolicy
from toolwire.models.failures import FOREIGN, ProviderSite, of_exception
from toolwire.models.http_chat import HttpChat
from toolwire.models.ollama import OllamaChat
from toolwire.models.openai import OpenAIChat
from toolwire.models.waits import waits_end_in
from toolwire.protocol.calls import Text, ToolResult
from toolwire.protocol.chat import Delta, Reply, ResultsMessage, TextDelta
from toolwire.protocol.outcomes import Status

from .conftest import KEY, NOON, QUESTION, REPLIES, Client, StillWorld
from .provider import Provider, Scripted, answer, half, kept, says, sse
from .spellings import SPELLINGS

BOUND_S = 5


async def ask(model: HttpChat, *, watched: bool = False) -> tuple[Reply, list[Delta]]:
    shown: list[Delta] = []
    async with asyncio.timeout(BOUND_S):
        reply = await model.ask(QUESTION, shown.append if watched else None)
    return reply, shown


async def failure(model: HttpChat, *, watched: bool = False) -> ModelError:
    with pytest.raises(ModelError) as raised:
        await ask(model, watched=watched)
    return raised.value


def shape(reply: Reply) -> Any:
    calls = [(call.name, dict(call.arguments), call.alias) for call in reply.calls]
    return reply.content, reply.reasoning, calls, reply.finish_reason, reply.usage, reply.model, reply.carry


@pytest.mark.feature("F009")
async def test_parallel_calls_are_read_with_the_ids_that_the_provider_gave(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    provider.will(client.whole)

    reply, _ = await ask(model)

    assert reply.content == "Let me look."
    assert [dict(call.arguments) for call in reply.calls] == [{"room": "kitchen"}, {"room": "attic"}]
    assert len({call.alias for call in reply.calls if call.alias}) == 2
    assert not reply.problems


async def test_a_streamed_reply_is_the_same_as_a_whole_one_and_is_shown_as_it_comes(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    provider.will(client.whole, client.stream)

    whole, _ = await ask(model)
    streamed, shown = await ask(model, watched=True)

    assert shape(streamed) == shape(whole)
    assert "".join(delta.text for delta in shown if isinstance(delta, TextDelta)) == "Let me look."
    assert len(shown) > 3
    assert [body["stream"] for body in provider.bodies] == [False, True]


async def test_a_stream_is_read_the_same_however_it_is_cut(
    client: Client, provider: Provider, still: StillWorld
) -> None:
    """Chunks of one byte: every cut inside a line, an escape and a character."""
    chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in client.stream_bytes) + b"0\r\n\r\n"
    head = f"HTTP/1.1 200 OK\r\ncontent-type: {client.stream_kind}\r\ntransfer-encoding: chunked\r\n\r\n".encode()
    provider.will(client.stream, Scripted(head + chunks))
    model = client.open(provider, still)

    at_once, _ = await ask(model, watched=True)
    byte_by_byte, _ = await ask(model, watched=True)

    assert shape(byte_by_byte) == shape(at_once)
    await model.close()


@pytest.mark.feature("F158")
async def test_a_reply_says_what_it_consumed(client: Client, model: HttpChat, provider: Provider) -> None:
    provider.will(client.whole)

    reply, _ = await ask(model)

    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (1000, 100)
    assert reply.usage.cached_tokens == (0 if client.name == "ollama" else 100)
    assert reply.usage.cost_usd is None, "no price is known for a server on loopback"


@pytest.mark.feature("F009")
async def test_the_next_request_answers_the_calls_under_the_providers_ids(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    provider.will(client.whole)
    reply, _ = await ask(model)
    minted = replace(reply, calls=tuple(replace(call, id=f"our-{n}") for n, call in enumerate(reply.calls)))
    results = tuple(ToolResult(call.id, call.name, Status.SUCCESS, (Text("21"),)) for call in minted.calls)

    await model.ask(replace(QUESTION, messages=(*QUESTION.messages, minted, ResultsMessage(results))))

    sent = json.dumps(provider.bodies[-1]["messages"])
    for call in reply.calls:
        assert sent.count(f'"{call.alias}"') == 2
    assert "our-" not in sent


async def test_a_failing_provider_is_asked_again_and_the_waits_grow(
    client: Client, model: HttpChat, provider: Provider, still: StillWorld
) -> None:
    provider.will(says({"error": "x"}, status=500), says({}, status=503), says({}, status=529), client.whole)

    reply, _ = await ask(model)

    assert reply.content == "Let me look."
    assert still.waits == [0.5, 1.0, 2.0]


async def test_after_four_tries_the_last_failure_is_told(
    model: HttpChat, provider: Provider, still: StillWorld
) -> None:
    provider.will(says({"error": {"message": "the hamster is tired"}}, status=503))

    error = await failure(model)

    assert isinstance(error, ModelUnavailable)
    assert "the hamster is tired" in str(error)
    assert len(provider.asked) == 4


@pytest.mark.parametrize(
    ("header", "waited"),
    [
        ("7", 7.0),
        ("0.25", 0.25),
        (format_datetime(datetime.fromtimestamp(NOON + 30, UTC), usegmt=True), 30.0),
        (format_datetime(datetime.fromtimestamp(NOON - 30, UTC), usegmt=True), 0.0),
        ("60", 60.0),
        ("soon", 0.5),
    ],
)
async def test_a_busy_provider_is_given_the_time_it_asks_for(
    client: Client, model: HttpChat, provider: Provider, still: StillWorld, header: str, waited: float
) -> None:
    provider.will(says({"error": {"message": "slow down"}}, status=429, retry_after=header), client.whole)

    await ask(model)

    assert still.waits == [waited]


TOO_LONG = {
    "61": "wait 61 s",
    "3600": "Try again after",
    "86400": "wait 86400 s",
    format_datetime(datetime.fromtimestamp(NOON + 3600, UTC), usegmt=True): "wait 3600 s",
    "9" * 5000: "Try again after that",
}


@pytest.mark.parametrize(("header", "said"), TOO_LONG.items(), ids=[header[:30] for header in TOO_LONG])
async def test_a_provider_that_asks_for_too_much_time_is_not_asked_again(
    model: HttpChat, provider: Provider, still: StillWorld, header: str, said: str
) -> None:
    provider.will(says({"error": {"message": "slow down"}}, status=429, retry_after=header))

    error = await failure(model)

    assert isinstance(error, ModelUnavailable)
    assert said in str(error)
    assert "slow down" in str(error)
    assert (still.waits, len(provider.asked)) == ([], 1)


async def test_within_a_deadline_a_provider_is_given_an_hour(
    client: Client, model: HttpChat, provider: Provider, still: StillWorld
) -> None:
    provider.will(says({"error": {"message": "slow down"}}, status=429, retry_after="3600"), client.whole)
    with waits_end_in(3700):
        await ask(model)

    assert still.waits == [3600.0]


async def test_a_turn_waits_as_told_only_where_its_deadline_allows_it(provider: Provider, still: StillWorld) -> None:
    busy = says({"error": {"message": "slow down"}}, status=503, retry_after="3600")
    said = says({"choices": [{"message": {"content": "Warm."}, "finish_reason": "stop"}]})
    provider.will(busy, said)
    model = OpenAIChat("m", base_url=f"{provider.url}/v1", time_source=still.time_source())
    async with Agent(model, limits=Limits(deadline_s=7200)) as agent:
        assert (await agent.ask("How warm?")).text == "Warm."
    assert still.waits == [3600.0]

    provider.will(busy)
    asked = len(provider.asked)
    async with Agent(model, limits=Limits(deadline_s=30)) as agent:
        with pytest.raises(ModelUnavailable, match=r"wait 3600 s, and the deadline leaves \d+ s\. Try again after"):
            await agent.ask("How warm?")
    assert (still.waits, len(provider.asked) - asked) == ([3600.0], 1)


async def test_an_account_without_quota_is_not_asked_again(model: HttpChat, provider: Provider) -> None:
    provider.will(says({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}, status=429))

    assert isinstance(await failure(model), ModelRefused)
    assert len(provider.asked) == 1


@pytest.mark.parametrize("watched", [False, True])
async def test_a_connection_that_closes_before_anything_was_shown_is_tried_again(
    client: Client, model: HttpChat, provider: Provider, watched: bool
) -> None:
    good = client.stream if watched else client.whole
    provider.will(Scripted(b""), half(b"", kind=client.stream_kind), good)

    reply, _ = await ask(model, watched=watched)

    assert reply.content == "Let me look."
    assert len(provider.asked) == 3


async def test_a_stream_that_breaks_after_something_was_shown_is_an_error_and_is_not_repeated(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    upto = client.stream_bytes.index(b" look.")
    provider.will(half(client.stream_bytes[:upto], kind=client.stream_kind))

    error = await failure(model, watched=True)

    assert isinstance(error, ModelUnavailable)
    assert "half-way" in str(error)
    assert len(provider.asked) == 1


async def test_a_stream_that_ends_politely_but_too_early_is_an_error(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    """A cut between two events looks complete to HTTP; the missing end of the reply gives it away."""
    marker = b"\n" if client.name == "ollama" else b"\n\n"
    upto = client.stream_bytes.index(marker, client.stream_bytes.index(b" look.")) + len(marker)
    provider.will(answer(client.stream_bytes[:upto], kind=client.stream_kind))

    assert "half-way" in str(await failure(model, watched=True))


async def test_a_provider_that_goes_silent_is_given_up(client: Client, provider: Provider, still: StillWorld) -> None:
    provider.will(Scripted(b"", "hang"))
    model = client.open(provider, still, RequestPolicy(idle_s=0.05))

    assert "went silent" in str(await failure(model))
    assert len(provider.asked) == 1, "it may still be at work: asking again could bill twice"
    await model.close()


async def test_a_stream_that_never_ends_is_given_up(client: Client, provider: Provider, still: StillWorld) -> None:
    upto = client.stream_bytes.index(b" look.")
    provider.will(half(client.stream_bytes[:upto], kind=client.stream_kind, then="hang"))
    model = client.open(provider, still, RequestPolicy(whole_s=0.1))

    assert "went silent" in str(await failure(model, watched=True))
    await model.close()


@pytest.mark.parametrize("then", ["hang", "close"])
async def test_a_complete_reply_counts_although_the_stream_is_never_closed(
    client: Client, provider: Provider, still: StillWorld, then: str
) -> None:
    provider.will(half(client.stream_bytes, kind=client.stream_kind, then=then))
    model = client.open(provider, still, RequestPolicy(closing_s=0.05))

    reply, _ = await ask(model, watched=True)

    assert len(reply.calls) == 2
    await model.close()


async def test_a_connection_is_used_again_after_whole_and_streamed_answers(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    stream = kept(client.stream_bytes, kind=client.stream_kind)
    whole = kept((REPLIES / f"{client.name}.json").read_bytes(), kind="application/json")
    provider.will(whole, stream, stream, whole)

    for watched in (False, True, True, False):
        await ask(model, watched=watched)

    assert provider.connections == 1


async def test_a_web_page_is_recognised(client: Client, model: HttpChat, provider: Provider) -> None:
    provider.will(answer(b"<!doctype html><title>Welcome to nginx</title>", kind="text/html"))

    for watched in (False, True):
        error = await failure(model, watched=watched)
        assert "web page" in str(error)
        assert "base URL" in str(error)


@pytest.mark.parametrize(
    "body",
    [b"", b"  \n", b"\xff\xfe\x00garbage", b"[]", b"null", b"{}", b'{"choices": ', b"[" * 100_000, b'"text"'],
    ids=["empty", "blank", "garbage", "list", "null", "object", "cut", "deep", "string"],
)
async def test_a_body_that_is_no_reply_is_an_error(model: HttpChat, provider: Provider, body: bytes) -> None:
    provider.will(answer(body))

    assert isinstance(await failure(model), ModelUnavailable)


@pytest.mark.parametrize(
    "line", [b"data: {not json\n\n{not json\n", b"data: 7\n\n7\n", b"data: [1]\n\n[1]\n"], ids=["cut", "number", "list"]
)
async def test_garbage_in_a_stream_is_an_error(
    client: Client, model: HttpChat, provider: Provider, line: bytes
) -> None:
    provider.will(answer(line, kind=client.stream_kind))

    assert isinstance(await failure(model, watched=True), ModelUnavailable)


async def test_an_answer_is_not_read_beyond_its_cap(client: Client, provider: Provider, still: StillWorld) -> None:
    provider.will(answer(b'{"x": "' + b"a" * 300_000 + b'"}'))
    model = client.open(provider, still, RequestPolicy(largest_answer=100_000))

    assert "more than 100000 bytes" in str(await failure(model))
    await model.close()


async def test_a_small_compressed_body_that_grows_huge_is_not_read_beyond_the_cap(
    client: Client, provider: Provider, still: StillWorld
) -> None:
    provider.will(answer(gzip.compress(b" " * 50_000_000), content_encoding="gzip"))
    model = client.open(provider, still, RequestPolicy(largest_answer=1_000_000))

    assert "more than 1000000 bytes" in str(await failure(model))
    await model.close()


async def test_a_line_without_an_end_is_not_held_beyond_its_cap(
    client: Client, provider: Provider, still: StillWorld
) -> None:
    provider.will(answer(b"data: " + b"a" * 500_000, kind=client.stream_kind))
    model = client.open(provider, still, RequestPolicy(longest_line=100_000))

    assert "more than 100000 bytes" in str(await failure(model, watched=True))
    await model.close()


async def test_an_error_with_status_200_is_an_error(model: HttpChat, provider: Provider) -> None:
    provider.will(says({"error": {"message": "content was filtered", "type": "invalid_request_error"}}))

    error = await failure(model)

    assert isinstance(error, ModelRefused)
    assert "content was filtered" in str(error)


async def test_an_error_in_a_stream_is_tried_again_when_it_passes(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    body = json.dumps(overloaded).encode() + b"\n" if client.name == "ollama" else sse([overloaded])
    provider.will(answer(body, kind=client.stream_kind), client.stream)

    reply, _ = await ask(model, watched=True)

    assert reply.content == "Let me look."


async def test_a_server_that_does_not_stream_is_shown_at_once(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    provider.will(client.whole)

    reply, shown = await ask(model, watched=True)

    assert reply.calls
    assert shown == [TextDelta("Let me look.")]


NO_SUCH_MODEL = {
    "openai": {"error": {"message": "The model `some-model` does not exist", "code": "model_not_found"}},
    "anthropic": {"type": "error", "error": {"type": "not_found_error", "message": "model: some-model"}},
    "ollama": {"error": "model 'some-model' not found"},
}
MODELS = {"data": [{"id": "some-modal"}, {"id": "zzz"}], "models": [{"name": "some-modal"}, {"name": "zzz"}]}


async def test_a_model_that_is_not_there_is_answered_with_those_that_are(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    provider.will(says(NO_SUCH_MODEL[client.name], status=404), says(MODELS))

    error = await failure(model)

    assert isinstance(error, ModelRefused)
    assert "no model 'some-model'" in str(error)
    assert "available: some-modal" in str(error)


async def test_a_missing_model_is_told_even_when_the_list_cannot_be_had(
    client: Client, model: HttpChat, provider: Provider
) -> None:
    provider.will(says(NO_SUCH_MODEL[client.name], status=404), says({}, status=500))

    assert "no model 'some-model'" in str(await failure(model))


async def test_nothing_at_the_address_points_to_the_base_url(model: HttpChat, provider: Provider) -> None:
    for status in (404, 308):
        provider.will(answer(b"nope", status=status, kind="text/plain"))
        assert "base URL" in str(await failure(model))


@pytest.mark.parametrize("make", [OpenAIChat, AnthropicChat])
async def test_a_missing_key_is_told_with_the_variable_to_set(make: Any, provider: Provider) -> None:
    provider.will(says({"error": {"message": "who are you?"}}, status=401))
    model = make("m", provider.url, "")

    assert f"set {model.site.key_variable}" in str(await failure(model))
    await model.close()


@pytest.mark.parametrize("status", [200, 400, 401, 404, 429, 500])
@pytest.mark.requirement("model.secrets")
async def test_the_key_is_in_no_error_log_or_repr_even_when_the_provider_echoes_it(
    model: HttpChat, provider: Provider, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    caplog.set_level(logging.DEBUG)
    provider.will(says({"error": {"message": f"Incorrect API key provided: {KEY}; model not found"}}, status=status))

    error = await failure(model)

    told = [
        str(error),
        repr(error),
        repr(error.__cause__),
        repr(model),
        repr(model.site),
        repr(vars(error)),
        caplog.text,
    ]
    assert KEY in json.dumps(provider.asked[0].headers)
    assert not [text for text in told if KEY in text]
    assert "***" in str(error)


@pytest.mark.parametrize("status", [200, 401])
@pytest.mark.parametrize("spelled", SPELLINGS)
async def test_T144_no_spelling_of_the_key_that_a_provider_quotes_is_told(
    model: HttpChat, provider: Provider, status: int, spelled: str
) -> None:
    quoted = SPELLINGS[spelled](KEY)
    provider.will(says({"error": {"message": f"Incorrect API key provided: {quoted}."}}, status=status))

    error = str(await failure(model))

    assert quoted not in error
    assert "Incorrect API key provided: " in error
    assert "***" in error


async def test_T144_control_other_words_of_a_provider_are_told(model: HttpChat, provider: Provider) -> None:
    words = f"Incorrect API key provided: {SPELLINGS['in base64']('another-key-that-is-not-ours')}."
    provider.will(says({"error": {"message": words}}, status=401))

    assert words in str(await failure(model))


async def test_a_password_in_the_address_is_not_told(provider: Provider) -> None:
    provider.will(answer(b"<html>"))
    model = OpenAIChat("m", provider.url.replace("http://", "http://user:hunter2@"), "")

    assert "hunter2" not in str(await failure(model)) + repr(model)
    await model.close()


async def test_words_of_a_provider_are_short_and_cannot_steer_a_terminal(model: HttpChat, provider: Provider) -> None:
    provider.will(says({"error": {"message": "\x1b[31mred\nalert " * 10_000}}, status=400))

    text = str(await failure(model))

    assert text.isprintable()
    assert len(text) < 600


async def test_a_server_that_is_not_running_is_told_at_once_and_how_to_start_it(still: StillWorld) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    model = OllamaChat("qwen3", f"http://127.0.0.1:{port}", time_source=still.time_source())

    error = await failure(model)

    assert str(error).endswith("is Ollama running? start it with `ollama serve`")
    assert still.waits == []
    await model.close()


def _library_exceptions() -> list[type[Exception]]:
    found = [each for _, each in inspect.getmembers(httpx2, inspect.isclass) if issubclass(each, Exception)]
    assert len(found) > 20
    return found


def _raised(kind: type[Exception]) -> Exception:
    request = httpx2.Request("POST", "https://example.org")
    if kind is httpx2.HTTPStatusError:
        return httpx2.HTTPStatusError("bad", request=request, response=httpx2.Response(500, request=request))
    return kind("bad") if "message" in inspect.signature(kind).parameters else kind()


@pytest.mark.parametrize("kind", _library_exceptions(), ids=lambda kind: kind.__name__)
def test_no_exception_of_the_http_library_escapes_untranslated(kind: type[Exception]) -> None:
    assert issubclass(kind, FOREIGN)
    trouble = of_exception(ProviderSite("openai", "https://example.org/v1"), _raised(kind))

    assert type(trouble.error) in (ModelUnavailable, ModelRefused)
    assert "openai" in str(trouble.error)


@pytest.mark.parametrize(("url", "again"), [("https://far.example/v1", True), ("http://127.0.0.1:9/v1", False)])
def test_a_refused_connection_is_tried_again_only_where_it_may_pass(url: str, again: bool) -> None:
    """We chose it: on this machine a refused connection means that no server runs; people should hear it at once."""
    assert of_exception(ProviderSite("openai", url), httpx2.ConnectError("refused")).again is again


async def test_an_error_of_the_watcher_is_its_own(client: Client, model: HttpChat, provider: Provider) -> None:
    """A closed pipe under the printed text is no failure of the model."""

    def broken(delta: Delta) -> None:
        raise BrokenPipeError("nobody reads")

    provider.will(client.stream)
    with pytest.raises(BrokenPipeError):
        await model.ask(QUESTION, broken)
    assert len(provider.asked) == 1


async def test_cancelling_passes_through(client: Client, model: HttpChat, provider: Provider) -> None:
    arrived = asyncio.Event()
    provider.will(half(client.stream_bytes[:-60], kind=client.stream_kind, then="hang"))
    task = asyncio.create_task(model.ask(QUESTION, lambda _: arrived.set()))
    async with asyncio.timeout(BOUND_S):
        await arrived.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_character_cut_in_half_between_two_events_is_no_error(provider: Provider, still: StillWorld) -> None:
    """Servers stream by token, and a token may be half of a character that JSON writes as two escapes."""
    halves = [{"choices": [{"delta": {"content": half}}]} for half in ("\ud83d", "\ude00", " done")]
    provider.will(
        answer(sse([*halves, {"choices": [{"delta": {}, "finish_reason": "stop"}]}]), kind="text/event-stream")
    )
    model = OpenAIChat("m", provider.url, KEY, time_source=still.time_source())

    reply, _ = await ask(model, watched=True)

    assert reply.content.endswith(" done")
    await model.close()


async def test_a_key_at_the_edge_of_what_is_quoted_is_not_shown_in_part(model: HttpChat, provider: Provider) -> None:
    for gap in range(1180, 1200):
        provider.will(answer(b"no" + b" " * gap + KEY.encode(), status=400, kind="text/plain"))
        assert "sk-test" not in str(await failure(model))


async def test_a_server_that_does_not_know_stream_options_is_asked_without_them(
    provider: Provider, still: StillWorld
) -> None:
    good = answer(
        b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n', kind="text/event-stream"
    )
    provider.will(says({"detail": "Extra inputs are not permitted: stream_options"}, status=422), good)
    model = OpenAIChat("m", provider.url, KEY, time_source=still.time_source())

    first, _ = await ask(model, watched=True)
    again, _ = await ask(model, watched=True)

    assert (first.content, again.content) == ("hi", "hi")
    assert ["stream_options" in body for body in provider.bodies] == [True, False, False]
    await model.close()


async def test_a_model_can_be_used_from_one_event_loop_after_another(provider: Provider, client: Client) -> None:
    """`asyncio.run` for each question is how synchronous programs use us."""
    provider.will(client.whole)
    model = client.open(provider, StillWorld())

    async def once() -> str:
        try:
            return (await ask(model))[0].content
        finally:
            await model.close()

    async with asyncio.timeout(BOUND_S):
        answers = [await asyncio.to_thread(asyncio.run, once()) for _ in range(2)]

    assert answers == ["Let me look.", "Let me look."]
    await model.close()


@pytest.mark.parametrize("url", ["ftp://x/v1", "nonsense", "http://", "http://[", "https://exa mple"])
def test_an_address_that_is_none_is_told_before_anything_is_sent(url: str) -> None:
    with pytest.raises(SettingsError, match="base URL"):
        OpenAIChat("m", url, "")


def test_a_key_with_a_line_end_is_trimmed_and_one_with_odd_characters_is_told() -> None:
    assert OpenAIChat("m", "http://127.0.0.1", f"{KEY}\n").site.api_key == KEY
    with pytest.raises(SettingsError, match="copy it again") as raised:
        OpenAIChat("m", "http://127.0.0.1", "sk-…abc")
    assert "abc" not in str(raised.value)
