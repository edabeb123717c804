"""A storm of `kill -9` over a whole fleet: workers, processes that run turns, the broker, and the database.

    python -m benchmarks.fleet_storm --calls 5000                   # PostgreSQL and NATS, both killed as well
    python -m benchmarks.fleet_storm --calls 2000 --control blind   # must fail: a guard is taken away

Turns of several steps are begun; every step calls tools of all effect classes in workers. Tools write into a ledger of
their own what they do. When enough calls have ended, the killing stops, and everything must come to its end. Lost is a
turn that does not end, a call without a result, and a success that the ledger does not know. Doubled is an effect of a
call that must take effect at most once and stands in the ledger twice.
"""

import argparse
import asyncio
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.bus.servers import NatsServer, running
from tests.postgres_server import PostgresServer, postgres_server

from benchmarks.fleet_process import PROJECT, STEPS, agent, open_store
from toolwire import Toolbox
from toolwire.bus.in_process import InProcessBus
from toolwire.errors import StoreError
from toolwire.fleet.relay import Relay
from toolwire.protocol.outcomes import Code, Status
from toolwire.record.sqlite import SqliteStore

ROLES = ("turns", "turns", "work", "work", "work")
ONCE = ("unsafe", "slow")
LEASE_S = 5.0
SETTLE_S = 300.0
_CALLS_PER_TURN = STEPS * 2


@dataclass(slots=True)
class Storm:
    """Processes that are started again whenever they are killed, and the servers that they use."""

    folder: Path
    nats: NatsServer
    postgres: PostgresServer | None
    control: str
    chance: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    processes: "list[tuple[str, subprocess.Popen[bytes]]]" = field(default_factory=list)
    ended: int = 0

    def start(self, role: str) -> "tuple[str, subprocess.Popen[bytes]]":
        words = [sys.executable, "-m", "benchmarks.fleet_process", role, str(self.folder), self.control]
        with (self.folder / f"{role}.log").open("ab") as log:
            return role, subprocess.Popen(words, stdout=log, stderr=log)

    def start_all(self) -> None:
        self.processes = [self.start(role) for role in ROLES]

    def strike(self) -> None:
        """Kill something, and start it again."""
        draw = self.chance.random()
        if draw < 0.04:
            self.kills["broker"] += 1
            self.nats.kill()
            if self.chance.random() < 0.3:
                self.kills["broker wiped"] += 1
                shutil.rmtree(self.nats.folder / "jetstream", ignore_errors=True)
            self.nats.start()
        elif draw < 0.06 and self.postgres is not None:
            self.kills["database"] += 1
            self.postgres.kill()
            self.postgres.start()
        else:
            place = self.chance.randrange(len(self.processes))
            role, process = self.processes[place]
            process.kill()
            process.wait()
            self.kills[role] += 1
            self.processes[place] = self.start(role)

    def stop(self) -> None:
        for _, process in self.processes:
            process.kill()
            process.wait()


async def begin_turns(store: SqliteStore, number: int) -> list[str]:
    async with InProcessBus() as bus:
        asking = agent(store, Toolbox(), Relay(store, bus))
        return [(await asking.begin(f"Question {one}")).id for one in range(number)]


async def ended(store: SqliteStore) -> int:
    try:
        _, loop = await store.metrics(project=PROJECT)
    except StoreError:
        return 0
    return loop.turns


async def blow(storm: Storm, store: SqliteStore, turns: int, mean_s: float) -> None:
    """Kill until nine of ten turns have ended, then let the rest come to its end."""
    began, counted = time.monotonic(), asyncio.create_task(until_ended(storm, store, turns * 0.9))
    next_at = began
    while not counted.done():
        next_at = max(next_at + storm.chance.expovariate(1 / mean_s), time.monotonic())
        await asyncio.wait((counted,), timeout=next_at - time.monotonic())
        await asyncio.to_thread(storm.strike)
        if (kills := sum(storm.kills.values())) % 20 == 0:
            print(
                f"  {time.monotonic() - began:5.0f} s: {storm.ended} of {turns} turns ended, {kills} kills", flush=True
            )
    with suppress(TimeoutError):
        async with asyncio.timeout(SETTLE_S):
            await until_ended(storm, store, turns)


async def until_ended(storm: Storm, store: SqliteStore, number: float) -> None:
    """Wait until so many turns have ended. To count them takes a while, so nothing else waits for that."""
    while (count := await ended(store)) < number:
        storm.ended = count
        await asyncio.sleep(0.5)


async def judge(storm: Storm, store: SqliteStore, turn_ids: list[str]) -> tuple[Counter[str], list[str]]:
    """What came of it, and what is wrong with that."""
    ledger: Counter[tuple[str, str]] = Counter()
    path = storm.folder / "ledger"
    for line in path.read_text().splitlines() if path.exists() else ():
        key, kind, _ = line.split(" ")
        ledger[key, kind] += 1
    found: Counter[str] = Counter()
    wrong: list[str] = []
    for turn_id in turn_ids:
        kept = await store.turn(turn_id, project=PROJECT)
        if kept.state != "ended":
            found["lost"] += 1
            wrong.append(f"turn {turn_id} is {kept.state}: {kept.opening.waits}")
        for card in await store.calls(turn_id=turn_id, limit=1_000, project=PROJECT):
            found["calls"] += 1
            kind, times = card.call.name, ledger[f"{turn_id}/{card.call.id}", card.call.name]
            if card.result is None:
                found["lost"] += 1
                wrong.append(f"call {card.call.id} has no result")
            elif card.result.status is Status.SUCCESS:
                if not times:
                    found["lost"] += 1
                    wrong.append(f"call {card.call.id} succeeded, and the ledger does not know it")
            elif card.result.error is not None:
                found[card.result.error.code] += 1
                if card.result.error.code != Code.OUTCOME_UNKNOWN:
                    wrong.append(f"call {card.call.id}: {card.result.text[:200]}")
            if kind in ONCE and times > 1:
                found["doubled"] += 1
                wrong.append(f"call {card.call.id} took effect {times} times")
    return found, wrong


async def storm_over(storm: Storm, calls: int, mean_s: float) -> int:
    place = json.loads((storm.folder / "place.json").read_text())
    turns = max(calls // _CALLS_PER_TURN, 1)
    async with await open_store(place, storm.folder) as store:
        turn_ids = await begin_turns(store, turns)
        began = time.monotonic()
        storm.start_all()
        try:
            await blow(storm, store, turns, mean_s)
        finally:
            storm.stop()
        found, wrong = await judge(storm, store, turn_ids)
    seconds = time.monotonic() - began
    kills = ", ".join(f"{number} {what}" for what, number in sorted(storm.kills.items()))
    print(
        f"turns {turns}, calls {found['calls']}, kills {sum(storm.kills.values())} ({kills}), {seconds:.0f} s: "
        f"lost {found['lost']}, doubled {found['doubled']}, unknown {found[Code.OUTCOME_UNKNOWN]}"
    )
    for line in wrong[:20]:
        print("  " + line)
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--mean", type=float, default=0.5, help="seconds between two kills, on average")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--control", choices=("none", "blind", "silent"), default="none")
    given = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 31) if given.seed is None else given.seed
    print(f"seed {seed}, {given.calls} calls, control {given.control}")
    with tempfile.TemporaryDirectory(prefix="toolwire-storm-") as name:
        folder = Path(name)
        (folder / "nats").mkdir()
        with running(folder / "nats") as nats:
            if given.store == "sqlite":
                return _run(folder, nats, None, given, seed)
            with postgres_server() as postgres:
                return _run(folder, nats, postgres, given, seed)


def _run(folder: Path, nats: NatsServer, postgres: PostgresServer | None, given: argparse.Namespace, seed: int) -> int:
    address = "" if postgres is None else postgres.url
    place = {"kind": given.store, "postgres": address, "nats": nats.url, "lease_s": str(LEASE_S)}
    (folder / "place.json").write_text(json.dumps(place))
    storm = Storm(folder, nats, postgres, given.control, random.Random(seed))
    return asyncio.run(storm_over(storm, given.calls, given.mean))


if __name__ == "__main__":
    raise SystemExit(main())
