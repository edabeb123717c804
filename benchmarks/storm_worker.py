"""One process of the kill storm: lanes that resume what others left and ask questions of their own, until it is killed.

`python -m benchmarks.storm_worker FOLDER SEED CONTROL MODE`, where MODE is `work` or `settle`.
"""

import asyncio
import ctypes
import json
import os
import random
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from uuid_utils import uuid7

from toolwire import Agent, Effect, Grant, MemoryStore, Tier, tool
from toolwire.errors import Fenced, NotFound, StoreUnavailable
from toolwire.protocol.chat import Reply, Request
from toolwire.protocol.events import CallFinished, Event, ModelReplied, TurnEnded, TurnStarted
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Limits, Turn
from toolwire.record import schema
from toolwire.record.contract import Reservation, Store
from toolwire.record.owners import Owners
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import call
from toolwire.toolbox.registry import ToolDependencies, tools_of

LANES = 4
MOST_STEPS, MOST_CALLS = 5, 4
CHANCE_AT_COMMIT = 0.002
LATEST_S = 0.02
PAUSE_S = 0.3
BIG = "x" * 200_000
_write = ctypes.PyDLL(None).write
_write.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t)
SHARES = {"pure": 26, "big": 2, "idem": 18, "uns_s": 24, "uns_a": 20, "write": 9, "bash": 1}


class Ledger:
    """A file to which lines are added whole, whoever is killed."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def add(self, *words: str) -> None:
        os.write(self._fd, (json.dumps(words) + "\n").encode())


class ToolLedger(Ledger):
    """What the tools write, with the process and the time (of the machine's monotonic clock) of each line.

    Like a note, a line is written without giving up the interpreter's lock: no other thread gets in between them.
    """

    def add(self, *words: str) -> None:
        line = (json.dumps((*words, os.getpid(), time.monotonic())) + "\n").encode()
        _write(self._fd, line, len(line))


class Noted(SqliteStore):
    """The store, which tells the ledger of the tools as soon as it is noted that a call begins."""

    ledger: ToolLedger
    pause_s = 0.0

    def begins(self, turn_id: str, call_id: str, *, project: str = "default") -> None:
        super().begins(turn_id, call_id, project=project)
        self.ledger.add("noted", turn_id + call_id)
        if self.pause_s:  # a control: something takes time between the note and the tool
            time.sleep(self.pause_s)


class Forgetful(Noted):
    """A control: the start of a call is not believed, so that whatever was left is run again."""

    async def open(
        self, card: CallCard, audit: Sequence[AuditRow], reserve: Reservation | None = None, *,
        begins: Turn | None = None, may_wait: bool = False,
    ) -> CallCard:  # fmt: skip
        return replace(await super().open(card, audit, reserve, begins=begins, may_wait=may_wait), attempt=0)


class Noteless(Owners):
    """A control: no owner that is gone has begun anything."""

    def begun(self, owner: str) -> Collection[bytes] | None:
        return frozenset() if owner != self.name else super().begun(owner)


def kill_at_commit(chance: random.Random, statement: str) -> None:
    """Now and then a thread that kills this process a moment after a commit has begun."""
    if statement == "COMMIT" and chance.random() < CHANCE_AT_COMMIT:
        threading.Timer(chance.random() * LATEST_S, os.kill, (os.getpid(), signal.SIGKILL)).start()


def opened(home: Path, control: str, chance: random.Random, ledger: ToolLedger, *, dies: bool) -> Store:
    if control == "memory":
        return MemoryStore()
    path = home / "store.db"

    def connect() -> sqlite3.Connection:
        connection = schema.connect(path, busy_timeout_s=30.0)
        if dies:
            connection.set_trace_callback(partial(kill_at_commit, chance))
        return connection

    owners = (Noteless if control == "noteless" else Owners)(home / "owners")
    kind = Forgetful if control == "unmarked" else Noted
    store = kind(home, path, connect, time.time, owners=owners)
    store.ledger, store.pause_s = ledger, PAUSE_S if control == "slow-begin" else 0.0
    return store


def storm_tools(ledger: Ledger, chance: random.Random, workspace: Path) -> list[Tool]:
    @tool(effect=Effect.PURE)
    async def pure(token: str) -> str:
        """Look."""
        ledger.add("ran", token)
        await asyncio.sleep(chance.random() * 0.004)
        return token

    @tool(effect=Effect.PURE)
    def big(token: str) -> str:
        """Give a lot."""
        ledger.add("ran", token)
        return token + BIG

    @tool(effect=Effect.IDEMPOTENT)
    def idem(token: str) -> str:
        """Set."""
        ledger.add("ran", token)
        return token

    @tool(effect=Effect.UNSAFE)
    def uns_s(token: str) -> str:
        """Send."""
        ledger.add("begun", token)
        time.sleep(chance.random() * 0.004)
        ledger.add("effect", token)
        return token

    @tool(effect=Effect.UNSAFE)
    async def uns_a(token: str) -> str:
        """Send."""
        ledger.add("begun", token)
        await asyncio.sleep(chance.random() * 0.004)
        ledger.add("effect", token)
        return token

    place = ToolDependencies(home=workspace / ".toolwire")
    built_in = [one for one in tools_of(["coding", "shell"], place) if one.name in ("write", "bash")]
    return [pure, big, idem, uns_s, uns_a, *built_in]


class Restless:
    """A model that wants something else each time it is asked, so that a step that is asked twice shows."""

    name = "storm:restless"

    def __init__(self, chance: random.Random, names: Sequence[str]) -> None:
        self._chance = chance
        self._names = [name for name in names if name in SHARES]
        self._weights = [SHARES[name] for name in self._names]

    async def ask(self, request: Request, on_delta: Any = None) -> Reply:
        steps = sum(isinstance(message, Reply) for message in request.messages)
        if steps and self._chance.random() < steps / MOST_STEPS:
            return Reply("done")
        names = self._chance.choices(self._names, self._weights, k=self._chance.randint(1, MOST_CALLS))
        return Reply(calls=tuple(call(name, str(place), **_arguments(name)) for place, name in enumerate(names)))

    async def close(self) -> None:
        """Nothing to let go of."""


def _arguments(name: str) -> dict[str, Any]:
    token = f"{name}-{uuid7()}"
    match name:
        case "write":
            return {"path": f"files/{token}", "content": f"{token}\n", "mode": "append"}
        case "bash":
            return {"command": f"echo {token} >> files/{token}"}
    return {"token": token}


class Lane:
    def __init__(self, agent: Agent, acks: Ledger, control: str) -> None:
        self._agent = agent
        self._acks = acks
        self._control = control
        self._turn = ""

    def watch(self, event: Event) -> None:
        """Acknowledge what has been kept; as a control, before it has."""
        match event:
            case TurnStarted(turn_id=turn_id):
                self._turn = turn_id
                self._acks.add("turn", turn_id)
            case ModelReplied(reply=reply) if self._control == "ack-first":
                for one in reply.calls:
                    self._acks.add("result", self._turn, one.id)
            case CallFinished(call=one):
                self._acks.add("result", self._turn, one.id)
            case TurnEnded(turn_id=turn_id):
                self._acks.add("ended", turn_id)

    async def resume(self, turn_id: str) -> None:
        try:
            await self._agent.resume(turn_id, on_event=self.watch)
        except (Fenced, NotFound):
            self._acks.add("refused", turn_id)

    async def work(self) -> None:
        while True:
            await self._agent.ask("Storm", on_event=self.watch)


async def main(folder: Path, seed: str, control: str, mode: str) -> None:
    chance = random.Random(seed)
    home, workspace = folder / "home", folder / "workspace"
    ledger = ToolLedger(folder / "ledger")
    store = opened(home, control, chance, ledger, dies=mode == "work")
    tools = storm_tools(ledger, chance, workspace)
    grant = Grant(
        Tier.RUN, frozenset({"file_write", "file_read", "shell"}), (str(workspace),), confirmed=frozenset({"*"}),
        max_calls=1000,
    )  # fmt: skip
    acks = Ledger(folder / "acks")
    make: Callable[[], Agent] = lambda: Agent(  # noqa: E731 -- one agent a lane
        Restless(chance, [one.name for one in tools]), tools, store=store, grant=grant, limits=Limits(iterations=20)
    )
    lanes = [Lane(make(), acks, control) for _ in range(LANES)]
    print("ready", flush=True)
    left = [turn.id for turn in await store.turns(limit=100_000, state="interrupted")]
    chance.shuffle(left)
    await asyncio.gather(*(_take_up(lane, left[place::LANES]) for place, lane in enumerate(lanes)))
    if mode == "work":
        await asyncio.gather(*(lane.work() for lane in lanes), return_exceptions=False)
    await store.close_store()


async def _take_up(lane: Lane, turns: Sequence[str]) -> None:
    for turn_id in turns:
        await lane.resume(turn_id)


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
    except StoreUnavailable as trouble:
        sys.exit(f"the store was in trouble: {trouble}")
