"""One request and its answer: passed through in the same API, translated into another, or asked of our own model."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial

from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import ModelError
from toolwire.gateway.apis import CHAT, SPOKEN, WRITTEN, Api, Stream
from toolwire.gateway.asked import ChatRequest
from toolwire.gateway.calls import Ids
from toolwire.gateway.carried import carry_over
from toolwire.gateway.faults import Rejected, not_an_answer, of_answer, of_model_error, too_late
from toolwire.gateway.flow import (
    EventSender,
    Send,
    cancel_and_wait,
    follow,
    kept_alive,
    read_answer_object,
    send_fault,
    send_stream,
    send_whole,
)
from toolwire.gateway.frames import KEEP_ALIVE
from toolwire.gateway.log import RequestEntry
from toolwire.gateway.settings import TransferLimits
from toolwire.gateway.translate import (
    AnswerHead,
    SpokenReply,
    TranslatedStream,
    decode_chat_request,
    left_out,
    refusal_text,
    render_reply,
    writer_for,
)
from toolwire.gateway.upstream import UpstreamBody, UpstreamClient
from toolwire.protocol.chat import ChatModel, Delta, Request
from toolwire.wire.encode.outbound import Json, to_json
from toolwire.wire.encode.request import encode_request
from toolwire.wire.encode.tool_names import NameMap
from toolwire.wire.replies.reply import parse_reply

Headers = list[tuple[bytes, bytes]]
_LARGE = 256 * 1024  # from here on, reading an answer would keep other clients waiting
_WHOLE = ("application/json", "text/html", "text/plain")
_NO_ENDPOINT = b"Unexpected endpoint"  # LM Studio's words, with status 200
_PASSED_BACK = ("x-ratelimit-", "anthropic-ratelimit-", "openai-", "retry-after")


class Plan(Struct, frozen=True):
    """How one request is put to an upstream, and how its answer is made."""

    api: Api
    body: bytes
    whole: Callable[[Json], Json]
    stream: Callable[[], Stream]
    names: NameMap
    lost: str = ""


class Exchange(Struct, frozen=True):
    """One request on its way: what was asked, and what its answer will need."""

    asked: ChatRequest
    headers: Mapping[str, str]
    entry: RequestEntry
    envelope: AnswerHead
    ids: Ids
    send: Send
    sender: EventSender


class ByUpstream:
    """Answers from a server that speaks some chat API; with `auto`, from the client's own API where it has that."""

    def __init__(self, client: UpstreamClient, bounds: TransferLimits, *, forward_keys: bool) -> None:
        self.client = client
        self._bounds = bounds
        self._forward_keys = forward_keys
        self._missing: set[str] = set()

    async def answer(self, exchange: Exchange) -> None:
        """Ask, and send the answer. Raises Rejected while nothing has been sent."""
        if not exchange.asked.stream:
            await self._ask(exchange)
            return
        try:
            async with kept_alive(exchange.sender, self._bounds.keep_alive_s):
                await self._ask(exchange)
        except Rejected as refused:
            exchange.entry.code = await send_fault(
                exchange.sender, writer_for(exchange.asked, exchange.envelope), refused
            )

    async def _ask(self, exchange: Exchange) -> None:
        dialect = exchange.asked.dialect
        if not self._passes(dialect):
            await self._put(exchange, self._translated(exchange), may_miss=False)
        elif await self._put(exchange, _passing(exchange), may_miss=self.client.upstream.dialect == "auto"):
            self._missing.add(dialect)
            await self._put(exchange, self._translated(exchange), may_miss=False)

    def keys(self, headers: Mapping[str, str], dialect: str) -> dict[str, str]:
        """The headers for the upstream, with the key that it is to see."""
        return self.client.headers(headers, dialect, forward_keys=self._forward_keys)

    def _passes(self, dialect: str) -> bool:
        spoken = self.client.upstream.dialect
        return dialect == spoken or (spoken == "auto" and dialect not in self._missing)

    async def _put(self, exchange: Exchange, plan: Plan, *, may_miss: bool) -> bool:
        """Ask as planned. True when the upstream has no such API and nothing was sent."""
        headers = self.keys(exchange.headers, plan.api.name) | {"x-request-id": exchange.entry.id}
        may_miss = may_miss and exchange.asked.dialect != "openai"
        async with self.client.send("POST", plan.api.path, headers, plan.body) as incoming:
            if 200 <= incoming.status < 300:
                return await self._pass_on(exchange, plan, incoming, may_miss=may_miss)
            body = await incoming.beginning()
        if may_miss and _has_no_such_api(incoming.status, body):
            return True
        raise Rejected(of_answer(self.client.place, incoming.status, incoming.headers, body, exchange.asked.dialect))

    async def _pass_on(self, exchange: Exchange, plan: Plan, incoming: UpstreamBody, *, may_miss: bool) -> bool:
        """Send the answer. True when it only says, with a status of success, that there is no such API."""
        asked, place = exchange.asked, self.client.place
        headers = _passed_back(incoming, plan.lost)
        if asked.stream and await _is_stream(incoming, plan.api):
            stream = plan.stream()
            async with aclosing(follow(incoming, stream, plan.api, place, asked.dialect, self._bounds)) as frames:
                exchange.entry.code = await send_stream(exchange.sender, frames, stream, headers)
            return False
        body = await self._in_time(incoming)
        if may_miss and _NO_ENDPOINT in body[:200]:
            return True
        data = read_answer_object(body, place, asked.dialect)
        if plan.api.reply_field not in data:
            raise Rejected(not_an_answer(place, body))
        if asked.stream:
            await self._stream_whole(exchange, plan, data, headers)
            return False
        made = plan.whole(data) if len(body) < _LARGE else await asyncio.to_thread(plan.whole, data)
        await send_whole(exchange.send, 200, body if made is data else to_json(made), headers)
        return False

    async def _in_time(self, incoming: UpstreamBody) -> bytes:
        try:
            async with asyncio.timeout(self._bounds.whole_s):
                return await incoming.whole()
        except TimeoutError:
            raise Rejected(too_late(self.client.place)) from None

    async def _stream_whole(self, exchange: Exchange, plan: Plan, data: Json, headers: Headers) -> None:
        """The client wanted a stream, but the upstream answered in one piece."""
        stream = _translating(exchange, plan.names, plan.api)
        frames = b"".join([*stream.feed(b"", data), *stream.done()])
        await send_stream(exchange.sender, _one(frames), stream, headers)

    def _translated(self, exchange: Exchange) -> Plan:
        asked = exchange.asked
        written = WRITTEN.get(self.client.upstream.dialect, WRITTEN[CHAT.name])
        found = decode_chat_request(asked)
        request = found.request
        frame = written.frame(request, found.model, asked.stream)
        wire_name, offers = written.dialect.wire_name, bool(request.tools)
        options, understood = carry_over(found.extras, written.api.name, wire_name, tools=offers)
        body = encode_request(written.dialect, request, _joined(frame, options))
        names = NameMap.of(() if request.tools_off else request.tools, written.dialect.wire_name)

        def whole(data: Json) -> Json:
            reply = names.restore(parse_reply(data, names.tools, written.api.name))
            reply = replace(reply, content=reply.content + refusal_text(data))
            return render_reply(asked, exchange.envelope, reply, exchange.ids, exchange.entry.tally)

        lost = left_out(found, understood, untold=written.dialect.losses(request.tools))
        return Plan(written.api, to_json(body), whole, lambda: _translating(exchange, names, written.api), names, lost)


def _passing(exchange: Exchange) -> Plan:
    asked, tally = exchange.asked, exchange.entry.tally
    spoken = SPOKEN[asked.dialect]

    def whole(data: Json) -> Json:
        return spoken.repair(data, asked.tools, exchange.ids, tally) if asked.tools else data

    names = NameMap(asked.tools, {})
    stream = partial(spoken.stream, asked.tools, exchange.ids, tally)
    return Plan(spoken.api, asked.body, whole, stream, names)


def _joined(frame: Json, options: Json) -> Json:
    """Both, with the options inside `options` of both kept."""
    inner = {**frame.get("options", {}), **options.get("options", {})}
    return frame | options | ({"options": inner} if inner else {})


def _translating(exchange: Exchange, names: NameMap, api: Api) -> TranslatedStream:
    writer = writer_for(exchange.asked, exchange.envelope)
    return TranslatedStream(writer, names, api.name, api.enough, exchange.ids, exchange.entry.tally)


def _has_no_such_api(status: int, body: bytes) -> bool:
    """Whether a refusal is about the path; one that speaks of a model is about the model."""
    return status in (404, 405, 501) and b"model" not in body.lower()


def _passed_back(incoming: UpstreamBody, lost: str) -> Headers:
    kept = [
        (name.encode("latin-1"), value.encode("latin-1", "replace"))
        for name, value in incoming.headers.items()
        if name.startswith(_PASSED_BACK)
    ]
    return [*kept, (b"x-toolwire-left-out", lost.encode())] if lost else kept


async def _is_stream(incoming: UpstreamBody, api: Api) -> bool:
    """Whether an answer is a stream. Some servers call it something else, so that its beginning decides."""
    return incoming.media_type not in _WHOLE or api.payloads.begins(await incoming.first())


async def _one(frames: bytes) -> AsyncGenerator[bytes, None]:
    yield frames


class ByModel:
    """Answers from a model of our own, such as the embedded one, whatever model the client names."""

    def __init__(self, model: ChatModel, bounds: TransferLimits) -> None:
        self.model = model
        self._bounds = bounds

    async def answer(self, exchange: Exchange) -> None:
        """Ask, and send the answer. Raises Rejected while nothing has been sent."""
        found = decode_chat_request(exchange.asked)
        losses = getattr(self.model, "losses", None)
        untold = losses(found.request.tools) if losses else ()
        lost = left_out(found, blind=self.model.name.startswith("local:"), untold=untold)
        headers: Headers = [(b"x-toolwire-left-out", lost.encode())] if lost else []
        if exchange.asked.stream:
            said = SpokenReply(writer_for(exchange.asked, exchange.envelope), exchange.ids, exchange.entry.tally)
            async with aclosing(self._frames(found.request, said)) as frames:
                exchange.entry.code = await send_stream(exchange.sender, frames, said, headers)
            return
        try:
            reply = await self.model.ask(found.request)
        except ModelError as error:
            raise Rejected(of_model_error(error)) from None
        made = render_reply(exchange.asked, exchange.envelope, reply, exchange.ids, exchange.entry.tally)
        await send_whole(exchange.send, 200, to_json(made), headers)

    async def _frames(self, request: Request, said: SpokenReply) -> AsyncGenerator[bytes, None]:
        deltas: asyncio.Queue[Delta | None] = asyncio.Queue()
        asking = asyncio.ensure_future(self.model.ask(request, deltas.put_nowait))
        asking.add_done_callback(lambda _: deltas.put_nowait(None))
        begun = False
        try:
            while True:
                delta = await self._next(deltas)
                if delta is None:
                    break
                yield delta if isinstance(delta, bytes) else b"".join([*_first(said, begun), *said.say(delta)])
                begun = begun or not isinstance(delta, bytes)
            yield b"".join([*_first(said, begun), *said.end(asking.result())])
        except ModelError as error:
            raise Rejected(of_model_error(error)) from None
        finally:
            await cancel_and_wait(asking)

    async def _next(self, deltas: "asyncio.Queue[Delta | None]") -> Delta | bytes | None:
        try:
            async with asyncio.timeout(self._bounds.keep_alive_s):
                return await deltas.get()
        except TimeoutError:
            return KEEP_ALIVE


def _first(said: SpokenReply, begun: bool) -> list[bytes]:
    return [] if begun else said.begin()
