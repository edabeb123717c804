"""A process that owns a turn: `owner.py HOME LEDGER WAY [URL]`.

It says a word when it is where it was sent, and goes on when it reads a line.

WAY is where it stops: `in_tool` within a call, `forks` there too with a child that lives on, `before` when a call has
been written down and is about to begin, `before_both` the same for a step of two, `call` for one without a model,
`takes` when it has taken over what another has left. With a URL its store is a libSQL server's.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from toolwire import Agent, Effect, SqliteStore, tool
from toolwire.errors import Fenced
from toolwire.protocol.events import CallStarted, Event
from toolwire.record.libsql import LibsqlStore
from toolwire.testing import ScriptedModel, call

HOME, LEDGER, WAY = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def live_on() -> None:
    """A child that keeps all descriptors but one until the test closes its standard input."""
    if os.fork() == 0:
        os.close(1)  # the test reads it to its end
        os.read(0, 1)
        os._exit(0)


@tool(effect=Effect.UNSAFE, writes="shared:pad")
def launch(what: str) -> str:
    """Launch."""
    with LEDGER.open("a") as file:
        file.write(f"{what}\n")
    if WAY == "forks":
        live_on()
    say("in the tool")
    sys.stdin.readline()
    return f"launched {what}"


def die() -> None:
    say("before the tool")
    os.kill(os.getpid(), signal.SIGKILL)


def die_before(event: Event) -> None:
    if isinstance(event, CallStarted):
        die()


async def main() -> None:
    store = await LibsqlStore.on(sys.argv[4], HOME) if len(sys.argv) > 4 else await SqliteStore.at(HOME)
    if WAY == "takes":
        [left] = await store.turns(state="interrupted")
        await store.resume(left.id)
        die()
    calls = [call("launch", "a", what="one"), call("launch", "b", what="two")]
    agent = Agent(ScriptedModel(calls if WAY == "before_both" else calls[0], "done"), [launch], store=store)
    watch = None if WAY in ("in_tool", "forks") else die_before
    try:
        if WAY == "call":
            await agent.call("launch", {"what": "one"}, on_event=watch)
        else:
            await agent.ask("go", on_event=watch)
    except Fenced:
        say("fenced")


asyncio.run(main())
