"""A process that spends a day's calls with others: `spender.py KIND PLACE HOME LEDGER WAY MOST`.

It waits for a line on standard input, then makes calls until the day is used up. With WAY `tokens` or `money` its
model uses as many tokens as it may, and writes them into the ledger.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path

from toolwire import Agent, SqliteStore, tool
from toolwire.errors import BudgetSpent
from toolwire.loop.limits import expected_usage
from toolwire.protocol.budgets import Budget
from toolwire.protocol.chat import Delta, Reply, Request, Usage
from toolwire.record.libsql import LibsqlStore
from toolwire.testing import ScriptedModel, call

KIND, PLACE, HOME, LEDGER, WAY, MOST = sys.argv[1:]
ROUNDS = 20


def note(line: str) -> None:
    with Path(LEDGER).open("a") as ledger:
        ledger.write(f"{line}\n")


@tool
def count(by: str) -> str:
    """Count."""
    note(by)
    return "counted"


class Talker:
    """A model whose answers are as long as they may be."""

    name = "talker:test"

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        usage = expected_usage(request, None)
        note(str(usage.total_tokens))
        await asyncio.sleep(0)  # others have their turn while it speaks
        return Reply("so", usage=Usage(usage.input_tokens, usage.output_tokens, 0, usage.total_tokens / 1000))

    async def close(self) -> None:
        """Nothing to let go of."""


async def talk(store: SqliteStore) -> None:
    most = int(MOST)
    budget = Budget(tokens=most) if WAY == "tokens" else Budget(cost_usd=most / 1000)
    for _ in range(ROUNDS):
        await Agent(Talker(), [], store=store, budget=budget, max_tokens=100).ask("go")


async def spend(store: SqliteStore) -> None:
    by, budget = str(os.getpid()), Budget(calls=int(MOST))
    script = [[call("count", f"{step}{place}", by=by) for place in "abc"] for step in range(2)]
    for _ in range(ROUNDS):
        agent = Agent(ScriptedModel(*script, "done"), [count], store=store, budget=budget)
        if WAY == "ask":
            await agent.ask("go")
        else:
            await agent.call("count", {"by": by})


async def main() -> None:
    opening = (
        SqliteStore.at(Path(HOME), busy_timeout_s=100)
        if KIND == "sqlite"
        else LibsqlStore.on(PLACE, Path(HOME), patience_s=100)
    )
    async with await opening as store:
        print("ready", flush=True)  # noqa: T201 -- for the test that waits for it
        sys.stdin.readline()
        try:
            await (talk(store) if WAY in ("tokens", "money") else spend(store))
        except BudgetSpent:
            print("spent", flush=True)  # noqa: T201


asyncio.run(main())
