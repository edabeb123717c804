"""A process that spends a day's calls with others: `spender.py KIND PLACE HOME LEDGER WAY MOST`.

It waits for a line on standard input, then makes calls until the day is used up.
"""

import asyncio
import os
import sys
from pathlib import Path

from toolwire import Agent, SqliteStore, tool
from toolwire.errors import BudgetSpent
from toolwire.protocol.budgets import Budget
from toolwire.record.libsql import LibsqlStore
from toolwire.testing import ScriptedModel, call

KIND, PLACE, HOME, LEDGER, WAY, MOST = sys.argv[1:]
ROUNDS = 20


@tool
def count(by: str) -> str:
    """Count."""
    with Path(LEDGER).open("a") as ledger:
        ledger.write(f"{by}\n")
    return "counted"


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
            await spend(store)
        except BudgetSpent:
            print("spent", flush=True)  # noqa: T201


asyncio.run(main())
