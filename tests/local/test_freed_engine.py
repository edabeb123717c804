"""The embedded engine is freed when its last user lets go of it."""

import asyncio
import gc
from pathlib import Path

from toolwire import Agent
from toolwire.models.local import LocalChat, open_local
from toolwire.protocol.chat import Request, UserMessage


def an_own_model() -> LocalChat:
    """A model with an engine that no other test uses: as many threads as none other has."""
    model = open_local(threads=3)
    assert isinstance(model, LocalChat)
    return model


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def hello(model: LocalChat) -> str:
    return (await model.ask(Request((UserMessage("Say hello."),), max_tokens=4))).content


async def test_closing_an_agent_gives_the_memory_of_its_engine_back() -> None:
    model = an_own_model()
    agent = Agent(model)
    await agent.ask("Say hello.")
    gc.collect()
    loaded = resident_bytes()

    await agent.close()
    gc.collect()

    assert not model.engine.is_loaded
    assert resident_bytes() < loaded - 100_000_000  # the weights alone are more


async def test_an_engine_stays_as_long_as_one_of_its_users_is_open() -> None:
    first, second = an_own_model(), an_own_model()
    assert first.engine is second.engine
    await asyncio.gather(hello(first), hello(second))

    await first.close()
    await first.close()
    assert second.engine.is_loaded
    assert await hello(second)
    await second.close()

    assert not second.engine.is_loaded


async def test_a_closed_model_that_is_asked_again_loads_its_engine_again() -> None:
    model = an_own_model()
    before = await hello(model)
    await model.close()

    assert await hello(model) == before

    await model.close()
    assert not model.engine.is_loaded


async def test_closing_while_another_is_being_answered_does_not_disturb_it() -> None:
    first, second = an_own_model(), an_own_model()
    await hello(first)
    answering = asyncio.create_task(hello(second))
    await asyncio.sleep(0)

    await first.close()

    assert await answering
    await second.close()
