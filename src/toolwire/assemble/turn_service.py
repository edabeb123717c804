"""Turns of a project, begun, watched, resumed and canceled by others than a terminal: what a server offers.

Nothing runs in a request: a turn is kept as ready, and the runner in this process takes it up. Whatever happens to the
process, the next runner goes on with it.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.assemble.agents import open_agent, open_agent_of
from toolwire.assemble.bus_link import BusLink
from toolwire.assemble.devices import holding_devices
from toolwire.assemble.event_keeper import EventKeeper
from toolwire.assemble.event_log import EventLog
from toolwire.assemble.interaction import Unattended
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.record_jobs import RecordJobs
from toolwire.assemble.requested_agents import choose_agent, choose_model, restrict_tools
from toolwire.assemble.specs import spec_of
from toolwire.assemble.stores import store_of
from toolwire.assemble.telemetry import tell_end
from toolwire.assemble.tools import toolbox_of
from toolwire.assemble.turn_runner import RanTurn, TurnRunner
from toolwire.define.canonical import digest
from toolwire.errors import Fenced, NotFound, SettingsError, StoreError
from toolwire.fleet.progress import Progress
from toolwire.hub.canceling import cancel_turn, turns_waited_for
from toolwire.hub.event_hub import EventHub
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.turns import Turn
from toolwire.record.contract import KeptEvent, KeptTurn, Store

_KEYED_TURNS = uuid.UUID("6f1c9a52-7d0e-4f0b-9f53-1f2f6f0f8a11")
_MOST_ERRORS = 1_000
FAILED, PROGRESS, OUTPUT = "turn_failed", "call_progress", "call_output"


class KeyReused(StoreError):
    """An idempotency key was used for another request before."""


class NewTurn(Struct, frozen=True):
    """What a turn is begun with. Of the project's tools it has all, or only the named ones.

    The agent is the one that answers at the terminal, or another one of the project. The model is the agent's own, or
    another one that the settings name: by its profile, or as provider:model.
    With a JSON Schema, as JSON, it ends with a result of that shape.
    """

    question: str
    thread: str = ""
    system: str = ""
    tools: tuple[str, ...] | None = None
    model: str = ""
    result_schema: str = ""
    agent: str = ""

    @property
    def digest(self) -> str:
        """What tells it from every other request."""
        tools = None if self.tools is None else list(self.tools)
        more: list[Any] = [self.result_schema] if self.result_schema else []
        more += [{"agent": self.agent}] if self.agent else []
        return digest([self.question, self.thread, self.system, tools, self.model, *more])

    def began(self, turn: Turn) -> bool:
        """Whether this is the request that a turn was begun with."""
        if turn.spec is not None and turn.spec.request:
            return turn.spec.request == self.digest
        return (turn.question, turn.thread, turn.system) == (self.question, self.thread, self.system)


class TurnService:
    """The turns of one project. Use it in an `async with` block: within it, ready turns run."""

    def __init__(self, project: ProjectFolder) -> None:
        if not project.settings.store.lasts:
            raise SettingsError("agents over HTTP need a store that lasts: store.kind = sqlite, libsql or postgres")
        self.project = project
        self.log = EventLog()
        self._events = EventHub()
        self._errors: dict[str, str] = {}
        self._canceling = asyncio.Lock()
        self._store: Store | None = None
        self._runner: TurnRunner | None = None

    def require_agent(self) -> None:
        """Raise SettingsError where the settings give no agent: better at the start than with each request."""
        self.project.settings.chosen()
        self.project.uses_bus()
        toolbox_of(self.project)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Within the block the store is open and turns run; what still runs at its end stays ready for the next one."""
        async with store_of(self.project) as store, holding_devices(self.project, store):
            keeper = EventKeeper(store)
            stop_watching = self._events.watch(lambda event: keeper.add(event, self.log.add(event)), deltas=True)
            keeping = asyncio.create_task(keeper.run(), name="toolwire-events")
            link = BusLink(self.project, store) if self.project.uses_bus() else None
            opened = partial(open_agent_of, project=self.project, store=store, flags={}, events=self._events, link=link)
            staying = link.arrivals.staying if link is not None else lambda: 0
            self._store, self._runner = store, TurnRunner(store, opened, tell=self._ran, staying=staying)
            if link is not None:
                link.start(tell=self._came_on, wake_turn=self._runner.wake_turn)
            running = asyncio.create_task(self._runner.run_forever(), name="toolwire-turns")
            jobs = asyncio.create_task(
                RecordJobs(self.project, store, self._runner.wake).run_forever(), name="toolwire-records"
            )
            try:
                yield
            finally:
                if link is not None:
                    await link.close()
                running.cancel()
                jobs.cancel()
                await asyncio.wait((running, jobs))
                stop_watching()
                keeping.cancel()
                await asyncio.wait((keeping,))

    @property
    def store(self) -> Store:
        assert self._store is not None, "used outside of its block"
        return self._store

    @asynccontextmanager
    async def use_store(self) -> AsyncIterator[Store]:
        """The store for one request."""
        yield self.store

    async def recall_events(self, turn_id: str) -> None:
        """Find the events of a turn that happened before this process began."""
        if not self.log.needs(turn_id):
            return
        kept: list[KeptEvent] = []
        while some := await self.store.turn_events(turn_id, kept[-1].place if kept else (0, 0)):
            kept += some
        self.log.recall(turn_id, kept)

    def wake(self) -> None:
        """Something has come that a turn may wait for."""
        if self._runner is not None:
            self._runner.wake()

    def error_of(self, turn_id: str) -> str:
        """Why the last attempt to go on with a turn failed; empty where it did not."""
        return self._errors.get(turn_id, "")

    async def begin(self, new: NewTurn, key: str = "", trace: TraceContext = NO_TRACE) -> str:
        """Keep a new turn of a `trace` and let it run; gives its id. The same `key` gives the first one's id again.

        Raises `KeyReused` where the key was used for something else, and as `Agent.begin` does.
        """
        turn_id = str(uuid.uuid5(_KEYED_TURNS, f"{self.project.name}\0{key}")) if key else ""
        if turn_id and await self._is_kept(turn_id, new):
            return turn_id
        name = choose_agent(self.project, new.agent)
        spec = spec_of(self.project, choose_model(self.project, new.model, name), agent=name)
        spec = replace(spec, request=new.digest, result_schema=new.result_schema)
        async with open_agent(self.project, self.store, Unattended(), spec, system=new.system) as agent:
            restrict_tools(agent, new.tools)
            turn_id = turn_id or agent.runtime.new_id()
            self.log.expect(turn_id)  # before it can begin to run
            try:
                await agent.begin(new.question, thread=new.thread, turn_id=turn_id, trace=trace)
            except StoreError:
                if not await self._is_kept(turn_id, new):  # else the same request came twice at the same moment
                    raise
        self.wake()
        return turn_id

    async def resume(self, turn_id: str) -> KeptTurn:
        """Let a turn go on that was interrupted. Raises `NotFound`, and `Fenced` for one that has ended."""
        kept = await self.store.turn(turn_id)
        if kept.state == "ended":
            raise Fenced(f"turn {turn_id} has ended; begin a new one, in the same thread if it is to know of this one")
        if kept.state != "running":
            assert self._runner is not None
            self._runner.request(turn_id)
        return kept

    async def cancel(self, turn_id: str) -> None:
        """End a turn. Ending one that has ended changes nothing.

        Raises `NotFound` for an unknown turn and `Fenced` for one that another process runs.
        """
        assert self._runner is not None
        async with self._canceling:
            if (await self.store.turn(turn_id)).state == "ended":
                return
            async with AsyncExitStack() as barred:
                await barred.enter_async_context(self._runner.without(turn_id))
                ending = [turn_id, *await turns_waited_for(self.store, turn_id)]
                for child in ending[1:]:
                    await barred.enter_async_context(self._runner.without(child))
                await self._end(ending)

    async def _end(self, turn_ids: Sequence[str]) -> None:
        """End a turn that does not run here, and those that it waits for; no agent is there to tell their watchers."""
        first, now = turn_ids[0], self.store.clock()
        before = {each: (await self.store.turn(each)).opening.epoch for each in turn_ids}
        try:
            await cancel_turn(self.store, first, now)
        except Fenced:
            if (await self.store.turn(first)).state != "ended":  # else its end came first
                raise
        for turn_id, epoch in before.items():
            kept = await self.store.turn(turn_id)
            if kept.opening.epoch > epoch:
                tell_end(kept, self._events)

    async def _is_kept(self, turn_id: str, new: NewTurn) -> bool:
        try:
            before = (await self.store.turn(turn_id)).opening
        except NotFound:
            return False
        if not new.began(before):
            raise KeyReused("this Idempotency-Key was used for another request; take a new key for a new turn")
        return True

    def _came_on(self, progress: Progress) -> None:
        """Tell those who watch a turn what a worker says about one of its calls."""
        if not self.log.needs(progress.turn_id):
            kind, said = PROGRESS, {"message": progress.message, "fraction": progress.fraction}
            if progress.stream:
                kind, said = OUTPUT, {"text": progress.message, "stream": progress.stream}
            about = {"event": kind, "turn": progress.turn_id, "call_id": progress.call_id}
            self.log.note(progress.turn_id, kind, {**about, **said})

    def _ran(self, ran: RanTurn) -> None:
        self._errors.pop(ran.turn_id, None)
        if ran.error:
            self._errors[ran.turn_id] = ran.error
            self.log.note(ran.turn_id, FAILED, {"event": FAILED, "turn": ran.turn_id, "error": ran.error})
        while len(self._errors) > _MOST_ERRORS:
            del self._errors[next(iter(self._errors))]
