"""What a device carries: its process, how long a command takes, how many there are in a second, and repeated messages.

    python -m benchmarks.edge process                # start, memory and idle CPU of `toolwire edge run`
    python -m benchmarks.edge latency                # one command after the other, on Mosquitto and nats-server
    python -m benchmarks.edge rate                   # 64 commands in flight
    python -m benchmarks.edge repeated               # every message five times and shuffled: each effect once

Commands are signed and checked, reports too, and the journal is on. `echo` may run again after a crash, so it is not
forced to the disk; `press` must not, so its beginning is.
"""

import argparse
import asyncio
import os
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.edge.brokers import KINDS, AnyBroker, running
from tests.edge.devices import Device, Orchestrator

from toolwire.edge.keys import PrivateKey
from toolwire.wire.mqtt.commands import CommandKind, EdgeCommand
from toolwire.wire.mqtt.reports import AgentState, EdgeReport

TOOLS = {"echo": "message", "press": "button"}
STARTS = 5
IDLE_S = 30
_TICKS = os.sysconf("SC_CLK_TCK")


class Answers(Orchestrator):
    """An orchestrator that finds the report of a command at once, however many there are."""

    def __init__(self, broker: AnyBroker, agent: str, key: PrivateKey) -> None:
        super().__init__(broker, agent, key)
        self.waiting: dict[str, list[asyncio.Future[EdgeReport]]] = {}

    def expect(self, command: EdgeCommand) -> "asyncio.Future[EdgeReport]":
        answer: asyncio.Future[EdgeReport] = asyncio.get_running_loop().create_future()
        self.waiting.setdefault(command.request_id, []).append(answer)
        return answer

    def _take(self, message: object) -> None:
        if isinstance(message, EdgeReport):
            for answer in self.waiting.pop(message.request_id, []):
                answer.set_result(message)
        else:
            super()._take(message)  # type: ignore[arg-type]

    async def call(self, tool: str, value: str) -> float:
        """Seconds from the command to its report."""
        begun = time.perf_counter()
        command = self.tool(tool, {TOOLS[tool]: value})
        answer = self.expect(command)
        await self.send(command)
        report = await answer
        assert report.status == "success", report
        return time.perf_counter() - begun


@asynccontextmanager
async def device_process(kind: str, more: str = "") -> AsyncIterator[tuple[Device, Answers, "subprocess.Popen[bytes]"]]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "broker").mkdir()
        with running(kind, Path(folder) / "broker") as broker:
            key = PrivateKey.generate()
            device = Device(Path(folder) / "device", broker, [key], more)
            async with Answers(broker, device.name, key) as orchestrator:
                process = device.start()
                try:
                    await orchestrator.until_state(AgentState.ONLINE)
                    yield device, orchestrator, process
                finally:
                    process.terminate()
                    process.wait()


def cpu_s(process: "subprocess.Popen[bytes]") -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_mib(process: "subprocess.Popen[bytes]", field: str) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


async def print_idle(process: "subprocess.Popen[bytes]") -> None:
    before = cpu_s(process)
    await asyncio.sleep(IDLE_S)
    print(f"idle CPU over {IDLE_S} s: {(cpu_s(process) - before) / IDLE_S:.2%}")
    print(f"RSS after 200 calls: {memory_mib(process, 'VmRSS'):.1f} MiB, peak {memory_mib(process, 'VmHWM'):.1f} MiB")


async def measure_process() -> None:
    """A device with the built-in tools for devices, and no modules of its own."""
    with tempfile.TemporaryDirectory() as folder, running("mosquitto", Path(folder)) as broker:
        starts, cpus = [], []
        for number in range(STARTS):
            key = PrivateKey.generate()
            device = Device(Path(folder) / f"device{number}", broker, [key])
            text = device.config.read_text().replace('modules = ["edge_tools:TOOLS"]', 'groups = ["device"]')
            device.config.write_text(text)
            async with Answers(broker, device.name, key) as orchestrator:
                begun = time.perf_counter()
                process = device.start()
                try:
                    await orchestrator.until_state(AgentState.ONLINE)
                    starts.append(time.perf_counter() - begun)
                    cpus.append(cpu_s(process))
                    await asyncio.gather(*(orchestrator.call("echo", "x") for _ in range(200)))
                    if number == STARTS - 1:
                        await print_idle(process)
                finally:
                    process.terminate()
                    process.wait()
        print(
            f"online after {statistics.median(starts):.2f} s (CPU {statistics.median(cpus):.2f} s), median of {STARTS}"
        )


async def measure_latency(count: int) -> None:
    for kind in KINDS:
        async with device_process(kind) as (_, orchestrator, process):
            for tool in TOOLS:
                for number in range(50):
                    await orchestrator.call(tool, f"warm{number}")
                before = cpu_s(process)
                times = sorted([await orchestrator.call(tool, f"{tool}{number}") for number in range(count)])
                cpu_ms = (cpu_s(process) - before) / count * 1000
                p50, p99 = times[count // 2] * 1000, times[count * 99 // 100] * 1000
                print(f"{kind:9} {tool}: p50 {p50:.2f} ms, p99 {p99:.2f} ms, CPU of the device {cpu_ms:.2f} ms")


async def measure_rate(count: int, in_flight: int) -> None:
    for kind in KINDS:
        async with device_process(kind) as (_, orchestrator, process):
            for tool in TOOLS:
                slots = asyncio.Semaphore(in_flight)

                async def one(number: int, tool: str = tool, slots: asyncio.Semaphore = slots) -> None:
                    async with slots:
                        await orchestrator.call(tool, f"{tool}{number}")

                begun, before = time.perf_counter(), cpu_s(process)
                await asyncio.gather(*map(one, range(count)))
                took, cpu_ms = time.perf_counter() - begun, (cpu_s(process) - before) / count * 1000
                print(f"{kind:9} {tool}: {count / took:.0f} calls/s, {in_flight} in flight, CPU {cpu_ms:.2f} ms each")


async def measure_repeated(count: int) -> None:
    for kind in KINDS:
        async with device_process(kind) as (device, orchestrator, _):
            once = [orchestrator.tool("press", {"button": f"b{number}"}) for number in range(count)]
            answers = [orchestrator.expect(command) for command in once]
            commands = once * 5
            random.shuffle(commands)
            for start in range(0, len(commands), 64):
                await asyncio.gather(*map(orchestrator.send, commands[start : start + 64]))
            refused = [one.body["tool"] for one in await asyncio.gather(*answers) if one.body.get("refused") == "busy"]
            ping = orchestrator.command(CommandKind.PING)
            settled = orchestrator.expect(ping)
            await orchestrator.send(ping)
            await settled
            effects = device.effects
            repeated = len(effects) - len(set(effects))
            print(
                f"{kind:9} {len(commands)} messages, {len(set(effects))} effects, {repeated} repeated, {len(refused)} "
                "calls refused since too many were waiting"
            )
            assert (repeated, len(effects) + len(refused)) == (0, count)  # what was refused never takes effect


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["process", "latency", "rate", "repeated"])
    parser.add_argument("--count", type=int, default=1_000)
    parser.add_argument("--in-flight", type=int, default=64)
    given = parser.parse_args()
    match given.what:
        case "process":
            asyncio.run(measure_process())
        case "latency":
            asyncio.run(measure_latency(given.count))
        case "rate":
            asyncio.run(measure_rate(given.count, given.in_flight))
        case _:
            asyncio.run(measure_repeated(given.count))


if __name__ == "__main__":
    main()
