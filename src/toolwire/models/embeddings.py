"""Vectors for texts from a server with the OpenAI API: `POST /embeddings`."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.errors import ModelUnavailable, SettingsError
from toolwire.models.endpoint import SYSTEM_TIME, Endpoint, RequestPolicy, TimeSource
from toolwire.models.failures import ProviderFailure
from toolwire.models.http_chat import ModelSite, checked_key
from toolwire.models.opening import split_name
from toolwire.models.payloads import read_json
from toolwire.protocol.providers import PROVIDERS
from toolwire.wire.encode.outbound import to_json

PATIENCE = RequestPolicy(connect_s=5.0, idle_s=15.0, whole_s=20.0, tries=2, longest_wait_s=5.0)
"""A search waits for this, and there are other ways to search; so it does not wait for long."""


class HttpEmbeddings:
    """An embedding model behind an OpenAI-compatible API. `name` is its `provider:model` string."""

    def __init__(
        self,
        model: str,
        site: ModelSite,
        *,
        request_policy: RequestPolicy = PATIENCE,
        time_source: TimeSource = SYSTEM_TIME,
    ) -> None:
        headers = {"authorization": f"Bearer {site.api_key}"} if site.api_key else {}
        self.model = model
        self.name = f"{site.provider}:{model}"
        self._endpoint = Endpoint(site.place(), site.base_url, headers, request_policy, time_source)

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]:
        """A vector for each text, in their order. Raises ModelUnavailable or ModelRefused."""
        body = to_json({"model": self.model, "input": list(texts), "encoding_format": "float"})
        try:
            return await self._endpoint.persist(lambda: self._once(body, len(texts)), may_repeat=lambda: True)
        except ProviderFailure as failure:
            raise failure.error from None

    async def close(self) -> None:
        """Let go of connections. Harmless when called twice."""
        await self._endpoint.close()

    async def _once(self, body: bytes, expected: int) -> list[list[float]]:
        async with self._endpoint.ask("POST", "/embeddings", body) as answer:
            found = _read_vectors(await answer.whole(), expected)
        if found is None:
            at = f"{self._endpoint.place.provider} at {self._endpoint.place.url}"
            raise ProviderFailure(ModelUnavailable(f"{at} sent no vectors; is {self.model!r} an embedding model?"))
        return found


def open_embeddings(name: str, *, base_url: str = "", environ: Mapping[str, str] = os.environ) -> HttpEmbeddings:
    """The embedding model that a string such as `openai:text-embedding-3-small` names. Nothing is sent yet.

    Raises SettingsError for a name or address that is wrong.
    """
    provider_name, model = split_name(name)
    provider = PROVIDERS.get(provider_name)
    if provider is None or provider.api != "openai":
        raise SettingsError(
            f"no embeddings can be had from {provider_name[:40]!r}; name a server that has the OpenAI API, such as "
            "openai:text-embedding-3-small, or openai-compatible:MODEL with its base URL"
        )
    address = base_url or environ.get(provider.url_variable, "") or provider.base_url
    if not address:
        raise SettingsError(f"{provider.name} needs the address of its server: give a base URL such as http://host/v1")
    key = checked_key(environ.get(provider.key_variable, ""), provider.key_variable)
    return HttpEmbeddings(model, ModelSite(provider.name, address, provider.key_variable, key))


def _read_vectors(data: bytes, expected: int) -> list[list[float]] | None:
    """The vectors of an answer in the order of their texts; None where it has others than were asked for."""
    try:
        match read_json(data):
            case {"data": list(rows)} if len(rows) == expected:
                found = {row["index"]: row["embedding"] for row in rows}
                ordered = [found[place] for place in range(expected)]
                return ordered if len({_length(one) for one in ordered}) == 1 else None
    except (ValueError, LookupError, TypeError):
        pass
    return None


def _length(vector: Any) -> int:
    """How many numbers it has. Raises ValueError for anything that is not a vector."""
    if not isinstance(vector, list) or not vector or not all(type(one) in (int, float) for one in vector):
        raise ValueError("not a vector")
    return len(vector)
