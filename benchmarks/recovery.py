"""Broken and foreign calls through the whole loop: `python -m benchmarks.recovery`.

A model makes each slip of the recovery bench once. If it is told that its call could not be run, it calls properly;
once it has seen a result, it answers. Each must end in exactly one run with the right arguments; ends with 1 when one
does not.
"""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.wire.slips import MORE, SLIPS, SUM
from tests.wire.test_native import completion

from toolwire.agent import Agent
from toolwire.define.functions import tool
from toolwire.protocol.chat import Delta, Reply, Request, ResultsMessage
from toolwire.wire.replies.reply import StreamParser, parse_reply

BOUND_S = 10


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer of a turn, the arguments of each run of the tool, and whether the model had to be told something."""

    answer: str
    runs: tuple[dict[str, Any], ...]
    told: bool


class Slipping:
    """A model that slips once, calls properly when it is told, and answers when it has its results."""

    name = "scripted:slipping"

    def __init__(self, slip: Any, *, streamed: bool) -> None:
        self._slip = slip
        self._streamed = streamed
        self.replies = 0
        self.told = False

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        self.replies += 1
        if self.replies == 1:
            return self._slipped(request)
        last = request.messages[-1]
        if isinstance(last, ResultsMessage) and all(result.ok for result in last.results):
            return Reply("It is 42.")
        self.told = True
        return parse_reply(completion('{"a": 40, "b": 2}', alias="call_2"), request.tools)

    def _slipped(self, request: Request) -> Reply:
        if not self._streamed:
            return parse_reply(self._slip, request.tools)
        parser = StreamParser(request.tools)
        for character in self._slip:
            parser.feed(character)
        return parser.finish()

    async def close(self) -> None:
        """Nothing to let go of."""


async def recovered(slip: Any, *, streamed: bool = False) -> Outcome:
    """What becomes of a turn in which the model slips like this."""
    runs: list[dict[str, Any]] = []

    @tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        runs.append({"a": a, "b": b})
        return a + b

    model = Slipping(slip, streamed=streamed)
    async with asyncio.timeout(BOUND_S):
        answer = await Agent(model, [add]).ask("What is 40 + 2?")
    return Outcome(answer.text, tuple(runs), model.told)


async def main() -> int:
    failed = 0
    print(f"{'slip':<26}{'read':<10}{'runs':>5}  {'arguments':<24}told first")
    for name, slip in (SLIPS | MORE).items():
        for streamed in (False, True) if isinstance(slip, str) else (False,):
            outcome = await recovered(slip, streamed=streamed)
            good = outcome.runs == (SUM,)
            failed += not good
            arguments = ", ".join(map(str, outcome.runs))
            way = "streamed" if streamed else "whole"
            print(f"{name:<26}{way:<10}{len(outcome.runs):>5}  {arguments:<24}{'yes' if outcome.told else 'no'}")
    print(f"{len(SLIPS)} of the bench and {len(MORE)} more; {failed} did not run exactly once with the right arguments")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
