"""Ollama's own chat API."""

import os

from toolwire.models.endpoint import DEFAULT_REQUEST_POLICY, SYSTEM_TIME, RequestPolicy, TimeSource
from toolwire.models.http_chat import HttpChat, ModelSite, ProviderApi
from toolwire.models.payloads import JsonLines
from toolwire.protocol.chat import Request
from toolwire.protocol.providers import PROVIDERS
from toolwire.wire.encode import ollama
from toolwire.wire.encode.outbound import Json
from toolwire.wire.formats.negotiation import Formats

OLLAMA = PROVIDERS["ollama"]
PORT = 11434


def base_url_of(host: str) -> str:
    """The address that a value of OLLAMA_HOST means: it may lack the scheme, the port or the host."""
    scheme, found, rest = host.strip().rpartition("://")
    address, slash, path = rest.partition("/")
    name, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        name, port = address, "" if found else str(PORT)
    name = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(name, name)  # noqa: S104 -- where it listens
    return f"{scheme or 'http'}://{name}{f':{port}' if port else ''}{slash}{path}".rstrip("/")


def _done(chunk: Json) -> bool:
    return chunk.get("done") is True


def _names(data: Json) -> list[str]:
    models = data.get("models")
    return [str(model.get("name")) for model in models if isinstance(model, dict)] if isinstance(models, list) else []


NATIVE = ProviderApi(ollama.DIALECT, "/api/chat", "/api/tags", "message", JsonLines, _done, _done, _names)


class OllamaChat(HttpChat):
    """A model that an Ollama server runs. `context_tokens` is how much it reads; its own default is short."""

    api = NATIVE

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        context_tokens: int | None = None,
        request_policy: RequestPolicy = DEFAULT_REQUEST_POLICY,
        time_source: TimeSource = SYSTEM_TIME,
        formats: Formats | None = None,
    ) -> None:
        address = base_url_of(os.environ.get(OLLAMA.url_variable, "") if base_url is None else base_url)
        site = ModelSite(OLLAMA.name, address, OLLAMA.key_variable, api_key or "", OLLAMA.start_hint)
        super().__init__(
            model, site, {"authorization": f"Bearer {api_key}"} if api_key else {}, request_policy, time_source, formats
        )
        self._context_tokens = context_tokens

    def _frame(self, request: Request, *, stream: bool) -> Json:
        return ollama.frame(request, self.model, stream=stream, context_tokens=self._context_tokens)
