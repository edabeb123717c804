"""How well the embedded model uses tools: right tool, right arguments, right answer, refusals, and how fast.

    python -m benchmarks.eval_local [--model local:smollm2] [--base MODEL] [--misses] [--write]
                                    [--sample] [--group G] [--tools N] [--limit N] [--choosing]

All requests of `benchmarks/local_eval` are put with 15 tools each, and the same sixty of them with 5, 30 and 100 tools
and to the model to compare with. With `--sample` (the sixty), `--group`, `--tools` or `--limit` only what is asked for
is measured; with `--choosing` it is measured on other requests, which are there to choose among adapters by.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.local_eval.asking import Conversation, Played
from benchmarks.local_eval.figures import COLUMNS, by_group, by_tool, line, pick, times
from benchmarks.local_eval.fresh import fresh_figures
from benchmarks.local_eval.models import BASE, open_spec
from benchmarks.local_eval.rows import CHOOSING, GROUPS, HERE, Row, rows, sample, sessions
from toolwire.protocol.chat import ChatModel

PAGE = Path(__file__).parent.parent / "docs" / "local-model-figures.md"
USUAL = 15
SIZES = (5, 15, 30, 100)


async def evaluate(
    model: ChatModel, asked: Sequence[Row], among: Sequence[Row], size: int, name: str, folder: Path = HERE
) -> list[Played]:
    """Put the requests to the model with so many tools, those with the same tools one after another."""
    wanted = {row.id for row in asked}
    found: list[Played] = []
    for session in sessions(among, size, folder):
        tools = session.offered(size)
        for place, row in enumerate(row for row in session.rows if row.id in wanted):
            played = await Conversation(model, row, tools).play()
            played.known_tools = place > 0
            found.append(played)
            right = sum(one.right for one in found)
            print(f"\r{name}, {size} tools: {len(found)}/{len(asked)}, {right} right ", end="", file=sys.stderr)
    print(file=sys.stderr)
    return found


def misses(played: Iterable[Played]) -> list[str]:
    return [f"  {one.told()}" for one in sorted(played, key=lambda one: one.row.id) if not one.right]


async def some(chosen: argparse.Namespace) -> list[str]:
    """Only the group, number of tools or number of requests that was asked for."""
    folder = CHOOSING if chosen.choosing else HERE
    among = sample() if chosen.sample else rows(folder)
    asked = [row for row in among if chosen.group in (None, row.group)][: chosen.limit]
    played = await evaluate(open_spec(chosen.model), asked, among, chosen.tools or USUAL, chosen.model, folder)
    told = [*by_group(played), "", *times(played)]
    return [*told, "", *misses(played)] if chosen.misses else told


async def everything(chosen: argparse.Namespace) -> list[str]:
    """The whole evaluation."""
    model = open_spec(chosen.model)
    played = await evaluate(model, rows(), rows(), USUAL, chosen.model)
    sizes = {f"{size} tools": await evaluate(model, sample(), sample(), size, chosen.model) for size in SIZES}
    if chosen.base != chosen.model:
        base = await evaluate(open_spec(chosen.base), sample(), sample(), USUAL, chosen.base)
        sizes[f"{USUAL} tools, {chosen.base}"] = base
    fresh = fresh_figures(chosen.model)
    most = sizes[f"{SIZES[-1]} tools"]
    return [
        f"{chosen.model}, {USUAL} tools", *by_group(played), "",
        "The same sixty requests", COLUMNS, *(line(name, found) for name, found in sizes.items()), pick(most), "",
        *times(played), "",
        f"A fresh process: {fresh['reply_s']:.1f} s to the first reply, {fresh['answer_s']:.1f} s to the first answer, "
        f"at most {fresh['peak_mib']:.0f} MiB", "",
        "By tool, the worst first", *by_tool(played),
        *(["", *misses(played)] if chosen.misses else ()),
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument(
        "--model", default="local:smollm2", help="local:smollm2, local:smollm2@ADAPTER or another model"
    )
    parser.add_argument("--base", default=BASE, help="the model to compare with, on the same sixty requests")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--sample", action="store_true", help="only the sixty requests of the sample")
    which.add_argument("--choosing", action="store_true", help="the requests to choose among adapters by")
    parser.add_argument("--group", choices=GROUPS, help="only this group")
    parser.add_argument("--tools", type=int, choices=SIZES, help="offer so many tools")
    parser.add_argument("--limit", type=int, help="only so many requests")
    parser.add_argument("--misses", action="store_true", help="show what went wrong")
    parser.add_argument("--write", action="store_true", help=f"keep the tables in docs/{PAGE.name}")
    chosen = parser.parse_args()
    partly = chosen.sample or chosen.group or chosen.tools or chosen.limit or chosen.choosing
    told = "\n".join(asyncio.run(some(chosen) if partly else everything(chosen)))
    print(told)
    if chosen.write:
        PAGE.write_text(f"# What the embedded model gets right\n\n```text\n{told}\n```\n", encoding="utf-8")


if __name__ == "__main__":
    main()
