"""How many of 15 tools the embedded model calls rightly, told of them in different forms.

    python -m benchmarks.context_local [--each N] [--misses]

The requests are those of `benchmarks/local_eval` for built-in tools: the first N for each of 15 tools, put with exactly
these tools. Only the text about the tools differs; whatever it is, a grammar made from their schemas holds the model
to calls that are well formed. It was trained on lines of its own form, which are the first row.
"""

import argparse
import asyncio
from collections.abc import Callable, Iterable

from benchmarks.context import openai
from benchmarks.local_eval.asking import Conversation, Played
from benchmarks.local_eval.models import open_spec
from benchmarks.local_eval.rows import Row, rows, tools
from toolwire.models import local_dialogue
from toolwire.protocol.tool_lines import LineDetail, tool_line
from toolwire.protocol.tools import Tool
from toolwire.wire.prompted import compact

TOOLS = 15


def chosen_rows(each: int) -> list[Row]:
    """So many requests for each of 15 tools, none of which could serve the request of another."""
    found: dict[str, list[Row]] = {}
    unfit: set[str] = set()
    for row in rows():
        if row.group != "phrasings" or len(row.wanted) != 1 or row.before:
            continue
        name = row.wanted[0].tool
        if name not in found and (len(found) == TOOLS or name in unfit or row.unfit & found.keys()):
            continue
        if row.unfit & found.keys():
            continue
        if len(found.setdefault(name, [])) < each:
            found[name].append(row)
            unfit |= row.unfit
    return [row for several in found.values() for row in several]


def _short_lines(offered: Iterable[Tool]) -> str:
    return "\n".join(tool_line(tool, LineDetail.SHORT) for tool in offered)


def _budgeted(offered: Iterable[Tool]) -> str:
    return compact.tool_lines(tuple(offered))


def _json(offered: Iterable[Tool]) -> str:
    return openai(tuple(offered))


FORMS: dict[str, Callable[[Iterable[Tool]], str]] = {
    "the lines that it was trained on": local_dialogue.system_block,
    "compact lines, within the budget": _budgeted,
    "compact lines, without a budget": _short_lines,
    "OpenAI JSON": _json,
}


async def play(asked: list[Row], form: Callable[[Iterable[Tool]], str]) -> list[Played]:
    offered = tuple(tools()[name] for name in dict.fromkeys(row.wanted[0].tool for row in asked))
    local_dialogue.system_block = form  # type: ignore[assignment] # the one thing that differs
    model = open_spec("local:smollm2")
    return [await Conversation(model, row, offered).play() for row in asked]


async def measure(each: int, misses: bool) -> None:
    asked = chosen_rows(each)
    names = {row.wanted[0].tool for row in asked}
    print(f"{len(asked)} requests for {len(names)} tools: {', '.join(sorted(names))}\n")
    print(
        "| told as | tools called rightly at the first request | right tool | right tool and arguments |\n"
        "|---|---|---|---|"
    )
    for label, form in FORMS.items():
        played = await play(asked, form)
        first = {name: next(one for one in played if one.row.wanted[0].tool == name) for name in names}
        print(
            f"| {label} | {sum(one.calls_right for one in first.values())} of {len(first)} "
            f"| {sum(one.tool for one in played)} of {len(played)} "
            f"| {sum(one.calls_right for one in played)} of {len(played)} |",
            flush=True,
        )
        if misses:
            print("\n".join(f"    {one.told()}" for one in played if not one.calls_right))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context_local", description=__doc__)
    parser.add_argument("--each", type=int, default=3, help="requests for each tool")
    parser.add_argument("--misses", action="store_true", help="print what went wrong")
    options = parser.parse_args()
    asyncio.run(measure(options.each, options.misses))


if __name__ == "__main__":
    main()
