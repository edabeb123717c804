"""What a durable call costs in the store: latency alone, throughput with many in flight, CPU per call.

    python benchmarks/store.py [--home FOLDER] [--calls N]

A call is open + close, two commits; a turn has eight of them. The floor is the same number of bare 4 KiB writes
with fdatasync on the same disk, measured just before; run it again on a folder in memory (/dev/shm) to see the store
without the disk.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from uuid_utils import uuid7

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import UserMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Store
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

DIGEST = "d" * 64
CALLS_PER_TURN = 8


def floor_us(home: Path, rounds: int) -> float:
    """The median of two small durable writes, as a file system sees them."""
    taken = []
    fd = os.open(home / "floor", os.O_RDWR | os.O_CREAT)
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(2):
            os.pwrite(fd, os.urandom(4096), 0)
            os.fdatasync(fd)
        taken.append(time.perf_counter() - began)
    os.close(fd)
    return statistics.median(taken) * 1e6


@dataclass(frozen=True, slots=True)
class Sample:
    """One call's values, made beforehand so that only the store is measured."""

    card: CallCard
    result: ToolResult
    accepted: tuple[AuditRow, ...]
    finished: tuple[AuditRow, ...]


def sample(turn: Turn, number: int) -> Sample:
    call = ToolCall("thermometer", {"room": "kitchen", "unit": "celsius"}, id=str(uuid7()))
    card = CallCard(str(uuid7()), turn.id, turn.epoch, call, DIGEST, created_at=float(number))
    result = ToolResult(call.id, call.name, Status.SUCCESS, (Text("21 degrees"),), elapsed_ms=0.5)
    accepted, finished = (
        AuditRow(1.0, event, turn_id=turn.id, call_id=call.id, tool=call.name, args_digest=DIGEST)
        for event in ("allowed", "finished")
    )
    return Sample(card, result, (accepted,), (finished,))


async def run(store: Store, samples: list[Sample]) -> list[float]:
    """Durable calls one after the other; gives back how long each took."""
    taken = []
    for one in samples:
        began = time.perf_counter()
        card = await store.open(one.card, one.accepted)
        await store.close(card, one.result, one.finished)
        taken.append(time.perf_counter() - began)
    return taken


async def measure(name: str, store: Store, in_flight: int, calls: int) -> None:
    """Workers that take turns of a few calls each, as many at once as asked."""
    rounds = max(calls // in_flight // CALLS_PER_TURN, 1)
    work: list[list[Sample]] = [[] for _ in range(in_flight)]
    for _ in range(rounds):
        turns = [Turn(str(uuid7()), messages=(UserMessage("How warm is it?"),)) for _ in range(in_flight)]
        await asyncio.gather(*(store.begin(turn) for turn in turns))
        for samples, turn in zip(work, turns, strict=True):
            samples.extend(sample(turn, number) for number in range(CALLS_PER_TURN))
    began, cpu = time.perf_counter(), time.process_time()
    runs = await asyncio.gather(*(run(store, samples) for samples in work))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    taken = sorted(seconds for one in runs for seconds in one)
    done = len(taken)
    p50, p99 = taken[done // 2] * 1e6, taken[int(done * 0.99)] * 1e6
    print(
        f"{name:8} {in_flight:4} in flight  {done / wall:9,.0f} calls/s  p50 {p50:9,.0f} us  p99 {p99:9,.0f} us"
        f"  cpu {cpu / done * 1e6:6.1f} us/call"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=None)
    parser.add_argument("--calls", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.home) as folder:
        home = Path(folder)
        print(f"floor: two 4 KiB fdatasync writes take {floor_us(home, 50):,.0f} us here")
        await measure("memory", MemoryStore(), 64, options.calls)
        async with await SqliteStore.at(home / "store") as store:
            await measure("sqlite", store, 1, min(options.calls, 500))
            await measure("sqlite", store, 64, options.calls)
            await measure("sqlite", store, 256, options.calls)


if __name__ == "__main__":
    asyncio.run(main())
