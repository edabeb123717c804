"""A durable call end to end beside DBOS and Restate: submitted, executed, its result recorded, its caller resumed.

    make bench-peers                                    # DBOS and the SDK of Restate, beside the project
    npm install --prefix FOLDER @restatedev/restate-server
    python -m benchmarks.fleet_peers --restate FOLDER/node_modules/.bin/restate-server

All subjects run in the same rounds on the same machine, each in turn: one call after the other, then 64 in flight.

- `toolwire`: `Agent.call` of a tool behind the bus. The caller, the worker, PostgreSQL and NATS are processes of their
  own; the broker syncs each message, too. The worker runs 64 calls at once (`toolwire worker --at-once 64`), and both
  processes run on uvloop, as the commands do.
- `in process`: `Agent.call` of a tool of this process, its records in the same PostgreSQL server; what `dbos` does.
- `dbos`: a workflow with one step on the same PostgreSQL server, executed in the process that calls it, on asyncio's
  event loop, which is its default.
- `restate`: a handler with one step, called over HTTP; its server keeps its log as it does by default.
- `two commits`: the floor. A row is inserted and updated in the same PostgreSQL server, each in a transaction.

Targets: half of the time of the quickest peer, and ten times the calls of the one that makes most.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

import asyncpg
from tests.bus.servers import free_port, running
from tests.postgres_server import postgres_server

from benchmarks.fleet_scale import Fleet, SomeCalls
from benchmarks.fleet_storm import LEASE_S
from benchmarks.machine import load
from benchmarks.rounds import serve_rounds
from toolwire import Agent, Effect, tool
from toolwire.event_loop import run_on_new_loop
from toolwire.record.postgres import PostgresStore

PEERS = Path(".venv-peers/bin/python")
IN_FLIGHT = 64
ROUNDS = 3
CALLS_ALONE = 100
CALLS = {"toolwire": 1_500, "in process": 3_000, "dbos": 300, "restate": 600, "two commits": 3_000}
START_S = 60.0
HALF, TENFOLD = 0.5, 10.0
Rounds = list[dict[str, float]]


class Subject:
    """A process that answers rounds."""

    def __init__(self, *words: str | Path) -> None:
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._answer()

    def round(self, calls: int, in_flight: int) -> dict[str, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"calls": calls, "in_flight": in_flight}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        answer: dict[str, float] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


# The subjects


async def two_commits(url: str) -> None:
    """The floor: what PostgreSQL alone takes for a call that is written down twice."""
    async with asyncpg.create_pool(url, min_size=IN_FLIGHT, max_size=IN_FLIGHT) as pool:
        await pool.execute("CREATE TABLE IF NOT EXISTS calls (id BIGSERIAL PRIMARY KEY, arguments TEXT, result TEXT)")

        async def call(number: int) -> None:
            async with pool.acquire() as connection:
                row = await connection.fetchval("INSERT INTO calls (arguments) VALUES ($1) RETURNING id", str(number))
                await connection.execute("UPDATE calls SET result = $1 WHERE id = $2", f"done {number}", row)

        await serve_rounds(call)


async def fleet_calls(place: str) -> None:
    """Ours: the process that calls."""
    folder = Path(place)
    fleet = Fleet(folder, json.loads((folder / "place.json").read_text()))
    async with fleet.process(IN_FLIGHT, stays=True) as (_, agent, _runner):

        async def call(number: int) -> None:
            result = await agent.call("pure", {"number": number})
            assert result.ok, result.text

        await serve_rounds(call)


async def local_calls(url: str) -> None:
    """Ours without a fleet: the tool runs in the process that calls."""

    @tool(effect=Effect.PURE)
    def pure(number: int) -> str:
        """Read."""
        return f"done {number}"

    with tempfile.TemporaryDirectory(prefix="toolwire-peers-") as home:
        async with await PostgresStore.on(url, home) as store, Agent(SomeCalls(), [pure], store=store) as agent:

            async def call(number: int) -> None:
                result = await agent.call("pure", {"number": number})
                assert result.ok, result.text

            await serve_rounds(call)


@contextmanager
def restate_service(server: Path, folder: Path) -> Iterator[str]:
    """A server of Restate that knows the service, and the service; gives where calls go in."""
    ingress, admin, node, service = (free_port() for _ in range(4))
    environment = {
        **os.environ,
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "DO_NOT_TRACK": "1",
    }
    commands = (
        [str(server), "--base-dir", str(folder)],
        [str(PEERS), "-m", "benchmarks.peers.with_restate", "serve", str(service)],
    )
    processes = [
        subprocess.Popen(
            words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        for words in commands
    ]
    try:
        body = json.dumps({"uri": f"http://127.0.0.1:{service}"}).encode()
        _until_answered(f"http://127.0.0.1:{admin}/deployments", body)
        yield f"http://127.0.0.1:{ingress}"
    finally:
        for process in processes:  # and what they have started: npm's restate-server is a script
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _until_answered(url: str, body: bytes) -> None:
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    ends = time.monotonic() + START_S
    while True:
        try:
            urllib.request.urlopen(request, timeout=10.0).close()
        except (OSError, urllib.error.HTTPError):
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)
        else:
            return


def measure(subjects: dict[str, Callable[[], Subject]], rounds: int, scale: float) -> dict[str, tuple[Rounds, Rounds]]:
    """Rounds in turn over all subjects: alone and with many in flight. A first one of each is not counted."""
    found: dict[str, tuple[Rounds, Rounds]] = {name: ([], []) for name in subjects}
    with ExitStack() as closing:
        started = {}
        for name, start in subjects.items():
            started[name] = start()
            closing.callback(started[name].close)
        for number in range(rounds + 1):
            for name, subject in started.items():
                share = scale if number else scale / 4
                alone = subject.round(max(int(CALLS_ALONE * share), 1), 1)
                many = subject.round(max(int(CALLS[name] * share), IN_FLIGHT), IN_FLIGHT)
                if number:
                    found[name][0].append(alone)
                    found[name][1].append(many)
    return found


def table(found: dict[str, tuple[Rounds, Rounds]]) -> str:
    ours = {name: (_median(alone, "p50_ms"), _median(many, "per_s")) for name, (alone, many) in found.items()}
    heads = ("subject", "p50 ms", "p99 ms", "calls/s, 64 in flight", "p50: ours/its", "calls/s: ours/its", "met")
    lines: list[tuple[str, ...]] = [heads]
    for name, (alone, many) in found.items():
        p50, per_s = ours["toolwire"][0] / ours[name][0], ours["toolwire"][1] / ours[name][1]
        is_peer = name in ("dbos", "restate")
        met = f"{_met(p50 <= HALF)} (p50), {_met(per_s >= TENFOLD)} (calls/s)" if is_peer else ""
        ratios = (f"{p50:.2f}", f"{per_s:.1f}") if name != "toolwire" else ("", "")
        lines.append((name, _spread(alone, "p50_ms"), _spread(alone, "p99_ms"), _spread(many, "per_s"), *ratios, met))
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _met(is_met: bool) -> str:
    return "yes" if is_met else "NO"


def _median(rounds: Rounds, name: str) -> float:
    return median(one[name] for one in rounds)


def _spread(rounds: Rounds, name: str) -> str:
    values = [one[name] for one in rounds]
    digits = 0 if median(values) >= 100 else 1
    return f"{median(values):,.{digits}f} [{min(values):,.{digits}f}..{max(values):,.{digits}f}]"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("compare", "commits", "fleet", "local"), default="compare")
    parser.add_argument("place", nargs="?", default="")
    parser.add_argument("--restate", type=Path, help="the program restate-server; without it, Restate is left out")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the usual number of calls in a round")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--without", nargs="+", default=[])
    given = parser.parse_args()
    if given.what != "compare":
        subject = {"commits": two_commits, "local": local_calls, "fleet": fleet_calls}[given.what]
        run_on_new_loop(subject(given.place))
        return 0
    before = load()
    with tempfile.TemporaryDirectory(prefix="toolwire-peers-") as name, ExitStack() as servers:
        folder = Path(name)
        (folder / "nats").mkdir()
        nats = servers.enter_context(running(folder / "nats"))
        postgres = servers.enter_context(postgres_server(durable=True))
        place = {"kind": "postgres", "postgres": postgres.url, "nats": nats.url, "lease_s": str(LEASE_S)}
        place["at_once"] = str(IN_FLIGHT)
        (folder / "place.json").write_text(json.dumps(place))
        fleet = Fleet(folder, place, nats)
        fleet.start_workers(given.workers)
        servers.callback(fleet.stop_workers)
        own = (sys.executable, "-m", "benchmarks.fleet_peers")
        subjects: dict[str, Callable[[], Subject]] = {"toolwire": lambda: Subject(*own, "fleet", folder)}
        if "local" not in given.without:
            subjects["in process"] = lambda: Subject(*own, "local", postgres.new_database())
        if PEERS.exists() and "dbos" not in given.without:
            database = postgres.new_database()
            subjects["dbos"] = lambda: Subject(PEERS, "-m", "benchmarks.peers.with_dbos", database)
        if PEERS.exists() and given.restate is not None and "restate" not in given.without:
            ingress = servers.enter_context(restate_service(given.restate, folder / "restate"))
            subjects["restate"] = lambda: Subject(PEERS, "-m", "benchmarks.peers.with_restate", "call", ingress)
        if "floor" not in given.without:
            subjects["two commits"] = lambda: Subject(*own, "commits", postgres.new_database())
        print(table(measure(subjects, given.rounds, given.scale)))
    print(f"{os.cpu_count()} cores; 1-minute load {before:.1f} before and {load():.1f} after; {given.workers} workers.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
