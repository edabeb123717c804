"""What all chat APIs over HTTP have in common: one question, one answer, whole or as a stream."""

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import ModelError, ModelRefused, SettingsError
from toolwire.models.endpoint import Endpoint, HttpAnswer, RequestPolicy, TimeSource
from toolwire.models.failures import ProviderFailure, ProviderSite, cut_off, not_a_reply, of_error_body, too_large
from toolwire.models.payloads import DONE, EventData, JsonLines, LineTooLong, read_json
from toolwire.models.prices import cost_usd, with_cost
from toolwire.protocol.chat import Delta, Reply, Request, TextDelta, Usage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode.outbound import Json
from toolwire.wire.encode.request import Dialect, RequestEncoder
from toolwire.wire.encode.tool_names import NameMap
from toolwire.wire.formats.negotiation import Formats
from toolwire.wire.replies.reply import StreamParser, parse_reply
from toolwire.wire.replies.unsent import unsent

LISTED_MODELS = 8


class ProviderApi(Struct, frozen=True):
    """How one kind of API is asked.

    `reply_field` is in every whole reply. A stream is `enough` once its reply is complete and `over` when nothing
    follows. `list_models` reads the names from the answer of `models_path`.
    """

    dialect: Dialect
    chat_path: str
    models_path: str
    reply_field: str
    payloads: type[EventData] | type[JsonLines]
    enough: Callable[[Json], bool]
    over: Callable[[Json], bool]
    list_models: Callable[[Json], list[str]]


@dataclass(frozen=True, slots=True)
class ModelSite:
    """Where a model is served and under which name people know it."""

    provider: str
    base_url: str
    key_variable: str = ""
    api_key: str = field(default="", repr=False)
    start_hint: str = ""
    price_list: str = ""

    def place(self) -> ProviderSite:
        """The same without anything in the address that people should not read. Raises SettingsError."""
        url = checked_url(self.base_url)
        shown = str(url.copy_with(username=None, password=None, query=None, fragment=None)).rstrip("/")
        return ProviderSite(self.provider, shown, self.key_variable, self.start_hint, self.api_key)


def checked_url(text: str) -> httpx2.URL:
    """The address, if it is one. Raises SettingsError."""
    try:
        url = httpx2.URL(text)
    except httpx2.InvalidURL:
        url = httpx2.URL("")
    named = url.host and all(char.isalnum() or char in ".-_:" for char in url.host)
    if url.scheme not in ("http", "https") or not named:
        raise SettingsError(f"the base URL must look like https://host/v1, not {text[:200]!r}")
    return url


def checked_key(key: str, variable: str) -> str:
    """The key without the line end that files give it. Raises SettingsError when no header can hold it."""
    key = key.strip()
    if not key.isascii() or not key.isprintable():
        raise SettingsError(f"the key in {variable or 'api_key'} has characters that no key has; copy it again")
    return key


class HttpChat:
    """A chat model behind an HTTP API. `name` is its `provider:model` string.

    `formats` says how it is told about tools and read; without them, as its API has it.
    """

    api: ProviderApi

    def __init__(
        self,
        model: str,
        site: ModelSite,
        headers: dict[str, str],
        request_policy: RequestPolicy,
        time_source: TimeSource,
        formats: Formats | None = None,
    ) -> None:
        self.model = model
        self.site = site
        self.formats = formats or _own_formats(self.api.dialect)
        self._request_policy = request_policy
        self._dialect = self._spoken(self.formats)
        self._encoder = RequestEncoder(self._dialect)
        self._endpoint = Endpoint(site.place(), site.base_url, headers, request_policy, time_source)

    @property
    def name(self) -> str:
        return f"{self.site.provider}:{self.model}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.model!r}, base_url={self._endpoint.place.url!r})"

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """Answer once, streaming if someone watches. Raises ModelUnavailable or ModelRefused."""
        body = self._body(request, stream=on_delta is not None)
        watcher = _Watcher(on_delta)
        try:
            reply = await self._endpoint.persist(
                lambda: self._once(request, body, watcher), may_repeat=lambda: not watcher.shown
            )
        except ProviderFailure as trouble:
            raise await self._final(trouble) from None
        return await with_cost(replace(reply, model=reply.model or self.model), self.site.price_list)

    def price(self, usage: Usage) -> float | None:
        """What so many tokens cost in US dollars, if the price list has this model. Loads it, so not on the loop."""
        return cost_usd(usage, self.model, self.site.price_list) if self.site.price_list else None

    def losses(self, tools: Iterable[Tool]) -> tuple[str, ...]:
        """What of these tools cannot be said in this model's formats, each place in a sentence."""
        return tuple(map(str, self._dialect.losses(tools)))

    async def close(self) -> None:
        """Let go of connections. Harmless when called twice."""
        await self._endpoint.close()

    async def models(self) -> list[str]:
        """The names of the models that are served here. Raises ModelError."""
        return self.api.list_models(await self.model_list())

    async def model_list(self) -> Json:
        """What the server says about its models, all of it. Raises ModelError."""
        try:
            async with self._endpoint.ask("GET", self.api.models_path) as answer:
                return self._object(await answer.whole())
        except ProviderFailure as trouble:
            raise trouble.error from None

    def _frame(self, request: Request, *, stream: bool) -> Json:
        raise NotImplementedError

    def _spoken(self, formats: Formats) -> Dialect:
        """The dialect of these formats, if this API can carry it. Raises SettingsError."""
        usual = self.api.dialect
        if formats.definition_format == formats.result_format == usual.name:
            return usual
        wanted = formats.dialect(self.model)
        if wanted.messages_field != usual.messages_field:
            raise SettingsError(f"{self.site.provider} is asked as {usual.name!r}, which cannot carry {wanted.name!r}")
        return wanted

    def _body(self, request: Request, *, stream: bool) -> bytes:
        try:
            frame = self._frame(request, stream=stream)
            if self._dialect.tell_tools:
                frame.pop("tool_choice", None)  # a server that sees no tools takes no choice of them either
            return self._encoder.encode(request, frame)
        except ValueError as wrong:
            raise ModelRefused(f"this conversation cannot be sent: it {wrong}") from None

    async def _once(self, request: Request, body: bytes, watcher: "_Watcher") -> Reply:
        names = NameMap.of(() if request.tools_off else request.tools, self._dialect.wire_name)
        async with self._endpoint.ask("POST", self.api.chat_path, body) as answer:
            if watcher.on_delta is not None and await self._is_stream(answer):
                parser = StreamParser(names.tools, self._provider)
                await self._follow(answer, parser, watcher)
                reply = parser.finish()
                watcher.show_rest(reply)
                return names.restore(reply)
            return names.restore(self._whole(await answer.whole(), names.tools, watcher))

    async def _is_stream(self, answer: HttpAnswer) -> bool:
        """Whether an answer is a stream. Some servers call it something else, so that its beginning decides."""
        labelled = answer.media_type not in ("application/json", "text/html")
        return labelled or self.api.payloads.begins(await answer.first())

    @property
    def _provider(self) -> str:
        return self.api.dialect.name

    def _whole(self, body: bytes, offered: Any, watcher: "_Watcher") -> Reply:
        data = self._object(body)
        if self.api.reply_field not in data:
            raise not_a_reply(self._endpoint.place, body)
        reply = parse_reply(data, offered, self._provider)
        if reply.content:
            watcher.show([TextDelta(reply.content)])
        return reply

    async def _follow(self, answer: HttpAnswer, parser: StreamParser, watcher: "_Watcher") -> None:
        """Feed the stream to the parser until it is over. A stream that breaks after its reply was complete is fine."""
        payloads = self.api.payloads(self._request_policy.longest_line)
        enough = over = False
        while True:
            piece = await (answer.last_piece(self._request_policy.closing_s) if enough else answer.piece())
            for payload in self._completed(payloads, piece):
                if over or payload == DONE:
                    enough = over = True  # whatever follows is read, so that the connection can be used again
                    continue
                chunk = self._object(payload)
                watcher.show(parser.feed(chunk))
                enough = enough or self.api.enough(chunk)
                over = self.api.over(chunk)
            if not piece:
                break
        if not enough:
            raise cut_off(self._endpoint.place)

    def _completed(self, payloads: EventData | JsonLines, piece: bytes) -> list[bytes]:
        try:
            return payloads.feed(piece) if piece else payloads.finish()
        except LineTooLong:
            raise too_large(self._endpoint.place, self._request_policy.longest_line) from None

    def _object(self, body: bytes) -> Json:
        try:
            data = read_json(body)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise not_a_reply(self._endpoint.place, body)
        if data.get("error"):
            raise of_error_body(self._endpoint.place, data)
        return data

    async def _final(self, trouble: ProviderFailure) -> ModelError:
        """The error to raise; for a model that is not there, it names those that are."""
        if not trouble.missing_model:
            return trouble.error
        try:
            names = await self.models()
        except ModelError:
            names = []
        near = difflib.get_close_matches(self.model, names[:1000], LISTED_MODELS, 0.3) or names[:LISTED_MODELS]
        available = f"; available: {', '.join(near)}" if near else ""
        said = f"{self.site.provider} has no model {self.model!r} ({trouble.error}){available}"
        return ModelRefused(self._endpoint.place.quote(said))


def _own_formats(dialect: Dialect) -> Formats:
    return Formats(dialect.name, dialect.name, dialect.name, f"its API takes tools as {dialect.name}")


class _Watcher:
    """Shows the pieces of a reply to the watcher, and knows whether anything was shown."""

    def __init__(self, on_delta: Callable[[Delta], None] | None) -> None:
        self.on_delta = on_delta
        self.shown = False
        self._text: list[str] = []

    def show(self, deltas: list[Delta]) -> None:
        if self.on_delta is None:
            return
        for delta in deltas:
            self.shown = True
            if isinstance(delta, TextDelta):
                self._text.append(delta.text)
            self.on_delta(delta)

    def show_rest(self, reply: Reply) -> None:
        """Show the text that was held back because it might have become a call."""
        if rest := unsent("".join(self._text), reply.content):
            self.show([TextDelta(rest)])
