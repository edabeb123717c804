"""The catalogue of OpenRouter's models as a record, read from a server on loopback."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.models.provider import Provider, provider_on_loopback, says
from toolwire import Agent, Grant, Tier
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.service import RecordService
from toolwire.errors import NotPermitted
from toolwire.protocol.breadcrumbs import RecordQuery
from toolwire.protocol.calls import ToolResult
from toolwire.record.memory import MemoryStore
from toolwire.testing import ScriptedModel
from toolwire.toolbox.agents.model_tools import configure
from toolwire.toolbox.records.models_sync import CATALOG, models_sync_tool
from toolwire.toolbox.records.search_tool import search_records_tool

GRANT = Grant(Tier.RUN, frozenset({"network", "records"}), confirmed=frozenset("*"), wary=False)
MODEL = {
    "id": "vendor/model", "name": "A Model", "context_length": 4096, "description": "long" * 99,
    "pricing": {"prompt": "0.000001", "completion": "0.000002", "image": "0"},
}  # fmt: skip
BARE = {"id": "other/bare"}


class Synced:
    """A project that syncs its catalogue from a provider."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.now = 1_700_000_000.0
        self.store = MemoryStore(clock=lambda: self.now)
        self.service = RecordService(self.store, "default", clock=lambda: self.now)
        site = {"*": configure("openrouter", "any", base_url=f"{provider.url}/api/v1", api_key="sk-x")}
        self.tools = [
            models_sync_tool(self.service, site, lambda: self.now), search_records_tool(self.service),
        ]  # fmt: skip

    async def call(self, name: str = "openrouter_models_sync", **arguments: Any) -> ToolResult:
        agent = Agent(ScriptedModel(), self.tools, grant=GRANT, store=self.store)
        return await agent.call(name, arguments)

    async def catalogues(self) -> list[Any]:
        return [row.value for row in await self.service.listed(RecordQuery(CATALOG), RUNTIME)]


@pytest.fixture
async def synced() -> AsyncIterator[Synced]:
    async with asyncio.timeout(10), provider_on_loopback() as provider:
        provider.will(says({"data": [MODEL, BARE, {"id": 5}, "junk"]}))
        yield Synced(provider)


@pytest.mark.feature("F245")
async def test_the_models_of_the_provider_become_one_record(synced: Synced) -> None:
    first = await synced.call()
    assert list(first.structured) == ["models_count", "catalog_id", "last_updated", "message"]
    assert (first.structured["models_count"], first.structured["last_updated"]) == (2, "2023-11-14T22:13:20+00:00")
    [catalogue] = await synced.catalogues()
    assert catalogue.id == first.structured["catalog_id"]
    assert catalogue.context["models"] == [
        BARE,
        {
            "id": "vendor/model", "name": "A Model", "context_length": 4096,
            "pricing": {"prompt": "0.000001", "completion": "0.000002"},
        },
    ]  # fmt: skip
    assert [(one.method, one.path) for one in synced.provider.asked] == [("GET", "/api/v1/models")]
    found = await synced.call("breadcrumb-search", breadcrumb_id=catalogue.id)
    assert found.structured["count"] == 1
    assert found.untrusted


@pytest.mark.feature("F245")
async def test_a_current_catalogue_is_not_read_again_unless_that_is_forced(synced: Synced) -> None:
    first = await synced.call()
    assert (await synced.call()).structured["message"] == "The catalogue is current."
    synced.provider.will(says({"data": [MODEL]}))
    forced = await synced.call(force_refresh=True)
    assert (forced.structured["models_count"], forced.structured["catalog_id"]) == (1, first.structured["catalog_id"])
    synced.now += 3_601
    await synced.call()
    assert len(synced.provider.asked) == 3
    [catalogue] = await synced.catalogues()
    assert catalogue.version == 3


@pytest.mark.parametrize("said", [says({"data": []}), says({"error": "x"}, status=500), says([1])])
async def test_a_provider_that_fails_leaves_the_catalogue_as_it_is(synced: Synced, said: Any) -> None:
    await synced.call()
    synced.provider.will(*[said] * 5)
    failed = await synced.call(force_refresh=True)
    assert failed.is_failure
    [catalogue] = await synced.catalogues()
    assert catalogue.version == 1


async def test_a_model_cannot_write_the_catalogue(synced: Synced) -> None:
    first = await synced.call()
    with pytest.raises(NotPermitted):
        await synced.service.patch(first.structured["catalog_id"], {"title": "x"}, 1, Caller("a", Role.MODEL))
