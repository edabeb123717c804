"""The stand on which gateways are tried, and its parts for one test."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.gateway.stand import Stand, open_stand
from tests.models.provider import Provider


@pytest.fixture(scope="session")
async def whole_stand() -> AsyncIterator[Stand]:
    async with open_stand() as stand:
        yield stand


@pytest.fixture
async def stand(whole_stand: Stand) -> AsyncIterator[Stand]:
    provider = whole_stand.provider
    provider.asked.clear()
    provider.over = asyncio.Event()
    yield whole_stand
    provider.over.set()


@pytest.fixture
def upstream(stand: Stand) -> Provider:
    return stand.provider
