"""Many projects on one fleet: one that has much to do delays no other, and nothing of one reaches another."""

import asyncio
import itertools
import json
import random
from typing import Any

from msgspec.structs import replace

from tests.fleet.conftest import Fleet
from toolwire import Tier, tool
from toolwire.fleet.arrivals import Arrivals
from toolwire.fleet.fair_share import FairQueue, FairSlots, share_of
from toolwire.fleet.parcels import command_of, read_parcel, wakeup_message
from toolwire.fleet.relay import Relay, next_pause
from toolwire.fleet.reports import REFUSED, ReportReceiver, card_digest
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.protocol.registrations import ResultCard
from toolwire.record.projects import of_project
from toolwire.record.ready import in_turn
from toolwire.testing import call
from toolwire.wire.utp.messages import callback_of, encode_callback, encode_command

FLOOD, OTHERS = 30, 5


def test_projects_take_turns_whatever_came_first() -> None:
    queue: FairQueue[str, int] = FairQueue(at_once=1)
    for number in range(3):
        queue.add("flood", number)
    queue.add("late", 10)
    queue.add("later", 20)

    taken = []
    while (one := queue.take()) is not None:
        taken.append(one)
        queue.release(one[0])

    assert taken == [("flood", 0), ("late", 10), ("later", 20), ("flood", 1), ("flood", 2)]


def test_a_project_never_has_all_slots() -> None:
    queue: FairQueue[str, int] = FairQueue(at_once=4, per_project=share_of(4))
    for number in range(10):
        queue.add("flood", number)
    assert [queue.take() for _ in range(4)] == [("flood", 0), ("flood", 1), ("flood", 2), None]
    queue.add("late", 10)
    assert queue.take() == ("late", 10)
    assert queue.take() is None
    queue.release("flood")
    assert queue.take() == ("flood", 3)


def test_what_is_too_much_is_the_newest_of_the_longest_queue() -> None:
    queue: FairQueue[str, int] = FairQueue(at_once=1)
    for project, number in (("a", 1), ("b", 2), ("b", 3), ("b", 4), ("c", 5)):
        queue.add(project, number)

    assert (queue.shed(), queue.waiting) == (4, 4)
    assert queue.clear() == [1, 2, 3, 5]
    assert (queue.take(), queue.waiting) == (None, 0)


def test_a_project_that_runs_much_already_comes_later() -> None:
    items = ["a1", "a2", "b1", "a3", "c1", "c2"]
    assert in_turn(items, lambda one: one[0]) == ["a1", "b1", "c1", "a2", "c2", "a3"]
    assert in_turn(items, lambda one: one[0], {"a": 1, "c": 2}) == ["b1", "a1", "a2", "c1", "a3", "c2"]


def test_a_relay_looks_less_often_while_few_commands_end() -> None:
    pauses = [0.02]
    for ended in (256, 20, 0, 40, 200, 200):
        pauses.append(next_pause(pauses[-1], ended, 256))

    assert pauses == [0.02, 0.02, 0.04, 0.08, 0.08, 0.04, 0.02]


class _Message:
    """A message from the bus of which is written down what becomes of it."""

    attempt = 1

    def __init__(self, project: str, ends: asyncio.Event) -> None:
        self.message = BusMessage(f"cg.v1r4.{project}.public.cmd.tool.notes", b"")
        self.ends = ends
        self.put_back = False

    async def ack(self) -> None: ...

    async def progress(self) -> None: ...

    async def nak(self, delay_s: float = 0.0) -> None:
        self.put_back = True


async def test_a_worker_puts_back_what_it_has_no_room_for_of_the_project_with_most() -> None:
    ends = asyncio.Event()
    slots = FairSlots(2, 1, waiting=2)
    flood = [_Message("flood", ends) for _ in range(10)]
    late = _Message("late", ends)
    ran: list[Any] = []

    async def work(one: Any) -> None:
        ran.append(one)
        await ends.wait()

    for one in flood:
        slots.submit("flood", one, work)
    slots.submit("late", late, work)
    await asyncio.sleep(0)
    assert ran == [flood[0], late]
    await asyncio.sleep(0)
    assert [one.put_back for one in flood] == [False] * 5 + [True] * 5
    slots.put_back()
    ends.set()
    while slots.tasks:
        await asyncio.gather(*slots.tasks)
    assert (ran, slots.running) == ([flood[0], late], 0)


async def flooded(fleet: Fleet, near: Any) -> tuple[Any, str, list[str]]:
    """Calls of one project on record, and after them one of each of some others, for workers of this test alone."""
    store = await fleet.store()
    fleet.target = f"notes-{fleet.project}"
    tools = [fleet.far(near)]
    flood = fleet.project
    step = [call("note", words=f"{flood} {number}") for number in range(FLOOD)]
    await fleet.sent(fleet.agent(store, tools, step))
    others = [f"{flood}-other{number}" for number in range(OTHERS)]
    for other in others:
        fleet.project = other
        await fleet.sent(fleet.agent(store, tools, call("note", words=f"{other} 0")))
    fleet.project = flood
    return store, flood, others


async def test_a_project_that_floods_delays_no_other_by_more_than_a_round(fleet: Fleet) -> None:
    """All calls are on the bus before the first one runs: the flood first, the others behind it."""
    begun: list[str] = []

    @tool(tier=Tier.WALK)
    async def note(words: str) -> str:
        """Write words down."""
        begun.append(words.split(" ")[0])
        await asyncio.sleep(0)
        return words

    store, flood, others = await flooded(fleet, note)
    for project in (flood, *others):
        assert await Relay(of_project(store, project), fleet.bus).send_due() == (FLOOD if project == flood else 1)
    await fleet.shared_worker([note], slots=FairSlots(4, 2, waiting=100), holds=FLOOD + OTHERS)

    async def ended() -> bool:
        return len(begun) == FLOOD + OTHERS

    await fleet.until(ended)
    last = max(begun.index(other) for other in others)
    assert begun[: last + 1].count(flood) <= OTHERS + 4


async def test_a_relay_keeps_a_flood_in_the_store_and_sends_it_as_results_come(fleet: Fleet) -> None:
    store, flood, others = await flooded(fleet, fleet.tool())
    sent: list[str] = []

    class Counting:
        async def publish(self, message: BusMessage, *, dedupe_id: str = "") -> bool:
            sent.append(message.subject.split(".")[2])
            return await fleet.bus.publish(message, dedupe_id=dedupe_id)

    relay = Relay(store, Counting(), at_once=8, window=3, poll_s=600)  # type: ignore[arg-type]
    relaying = fleet.spawn(relay.run())

    async def all_others() -> bool:
        return set(others) <= set(sent)

    await fleet.until(all_others)
    assert sent.count(flood) == 3
    await fleet.shared_worker([fleet.tool()])

    async def ended() -> bool:
        return len(fleet.noted) == FLOOD + OTHERS

    await fleet.until(ended)
    assert (sorted(sent), relaying.done()) == (sorted([flood] * FLOOD + others), False)
    assert len(await of_project(store, flood).calls(limit=100)) == FLOOD


async def test_the_wakeup_of_a_call_makes_room_for_the_next_command(fleet: Fleet) -> None:
    """The store says nothing of it: no worker has run anything."""
    store, sent = await fleet.store(), []

    class Counting:
        async def publish(self, message: BusMessage, *, dedupe_id: str = "") -> bool:
            sent.append(json.loads(message.data)["tool_call_id"])
            return True

    agent = fleet.agent(store, [fleet.far(fleet.tool())], [call("note", words="milk"), call("note", words="eggs")])
    turn_id = await fleet.sent(agent)
    cards = {card.call.id: card for card in await store.calls(turn_id=turn_id, project=fleet.project)}
    relay, arrivals = Relay(store, Counting(), window=1, poll_s=600), Arrivals()  # type: ignore[arg-type]
    fleet.spawn(relay.run())

    async def all_sent() -> bool:
        return len(sent) == len(cards)

    async with arrivals.listening(fleet.bus, fleet.project):
        with arrivals.telling(relay.note_result):
            await relay.send_due()
            assert len(sent) == 1
            message = wakeup_message(cards[sent[0]], "public")
            assert isinstance(message, BusMessage)
            await fleet.bus.publish(message)
            await fleet.until(all_sent)
    assert set(sent) == set(cards)


async def owned(fleet: Fleet, store: Any, project: str, near: Any) -> tuple[Dispatch, CallCard]:
    """A call of a project that waits for a worker."""
    fleet.project = project
    agent = fleet.agent(store, [fleet.far(near)], call("note", words=project))
    turn_id = await fleet.sent(agent)
    card = await fleet.card(store, turn_id)
    found: tuple[Dispatch, CallCard] = await store.dispatched(card.record_id, project=project)
    return found


def forgeries(a: tuple[Dispatch, CallCard], b: tuple[Dispatch, CallCard], result_ids: list[str]) -> list[BusMessage]:
    """Commands, reports and wakeups at the subjects of b, with every mixture of what is a's and what is b's."""
    commands = [command_of(read_parcel(dispatch), dispatch, card) for dispatch, card in (a, b)]
    own = commands[1].subject
    made: list[Any] = []
    for turn, call_, card, step in itertools.product(commands, repeat=4):
        if turn is call_ is card is step is commands[1]:
            continue
        mixed = replace(
            commands[1], agent_turn_id=turn.agent_turn_id, tool_call_id=call_.tool_call_id, step_id=step.step_id,
            tool_call_card_id=card.tool_call_card_id, turn_epoch=turn.turn_epoch,
        )  # fmt: skip
        made.append(encode_command(mixed))
        made += [encode_callback(callback_of(mixed, card_id=one, status=Status.SUCCESS)) for one in result_ids]
        made.append(wakeup_message(replace(b[1], turn_id=turn.agent_turn_id), own.channel))
    theirs = encode_command(commands[0])
    assert isinstance(theirs, BusMessage)
    made.append(replace(theirs, subject=str(own)))  # its body names a, its subject b
    return [one for one in made if isinstance(one, BusMessage)]


async def test_T213_no_message_of_one_project_reaches_a_call_of_another(fleet: Fleet) -> None:
    """One worker and one receiver serve both. What b sends is handled, and a's call is as it was."""
    fleet.target, store, near = f"notes-{fleet.project}", await fleet.store(), fleet.tool()
    first, second = f"{fleet.project}-a", f"{fleet.project}-b"
    a, b = [await owned(fleet, store, project, near) for project in (first, second)]
    await of_project(store, first).keep_card(result_card(a[1], "result-a"))
    await of_project(store, second).keep_card(result_card(replace(a[1], project=second), "result-b"))
    before = await seen_of(store, first)
    receiver = ReportReceiver(store, fleet.bus, durable=f"reports-{fleet.target}")
    fleet.spawn(receiver.run())
    await fleet.shared_worker([near], slots=FairSlots(1), holds=0)
    forged = forgeries(a, b, ["result-a", "result-b"])
    random.Random(7).shuffle(forged)
    for message in forged:
        assert message.subject.split(".")[2] == second
        await fleet.bus.publish(message)
    await Relay(of_project(store, second), fleet.bus).send_due()

    fleet.project = second
    await fleet.result(store, b[1].turn_id)
    reports = sum(".execution.report" in message.subject for message in forged)

    async def all_refused() -> bool:
        rows = await store.audit_log(limit=1_000, project=second)
        return sum(row.event == REFUSED for row in rows) == reports

    await fleet.until(all_refused)
    assert (fleet.noted, reports > 0) == ([second], True)
    assert await seen_of(store, first) == before


async def test_T213_control_its_own_command_runs_the_call(fleet: Fleet) -> None:
    fleet.target, store, near = f"notes-{fleet.project}", await fleet.store(), fleet.tool()
    dispatch, card = await owned(fleet, store, f"{fleet.project}-a", near)
    before = await seen_of(store, fleet.project)
    await fleet.shared_worker([near])
    message = encode_command(command_of(read_parcel(dispatch), dispatch, card))
    assert isinstance(message, BusMessage)
    await fleet.bus.publish(message)

    assert (await fleet.result(store, card.turn_id)).result is not None
    assert await seen_of(store, fleet.project) != before


def result_card(card: CallCard, card_id: str) -> ResultCard:
    body = json.dumps(
        {
            "card_id": card_id,
            "project_id": card.project,
            "type": "tool.result",
            "content": {"status": "success", "result": "forged"},
            "metadata": {"agent_turn_id": card.turn_id, "tool_call_id": card.call.id, "role": "tool"},
        }
    ).encode()
    return ResultCard(card.project, card_id, card.turn_id, card.call.id, card_digest(body), body, "service", 1.0)


async def seen_of(store: Any, project: str) -> list[Any]:
    view = of_project(store, project)
    return [await view.calls(), await view.audit_log(limit=1_000), await view.turns(), await view.ready_turns(1e12)]
