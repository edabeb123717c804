"""One run: processes that are started again when they are gone, and a broker that is, too."""

import asyncio
import ctypes
import gc
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import asyncpg
import msgspec

from tests.bus.servers import NatsServer, running
from tests.crash_sweep.devices import DEVICE_POINTS, calls_device, device_place, serve_part
from tests.crash_sweep.fleet import Place, serve
from tests.crash_sweep.judging import Verdict, judge
from tests.crash_sweep.striking import BROKER_AWAY_S, BROKER_GONE, PAUSE_S, STORE_GOES, STRUCK
from tests.edge.brokers import Mosquitto
from tests.postgres_server import PostgresServer, new_schema
from tests.simulation.crash_points import CRASH_POINTS, CrashPoint, Fault
from tests.simulation.fleet import simulate, simulate_point
from tests.simulation.workload import draw_plans

_STORE_AWAY_S, _COMMIT_S = (0.0, 0.5), 0.06
_LOOKS_S = 0.01
_DIE_WITH_PARENT = 1
_BROKER = "broker"
Serve = Callable[[Any, list[str], int], Coroutine[Any, Any, None]]
"""Is a process with these parts, for the n-th time."""
_OF_OTHERS = (Fault.PAUSE, Fault.WIPE, Fault.BROKER_AWAY)
"""What says nothing where there is one process, and its bus is its own."""

_P = CrashPoint
_DIES, _UNWRITTEN, _NOT_AGAIN = Fault.STORE_DIES, "confirm_before_it_is_written", "give_up_what_was_not_kept"
SERVER_POINTS = {
    "C6 the server dies while a turn is begun": _P("client", "begin", "before", _UNWRITTEN, fault=_DIES),
    "C6 the server dies while a reply is kept": _P("runner", "append_reply", "before", _UNWRITTEN, fault=_DIES),
    "C6 the server dies while a call is to be sent": _P("runner", "dispatch", "before", _UNWRITTEN, fault=_DIES),
    "C6 the server dies with a call claimed, and its worker does not hear of it": _P(
        "worker", "claim", "after", "claim_again_with_another_token", fault=_DIES
    ),
    "C6 the server dies while a result is kept": _P("worker", "close", "before", _NOT_AGAIN, fault=_DIES),
    "C6 the server dies while a turn is taken up": _P("runner", "resume", "before", _UNWRITTEN, fault=_DIES),
    "C6 the server dies while a turn ends": _P("runner", "end", "before", _UNWRITTEN, fault=_DIES),
    "C46 the server dies with a result kept, and its worker does not hear of it": _P(
        "worker", "close", "after", _UNWRITTEN, fault=_DIES
    ),
}
"""The points at which the server of the store is struck."""


@dataclass(slots=True)
class Ran:
    """A run and what came of it."""

    over: str
    point: str
    seed: int
    struck: list[str] = field(default_factory=list)
    kills: int = 0
    seconds: float = 0.0
    verdict: Verdict = field(default_factory=Verdict)

    @property
    def is_sound(self) -> bool:
        return not self.verdict.wrong

    def __str__(self) -> str:
        again = f'again: python -m tests.crash_sweep --over {self.over} --point "{self.point}" --seed {self.seed}'
        return "\n".join([f"seed {self.seed} at {self.point}, over {self.over}:", *self.verdict.wrong[:8], again])


def points_over(over: str) -> dict[str, CrashPoint]:
    """The points that a sweep strikes."""
    if over == "mqtt":
        return DEVICE_POINTS
    if over == "nats":
        return CRASH_POINTS
    if over == "postgres":
        return {**CRASH_POINTS, **SERVER_POINTS}
    return {
        name: point for name, point in CRASH_POINTS.items()
        if not any(one.fault in _OF_OTHERS for one in point.all_of_it)
    }  # fmt: skip


def seeds_at(over: str, name: str, number: int) -> list[int]:
    """The first seeds whose turns come to a point, as the simulation shows; on a device, those that call it."""
    found: list[int] = []
    seed = 0
    while len(found) < number:
        if _comes_to(over, name, seed):
            found.append(seed)
        seed += 1
    return found


def _comes_to(over: str, name: str, seed: int) -> bool:
    if over == "mqtt" and not calls_device(draw_plans(Random(f"{seed} plans"), DEVICE_POINTS[name].part)):
        return False
    point = SERVER_POINTS.get(name)
    if point is not None:  # a simulated store has no server that could die
        return bool(simulate(seed, crash=replace(point, fault=Fault.KILL), part=point.part).counts[Fault.KILL])
    if name not in CRASH_POINTS:
        return True
    counts = simulate_point(name, seed).counts
    return all(counts[one.fault] for one in CRASH_POINTS[name].all_of_it)


def run(
    over: str,
    name: str,
    seed: int,
    limit_s: float,
    keep: Path | None = None,
    server: PostgresServer | None = None,
    *,
    is_calm: bool = False,
) -> Ran:
    """Run one seed at a point, with the store in this server if there is one. A calm run is not struck.

    The caller must have no threads: this forks.
    """
    point = points_over(over)[name]
    ran = Ran(over, name, seed)
    began = time.monotonic()
    with ExitStack() as closing:
        folder = keep or Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="toolwire-crash-")))
        (folder / _BROKER).mkdir(parents=True)
        plans = draw_plans(Random(f"{seed} plans"), point.part)
        points = tuple(replace(one, times=0) if is_calm else one for one in point.all_of_it)
        place = Place(folder, points, plans, seed)
        if server is not None:
            place = replace(place, database=server.url, schema=new_schema())
        fleet = _over_mqtt(place, ran, closing) if over == "mqtt" else _over_bus(place, ran, closing)
        fleet.server = server
        ran.verdict = fleet.run(limit_s)
    if not ran.kills and all(one.fault is not Fault.PAUSE for one in point.all_of_it):
        if ran.verdict.unknown:
            ran.verdict.wrong.append(f"no process died, and {ran.verdict.unknown} outcomes are unknown")
        if ran.verdict.again and all(one.fault is not Fault.STORE_DIES for one in point.all_of_it):
            ran.verdict.wrong.append(f"no process died, and {ran.verdict.again} calls were claimed again")
    ran.seconds = time.monotonic() - began
    return ran


def _over_bus(place: Place, ran: Ran, closing: ExitStack) -> "_Fleet":
    with_relay = place.points[-1].role == "relay"
    hands_over = "handed-over" in ran.point or (not with_relay and place.seed % 3 == 0)
    place = replace(place, hands_over=hands_over)
    names = ["client-1", "person-1", "runner-1", "runner-2", "worker-1", "worker-2"]
    names += [] if hands_over else ["relay-1"]
    names += ["service-1", "receiver-1"] if place.plans.has_foreign else []
    if ran.over == "embedded":
        return _Fleet(place, None, [names], serve, ran)
    broker = closing.enter_context(running(place.folder / _BROKER))
    return _Fleet(replace(place, broker=broker.url), broker, [[one] for one in names], serve, ran)


def _over_mqtt(place: Place, ran: Ran, closing: ExitStack) -> "_Fleet":
    broker = Mosquitto(place.folder / _BROKER)
    broker.start()
    closing.callback(broker.kill)
    names = ["client-1", "person-1", "runner-1", "runner-2", "device-1"]
    return _Fleet(device_place(place, broker), broker, [[one] for one in names], serve_part, ran)


class _Fleet:
    """The processes of a run. One that ends is started again a moment later."""

    def __init__(
        self, place: Place, broker: NatsServer | Mosquitto | None, parts: list[list[str]], serve: Serve, ran: Ran
    ) -> None:
        self._place = place
        self._broker = broker
        self._parts = parts
        self._serve = serve
        self._ran = ran
        self._random = Random(f"{place.seed} restarts")
        self._living: dict[int, int] = {}
        self._starts: list[int] = [0] * len(self._parts)
        self._later: list[tuple[float, Callable[[], None]]] = []
        self._is_broker_away = False
        self.server: PostgresServer | None = None

    def run(self, limit_s: float) -> Verdict:
        answer = self._place.folder / "verdict"
        try:
            for number in range(len(self._parts)):
                self._start(number)
            judging = fork(lambda: _judge(self._place, limit_s, answer), self._place.folder / "judge.log")
            while os.waitpid(judging, os.WNOHANG) == (0, 0):
                self._look()
                time.sleep(_LOOKS_S)
            self._note_strikes()
        finally:
            for pid in self._living:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if self.server is not None:
                self._drop_schema(self.server)
        if not answer.exists():
            return Verdict(wrong=["the judge broke: " + (self._place.folder / "judge.log").read_text()[-2_000:]])
        return msgspec.json.decode(answer.read_bytes(), type=Verdict)

    def _start(self, number: int) -> None:
        self._starts[number] += 1
        place, parts, incarnation = self._place, self._parts[number], self._starts[number]
        log = place.folder / f"{parts[0]}.log"
        self._living[fork(lambda: self._serve(place, parts, incarnation), log)] = number

    def _look(self) -> None:
        self._note_strikes()
        for pid, number in list(self._living.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._living[pid]
                self._ran.kills += os.WIFSIGNALED(status)
                self._after(self._random.random() * self._random.choice((0.05, 0.5)), self._start, number)
        due = [one for one in self._later if one[0] <= time.monotonic()]
        self._later = [one for one in self._later if one not in due]
        for _, act in due:
            act()

    def _after(self, seconds: float, act: Callable[..., None], *args: Any) -> None:
        self._later.append((time.monotonic() + seconds, lambda: act(*args)))

    def _note_strikes(self) -> None:
        path = self._place.folder / STRUCK
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines[len(self._ran.struck) :]:
            self._ran.struck.append(line)
            fault, pid, _ = line.split("\t")
            self._answer(Fault(fault), int(pid))

    def _answer(self, fault: Fault, pid: int) -> None:
        """What a strike does beyond its own process."""
        if fault is Fault.PAUSE:
            self._after(PAUSE_S, self._go_on, pid)
        if fault is Fault.KILL and not self._place.points[0].role:
            for one in self._living:
                os.kill(one, signal.SIGKILL)
        if fault is Fault.STORE_DIES and self.server is not None:
            self._strike_server(self.server)
        if self._broker is not None and fault in (Fault.WIPE, Fault.BROKER_AWAY):
            self._broker.kill()
            (self._place.folder / BROKER_GONE).touch()
            if fault is Fault.WIPE:
                shutil.rmtree(self._broker.folder / "jetstream", ignore_errors=True)
                (self._broker.folder / "mosquitto.db").unlink(missing_ok=True)
            if not self._is_broker_away:  # a second one could not take its port
                self._after(0.0 if fault is Fault.WIPE else BROKER_AWAY_S, self._start_broker)
            self._is_broker_away = True

    def _start_broker(self) -> None:
        assert self._broker is not None
        self._is_broker_away = False
        self._broker.start()

    def _strike_server(self, server: PostgresServer) -> None:
        """Who struck goes on as soon as it is known whom to kill, so that its operation is under way or just done."""

        def let_go() -> None:
            (self._place.folder / STORE_GOES).touch()
            time.sleep(self._random.random() * _COMMIT_S)

        if server.is_running:
            server.kill(let_go)
            self._after(self._random.choice(_STORE_AWAY_S), server.start)

    def _drop_schema(self, server: PostgresServer) -> None:
        if not server.is_running:
            server.start()
        dropping = fork(lambda: _drop_schema(self._place), self._place.folder / "drop.log")
        os.waitpid(dropping, 0)

    def _go_on(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def fork(work: Callable[[], Coroutine[Any, Any, None]], log: Path) -> int:
    """A process of its own that does this, and ends with this one."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        die_with_parent(signal.SIGKILL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        asyncio.run(work())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def die_with_parent(by: signal.Signals) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, by)


async def _judge(place: Place, limit_s: float, answer: Path) -> None:
    verdict = await judge(place, limit_s)
    partial = answer.with_suffix(".partial")
    partial.write_bytes(msgspec.json.encode(verdict))
    partial.rename(answer)


async def _drop_schema(place: Place) -> None:
    connection = await asyncpg.connect(place.database)
    await connection.execute(f"DROP SCHEMA IF EXISTS {place.schema} CASCADE")
    await connection.close()


@contextmanager
def ready_to_fork() -> Iterator[None]:
    """What is imported and made by now is not looked through again by each fork."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
