"""Tools that block the event loop are named while they do, and large results do not hold it up."""

import asyncio
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest

from toolwire import Agent, MemoryStore, tool
from toolwire.deliver.visible_text import visible
from toolwire.execute.values import is_large, present, present_large
from toolwire.protocol.calls import Text, ToolResult
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.turns import Limits
from toolwire.testing import ScriptedModel

TOLD = threading.Event()
HEARD: list[str] = []


class Listener(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        HEARD.append(record.getMessage())
        TOLD.set()


@pytest.fixture(autouse=True)
def listener() -> Iterator[None]:
    TOLD.clear()
    HEARD.clear()
    heard, log = Listener(), logging.getLogger("toolwire.execute.loop_watch")
    log.addHandler(heard)
    yield
    log.removeHandler(heard)


@tool(timeout_s=0.2)
async def sleeper() -> str:
    """Block until the watch has told of it."""
    return f"told: {TOLD.wait(5)}"


@tool(timeout_s=0.2)
async def late_sleeper() -> str:
    """Await, then block until the watch has told of it."""
    await asyncio.sleep(0)
    return f"told: {TOLD.wait(5)}"


@tool(timeout_s=30)
async def slow() -> str:
    """Block within the time it has."""
    return f"told: {TOLD.wait(5)}"


@tool(timeout_s=30)
async def failing() -> str:
    """Block, then fail."""
    TOLD.wait(5)
    raise ValueError("no such thing")


@tool
async def patient() -> str:
    """Wait as one should."""
    await asyncio.sleep(0)
    return "fine"


@tool
async def asking() -> str:
    """Wait for something that is canceled, and go on."""
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(waiting.cancel)
    try:
        await waiting
    except asyncio.CancelledError:
        return "went on"
    return "never"


async def called(name: str) -> tuple[ToolResult, dict[str, Any]]:
    """A call's result, and what its last audit row says."""
    agent = Agent(ScriptedModel(), [sleeper, late_sleeper, slow, failing, patient, asking], store=MemoryStore())
    result = await agent.call(name, {})
    [row] = await agent.store.audit_log(limit=1)
    await agent.close()
    return result, dict(row.detail)


@pytest.mark.parametrize("name", ["sleeper", "late_sleeper"])
async def test_an_async_tool_that_blocks_the_loop_beyond_its_time_is_a_timeout(name: str) -> None:
    result, row = await called(name)

    assert result.status is Status.TIMEOUT
    assert result.error is not None
    assert result.error.code is Code.TIMEOUT
    assert "blocked the event loop" in result.text
    assert "told: True" in result.text, "what it gave is not lost, and it was told of while it blocked"
    assert f"{name!r} has blocked the event loop" in HEARD[0]
    assert row["blocked_ms"] == result.blocked_ms > 400


async def test_one_that_blocks_within_its_time_succeeds_and_its_result_says_so() -> None:
    result, row = await called("slow")

    assert (result.status, result.text) == (Status.SUCCESS, "told: True")
    assert row["blocked_ms"] == result.blocked_ms > 400


async def test_one_that_blocks_and_fails_is_marked_too() -> None:
    result, _ = await called("failing")

    assert result.blocked_ms > 400
    assert "no such thing" in result.text


@pytest.mark.parametrize(("name", "text"), [("patient", "fine"), ("asking", "went on")])
async def test_one_that_awaits_is_not_marked(name: str, text: str) -> None:
    result, row = await called(name)

    assert (result.text, result.blocked_ms, row) == (text, 0.0, {})
    assert not TOLD.is_set()


@dataclass
class Page:
    rows: list[int]


class Colour(Enum):
    RED = 1


ODD: list[Any] = [
    {"rows": [{"id": number, "tags": ["é", None, True, 1.5]} for number in range(5_000)]},
    [[number, str(number)] for number in range(20_000)],
    {"deep": {"deeper": [[1] * 5_000, (2,) * 5_000, {"a": "x" * 2_000_000}]}},
    {f"key {number}": number for number in range(10_000)},
    [1 << 80, "\ud800", *range(5_000)],
    tuple(range(5_000)),
    Page(list(range(10_000))),
    [Page([1])] * 5_000,
    "é" * 2_000_000,
]


@pytest.mark.parametrize("value", ODD, ids=range(len(ODD)))
def test_a_large_value_is_shown_as_it_would_be_at_once(value: Any) -> None:
    assert is_large(value)
    [large], [whole] = present_large(value)[0], present(value)[0]
    assert isinstance(large, Text)
    assert isinstance(whole, Text)
    assert large.text.replace(", ", ",") == whole.text.replace(", ", ",")


@pytest.mark.parametrize(
    "value", [None, 1, "x", [1, 2, 3], {"a": [1]}, ["y" * 1000] * 100, Page([1]), [Colour.RED, Colour]]
)
def test_an_ordinary_value_is_not_large(value: Any) -> None:
    assert not is_large(value)


@pytest.mark.parametrize("odd", [{"a": [object()] * 5_000}, [{1, object()}] * 5_000])
async def test_a_large_value_without_a_json_form_is_a_result_that_says_so(odd: Any) -> None:
    @tool
    def strange() -> object:
        """Something strange."""
        return odd

    agent = Agent(ScriptedModel(), [strange])
    result = await agent.call("strange", {})

    assert result.status is Status.FAILED
    assert "no JSON form" in result.text


LINE = "0123456789abcdef" * 8
COLOURS = "\x1b[31mred\x1b[0m \x1b]0;title\x1b\\ end\r\nover\rwritten \u200b\x9b1m"


@pytest.mark.parametrize(
    "line", [f"{LINE}\n", LINE, f"{LINE}é", f"{COLOURS}{LINE}\n", f"{COLOURS}{LINE}", "\x1b[1m", "\x00"]
)
def test_long_text_is_made_visible_as_short_text_is(line: str) -> None:
    times = 3_000_000 // len(line)
    tail = "\x1b[1"

    assert visible(line * times + tail) == "".join(visible(line * 1_000) for _ in range(times // 1_000)) + visible(
        line * (times % 1_000) + tail
    )


async def test_while_a_large_result_is_worked_on_other_calls_go_on() -> None:
    """The loop turns many times between the return of a 20 MB value and its result."""
    turns = 0
    ended = asyncio.Event()

    @tool
    def rows() -> object:
        """Many rows."""
        return [[number, "\x1b[31mred\x1b[0m"] for number in range(400_000)]

    async def count() -> None:
        nonlocal turns
        while not ended.is_set():
            await asyncio.sleep(0)
            turns += 1

    agent = Agent(ScriptedModel(), [rows], limits=Limits(result_chars=1_000))
    counting = asyncio.create_task(count())
    result = await agent.call("rows", {})
    ended.set()
    await counting

    assert result.truncated
    assert result.handle
    assert (await agent.store.fetch(result.handle, length=6)) == b'[[0,"\\'
    assert turns > 100
