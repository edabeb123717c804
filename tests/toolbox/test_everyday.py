"""Echo, random and timer, and what all built-in tools have in common."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolwire.define.arguments import Checker
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier
from toolwire.toolbox import echo_tool, random_tool, standard, timer_tool
from toolwire.toolbox.guide import output_guide

Call = Callable[..., Any]


@pytest.mark.feature("F240")
@pytest.mark.parametrize("message", ["hello", "", "a\nb", "\U0001f980" * 3, "${x} <b> %s"])
def test_echo_gives_the_message_back_unchanged(call: Call, message: str) -> None:
    assert call(echo_tool(), message=message) == {"echo": message}


@pytest.mark.feature("F240")
def test_random_draws_from_the_source_it_was_given(call: Call) -> None:
    drawn: list[tuple[int, int]] = []

    def draw(lowest: int, highest: int) -> int:
        drawn.append((lowest, highest))
        return len(drawn)

    tool = random_tool(draw)
    assert call(tool) == {"numbers": [1]}
    assert call(tool, min=-5, max=5, count=3) == {"numbers": [2, 3, 4]}
    assert drawn == [(1, 100), (-5, 5), (-5, 5), (-5, 5)]


@pytest.mark.feature("F240")
def test_random_stays_within_its_bounds_both_included(call: Call) -> None:
    numbers = call(random_tool(), min=1, max=2, count=1000)["numbers"]
    assert set(numbers) == {1, 2}
    assert call(random_tool(), min=7, max=7) == {"numbers": [7]}


@pytest.mark.feature("F240")
def test_random_refuses_bounds_in_the_wrong_order(call: Call) -> None:
    with pytest.raises(ToolFailure, match=r"min \(5\) must not be above max \(1\)") as raised:
        call(random_tool(), min=5, max=1)
    assert raised.value.code is Code.INVALID_PARAMS


@pytest.mark.feature("F240")
@pytest.mark.parametrize("arguments", [{"count": 0}, {"count": 1001}, {"max": 2**60}, {"min": 1.5}])
def test_random_refuses_what_is_out_of_range(arguments: dict[str, Any]) -> None:
    assert Checker(random_tool()).check(arguments).faults


def test_random_may_be_repeated_but_is_not_a_fixed_answer() -> None:
    tool = random_tool()
    assert tool.effect is not Effect.PURE
    assert tool.polling


@pytest.mark.feature("F240")
async def test_timer_waits_as_long_as_it_was_asked_and_reports_on_the_way(call: Call) -> None:
    slept: list[float] = []
    reports: list[tuple[str, float | None]] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    context = Context(timeout_s=305, report=lambda message, fraction: reports.append((message, fraction)))
    assert await call(timer_tool(sleep), context, seconds=60) == {"waited": 60, "message": "Waited 60 seconds."}

    assert sum(slept) == pytest.approx(60)
    fractions = [fraction for _, fraction in reports if fraction is not None]
    assert len(fractions) == len(reports) > 5
    assert fractions == sorted(fractions)
    assert await call(timer_tool(sleep), context, seconds=0) == {"waited": 0, "message": "Waited 0 seconds."}


@pytest.mark.feature("F240")
async def test_timer_ends_at_once_when_it_is_canceled(call: Call) -> None:
    waiting = asyncio.Event()

    async def sleep(seconds: float) -> None:
        waiting.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(5):
        task = asyncio.create_task(call(timer_tool(sleep), seconds=10))
        await waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


@pytest.mark.feature("F240")
async def test_timer_refuses_a_wait_that_its_call_has_no_time_for(call: Call) -> None:
    with pytest.raises(ToolFailure, match="may take 10 seconds, so it cannot wait 11"):
        await call(timer_tool(), Context(timeout_s=10), seconds=11)


@pytest.mark.parametrize("seconds", [-1, 301, "soon"])
def test_timer_refuses_a_wait_out_of_range(seconds: object) -> None:
    assert Checker(timer_tool()).check({"seconds": seconds}).faults


def test_the_standard_tools_come_in_a_stable_order() -> None:
    assert [tool.name for tool in standard()] == ["calculator", "echo", "random", "timer", "read"]
    assert all(tool.tier is Tier.CRAWL for tool in standard())


def test_every_example_of_a_standard_tool_passes_its_own_schema() -> None:
    for tool in standard():
        assert tool.examples
        assert [fault for example in tool.examples for fault in Checker(tool).check(dict(example)).faults] == []


@pytest.mark.feature("F157")
def test_every_field_of_every_output_is_described() -> None:
    for tool in standard():
        assert tool.output_schema is not None
        fields = tool.output_schema["properties"]
        assert [name for name, field in fields.items() if not field.get("description")] == []
        assert sorted(tool.output_schema["required"]) == sorted(fields)


@pytest.mark.feature("F157")
def test_the_written_guide_names_the_output_fields_of_each_family() -> None:
    guide = output_guide(standard())
    for field in (
        "output.result (calculator)",
        "output.numbers (random)",
        "output.echo (echo)",
        "output.waited (timer)",
    ):
        assert field in guide
    assert "utility tools:" in guide
    assert "file tools:" in guide
    page = (Path(__file__).parents[2] / "docs" / "tools.md").read_text(encoding="utf-8")
    assert guide in page
