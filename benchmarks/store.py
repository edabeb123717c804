"""What a durable call costs in the store: latency alone, throughput with many in flight, CPU per call.

    python -m benchmarks.store [--home FOLDER] [--calls N]

A call is open + close, two commits. The floor is the same number of bare 4 KiB writes with fdatasync on the same disk,
measured just before; run it again on a folder in memory (/dev/shm) to see the store without the disk.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import UserMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Store
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

DIGEST = "d" * 64


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


async def one_call(store: Store, turn: Turn, number: int) -> float:
    began = time.perf_counter()
    call = ToolCall("thermometer", {"room": "kitchen", "unit": "celsius"}, id=f"call-{number:012}")
    card = CallCard(f"{turn.id}-{number:012}", turn.id, turn.epoch, call, DIGEST, created_at=began)
    audit = AuditRow(began, "accepted", turn_id=turn.id, call_id=call.id, tool=call.name, args_digest=DIGEST)
    kept = await store.open(card, (audit,))
    result = ToolResult(call.id, call.name, Status.SUCCESS, (Text("21 degrees"),), elapsed_ms=0.5)
    ended = AuditRow(began, "result", turn_id=turn.id, call_id=call.id, tool=call.name, args_digest=DIGEST)
    await store.close(kept, result, (ended,))
    return time.perf_counter() - began


async def one_turn(store: Store, name: str, calls: int) -> list[float]:
    turn = Turn(name, messages=(UserMessage("How warm is it?"),))
    await store.begin(turn)
    return [await one_call(store, turn, number) for number in range(calls)]


async def measure(name: str, store: Store, in_flight: int, calls: int) -> None:
    began, cpu = time.perf_counter(), time.process_time()
    share = max(calls // in_flight, 1)
    runs = await asyncio.gather(*(one_turn(store, f"{in_flight}-{n}", share) for n in range(in_flight)))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu
    taken = sorted(us for run in runs for us in run)
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
