"""Small tools of everyday use: calculator, random, echo, timer. Each receives the source that it draws on."""

import asyncio
import random as randomness
from collections.abc import Awaitable, Callable
from typing import Annotated, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ToolFailure
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.calculator.expressions import calculate
from toolwire.toolbox.calculator.tokens import LONGEST

LONGEST_WAIT_S = 300
# The call may take a little longer than the wait itself.
_MARGIN_S = 5
_LARGEST = 2**53
_STEPS = 20

CALCULATOR = """\
Compute an arithmetic expression. Operators: + - * / ^ (power), n! (factorial), a % b (remainder), 15% of 80. \
Functions: sqrt, abs, floor, ceil, round (halves away from zero), min, max, mod, pow, factorial, exp, ln, log10, log2, \
log(x, base), and sin, cos, tan of radians (for degrees write sin(30°)). Constants: pi, e."""


class CalculatorOutput(TypedDict):
    result: Annotated[float, Field(description="The value of the expression as a number.")]
    formatted: Annotated[str, Field(description="The value as text, with all digits of a large whole number.")]
    exact: Annotated[bool, Field(description="Whether result is exact; otherwise it is rounded to about 16 digits.")]
    expression: Annotated[str, Field(description="The expression that was computed.")]


def calculator_tool() -> Tool:
    """The tool that computes arithmetic, exactly where that is possible."""

    @tool(
        name="calculator",
        description=CALCULATOR,
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="utility",
        examples=({"expression": "(3 + 4) * 2^10"}, {"expression": "15% of 80"}, {"expression": "round(2/3, 4)"}),
    )
    def calculator(
        expression: Annotated[str, Field(min_length=1, max_length=LONGEST)],
    ) -> CalculatorOutput:
        """Compute an arithmetic expression exactly, or refuse it with a reason.

        Args:
            expression: What to compute, such as (3 + 4) * 2^10. Write numbers as 1234.5 and every * in full.
        """
        result, formatted, exact = calculate(expression)
        return {"result": result, "formatted": formatted, "exact": exact, "expression": expression.strip()}

    return calculator


class RandomOutput(TypedDict):
    numbers: Annotated[list[int], Field(description="The numbers drawn; numbers[0] is the first.")]


def random_tool(draw: Callable[[int, int], int] | None = None) -> Tool:
    """The tool that draws whole numbers with `draw(lowest, highest)`, by default from the system's own source."""
    draw = draw or randomness.SystemRandom().randint

    @tool(
        name="random",
        tier=Tier.CRAWL,
        effect=Effect.IDEMPOTENT,
        category="utility",
        polling=True,
        examples=({}, {"min": 1, "max": 6, "count": 2}),
    )
    def random(
        min: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] = 1,  # noqa: A002 - the name in the tool's protocol
        max: Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] = 100,  # noqa: A002 - the name in the tool's protocol
        count: Annotated[int, Field(ge=1, le=1000)] = 1,
    ) -> RandomOutput:
        """Draw random whole numbers.

        Args:
            min: The lowest number that can be drawn.
            max: The highest number that can be drawn.
            count: How many numbers to draw.
        """
        if min > max:
            raise ToolFailure(f"min ({min}) must not be above max ({max})", code=Code.INVALID_PARAMS)
        return {"numbers": [draw(min, max) for _ in range(count)]}

    return random


class EchoOutput(TypedDict):
    echo: Annotated[str, Field(description="The message, unchanged.")]


def echo_tool() -> Tool:
    """The tool that gives its message back, to try out a connection."""

    @tool(name="echo", tier=Tier.CRAWL, effect=Effect.PURE, category="utility", examples=({"message": "hello"},))
    def echo(message: str) -> EchoOutput:
        """Give a message back unchanged.

        Args:
            message: The text to give back.
        """
        return {"echo": message}

    return echo


class TimerOutput(TypedDict):
    waited: Annotated[float, Field(description="Seconds waited.")]
    message: Annotated[str, Field(description="The same in words.")]


def timer_tool(sleep: Callable[[float], Awaitable[object]] = asyncio.sleep) -> Tool:
    """The tool that waits with `sleep(seconds)`."""

    @tool(
        name="timer",
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="utility",
        polling=True,
        timeout_s=LONGEST_WAIT_S + _MARGIN_S,
        max_timeout_s=LONGEST_WAIT_S + _MARGIN_S,
        examples=({"seconds": 2},),
    )
    async def timer(
        context: Context,
        seconds: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)],
    ) -> TimerOutput:
        """Wait for some seconds.

        Args:
            seconds: How long to wait.
        """
        if seconds > context.timeout_s:
            raise ToolFailure(
                f"this call may take {context.timeout_s:g} seconds, so it cannot wait {seconds:g}",
                code=Code.INVALID_PARAMS,
            )
        for step in range(_STEPS if seconds else 0):
            context.progress(f"{seconds * step / _STEPS:g} of {seconds:g} seconds", step / _STEPS)
            await sleep(seconds / _STEPS)
        return {"waited": seconds, "message": f"Waited {seconds:g} seconds."}

    return timer
