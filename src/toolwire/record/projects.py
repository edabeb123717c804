"""One project's view of a store: whatever belongs to another project is not found.

Turns, calls, approvals and audit rows carry their project. Kept bodies do not, so one begins with a line that names
its project; those of the default project have none, as in records from before there were projects.
"""

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from toolwire.errors import StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard
from toolwire.protocol.budgets import Purse, Spending
from toolwire.protocol.chat import Message, Note
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Turn
from toolwire.record import refusals
from toolwire.record.chain import AuditChain
from toolwire.record.contract import KeptTurn, LoopMetrics, Store, ToolMetrics, TurnStats, TurnSummary
from toolwire.wire.format_tally import FormatTally

DEFAULT = "default"
_MARK = b"toolwire:project:"
_MORE = 4
T = TypeVar("T")


class _Owned(Protocol):
    @property
    def project(self) -> str: ...


Owned = TypeVar("Owned", bound=_Owned)
Doing = Coroutine[Any, Any, T]


def of_project(store: Store, project: str) -> "ProjectStore":
    """What a project sees of a store. Given another project's view, this project's of the same store."""
    if isinstance(store, ProjectStore):
        if store.project == project:
            return store
        store = store.whole
    return ProjectStore(store, project)


class ProjectStore:
    """A store that holds the promise of `Store` for one project. Changes go to the `whole` store as they are."""

    def __init__(self, whole: Store, project: str) -> None:
        self.whole = whole
        self.project = project
        # Every call comes through these, so they are the whole store's own.
        self.replied, self.open, self.claim, self.close = whole.replied, whole.open, whole.claim, whole.close
        self.renew, self.holds, self.begins, self.pauses = whole.renew, whole.holds, whole.begins, whole.pauses

    def begin(self, turn: Turn) -> Doing[None]:
        return self.whole.begin(turn)

    async def resume(self, turn_id: str) -> KeptTurn:
        await self.turn(turn_id)
        return await self.whole.resume(turn_id)

    def noted(self, turn: Turn, note: Note) -> Doing[None]:
        return self.whole.noted(turn, note)

    def end(self, turn: Turn, stats: TurnStats) -> Doing[None]:
        return self.whole.end(turn, stats)

    def release(self, turn: Turn) -> Doing[None]:
        return self.whole.release(turn)

    def audit(self, rows: Sequence[AuditRow]) -> Doing[None]:
        return self.whole.audit(rows)

    def ask_people(self, card: ApprovalCard, audit: Sequence[AuditRow]) -> Doing[ApprovalCard]:
        return self.whole.ask_people(card, audit)

    async def answer(self, approval_id: str, answer: Approval) -> ApprovalCard:
        await self.approval(approval_id)
        return await self.whole.answer(approval_id, answer)

    async def approval(self, approval_id: str) -> ApprovalCard:
        card = await self.whole.approval(approval_id)
        if card.project != self.project:
            raise refusals.no_approval(approval_id)
        return card

    async def approvals(
        self, *, turn_id: str | None = None, only_open: bool = False, limit: int = 50
    ) -> list[ApprovalCard]:
        def newest(most: int) -> Awaitable[list[ApprovalCard]]:
            return self.whole.approvals(turn_id=turn_id, only_open=only_open, limit=most)

        return await self._own(newest, limit)

    async def standing(self, *, limit: int = 1000) -> list[ApprovalCard]:
        return await self._own(lambda most: self.whole.standing(limit=most), limit)

    async def revoke(self, approval_id: str, by: str) -> ApprovalCard:
        await self.approval(approval_id)
        return await self.whole.revoke(approval_id, by)

    async def turn(self, turn_id: str) -> KeptTurn:
        kept = await self.whole.turn(turn_id)
        if kept.opening.project != self.project:
            raise refusals.no_turn(turn_id)
        return kept

    async def turns(self, *, limit: int = 20, state: str | None = None) -> list[TurnSummary]:
        return await self._own(lambda most: self.whole.turns(limit=most, state=state), limit)

    def thread(self, thread: str, *, project: str | None = None) -> Doing[tuple[Message, ...]]:  # noqa: ARG002 -- its own
        return self.whole.thread(thread, project=self.project)

    async def calls(self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50) -> list[CallCard]:
        return await self._own(lambda most: self.whole.calls(turn_id=turn_id, tool=tool, limit=most), limit)

    async def audit_log(
        self, *, turn_id: str | None = None, tool: str | None = None, limit: int = 50, after: int = 0
    ) -> list[AuditRow]:
        async def newest(most: int) -> list[AuditRow]:
            return (await self.whole.audit_log(turn_id=turn_id, tool=tool, limit=most, after=after))[::-1]

        return (await self._own(newest, limit))[::-1]

    def audit_chain(self, seqs: Sequence[int] = ()) -> Doing[AuditChain]:
        return self.whole.audit_chain(seqs)

    def metrics(self, *, project: str | None = None) -> Doing[tuple[list[ToolMetrics], LoopMetrics]]:  # noqa: ARG002 -- its own
        return self.whole.metrics(project=self.project)

    def formats(self) -> Doing[list[FormatTally]]:
        return self.whole.formats()

    def spent(self, agent: str, at: float, *, but: str = "", project: str | None = None) -> Doing[Spending]:  # noqa: ARG002 -- its own
        return self.whole.spent(agent, at, but=but, project=self.project)

    def draw(self, root: str, purse: Purse, most: int, *, question: Purse | None = None) -> Doing[Purse | None]:
        return self.whole.draw(root, purse, most, question=question)

    def give_back(self, root: str, unused: Spending) -> Doing[None]:
        return self.whole.give_back(root, unused)

    def lent(self, root: str) -> Doing[Spending]:
        return self.whole.lent(root)

    def mark_untrusted(self, project: str, marks: Sequence[UntrustedMark], gone: Sequence[str] = ()) -> Doing[None]:
        return self.whole.mark_untrusted(self._only(project), marks, gone)

    def untrusted(self, project: str) -> Doing[Sequence[UntrustedMark]]:
        return self.whole.untrusted(self._only(project))

    def _only(self, project: str) -> str:
        if project != self.project:
            raise StoreError(f"project {project!r} is not the one whose record is open")
        return project

    def keep(self, data: bytes) -> Doing[str]:
        marked = self.project != DEFAULT or data.startswith(_MARK)
        return self.whole.keep(_header(self.project) + data if marked else data)

    async def fetch(self, handle: str, *, offset: int = 0, length: int | None = None) -> bytes:
        own = _header(self.project)
        begins = await self.whole.fetch(handle, offset=0, length=len(own))
        if begins == own:
            return await self.whole.fetch(handle, offset=max(offset, 0) + len(own), length=length)
        if self.project != DEFAULT or begins.startswith(_MARK):
            raise refusals.no_body(handle)
        return await self.whole.fetch(handle, offset=offset, length=length)

    def close_store(self) -> Doing[None]:
        return self.whole.close_store()

    async def _own(self, newest: Callable[[int], Awaitable[list[Owned]]], limit: int) -> list[Owned]:
        """The newest of this project: more and more are looked at until there are enough, or no more."""
        most = limit
        while True:
            found = await newest(most)
            own = [one for one in found if one.project == self.project]
            if len(own) >= limit or len(found) < most:
                return own[:limit]
            most *= _MORE


def _header(project: str) -> bytes:
    return _MARK + json.dumps(project).encode() + b"\n"
