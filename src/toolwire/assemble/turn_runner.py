"""Takes up turns that can go on, so that an approval is enough for its turn to continue.

Any number of runners may share a store, in one process or in several. A turn is taken over by one of them only (the
store sees to that), and what has a result on record never runs again.
"""

import asyncio
import logging
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from operator import itemgetter

from msgspec import Struct
from msgspec.structs import replace

from toolwire.agent import Agent, Answer
from toolwire.errors import Fenced, NotFound, Suspended, ToolwireError
from toolwire.fleet.outage_log import OutageLog
from toolwire.hub.detached import settle_detached
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.turns import Turn, TurnKind
from toolwire.protocol.waits import Wait
from toolwire.record.contract import Store, TurnSummary
from toolwire.record.projects import DEFAULT, ProjectStore, of_project
from toolwire.record.ready import in_turn

OpenAgent = Callable[[Turn], AbstractAsyncContextManager[Agent]]
"""Makes the agent that goes on with a turn."""

_Key = tuple[str, str]
"""A project, and the id that one of its turns has there."""

AT_ONCE = 4
POLL_S = 1.0
_MOST_CLOSING = 4
"""So many times more turns than `at_once` may wait for calls that run on their own, and take no place."""

_MORE_PROJECTS = 100
"""So many more ready turns are looked at than there is room for, where they are of many projects."""

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
_LOOK_AFTER_S = 0.05
"""After a turn has ended all are looked at, but not more often than that: it is a long question."""
_LOOK_SHARE = 0.1
"""Where thousands wait it takes longer: then it is asked so seldom that it takes no more of the time than this."""
_MOST_NAMED = 500
_AHEAD = 250
"""So many more ready turns are remembered than there is room for, and are not looked for again."""
SWEEP_S = 30.0
"""How often calls are looked for that run on their own and have lost their process."""

_log = logging.getLogger(__name__)


class RanTurn(Struct, frozen=True):
    """What came of a turn that was taken up: it ended, waits again, or could not be resumed (`error` says why)."""

    turn_id: str
    answer: Answer | None = None
    result: ToolResult | None = None
    waits: Suspended | None = None
    error: str = ""
    project: str = DEFAULT

    @property
    def state(self) -> str:
        if self.error:
            return "failed"
        return "waiting" if self.waits is not None else "ended"


class TurnRunner:
    """Resumes the ready turns of a store, at most `at_once` at the same time.

    Given a whole store and not a project's view, it runs the turns of all projects, or of those that are named: they
    take turns, and none has more than `per_project` at the same time.

    A turn that cannot be resumed now (its tool is missing, its model does not answer) stays as it is and is tried again
    after a pause, which grows.
    """

    def __init__(
        self,
        store: Store,
        open_agent: OpenAgent,
        *,
        at_once: int = AT_ONCE,
        per_project: int | None = None,
        projects: Sequence[str] = (),
        poll_s: float = POLL_S,
        tell: Callable[[RanTurn], None] | None = None,
        clock: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        staying: Callable[[], int] = lambda: 0,
    ) -> None:
        """Of the turns that run, `staying` only wait for a result: they take no place."""
        self._store = store
        self._open_agent = open_agent
        self._at_once = at_once
        self._per_project = per_project or at_once
        self._serves_all = not isinstance(store, ProjectStore)
        self._project = store.project if isinstance(store, ProjectStore) else DEFAULT
        self._projects = tuple(projects)
        self._served: dict[str, int] = {}
        self._number = 0
        self._poll_s = poll_s
        self._outages = OutageLog(_log)
        self._tell = tell
        self._clock = clock or store.clock
        self._monotonic = monotonic
        self._running: dict[_Key, asyncio.Task[None]] = {}
        self._closing: set[_Key] = set()  # ended, while calls that they let run on their own are not done yet
        self._pauses: dict[_Key, tuple[float, float]] = {}
        self._requested: dict[_Key, None] = {}
        self._barred: set[_Key] = set()
        self._woken = asyncio.Event()
        self._swept_at = self._looked_at = self._looked_at_named = -math.inf
        self._look_after_s = _LOOK_AFTER_S
        self._staying = staying
        self._named: dict[_Key, None] = {}
        self._next: dict[_Key, tuple[Wait, ...]] = {}  # ready when it was last looked, and what they waited for
        self._rung: set[_Key] = set()
        self._looks_at_all = True
        self._timer: asyncio.TimerHandle | None = None

    def wake(self) -> None:
        """Look for ready turns now: something has just come that one of them may wait for."""
        self._looks_at_all = True
        self._woken.set()

    def wake_turn(self, project: str, turn_id: str) -> None:
        """Look whether this turn is ready: something has just come for it."""
        key = (project, turn_id)
        if self._projects and project not in self._projects:
            return
        if not turn_id:
            self.wake()
        elif key in self._running:  # it may be about to wait; if it does, it is looked at again
            self._rung.add(key)
        else:
            self._named[key] = None
            self._woken.set()

    def request(self, turn_id: str) -> None:
        """Take this turn up as soon as there is room, even if it does not say that it is ready."""
        key = (self._project, turn_id)
        self._pauses.pop(key, None)
        self._requested[key] = None
        self._woken.set()

    @asynccontextmanager
    async def without(self, turn_id: str) -> AsyncIterator[None]:
        """Interrupt this turn if it runs here, and leave it alone inside the block."""
        key = (self._project, turn_id)
        self._barred.add(key)
        self._requested.pop(key, None)
        try:
            if (task := self._running.get(key)) is not None:
                task.cancel()
                await asyncio.wait((task,))
            yield
        finally:
            self._barred.discard(key)

    async def run_until_idle(self) -> None:
        """Run everything that is ready, and what becomes ready by that; give up on a turn that fails."""
        is_idle = False
        while not is_idle:
            ran_before = bool(self._running)  # what ends while turns are looked up may make others ready
            is_idle = not (await self._take_up(everything=True) or self._running or ran_before)
            if self._running:
                await asyncio.wait(self._running.values(), return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(0)  # lets those that are done leave

    async def run_forever(self) -> None:
        """Run ready turns until canceled; what runs then is interrupted and stays ready."""
        try:
            while True:
                self._woken.clear()
                is_due = self._monotonic() - self._looked_at >= self._poll_s
                try:
                    await self._take_up(everything=is_due)
                except ToolwireError as error:
                    self._outages.warn("ready turns cannot be looked up", error)
                # Not wait_for: in Python 3.11 it swallows a cancellation that comes together with the event.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._poll_s):
                        await self._woken.wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Interrupt what runs."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_up(self, *, everything: bool = False) -> bool:
        """Start ready turns as far as there is room; whether any was started."""
        closing = min(len(self._closing), _MOST_CLOSING * self._at_once)
        room = self._at_once - len(self._running) + self._staying() + closing
        if room <= 0:
            return False
        taken = False
        if (now := self._monotonic()) - self._swept_at >= SWEEP_S:
            self._swept_at = now
            await settle_detached(self._store, self._clock())
        await self._look(room, everything=everything)
        running = Counter(project for project, _ in self._running.keys() - self._closing)
        # Those come first whose project was served longest ago: one that always has an old turn is not always first.
        found = sorted({**self._requested, **self._next}, key=lambda key: self._served.get(key[0], 0))
        for key in in_turn(found, itemgetter(0), running):
            if room > 0 and running[key[0]] < self._per_project and self._may_run(key):
                waits = self._next.pop(key, None)
                if key in self._requested:
                    del self._requested[key]
                    waits = None
                self._running[key] = asyncio.create_task(self._run(key, waits), name="toolwire-runner")
                running[key[0]] += 1
                self._number += 1
                self._served[key[0]] = self._number
                room, taken = room - 1, True
        return taken

    async def _look(self, room: int, *, everything: bool) -> None:
        """Find turns that are ready: all, or those that were named, where anything has asked for that."""
        if everything or self._looks_at_all:
            self._looks_at_all = False
            self._looked_at = began = self._monotonic()
            self._named.clear()
            limit = room + len(self._running) + len(self._pauses) + (_MORE_PROJECTS if self._serves_all else 0) + _AHEAD
            found = await self._ready(limit)
            self._look_after_s = max(_LOOK_AFTER_S, (self._monotonic() - began) / _LOOK_SHARE)
            self._next.clear()
        elif self._named and (not self._next or self._monotonic() - self._looked_at_named >= _LOOK_AFTER_S):
            self._looked_at_named = self._monotonic()
            named = dict.fromkeys(key for key, _ in zip(self._named, range(_MOST_NAMED), strict=False))
            for key in named:
                del self._named[key]
            ids = [turn_id for _, turn_id in named]
            found = await self._store.ready_turns(self._clock(), limit=len(ids), only=ids)
            found = [turn for turn in found if (turn.project, turn.id) in named]
        else:
            if self._named:  # in a moment, with others that are named until then
                asyncio.get_running_loop().call_later(_LOOK_AFTER_S, self._woken.set)
            return
        self._next.update({(turn.project, turn.id): turn.waits for turn in found})

    async def _ready(self, limit: int) -> list[TurnSummary]:
        now = self._clock()
        if not self._projects:
            return await self._store.ready_turns(now, limit=limit)
        each = [await self._store.ready_turns(now, limit=limit, project=name) for name in self._projects]
        return [turn for turns in each for turn in turns]

    def _may_run(self, key: _Key) -> bool:
        until, _ = self._pauses.get(key, (0.0, 0.0))
        return key not in self._running and key not in self._barred and self._monotonic() >= until

    async def _run(self, key: _Key, waits: tuple[Wait, ...] | None) -> None:
        try:
            ran = replace(await self._resumed(key, waits), project=key[0])
        except (Fenced, NotFound):  # another runner was faster, or the turn is gone
            ran = None
        finally:
            self._running.pop(key, None)
            self._closing.discard(key)
            self._look_after(key)
        if ran is None:
            return
        if ran.waits is None:  # another turn may wait for this one
            self._look_soon()
        if ran.error:
            _, pause_s = self._pauses.get(key, (0.0, FIRST_PAUSE_S / 2))
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
            self._pauses[key] = (self._monotonic() + pause_s, pause_s)
        else:
            self._pauses.pop(key, None)
        if self._tell is not None:
            self._tell(ran)

    def _look_soon(self) -> None:
        wait_s = self._looked_at + self._look_after_s - self._monotonic()
        if wait_s <= 0:
            self.wake()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.wake()

    def _look_after(self, key: _Key) -> None:
        """There is room again; and what came for a turn while it ran may be what it waits for now."""
        if key in self._rung:
            self._rung.discard(key)
            self._named[key] = None
        self._woken.set()

    async def _resumed(self, key: _Key, waits: tuple[Wait, ...] | None) -> RanTurn:
        project, turn_id = key
        try:
            left = await of_project(self._store, project).turn(turn_id)
            if waits is not None and left.opening.waits != waits:  # it has gone on, and waits for something else
                raise Fenced(f"turn {turn_id} was resumed by another process")
            async with self._open_agent(left.opening) as agent:
                if left.opening.kind is TurnKind.CALL:
                    ran = RanTurn(turn_id, result=await agent.resume_call(turn_id))
                else:
                    ran = RanTurn(turn_id, await agent.resume(turn_id, left=left))
                self._closing.add(key)
                self._look_soon()  # its place is free, and another turn may wait for this one
                return ran
        except Suspended as waits:
            return RanTurn(turn_id, waits=waits)
        except (Fenced, NotFound):
            raise
        except ToolwireError as error:
            return RanTurn(turn_id, error=str(error))
        except Exception as error:  # a runner is an entry point: one broken turn must not stop the others
            _log.exception("turn %s broke its runner", turn_id)
            return RanTurn(turn_id, error=f"internal error (please report it): {type(error).__name__}: {error}")
