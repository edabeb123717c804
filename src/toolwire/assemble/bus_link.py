"""The bus as a process of a project uses it: it sends calls, and hears when turns can go on."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable

from toolwire.assemble.buses import nats_servers, open_bus
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.services import require_name_for_bus
from toolwire.bus.contract import Bus
from toolwire.errors import BusError
from toolwire.fleet.arrivals import Arrivals
from toolwire.fleet.dispatcher import Report, Write
from toolwire.fleet.progress import Progress, hear_progress
from toolwire.fleet.relay import MOST_WAITING, Relay
from toolwire.fleet.wakeups import hear_woken_turns
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.record.contract import Store
from toolwire.record.projects import of_project

RETRY_S = 2.0
MOST_WATCHED = 1_000

_log = logging.getLogger(__name__)


class BusLink:
    """Sends the calls of a project from its `start` on, which the first call is as well, until it is closed.

    A broker that cannot be reached is tried again and again. What is to be sent is in the store by then. A link that
    `serves_all` does so for all projects of the store.
    """

    def __init__(self, project: ProjectFolder, store: Store, *, serves_all: bool = False) -> None:
        nats_servers(project)  # wrong settings are told at once
        self._project = project
        self._serves_all = serves_all
        self._name = "*" if serves_all else project.name
        view = of_project(store, project.name)
        self._store: Store = view.whole if serves_all else view
        self._wake: Callable[[str, str], None] | None = None
        self.arrivals = Arrivals()
        self._relay: Relay | None = None
        self._reports: OrderedDict[tuple[str, str], Report] = OrderedDict()
        self._outputs: OrderedDict[tuple[str, str], Write] = OrderedDict()
        self._tell: Callable[[Progress], None] | None = None
        self._first: deque[tuple[Dispatch, CallCard]] = deque(maxlen=MOST_WAITING)
        self._task: asyncio.Task[None] | None = None

    def send_soon(self, dispatch: Dispatch, card: CallCard, message: BusMessage | None = None) -> None:
        if self._relay is not None:
            self._relay.send_soon(dispatch, card, message)
            return
        self._first.append((dispatch, card))
        self._connect()

    def watch_output(self, turn_id: str, call_id: str, write: Write) -> None:
        self._outputs[turn_id, call_id] = write
        while len(self._outputs) > MOST_WATCHED:
            self._outputs.popitem(last=False)

    def watch(self, turn_id: str, call_id: str, report: Report) -> None:
        self._reports[turn_id, call_id] = report
        while len(self._reports) > MOST_WATCHED:
            self._reports.popitem(last=False)

    def start(
        self,
        wake: Callable[[], None] | None = None,
        tell: Callable[[Progress], None] | None = None,
        wake_turn: Callable[[str, str], None] | None = None,
    ) -> None:
        """Connect. From then on `wake` is called when a turn of the project may go on, `tell` when a call comes on.

        `wake_turn` is called instead of `wake` with the project and the id of the turn.

        Raises SettingsError where no message can be for the project.
        """
        require_name_for_bus(self._project)
        self._wake = wake_turn or (None if wake is None else lambda _project, _turn: wake())
        self._tell = tell
        self._connect()

    def _connect(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="toolwire-bus")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _run(self) -> None:
        said = ""
        while True:
            try:
                async with open_bus(self._project, name=f"toolwire {self._name}") as bus:
                    said = ""
                    await self._serve(bus)
            except BusError as error:
                if str(error) != said:  # not at every attempt
                    said = str(error)
                    _log.warning("%s. What is to be sent is kept, and sent as soon as it answers.", said)
                await asyncio.sleep(RETRY_S)
            except Exception:  # nothing else would start it again
                _log.exception("the link to the bus broke, and is opened again")
                await asyncio.sleep(RETRY_S)
            finally:
                self._relay = None

    async def _serve(self, bus: Bus) -> None:
        async with self.arrivals.listening(bus, self._name):  # before anything is sent
            await self._send_and_hear(bus)

    async def _send_and_hear(self, bus: Bus) -> None:
        relay = self._relay = Relay(self._store, bus, window=self._project.settings.fleet.window)
        while self._first:
            relay.send_soon(*self._first.popleft())
        work = [
            asyncio.create_task(relay.run(), name="toolwire-relay"),
            asyncio.create_task(hear_progress(bus, self._name, self._progress), name="toolwire-progress"),
        ]
        if self._wake is not None:
            work.append(asyncio.create_task(self._hear(bus, self._wake), name="toolwire-wakeups"))
        try:
            with self.arrivals.telling(relay.note_result):
                done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in work:
                task.cancel()
            await asyncio.gather(*work, return_exceptions=True)

    def _progress(self, progress: Progress) -> None:
        call = progress.turn_id, progress.call_id
        if progress.stream:
            if (write := self._outputs.get(call)) is not None:
                write(progress.message, progress.stream)
        elif (report := self._reports.get(call)) is not None:
            report(progress.message, progress.fraction)
        if self._tell is not None:
            self._tell(progress)

    async def _hear(self, bus: Bus, wake: Callable[[str, str], None]) -> None:
        durable = "runners" if self._serves_all else f"run-{self._name}"
        await hear_woken_turns(bus, wake, durable=durable, project=self._name)
