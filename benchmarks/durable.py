"""A durable call: written down, run, its result written down, in SQLite that survives a loss of power. Wall time.

One that changes nothing is written down with its result.

The floors keep the same promise with nothing else around it: two commits for each call, alone or grouped.
"""

import asyncio
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any

from benchmarks.task import functions
from toolwire import tool
from toolwire.define.toolbox import Toolbox
from toolwire.hub.runtime import Runtime
from toolwire.hub.slots import Slots
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply, UserMessage
from toolwire.protocol.tools import Effect
from toolwire.protocol.turns import Turn
from toolwire.record.sqlite import SqliteStore

IN_FLIGHT = 64
CALLS_OF_A_TURN = 10
HOME = Path(__file__).parent / "results"
INSERT = "insert into calls (turn, call, arguments) values (?, ?, ?)"
UPDATE = "update calls set result = ? where turn = ? and call = ?"
TABLE = "create table calls (turn integer, call integer, arguments text, result text, primary key (turn, call))"
ARGUMENTS, RESULT = '{"city":"Rome","days":3,"units":"metric"}', "mild and dry " * 8

Call = Callable[[int, int], Awaitable[object]]
Waiting = tuple[str, tuple[object, ...], "asyncio.Future[None]"]


def figures(seconds: float) -> dict[str, float]:
    """Ours: microseconds of a call alone (p50), also of one that changes nothing, and calls a second, 64 in flight."""
    with _folder() as home:
        return asyncio.run(_ours(home, seconds))


def floor_figures(seconds: float) -> dict[str, float]:
    """The disk alone, SQLite with two commits a call, and a writer that commits for all who wait."""
    with _folder() as home:
        alone = {"probe_us": _probe_us(home, seconds), "alone_us": _two_commits_us(home, seconds)}
        return alone | asyncio.run(_grouped(home, seconds))


async def _ours(home: Path, seconds: float) -> dict[str, float]:
    async with await SqliteStore.at(home / "store") as store:
        runtime = Runtime(Toolbox.of(*functions(2)), store)
        turns: dict[int, Turn] = {}

        async def call(place: int, number: int) -> None:
            """The next call at this place; after ten of them comes a new turn, which is written down too."""
            if number % CALLS_OF_A_TURN == 0:
                turns[place] = Turn(runtime.new_id(), messages=(UserMessage("Weather?"),))
                await store.begin(turns[place])
            arguments = {"city": "Rome", "days": 3, "units": "metric"}
            result = await runtime.execute(ToolCall("lookup_0", arguments, id=f"call_{number}"), turns[place])
            assert result.ok, result.text

        found = {"alone_us": await _alone_us(call, seconds), "per_s": await _per_s(call, seconds)}
        await runtime.close()
        return found | {"pure_alone_us": await _pure_alone_us(store, seconds)}


async def _pure_alone_us(store: SqliteStore, seconds: float) -> float:
    """Microseconds of a model's reply with a call that changes nothing: both are written down with its result."""
    [lookup] = functions(1)
    runtime = Runtime(Toolbox.of(tool(effect=Effect.PURE)(lookup)), store)
    names = frozenset({lookup.__name__})
    turns: list[Turn] = []

    async def call(_place: int, number: int) -> None:
        if number % CALLS_OF_A_TURN == 0:
            turns[:] = [Turn(runtime.new_id(), messages=(UserMessage("Weather?"),))]
            await store.begin(turns[0])
        asked = ToolCall(lookup.__name__, {"city": "Rome", "days": 3, "units": "metric"}, id=f"call_{number}")
        writing: list[asyncio.Task[Any]] = []
        accepted = await runtime.accept(turns[0], Reply(calls=(asked,)), names, writing=writing)
        [result] = await runtime.run_early(writing.pop(), turns[0], accepted, Slots(1))
        assert result.ok, result.text

    found = await _alone_us(call, seconds)
    await runtime.close()
    return found


async def _grouped(home: Path, seconds: float) -> dict[str, float]:
    connection = _connection(home / "grouped.db", any_thread=True)
    queue: SimpleQueue[Waiting | None] = SimpleQueue()
    loop = asyncio.get_running_loop()
    writer = threading.Thread(target=_write_for_all, args=(connection, queue, loop))
    writer.start()

    async def write(statement: str, values: tuple[object, ...]) -> None:
        done = loop.create_future()
        queue.put((statement, values, done))
        await done

    async def call(turn: int, number: int) -> None:
        await write(INSERT, (turn, number, ARGUMENTS))
        await write(UPDATE, (RESULT, turn, number))

    found = {"grouped_alone_us": await _alone_us(call, seconds), "grouped_per_s": await _per_s(call, seconds)}
    queue.put(None)
    await asyncio.to_thread(writer.join)
    connection.close()
    return found


def _write_for_all(
    connection: sqlite3.Connection, queue: "SimpleQueue[Waiting | None]", loop: asyncio.AbstractEventLoop
) -> None:
    while (first := queue.get()) is not None:
        batch = [first, *_waiting(queue)]
        connection.execute("begin immediate")
        for statement, values, _ in batch:
            connection.execute(statement, values)
        connection.execute("commit")
        loop.call_soon_threadsafe(_wake, batch)


def _wake(batch: list[Waiting]) -> None:
    for _, _, done in batch:
        done.set_result(None)


def _waiting(queue: "SimpleQueue[Waiting | None]") -> Iterator[Waiting]:
    try:
        while (one := queue.get_nowait()) is not None:
            yield one
        queue.put(None)
    except Empty:
        return


async def _alone_us(call: Call, seconds: float) -> float:
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while not taken or time.perf_counter() < ends:
        began = time.perf_counter()
        await call(0, len(taken))
        taken.append(time.perf_counter() - began)
    return median(taken) * 1e6


async def _per_s(call: Call, seconds: float) -> float:
    """At each of the places one call comes after the other until the time is over."""
    began = time.perf_counter()
    ends = began + seconds

    async def turn(place: int) -> int:
        number = 0
        while not number or time.perf_counter() < ends:
            await call(place, number)
            number += 1
        return number

    made = sum(await asyncio.gather(*(turn(1 + place) for place in range(IN_FLIGHT))))
    return made / (time.perf_counter() - began)


def _probe_us(home: Path, seconds: float) -> float:
    """Append 300 bytes and wait until the disk has them."""
    taken: list[float] = []
    with (home / "probe").open("ab", buffering=0) as file:
        ends = time.perf_counter() + seconds
        while not taken or time.perf_counter() < ends:
            began = time.perf_counter()
            file.write(b"x" * 300)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return median(taken) * 1e6


def _two_commits_us(home: Path, seconds: float) -> float:
    connection = _connection(home / "alone.db")
    taken: list[float] = []
    ends = time.perf_counter() + seconds
    while not taken or time.perf_counter() < ends:
        began = time.perf_counter()
        connection.execute(INSERT, (0, len(taken), ARGUMENTS))
        connection.execute(UPDATE, (RESULT, 0, len(taken)))
        taken.append(time.perf_counter() - began)
    connection.close()
    return median(taken) * 1e6


def _connection(path: Path, *, any_thread: bool = False) -> sqlite3.Connection:
    """Every statement outside a transaction is a commit of its own."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=not any_thread)
    connection.execute("pragma journal_mode = wal")
    connection.execute("pragma synchronous = full")
    connection.execute(TABLE)
    return connection


@contextmanager
def _folder() -> Iterator[Path]:
    HOME.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME) as name:
        yield Path(name)
