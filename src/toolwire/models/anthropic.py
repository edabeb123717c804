"""Anthropic's Messages API."""

import os
from collections.abc import Mapping

from toolwire.models.endpoint import DEFAULT_REQUEST_POLICY, SYSTEM_TIME, RequestPolicy, TimeSource
from toolwire.models.http_chat import HttpChat, ModelSite, ProviderApi, checked_key
from toolwire.models.openai import listed_ids
from toolwire.models.payloads import EventData
from toolwire.protocol.chat import Request
from toolwire.protocol.providers import ANTHROPIC_URL, PROVIDERS
from toolwire.wire.encode import anthropic
from toolwire.wire.encode.outbound import Json
from toolwire.wire.formats.negotiation import Formats

BASE_URL = ANTHROPIC_URL
KEY_VARIABLE = PROVIDERS["anthropic"].key_variable
API_VERSION = "2023-06-01"
MAX_TOKENS = 8192


def _enough(chunk: Json) -> bool:
    match chunk:
        case {"type": "message_delta", "delta": {"stop_reason": str()}}:
            return True
        case _:
            return False


def _over(chunk: Json) -> bool:
    return chunk.get("type") == "message_stop"


MESSAGES = ProviderApi(
    anthropic.DIALECT, "/v1/messages", "/v1/models", "content", EventData, _enough, _over, listed_ids
)


class AnthropicChat(HttpChat):
    """A Claude model. `max_tokens` is the limit of a reply where the request sets none: the API demands one."""

    api = MESSAGES

    def __init__(
        self,
        model: str,
        base_url: str = BASE_URL,
        api_key: str | None = None,
        *,
        key_variable: str = KEY_VARIABLE,
        max_tokens: int = MAX_TOKENS,
        headers: Mapping[str, str] | None = None,
        request_policy: RequestPolicy = DEFAULT_REQUEST_POLICY,
        time_source: TimeSource = SYSTEM_TIME,
        formats: Formats | None = None,
    ) -> None:
        given = os.environ.get(key_variable, "") if api_key is None else api_key
        key = checked_key(given, key_variable)
        root = base_url.rstrip("/").removesuffix("/v1")
        site = ModelSite("anthropic", root, key_variable, key, price_list="anthropic" if root == BASE_URL else "")
        sent = {"anthropic-version": API_VERSION} | ({"x-api-key": key} if key else {}) | dict(headers or {})
        super().__init__(model, site, sent, request_policy, time_source, formats)
        self._max_tokens = max_tokens

    def _frame(self, request: Request, *, stream: bool) -> Json:
        return anthropic.frame(request, self.model, stream=stream, max_tokens=self._max_tokens)
