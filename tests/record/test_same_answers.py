"""Two processes do the same random things with a SQLite store and with a PostgreSQL store, and are told the same.

A PostgreSQL store believes what it knows and has the server compare it, so that what it answers must not depend on it.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.postgres_server import PostgresServer, new_schema
from toolwire.errors import StoreError
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Sensitivity
from toolwire.protocol.chat import Reply
from toolwire.protocol.records import CallCard, Dispatch
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import TurnStats
from toolwire.record.postgres import PostgresStore
from toolwire.record.sqlite import SqliteStore

from .conftest import NOW
from .samples import a_call, a_card, a_row, a_turn, success

STEPS = 45
_QUERIES = (
    RecordQuery(),
    RecordQuery(all_tags=("tag-1", "tag-2")),
    RecordQuery("note.v1", any_tags=("tag-0", "tag-3")),
)


class RandomProcesses:
    """What processes do, one group of concurrent changes after the other. The same seed and answers, the same deeds."""

    def __init__(self, stores: list[SqliteStore], seed: int) -> None:
        self._stores = stores
        self._random = random.Random(seed)
        self._epochs: dict[str, int] = {}
        self._cards: dict[tuple[str, str], list[CallCard]] = {}
        self.told: list[tuple[str, Any]] = []

    async def begin_all(self) -> None:
        for number in range(3):
            store = self._random.choice(self._stores)
            await store.begin(a_turn(f"turn-{number}"), runs=self._random.random() < 0.7)

    async def step(self) -> None:
        store = self._random.choice(self._stores)
        names = self._random.choices(tuple(_DEEDS), k=self._random.choice((1, 1, 2, 3, 4)))
        deeds = [_DEEDS[name](self, store, self._random) for name in names]
        for name, answer in zip(names, await asyncio.gather(*deeds, return_exceptions=True), strict=True):
            self.told.append((name, self._read(answer)))

    def turn(self) -> Turn:
        """As it is, or as it was before it was taken over."""
        name = f"turn-{self._random.randrange(3)}"
        return a_turn(name, epoch=max(1, self._epochs.get(name, 1) - (self._random.random() < 0.15)))

    def call(self) -> str:
        return f"call-{self._random.randrange(3)}"

    def card(self) -> CallCard:
        """As the store gave it at some time, or as one who never asked would make it."""
        turn, call_id = self.turn(), self.call()
        known = self._cards.get((turn.id, call_id), [])
        return self._random.choice(known) if known and self._random.random() < 0.8 else a_card(a_call(call_id), turn)

    def _read(self, answer: Any) -> Any:
        if isinstance(answer, StoreError):
            return type(answer).__name__, str(answer)
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, CallCard):
            self._cards.setdefault((answer.turn_id, answer.call.id), []).append(answer)
            return _seen(answer)
        if isinstance(answer, (list, tuple)):
            return [self._read(one) for one in answer]
        if (opening := getattr(answer, "opening", None)) is not None:
            self._epochs[opening.id] = opening.epoch
            return opening.epoch, answer.state, answer.calls, len(answer.events)
        if (dispatch := getattr(answer, "dispatch", None)) is not None:
            return dispatch.turn_id, dispatch.call_id, dispatch.sent, answer.card.attempt
        return getattr(answer, "text", answer)


def _open(who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    card = a_card(a_call(who.call(), warm=chance.random() < 0.1), who.turn(), attempt=int(chance.random() < 0.3))
    return store.open(card, [a_row("allowed")])


def _claim(who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    until = chance.choice((None, None, NOW + 5, NOW - 5))
    return store.claim(who.card(), [a_row("started")], until=until, begins=chance.random() < 0.5)


def _close(who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    card = who.card()
    card = replace(card, token="") if chance.random() < 0.4 else card
    result = success(card.call, f"{chance.randrange(9)} degrees")
    return store.close(card, result, [a_row("finished")], ran=chance.random() < 0.7)


def _say(who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    turn, names = who.turn(), chance.sample(range(4), chance.randrange(3))
    cards = [a_card(a_call(f"call-{name}"), turn, attempt=chance.randrange(2)) for name in names]
    reply = Reply("I look.", calls=tuple(card.call for card in cards))
    return store.append_reply(turn, reply, cards, [a_row("allowed") for _ in cards])


def _dispatch(who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    turn, call_id = who.turn(), who.call()
    due, expires_at, repeatable = NOW - chance.randrange(3), NOW + chance.choice((-1, 99)), chance.random() < 0.5
    named = ("default", turn.id, call_id, f"{turn.id}/{call_id}", turn.epoch)
    return store.dispatch(Dispatch(*named, "subject", "{}", due, expires_at, repeatable), [])


def _end(who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    if chance.random() < 0.5:
        return store.release(who.turn())
    return store.end(replace(who.turn(), ending=Ending(EndReason.ANSWERED, "Done.")), TurnStats())


def _a_record(chance: random.Random) -> Record:
    tags = tuple(f"tag-{number}" for number in chance.sample(range(4), 2))
    hostile = {"text": "half \ud83d, \x00", "n": [float("inf"), 2**70]} if chance.random() < 0.2 else {"n": 1}
    return Record(
        f"record-{chance.randrange(4)}", "default", f"note.v{chance.randrange(2)}", tags=tags, context=hostile,
        sensitivity=chance.choice((Sensitivity.NORMAL, Sensitivity.SECRET)), created_by="ann", created_at=NOW,
        uses_left=chance.choice((None, 1, 2)), expires_at=chance.choice((None, None, NOW)),
    )  # fmt: skip


def _create_record(_who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    return store.create_record(_a_record(chance), key=chance.choice(("", "", "k", "l")), audit=[a_row("created")])


def _change_record(_who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    record, expected = _a_record(chance), chance.randrange(1, 4)
    return store.update_record(record, expected, audit=[a_row("updated")])


def _end_record(_who: RandomProcesses, store: SqliteStore, chance: random.Random) -> Awaitable[Any]:
    name, expected = f"record-{chance.randrange(4)}", chance.choice((None, 1, 2))
    deeds = (store.use_record(name), store.delete_record(name, by="ann", expected=expected))
    done, left = chance.sample(deeds, 2)
    left.close()
    return done


_DEEDS: dict[str, Callable[[RandomProcesses, SqliteStore, random.Random], Awaitable[Any]]] = {
    "begin": lambda who, store, _: store.begin(who.turn()),
    "resume": lambda who, store, _: store.resume(who.turn().id),
    "release": lambda who, store, _: store.release(who.turn()),
    "open": _open,
    "claim": _claim,
    "claim again": _claim,
    "renew": lambda who, store, chance: store.renew(who.card(), chance.choice((None, NOW + 50))),
    "close": _close,
    "say": _say,
    "dispatch": _dispatch,
    "due": lambda _, store, __: store.take_due(NOW + 1, lambda _: 1.0),
    "detach": lambda who, store, _: store.detach(who.card()),
    "cancel": lambda who, store, _: store.ask_to_cancel(who.card(), "too slow"),
    "audit": lambda _, store, __: store.audit([a_row("noted")]),
    "end": _end,
    "create record": _create_record,
    "create record again": _create_record,
    "change record": _change_record,
    "use or delete record": _end_record,
}


def _seen(card: CallCard) -> tuple[Any, ...]:
    """What does not depend on ids that are made up."""
    held = (card.epoch, card.attempt, bool(card.token), bool(card.owner), card.until)
    return card.turn_id, card.call.id, *held, card.detached, card.cancel, card.result and card.result.text


async def _left(store: SqliteStore) -> tuple[Any, ...]:
    """What is on record in the end."""
    return (
        sorted(map(repr, map(_seen, await store.calls(limit=100)))),
        sorted((turn.id, turn.state, turn.calls) for turn in await store.turns()),
        [row.event for row in await store.audit_log(limit=1_000)],
        (await store.audit_chain()).broken_at,
        (await store.spent("agent", NOW)).calls,
        [(tool.tool, tool.calls, tool.success) for tool in (await store.metrics())[0]],
        [[one.value for one in await store.records(query)] for query in _QUERIES],
        [one.value for one in await store.record_changes(limit=1_000)],
        sorted(one.id for one in await store.expire_records()),
    )


async def _played(seed: int, open_one: Callable[[], Awaitable[SqliteStore]]) -> tuple[list[Any], tuple[Any, ...]]:
    async with AsyncExitStack() as closing:
        stores = [await closing.enter_async_context(await open_one()) for _ in range(2)]
        processes = RandomProcesses(stores, seed)
        await processes.begin_all()
        for _ in range(STEPS):
            await processes.step()
        return processes.told, await _left(stores[0])


@pytest.mark.parametrize("seed", range(4))
async def test_two_processes_are_told_the_same_by_every_store(
    postgres: PostgresServer, tmp_path: Path, seed: int
) -> None:
    schema = new_schema()
    told, left = await _played(seed, lambda: SqliteStore.at(tmp_path / "sqlite", clock=lambda: NOW))
    told_by_server, left_by_server = await _played(
        seed, lambda: PostgresStore.on(postgres.url, tmp_path / "server", schema=schema, clock=lambda: NOW)
    )
    for number, (one, other) in enumerate(zip(told, told_by_server, strict=True)):
        assert one == other, f"answer {number}"
    assert left == left_by_server
