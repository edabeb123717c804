"""A storm of `kill -9` over one store: nothing may be lost, nothing done twice, nothing left behind.

`make storm` runs 5,000 calls; `python -m benchmarks.kill_storm --calls 100000` the figure of the documentation. With
`--control NAME` one guard is taken away, and the storm must notice: memory, unmarked, noteless, ack-first,
slow-begin.

A call that was noted and has no result ends as `outcome_unknown`. The note comes right before the tool, and a kill can
hit even there: then the outcome is called unknown of a call whose tool has not written its first line. Nobody can tell
such a call from one that took effect, so this is right, and no order of the two writes avoids it. What is wrong is
anything between them that takes time: a queue, a conversion, a commit. So the store tells the ledger of the tools when
a call was noted. Of each unknown call without a first line, the storm looks how long its process provably lived on
after that: until the newest line that it wrote, whichever call that was about. Within `SLICE_S` another thread may have
had the interpreter's lock, or the system another process; longer is wrong. How many there were is told as well.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard
from toolwire.record.sqlite import SqliteStore

WORKERS = 3
EARLY = 0.1
SLICE_S = 0.02  # four of the interpreter's switch intervals
CONTROLS = ("none", "memory", "unmarked", "noteless", "ack-first", "slow-begin")
ONCE = ("uns_s", "uns_a", "write", "bash")
_COUNT = "SELECT count(*) FROM records WHERE schema_name = 'tool.result'"


@dataclass(slots=True)
class Storm:
    """Workers that are started again whenever they are killed."""

    folder: Path
    control: str
    chance: random.Random
    kills: Counter[str] = field(default_factory=Counter)
    workers: "list[subprocess.Popen[bytes]]" = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    ready: set[int] = field(default_factory=set)

    def start(self, mode: str = "work") -> "subprocess.Popen[bytes]":
        seed = str(self.chance.random())
        words = [sys.executable, "-m", "benchmarks.storm_worker", str(self.folder), seed, self.control, mode]
        environ = {**os.environ, "TMPDIR": str(self.folder / "tmp"), "HOME": str(self.folder / "user")}
        return subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def blow(self, calls: int, seconds: float, mean_s: float) -> None:
        until = time.monotonic() + seconds
        self.workers = [self.start() for _ in range(WORKERS)]
        while time.monotonic() < until and self._results() < calls:
            if self.chance.random() > EARLY:
                self._wait_until_ready()
            time.sleep(self.chance.expovariate(1 / mean_s))
            self._kill()
            self.workers = [worker if worker.poll() is None else self._replaced(worker) for worker in self.workers]
        for worker in self.workers:
            worker.kill()
            worker.communicate()

    def settle(self) -> None:
        """Two processes that are left in peace: the first resumes, the second finds what that one left."""
        for _ in range(2):
            worker = self.start("settle")
            _, said = worker.communicate(timeout=600)
            if worker.returncode:
                self.complaints.append(said.decode()[-2000:])

    def _wait_until_ready(self) -> None:
        """Until all workers have opened the store, so that a slow machine does not only kill beginners."""
        for worker in self.workers:
            if worker.pid not in self.ready and worker.stdout is not None:
                worker.stdout.readline()
                self.ready.add(worker.pid)

    def _kill(self) -> None:
        one = self.chance.random() < 0.5
        for worker in [self.chance.choice(self.workers)] if one else self.workers:
            worker.kill()
        self.kills["one" if one else "all"] += 1 if one else len(self.workers)

    def _replaced(self, worker: "subprocess.Popen[bytes]") -> "subprocess.Popen[bytes]":
        _, said = worker.communicate()
        self.ready.discard(worker.pid)
        if worker.returncode != -signal.SIGKILL:
            self.complaints.append(f"a worker ended with {worker.returncode}: {said.decode()[-2000:]}")
        else:
            self.kills["in all, with those by itself around COMMIT"] += 1
        return self.start()

    def _results(self) -> int:
        try:
            with sqlite3.connect(f"file:{self.folder}/home/store.db?mode=ro", uri=True, timeout=5) as connection:
                return int(connection.execute(_COUNT).fetchone()[0])
        except sqlite3.Error:
            return 0


@dataclass(slots=True)
class Findings:
    """What is wrong, and what there is to tell."""

    wrong: list[str] = field(default_factory=list)
    told: dict[str, object] = field(default_factory=dict)

    def expect(self, what: str, found: int, wanted: int = 0) -> None:
        if found != wanted:
            self.wrong.append(f"{what}: {found}, not {wanted}" if wanted else f"{what}: {found}")


def _lines(path: Path) -> list[list[Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def judged(storm: Storm) -> Findings:
    findings, folder = Findings(), storm.folder
    for path in folder.glob("home/artifacts/new-*"):
        os.utime(path, (0, 0))  # what was left is swept with the first body that is kept an hour later
    async with await SqliteStore.at(folder / "home") as store:
        await store.keep(b"after the storm")
        await store.audit([])  # who writes removes what owners left that died
        turns = await store.turns(limit=10_000_000)
        cards = await store.calls(limit=10_000_000)
        metrics, loop = await store.metrics()
        chain = await store.audit_chain()
        spent = (await store.spent("agent", time.time())).calls
    findings.expect("turns that never ended", sum(turn.state != "ended" for turn in turns))
    findings.expect("calls without a result", sum(card.result is None for card in cards))
    findings.expect("results in the metrics", sum(one.calls for one in metrics), len(cards))
    findings.expect("turns in the metrics", loop.turns, len(turns))
    findings.expect("places where the audit chain breaks", int(chain.broken_at is not None))
    _judge_acks(findings, _lines(folder / "acks"), {card.turn_id + card.call.id for card in cards if card.result},
                {turn.id for turn in turns}, {turn.id for turn in turns if turn.state == "ended"})  # fmt: skip
    _judge_effects(findings, folder, cards)
    _judge_leftovers(findings, folder)
    statuses = Counter(card.result.error.code if card.result and card.result.error else "success" for card in cards)
    findings.told |= {"turns": len(turns), "calls": len(cards), "outcomes": dict(statuses), "charged": spent}
    return findings


def _judge_acks(findings: Findings, acks: list[list[Any]], results: set[str], turns: set[str], ended: set[str]) -> None:
    said = {kind: {"".join(words) for which, *words in acks if which == kind} for kind in ("result", "turn", "ended")}
    findings.expect("acknowledged results lost", len(said["result"] - results))
    findings.expect("acknowledged turns lost", len(said["turn"] - turns))
    findings.expect("acknowledged endings lost", len(said["ended"] - ended))
    findings.told["acknowledged"] = {kind: len(these) for kind, these in said.items()}


def _judge_effects(findings: Findings, folder: Path, cards: list[CallCard]) -> None:
    ledger = _lines(folder / "ledger")
    begun = Counter(token for word, token, *_ in ledger if word == "begun")
    effects = Counter(token for word, token, *_ in ledger if word == "effect")
    files = folder / "workspace" / "files"
    effects += Counter(token for path in (files.iterdir() if files.is_dir() else ()) for token in _written(path))
    twice = lost = other = 0
    early: list[CallCard] = []
    for card in cards:
        if card.call.name not in ONCE or card.result is None:
            continue
        token = _token(card)
        twice += effects[token] > 1 or begun[token] > 1
        lost += card.result.ok and effects[token] != 1
        if card.result.error and card.result.error.code == Code.OUTCOME_UNKNOWN:
            early += [card] if card.call.name.startswith("uns") and not begun[token] else []
            other += not card.call.name.startswith("uns")
    known = {_token(card) for card in cards}
    findings.expect("effects twice", twice)
    findings.expect("results without their effect", lost)
    findings.expect("effects of calls that are not on record", len((begun.keys() | effects.keys()) - known))
    waits_s = _lived_on(ledger, early)
    findings.expect("outcomes unknown of calls that waited between note and tool", sum(s > SLICE_S for s in waits_s))
    findings.told["unknown without a first line"] = {"calls": len(early), "ms": [round(s * 1000, 1) for s in waits_s]}
    findings.told["unknown of built-in tools"] = other


def _lived_on(ledger: list[list[Any]], cards: list[CallCard]) -> list[float]:
    """How long each process provably lived on after it had noted that these calls begin."""
    newest = {pid: at for _, _, pid, at in ledger}
    noted = {key: (pid, at) for word, key, pid, at in ledger if word == "noted"}
    told = [noted[key] for card in cards if (key := card.turn_id + card.call.id) in noted]
    return sorted(newest[pid] - at for pid, at in told)


def _token(card: CallCard) -> str:
    arguments = card.call.arguments
    words = arguments.get("token") or arguments.get("content") or arguments.get("command", "").split()[1]
    return str(words).strip()


def _written(path: Path) -> list[str]:
    return path.read_text().split() if path.is_file() else []


def _judge_leftovers(findings: Findings, folder: Path) -> None:
    home, workspace = folder / "home", folder / "workspace"
    findings.expect("staging files of bodies", len(list(home.glob("artifacts/**/new-*"))))
    findings.expect("files of owners", len(list((home / "owners").iterdir())))
    slots = [path for path in workspace.glob(".toolwire/changes/*") if path.is_file() and path.name.isdigit()]
    findings.expect("open slots of the journal", len(slots))
    findings.expect("temporary files", len(list((folder / "tmp").iterdir())))
    with sqlite3.connect(home / "store.db") as connection:
        sound = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    findings.expect("damage in the store", int(not sound))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=3_600)
    parser.add_argument("--kill-mean", type=float, default=0.5, help="seconds between kills, on average")
    parser.add_argument("--seed", default="storm")
    parser.add_argument("--control", choices=CONTROLS, default="none")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="storm-") as place:
        folder = Path(place)
        for name in ("home", "workspace/files", "tmp", "user"):
            (folder / name).mkdir(parents=True)
        asyncio.run(_made(folder / "home"))
        storm = Storm(folder, asked.control, random.Random(asked.seed))
        storm.blow(asked.calls, asked.seconds, asked.kill_mean)
        storm.settle()
        findings = asyncio.run(judged(storm))
    findings.wrong += storm.complaints
    for what, how in {**findings.told, "kills": dict(storm.kills)}.items():
        print(f"{what}: {how}")
    for what in findings.wrong:
        print(f"WRONG {what}")
    print(f"{'FAIL' if findings.wrong else 'PASS'} after {time.monotonic() - began:.0f} s, control {asked.control}")
    return int(bool(findings.wrong))


async def _made(home: Path) -> None:
    await (await SqliteStore.at(home)).close_store()


if __name__ == "__main__":
    sys.exit(main())
