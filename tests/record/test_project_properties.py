"""Whatever one project does, with its own values or with those of another: the other one does not notice.

Two projects do generated things in one store, each through its own view, with the same ids. After each step of one of
them, everything that the other one can read is as it was before; and the one finds, and is told, what it would be if it
had the store for itself.
"""

import asyncio
import hashlib
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from toolwire.errors import StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, Scope
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Visibility
from toolwire.protocol.budgets import Allotment, Spending
from toolwire.protocol.chat import Note, Reply
from toolwire.protocol.provenance import UntrustedMark
from toolwire.protocol.records import Dispatch
from toolwire.protocol.registrations import ResultCard
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.protocol.waits import ForResult
from toolwire.record.contract import Store, TurnStats
from toolwire.record.memory import MemoryStore
from toolwire.record.projects import ProjectStore, of_project
from toolwire.record.sqlite import SqliteStore
from toolwire.wire.formats.tally import FormatTally

from .conftest import NOW, database_server
from .samples import a_call, a_card, a_row, a_turn, success

PROJECTS = ("default", "tenant-b")
IDS = ("turn-1", "turn-2")
QUERIES = (RecordQuery(), RecordQuery(any_tags=("a", "b")), RecordQuery(schema_name="note.v1", text="whale"))


class Doing:
    """One step of a project: with an id out of a few that both use, and with values of its own or of the other."""

    def __init__(self, view: ProjectStore, whose: str, turn_id: str, epoch: int) -> None:
        self.view = view
        self.turn = a_turn(turn_id, project=whose, thread="main", epoch=epoch)
        self.card = replace(a_card(a_call("call-1"), self.turn), project=whose)
        self.row = replace(a_row("said", self.card), project=whose)
        self.asked = ApprovalCard(
            f"ask-{turn_id}", turn_id, "call-1", "git", {}, "digest", expires_at=NOW + 60, project=whose
        )  # fmt: skip
        self.record = Record(
            f"record-{turn_id}", whose, "note.v1", whose, ("a", whose), {"whale": 1}, uses_left=2, created_by="ann",
            created_at=NOW, visibility=Visibility.PRIVATE,
        )  # fmt: skip

    async def begin(self) -> None:
        await self.view.begin(self.turn)

    async def reply(self) -> None:
        await self.view.append_reply(self.turn, Reply("hm", calls=(self.card.call,)), [self.card], [self.row])

    async def note(self) -> None:
        await self.view.append_note(self.turn, Note("careful"))

    async def open(self) -> None:
        await self.view.open(self.card, [self.row])

    async def claim(self) -> None:
        await self.view.claim(self.card, [self.row], owner="worker", until=NOW + 60)

    async def renew(self) -> None:
        await self.view.renew(replace(self.card, token=self.card.record_id, attempt=1), NOW + 90)

    async def close(self) -> None:
        await self.view.close(self.card, success(self.card.call, elapsed_ms=5.0), [self.row])

    async def end(self) -> None:
        ended: Turn = replace(self.turn, ending=Ending(EndReason.ANSWERED, "done"))
        await self.view.end(ended, TurnStats(iterations=1, input_tokens=7, formats=(FormatTally("m", "native"),)))

    async def release(self) -> None:
        await self.view.release(self.turn)

    async def resume(self) -> None:
        await self.view.resume(self.turn.id)

    async def ask(self) -> None:
        await self.view.request_approval(self.asked, [self.row])

    async def answer(self) -> None:
        yes = Approval(True, "ann", scope=Scope.PATTERN, pattern="git commit", lasts_s=60)
        await self.view.answer(self.asked.id, yes)

    async def revoke(self) -> None:
        await self.view.revoke(self.asked.id, "ann")

    async def audit(self) -> None:
        await self.view.audit([self.row])

    async def draw(self) -> None:
        await self.view.reserve_share(self.turn.id, Allotment(8), 4)

    async def give_back(self) -> None:
        await self.view.release_unused(self.turn.id, Spending(1))

    async def mark(self) -> None:
        await self.view.mark_untrusted(self.turn.project, [UntrustedMark("file", ("web",), "1", "2", NOW)])

    async def keep(self) -> None:
        await self.view.keep(self.turn.id.encode())

    async def wait(self) -> None:
        await self.view.release(replace(self.turn, waits=(ForResult("call-1"),)))

    async def dispatch(self) -> None:
        sent = Dispatch(
            self.turn.project, self.turn.id, "call-1", self.card.record_id, self.turn.epoch, "cg.v1r4.p.c.cmd.tool.x",
            "{}", NOW, NOW + 60,
        )  # fmt: skip
        await self.view.dispatch(sent, [self.row])

    async def take_due(self) -> None:
        await self.view.take_due(NOW, lambda _: 60.0)

    async def cancel(self) -> None:
        await self.view.ask_to_cancel(self.card, "enough")

    async def detach(self) -> None:
        await self.view.detach(self.card)

    async def keep_card(self) -> None:
        body = b"{}"
        digest = hashlib.sha256(body).hexdigest()
        await self.view.keep_card(
            ResultCard(self.turn.project, f"card-{self.turn.id}", self.turn.id, "call-1", digest, body, "service", NOW)
        )

    async def create_record(self) -> None:
        await self.view.create_record(self.record, audit=[self.row])

    async def create_record_once(self) -> None:
        await self.view.create_record(replace(self.record, uses_left=None), key="once")

    async def update_record(self) -> None:
        given = replace(self.record, tags=("b",), context={"whale": 2}, expires_at=NOW)
        await self.view.update_record(given, self.turn.epoch, audit=[self.row])

    async def delete_record(self) -> None:
        await self.view.delete_record(self.record.id, by="ann")

    async def use_record(self) -> None:
        await self.view.use_record(self.record.id)

    async def expire_records(self) -> None:
        await self.view.expire_records()


STEPS: dict[str, Callable[[Doing], Awaitable[None]]] = {
    name: step for name, step in vars(Doing).items() if not name.startswith("_")
}


async def seen(view: ProjectStore) -> list[Any]:
    """Everything that a project can read. Rows of the log have numbers, and others may be between them."""
    found: list[Any] = [
        await view.ready_turns(NOW), await view.detached_calls(),
        await view.turns(), await view.calls(), await view.approvals(), await view.active_patterns(),
        await view.metrics(), await view.formats(), await view.thread("main"), await view.spent("agent", NOW),
        list(await view.untrusted(view.project)), [replace(row, seq=0) for row in await view.audit_log()],
        *[str(await view.turns(state=state)) for state in ("running", "interrupted", "waiting", "ended")],
        [value for _, value in await view.turns_after()], [value for _, value in await view.calls_after()],
        [value for _, value in await view.approvals_after()],
        [replace(row, seq=0) for row in await view.audit_log(after=0)],
        [value for _, value in await view.record_changes()],
        *[[value for _, value in await view.records(query)] for query in QUERIES],
    ]  # fmt: skip
    for turn_id in IDS:
        body = f"sha256:{turn_id}"
        reads: list[Coroutine[Any, Any, Any]] = [
            view.turn(turn_id), view.approval(f"ask-{turn_id}"), view.reserved_shares(turn_id),
            view.calls(turn_id=turn_id), view.approvals(turn_id=turn_id), view.fetch(body),
            view.dispatched_call(turn_id, "call-1"), view.result_card(f"card-{turn_id}"),
            view.calls_with_results([turn_id]), view.record(f"record-{turn_id}"),
            view.record_history(f"record-{turn_id}"),
        ]  # fmt: skip
        for read in reads:
            try:
                found.append(await read)
            except StoreError as error:
                found.append(type(error))
    chain = await view.audit_chain()
    return [*found, chain.rows, chain.broken_at, chain.head]


def belongs(found: list[Any], project: str) -> bool:
    values = [one for part in found if isinstance(part, list) for one in part]
    return all(getattr(value, "project", project) == project for value in values)


a_step = st.tuples(
    st.sampled_from([0, 1]),
    st.sampled_from(sorted(STEPS)),
    st.sampled_from(IDS),
    st.sampled_from([1, 2]),
    st.booleans(),
)


async def play(store: Store, steps: list[tuple[int, str, str, int, bool]]) -> None:
    views = [of_project(store, project) for project in PROJECTS]
    alone = [of_project(MemoryStore(clock=lambda: NOW, monotonic=lambda: 0.0), project) for project in PROJECTS]
    unchanged: dict[int, list[Any]] = {}  # what each has seen since its own last step: to read it all takes 40 reads
    for who, name, turn_id, epoch, as_the_other in steps:
        before = unchanged.get(1 - who) or await seen(views[1 - who])
        whose = PROJECTS[1 - who if as_the_other else who]
        told = [await told_by(STEPS[name], Doing(view, whose, turn_id, epoch)) for view in (views[who], alone[who])]
        assert told[0] == told[1], f"{PROJECTS[who]} is told of another project by {name}"
        assert await seen(views[1 - who]) == before, f"{PROJECTS[1 - who]} notices {name}"
        assert belongs(before, PROJECTS[1 - who])
        unchanged = {1 - who: before}
    for view, own in zip(views, alone, strict=True):
        *among_others, _ = await seen(view)
        *by_itself, _ = await seen(own)  # a digest names the machine
        assert among_others == by_itself


async def told_by(step: Callable[[Doing], Awaitable[None]], doing: Doing) -> tuple[str, str]:
    """What a step is refused with, if it is."""
    try:
        await step(doing)
    except StoreError as error:
        return type(error).__name__, str(error)
    return "", ""


@pytest.mark.parametrize(("kind", "examples"), [("memory", 150), ("sqlite", 10), ("libsql", 3), ("postgres", 3)])
@pytest.mark.usefixtures("postgres")
def test_T62_no_operation_of_one_project_is_seen_by_another_or_changes_it(kind: str, examples: int) -> None:
    @settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    @given(steps=st.lists(a_step, max_size=25))
    @example(steps=[(1, "begin", "turn-1", 2, False), (1, "end", "turn-1", 2, False)])
    def run(steps: list[tuple[int, str, str, int, bool]]) -> None:
        asyncio.run(played(kind, steps))

    run()


async def played(kind: str, steps: list[tuple[int, str, str, int, bool]]) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if kind == "memory":
            await play(MemoryStore(clock=lambda: NOW, monotonic=lambda: 0.0), steps)
        elif kind == "sqlite":
            async with await SqliteStore.at(folder / "home", clock=lambda: NOW, monotonic=lambda: 0.0) as store:
                await play(store, steps)
        else:
            on = stack.enter_context(database_server(kind, folder))
            async with await on(folder / "home", clock=lambda: NOW, monotonic=lambda: 0.0) as store:
                await play(store, steps)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_T62_control_the_steps_do_change_what_their_own_project_sees(kind: str, tmp_path: Path) -> None:
    names = (
        "begin reply ask answer close draw mark end create_record use_record update_record create_record_once".split()
    )
    store = (
        MemoryStore(clock=lambda: NOW, monotonic=lambda: 0.0)
        if kind == "memory"
        else await SqliteStore.at(tmp_path, clock=lambda: NOW)
    )
    view = of_project(store, PROJECTS[1])
    for name in names:
        before = await seen(view)
        await STEPS[name](Doing(view, PROJECTS[1], IDS[0], 1))
        assert await seen(view) != before, name
    await store.close_store()
