"""Chat completions: OpenAI, and every server that speaks its API."""

import os
from collections.abc import Callable, Mapping

from msgspec.structs import replace

from toolwire.errors import ModelRefused
from toolwire.models.endpoint import DEFAULT_REQUEST_POLICY, SYSTEM_TIME, RequestPolicy, TimeSource
from toolwire.models.http_chat import HttpChat, ModelSite, ProviderApi, checked_key
from toolwire.models.payloads import EventData
from toolwire.protocol.chat import Delta, Reply, Request
from toolwire.protocol.providers import OPENAI_URL, PROVIDERS
from toolwire.wire.encode import mistral, openai_chat
from toolwire.wire.encode.outbound import Json
from toolwire.wire.formats.negotiation import Formats

BASE_URL = OPENAI_URL
KEY_VARIABLE = PROVIDERS["openai"].key_variable


def _enough(chunk: Json) -> bool:
    match chunk.get("choices"):
        case [{"finish_reason": str()}, *_]:
            return True
        case _:
            return False


def _never(chunk: Json) -> bool:  # noqa: ARG001 -- the stream says so itself, with [DONE]
    return False


def listed_ids(data: Json) -> list[str]:
    """The names in a list of models as OpenAI and Anthropic write it."""
    models = data.get("data")
    return [str(model.get("id")) for model in models if isinstance(model, dict)] if isinstance(models, list) else []


CHAT_COMPLETIONS = ProviderApi(
    openai_chat.DIALECT, "/chat/completions", "/models", "choices", EventData, _enough, _never, listed_ids
)
COMPLETIONS = {
    dialect.name: replace(CHAT_COMPLETIONS, dialect=dialect) for dialect in (openai_chat.DIALECT, mistral.DIALECT)
}


class OpenAIChat(HttpChat):
    """A model behind an OpenAI-compatible API. Without `api_key`, the key comes from `key_variable`."""

    def __init__(
        self,
        model: str,
        base_url: str = BASE_URL,
        api_key: str | None = None,
        *,
        provider: str = "openai",
        key_variable: str = KEY_VARIABLE,
        start_hint: str = "",
        price_list: str = "",
        headers: Mapping[str, str] | None = None,
        request_policy: RequestPolicy = DEFAULT_REQUEST_POLICY,
        time_source: TimeSource = SYSTEM_TIME,
        formats: Formats | None = None,
    ) -> None:
        row = PROVIDERS.get(provider)
        self.api = COMPLETIONS.get(row.format if row else "openai", CHAT_COMPLETIONS)
        given = os.environ.get(key_variable, "") if api_key is None else api_key
        key = checked_key(given, key_variable)
        is_openai = base_url.rstrip("/") == BASE_URL
        site = ModelSite(
            provider, base_url, key_variable, key, start_hint, price_list or ("openai" if is_openai else "")
        )
        sent = ({"authorization": f"Bearer {key}"} if key else {}) | dict(headers or {})
        super().__init__(model, site, sent, request_policy, time_source, formats)
        # Newer OpenAI models refuse the old name of the limit, and most other servers do not know the new one.
        self._limit_field = "max_completion_tokens" if is_openai else "max_tokens"
        self._counts_streams = True

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """Answer once, streaming if someone watches. Raises ModelUnavailable or ModelRefused."""
        try:
            return await super().ask(request, on_delta)
        except ModelRefused as refused:
            if on_delta is None or not self._counts_streams or "stream_options" not in str(refused):
                raise
        self._counts_streams = False  # this server does not know how to count tokens in a stream
        return await super().ask(request, on_delta)

    def _frame(self, request: Request, *, stream: bool) -> Json:
        fields = openai_chat.frame(request, self.model, stream=stream, limit_field=self._limit_field)
        return fields | {"stream_options": {"include_usage": True}} if stream and self._counts_streams else fields
