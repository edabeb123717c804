"""How well the embedded model uses tools: right tool, right arguments, right answer, and how fast.

    python -m benchmarks.eval_local [--split tune|held|all] [--design NAME ...] [--misses]

The questions lie in `local_questions.json`. Prompts were chosen on the `tune` half; `held` was only measured.
Both halves are easy: many questions follow the same patterns as the worked phrases that the model is shown for the
built-in tools, so `kept` says how well it does on such phrasings. `kept-without-phrases` shows the model only what any
tool brings along, and is the better guess for other tools and other words.
"""

import argparse
import asyncio
import inspect
import json
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.local_designs import DESIGNS
from toolwire.errors import ToolFailure
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import ChatModel, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Grant, InProcess, Tool
from toolwire.toolbox import standard

QUESTIONS = Path(__file__).with_name("local_questions.json")


@dataclass(slots=True)
class Score:
    """Counts over the questions asked, and what went wrong."""

    asked: int = 0
    tool: int = 0
    arguments: int = 0
    answer: int = 0
    seconds: list[float] = field(default_factory=list)
    tokens: int = 0
    misses: list[str] = field(default_factory=list)

    def line(self, name: str) -> str:
        share = [f"{100 * part / self.asked:4.0f}%" for part in (self.tool, self.arguments, self.answer)]
        later = sorted(self.seconds[1:]) or self.seconds
        speed = self.tokens / sum(self.seconds)
        return (
            f"{name:<22}{self.asked:>5}{share[0]:>8}{share[1]:>11}{share[2]:>9}"
            f"{self.seconds[0]:>9.1f}{later[len(later) // 2]:>9.2f}{later[-1]:>8.2f}{speed:>9.0f}"
        )


HEADER = (
    f"{'design':<22}{'asked':>5}{'tool':>8}{'arguments':>11}{'answer':>9}"
    f"{'first s':>9}{'median s':>9}{'max s':>8}{'tok/s':>9}"
)


async def _no_wait(seconds: float) -> None:
    """Timers of the evaluation take no time."""


async def run(call: ToolCall, tools: Mapping[str, Tool], folder: Path) -> ToolResult:
    """The call's result from the real tool."""
    target = tools[call.name].target
    assert isinstance(target, InProcess)
    try:
        value = target.invoke(call.arguments, Context(grant=Grant(roots=(str(folder),)), timeout_s=300))
        value = await value if inspect.isawaitable(value) else value
    except ToolFailure as failure:
        return ToolResult.failed(call, failure.code, str(failure))
    except (TypeError, ValueError) as wrong:
        return ToolResult.failed(call, Code.INVALID_PARAMS, str(wrong))
    return ToolResult(call.id, call.name, Status.SUCCESS, (Text(json.dumps(value)),), structured=value)


def arguments_right(row: Mapping[str, Any], call: ToolCall | None, result: ToolResult | None) -> bool:
    """Whether the call is the wanted one: by the value for arithmetic, by the arguments otherwise."""
    if row["tool"] is None or call is None or call.name != row["tool"]:
        return row["tool"] is None and call is None
    if "value" in row:
        return result is not None and result.ok and abs(result.structured["result"] - row["value"]) < 1e-9
    wanted = {"count": 1, **row["arguments"]} if call.name == "random" else row["arguments"]
    given = {"count": 1, **call.arguments} if call.name == "random" else call.arguments
    return all(_same(given.get(key), value) for key, value in wanted.items())


def _same(given: Any, wanted: Any) -> bool:
    return str(given).strip(" .!'").lower() == str(wanted).lower()


def answer_right(row: Mapping[str, Any], reply: Reply, result: ToolResult | None) -> bool:
    """Whether the answer says the expected value; where there is none to expect, that it says something."""
    if row["tool"] == "random":
        drawn = result.structured["numbers"] if result is not None and result.ok else []
        return bool(drawn) and all(str(number) in reply.content for number in drawn)
    return str(row.get("answer") or "").lower() in reply.content.lower() and bool(reply.content)


async def evaluate(model: ChatModel, rows: list[dict[str, Any]], folder: Path) -> Score:
    """Ask every question, run the call, ask for the answer."""
    offered = standard(draw=lambda low, high: low + (high - low) // 3, sleep=_no_wait)
    tools = {tool.name: tool for tool in offered}
    score = Score()
    for row in rows:
        began = time.perf_counter()
        question = UserMessage(row["question"])
        reply = first = await model.ask(Request((question,), offered))
        call = replace(first.calls[0], id="call-1") if first.calls else None
        result = await run(call, tools, folder) if call else None
        if call and result:
            said = replace(first, calls=(call,))
            reply = await model.ask(Request((question, said, ResultsMessage((result,))), offered))
        score.seconds.append(time.perf_counter() - began)
        score.tokens += first.usage.output_tokens + (reply.usage.output_tokens if call else 0)
        marks = (
            (call.name if call else None) == row["tool"],
            arguments_right(row, call, result),
            answer_right(row, reply, result),
        )
        score.asked, score.tool = score.asked + 1, score.tool + marks[0]
        score.arguments, score.answer = score.arguments + marks[1], score.answer + (marks[1] and marks[2])
        if not all(marks):
            told = f"{call.name} {dict(call.arguments)}" if call else "no call"
            score.misses.append(f"  {row['question']!r}: {told} -> {reply.content[:100]!r}")
    return score


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--split", choices=("tune", "held", "all"), default="all")
    parser.add_argument("--design", nargs="*", choices=list(DESIGNS), default=["kept"])
    parser.add_argument("--misses", action="store_true", help="show what went wrong")
    chosen = parser.parse_args()
    data = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    rows = [row for row in data["questions"] if chosen.split in ("all", row["split"])]
    print(HEADER)
    with tempfile.TemporaryDirectory() as place:
        for name, text in data["files"].items():
            file = Path(place, name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        for design in chosen.design:
            score = asyncio.run(evaluate(DESIGNS[design](), rows, Path(place)))
            print(score.line(design), *(score.misses if chosen.misses else ()), sep="\n", flush=True)


if __name__ == "__main__":
    main()
