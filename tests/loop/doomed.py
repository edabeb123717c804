"""A process that is killed while its second tool runs: `doomed.py HOME LEDGER EFFECT`."""

import asyncio
import sys
from pathlib import Path

from toolwire import Agent, Effect, SqliteStore, tool
from toolwire.testing import ScriptedModel, call

HOME, LEDGER, EFFECT = Path(sys.argv[1]), Path(sys.argv[2]), Effect(sys.argv[3])


def mark(word: str) -> None:
    with LEDGER.open("a") as file:
        file.write(word + "\n")


@tool
def first() -> str:
    """Run to the end."""
    mark("first")
    return "first ran"


async def main() -> None:
    store = await SqliteStore.at(HOME)

    @tool(effect=EFFECT)
    async def second() -> str:
        """Take effect and never come back."""
        mark("second")
        while "second" not in [card.call.name for card in await store.calls()]:  # what is pure is so a little later
            pass
        sys.stdout.write("in the tool\n")
        sys.stdout.flush()
        await asyncio.Event().wait()
        return "never"

    await Agent(ScriptedModel(call("first"), call("second")), [first, second], store=store).ask("go")


asyncio.run(main())
