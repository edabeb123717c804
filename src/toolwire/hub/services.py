"""What the parts of the hub share: where things are kept and run, who approves, which secrets there are, and clocks."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from uuid_utils import uuid7

from toolwire.decide.ladder import Clearance
from toolwire.define.toolbox import Toolbox
from toolwire.deliver.secrets import NO_SECRETS, Secrets
from toolwire.execute.contract import Dispatcher, Executor
from toolwire.execute.inprocess import InProcessExecutor
from toolwire.execute.resources import Locks, Resources
from toolwire.hub.event_hub import EventHub
from toolwire.hub.provenance import ContextRecorder
from toolwire.hub.shared_locks import SharedLocks
from toolwire.hub.shown_output import ShownOutput
from toolwire.hub.slots import Slots
from toolwire.protocol.approvals import Approval, ApprovalCard
from toolwire.protocol.calls import NeedsApproval, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.turns import Turn
from toolwire.record.contract import Store
from toolwire.record.projects import ProjectStore

APPROVAL_S = 86_400.0
QUESTIONS = 20
"""How many approvals a turn may request, and how many of an agent may be pending."""

IN_FLIGHT = 32
DETACHED_LEASE_S = 60.0
"""How long a call that runs on its own in this process is held before its lease has to be renewed."""

_MOST_AGENTS = 1_000
_SEAL_BYTES = 32

Approve = Callable[[NeedsApproval], Awaitable[Approval]]
Tell = Callable[[ApprovalCard], None]
"""Hears of each approval request. It must neither wait nor raise."""

OpenConfig = Callable[[str, str, Context], Awaitable[Mapping[str, Any]]]
"""Opens the configuration of this id for a call of this tool. Raises `NotFound` where the call may not use it."""


class Services:
    """Shared by all turns of a process.

    Of the calls of one agent at most `in_flight` run at the same time, over all its turns; the others wait, so that
    none takes all threads and sandboxes from another. Calls that touch the same thing wait for each other by `locks`,
    which are this process's own unless others are given. Watchers of `events` see what happens in all turns.
    `clock` gives dates, by default that of the store; what lasts is measured by `monotonic`. The `seal` is a secret of
    this process. What a token of each model has cost, in US dollars, is in `rates`. Configurations that calls name are
    opened by `open_config`.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        store: Store,
        *,
        executor: Executor | None = None,
        in_flight: int = IN_FLIGHT,
        secrets: Secrets = NO_SECRETS,
        approve: Approve | None = None,
        tell: Tell | None = None,
        suspends: bool = False,
        approval_s: float = APPROVAL_S,
        questions: int = QUESTIONS,
        events: EventHub | None = None,
        locks: Locks | None = None,
        open_config: OpenConfig | None = None,
        clock: Callable[[], float] | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        new_id: Callable[[], str] = lambda: str(uuid7()),
    ) -> None:
        self.toolbox = toolbox
        self.executor = executor or InProcessExecutor()
        self.dispatcher = self.executor if isinstance(self.executor, Dispatcher) else None
        self.notes_begin: bool = getattr(self.executor, "notes_begin", False)
        self.approve = approve
        self.suspends = suspends
        self.tell = tell
        self.approval_s = approval_s
        self.questions = questions
        self.in_flight = in_flight
        self.secrets = secrets
        self.open_config = open_config
        self.clock = clock or store.clock
        self.events = events or EventHub(self.clock)
        self.monotonic = monotonic
        self.new_id = new_id
        self.seal = os.urandom(_SEAL_BYTES)
        self.clearance: Clearance | None = None
        self._locks = locks
        self._recorder: ContextRecorder | None = None
        self.change_store(store)
        self.executing: dict[tuple[str, str], asyncio.Future[ToolResult]] = {}
        self.detached: set[asyncio.Task[None]] = set()
        self.detached_lease_s = DETACHED_LEASE_S
        self.unread: ShownOutput | None = None
        self.rates: dict[str, float] = {}
        self._agents: dict[tuple[str, str], Slots] = {}

    # No `cached_property`: it would make every other attribute slower to reach.
    @property
    def resources(self) -> Locks:
        """What calls that touch the same thing wait for."""
        if self._locks is None:
            self._locks = SharedLocks(Resources(), self.store, self.new_id)
        return self._locks

    @property
    def shown_output(self) -> ShownOutput:
        """Keeps what calls that run on their own have written; there is none as long as `unread` is None."""
        if self.unread is None:
            self.unread = ShownOutput()
        return self.unread

    @property
    def recorder(self) -> ContextRecorder:
        """Keeps what tools say about their own calls."""
        if self._recorder is None:
            self._recorder = ContextRecorder(self.store, self.clock, self.clean)
        return self._recorder

    # What contexts take for their `Recorder`: few calls say anything about themselves.

    async def record_told(self, context: Context, tool: str) -> None:
        await self.recorder.record_told(context, tool)

    async def marks(self, project: str) -> Sequence[UntrustedMark]:
        return await self.recorder.marks(project)

    def change_store(self, store: Store) -> None:
        """Keep everything in this store from now on.

        The hub makes all cards and rows of a turn from the turn itself. So it asks once per turn, by `require_own`,
        what a project's view of a store looks for in each of them, and then writes past it.
        """
        self.store = store
        self.writes = store.whole if isinstance(store, ProjectStore) else store
        self._recorder = None

    def require_own(self, turn: Turn) -> None:
        """Raise StoreError for a turn of another project than the one that this store is the view of."""
        if isinstance(self.store, ProjectStore):
            self.store.require(turn)

    def clean(self, text: str) -> str:
        """A text without any secret in it."""
        return self.secrets.clean(text)

    def agent_slots(self, turn: Turn) -> Slots:
        """The slots that the calls of a turn's agent have."""
        whose = (turn.project, turn.agent)
        slots = self._agents.get(whose)
        if slots is None:
            if len(self._agents) >= _MOST_AGENTS:
                self._agents = {other: kept for other, kept in self._agents.items() if kept.busy}
            slots = self._agents[whose] = Slots(self.in_flight)
        return slots
