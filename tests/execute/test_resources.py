"""Who waits for whom."""

import asyncio

import pytest

from toolwire.execute.resources import Resources
from toolwire.plan.resources import Claim, claims
from toolwire.protocol.tools import Tool

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "into": {"type": "string", "default": "out"}}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "a.txt"}, [("file:out", True), ("file:a.txt", False)]),
        ({"path": "./x/../a.txt", "into": "a.txt"}, [("file:a.txt", True)]),
        ({}, [("file:out", True), ("file:.", False)]),
    ],
)
def test_templates_are_filled_from_arguments_and_defaults(
    arguments: dict[str, str], expected: list[tuple[str, bool]]
) -> None:
    copy = Tool("copy", "copy", SCHEMA, reads=("file:{path}",), writes=("file:{into}",))
    assert [(claim.resource, claim.writes) for claim in claims(copy, arguments)] == expected


def test_a_file_is_one_resource_however_its_path_is_written() -> None:
    write = Tool("write", "write", SCHEMA, writes=("file:{path}",))
    ways = ("a.txt", "./a.txt", "x/../a.txt", "/ws/a.txt")
    assert {claims(write, {"path": way}, "/ws") for way in ways} == {(Claim("file:/ws/a.txt", writes=True),)}


async def test_readers_share_and_a_writer_waits_for_them_and_blocks_later_ones() -> None:
    resources, order = Resources(), list[str]()
    gates = {name: asyncio.Event() for name in ("r1", "r2", "w", "r3")}

    async def touch(name: str, *, writes: bool) -> None:
        async with resources.holding([Claim("file:a", writes)]):
            order.append(f"+{name}")
            await gates[name].wait()
            order.append(f"-{name}")

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for name in ("r1", "r2", "w", "r3"):
            group.create_task(touch(name, writes=name == "w"))
        await settle()
        assert order == ["+r1", "+r2"]
        gates["r1"].set()
        await settle()
        assert order == ["+r1", "+r2", "-r1"]
        gates["r2"].set()
        await settle()
        assert order[-1] == "+w"
        gates["w"].set()
        await settle()
        assert order[-2:] == ["-w", "+r3"]
        gates["r3"].set()


async def test_calls_over_several_resources_never_wait_in_a_circle() -> None:
    resources, done = Resources(), list[int]()

    async def touch(number: int, first: str, second: str) -> None:
        async with resources.holding([Claim(first, writes=True), Claim(second, writes=True)]):
            await asyncio.sleep(0)
            done.append(number)

    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        for number in range(100):
            pair = ("a", "b") if number % 2 else ("b", "a")
            group.create_task(touch(number, *pair))
    assert done == list(range(100))


async def test_someone_who_stops_waiting_leaves_the_queue() -> None:
    resources = Resources()
    first = resources.holding([Claim("a", writes=True)])
    await first.__aenter__()

    async def wait() -> None:
        async with resources.holding([Claim("a", writes=True)]):
            pass

    gives_up, stays = asyncio.create_task(wait()), asyncio.create_task(wait())
    await settle()
    gives_up.cancel()
    await settle()
    await first.__aexit__(None, None, None)
    await asyncio.wait_for(stays, 5)
    assert resources._queues == {}


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)
