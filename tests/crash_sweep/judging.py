"""Waits until all turns and calls of a run have ended, and compares what is on record with what happened outside."""

import asyncio
import json
import sqlite3
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

from tests.crash_sweep.fleet import LEDGER, WRONG, Place
from tests.crash_sweep.striking import HISTORY, LASTS_S, LONGEST_ACK_WAIT_S, REPORTED, STRUCK
from tests.simulation.invariants import NO_RESULT, TWICE, wrong_about_call, wrong_in_log
from tests.simulation.workload import HELPER
from toolwire.errors import NotFound, StoreError
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import EndReason
from toolwire.record.contract import Store, TurnSummary
from toolwire.record.projects import of_project

_LOOKS_S, _PATIENCE_S = 0.1, 10.0
_LATE_S = 1.3 * LONGEST_ACK_WAIT_S
"""What the broker has not heard of comes again after the end, and must change nothing."""

_MOST = 1_000


@dataclass(slots=True)
class Verdict:
    """What came of a run."""

    turns: int = 0
    calls: int = 0
    lost: int = 0
    duplicated: int = 0
    unknown: int = 0
    again: int = 0
    wrong: list[str] = field(default_factory=list)


async def judge(place: Place, limit_s: float) -> Verdict:
    while True:
        try:
            store = await place.open_store("judge")
            break
        except StoreError:
            await asyncio.sleep(_LOOKS_S)
    verdict = Verdict()
    try:
        try:
            async with asyncio.timeout(limit_s):
                await _until_ended(place, store)
                await asyncio.sleep(_still_at_work_s(place) + _LATE_S)
                await _until_ended(place, store)
        except TimeoutError:
            verdict.wrong.append(f"after {limit_s:g} s not all has ended")
        verdict = await _once_it_answers(place, store, verdict.wrong)
    finally:
        await store.close_store()
    if not place.database:
        with closing(sqlite3.connect(place.home / "store.db")) as database:
            if (found := database.execute("PRAGMA integrity_check").fetchall()) != [("ok",)]:
                verdict.wrong.append(f"the database is not sound: {found}")
    told = place.folder / WRONG
    verdict.wrong += told.read_text().splitlines() if told.exists() else []
    return verdict


async def _once_it_answers(place: Place, store: Store, wrong: list[str]) -> Verdict:
    """Compare everything, again if the server of the store was struck meanwhile."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        verdict = Verdict(wrong=[*wrong])
        try:
            await _compare(place, store, verdict)
            verdict.wrong += [*await _look_at_log(place, store), *sorted(set(_under_older_epochs(place)))]
            chain = await store.audit_chain()
        except StoreError:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(_LOOKS_S)
            continue
        if chain.broken_at is not None:
            verdict.wrong.append(f"the audit log does not hold at {chain.broken_at}")
        return verdict


def _still_at_work_s(place: Place) -> float:
    """How long what was struck last may go on, although all has ended without it."""
    struck = place.folder / STRUCK
    lasts_s = max(LASTS_S.get(one.fault, 0.0) for one in place.points)
    return max(0.0, struck.stat().st_mtime + lasts_s - time.time()) if struck.exists() else 0.0


async def _look_at_log(place: Place, store: Store) -> list[str]:
    rows: list[AuditRow] = []
    while page := await store.audit_log(limit=_MOST, after=rows[-1].seq if rows else 0):
        rows += page
    _, cards = await _everything(place, store)
    attempts = {(card.project, card.turn_id, card.call.id): card.attempt for some in cards.values() for card in some}
    path = place.folder / REPORTED
    lines = path.read_text().splitlines() if path.exists() else []
    return list(wrong_in_log(rows, attempts, {tuple(json.loads(line)) for line in lines}))


def _under_older_epochs(place: Place) -> Iterator[str]:
    """Changes of turns by those who began them when another had taken the turn over already."""
    path = place.folder / HISTORY
    changes = list(map(json.loads, path.read_text().splitlines())) if path.exists() else []
    taken = defaultdict(list)
    for name, project, turn_id, epoch, _, _, ended in changes:
        if name == "resume":
            taken[project, turn_id].append((ended, epoch))
    held = set()
    for name, project, turn_id, epoch, claim, began, _ in changes:
        if claim and (project, turn_id, claim) in held:  # a holder may ask again
            continue
        held.add((project, turn_id, claim))
        newer = [other for at, other in taken[project, turn_id] if at < began and other > epoch]
        if newer and name != "resume":
            yield f"turn {turn_id} of {project} has epoch {max(newer)}, and {name} {claim} was done under {epoch}"


async def _everything(place: Place, store: Store) -> tuple[list[TurnSummary], dict[str, list[CallCard]]]:
    turns: list[TurnSummary] = []
    cards: dict[str, list[CallCard]] = defaultdict(list)
    for project in sorted({plan.project for plan in place.plans.begun}):
        turns += await store.turns(limit=_MOST, project=project)
        for card in await store.calls(limit=_MOST, project=project):
            cards[f"{project}/{card.turn_id}"].append(card)
    return turns, cards


async def _until_ended(place: Place, store: Store) -> None:
    while not await _has_ended(place, store):  # noqa: ASYNC110 -- other processes end it
        await asyncio.sleep(_LOOKS_S)


async def _has_ended(place: Place, store: Store) -> bool:
    try:
        turns, cards = await _everything(place, store)
    except StoreError:
        return False
    begun = {(turn.project, turn.id) for turn in turns}
    if any((plan.project, plan.turn_id) not in begun for plan in place.plans.begun):
        return False
    open_calls = (card for some in cards.values() for card in some if card.result is None)
    return all(turn.state == "ended" for turn in turns) and not any(open_calls)


async def _compare(place: Place, store: Store, verdict: Verdict) -> None:
    effects: dict[tuple[str, str], list[object]] = defaultdict(list)
    path = place.folder / LEDGER
    for line in path.read_text().splitlines() if path.exists() else ():
        project, key, *effect = json.loads(line)
        effects[project, key].append(effect)
    turns, cards = await _everything(place, store)
    tasks = Counter(turn.question for turn in turns if turn.agent == HELPER)
    if anew := [question for question, times in tasks.items() if times > 1]:
        verdict.wrong.append(f"tasks that were begun more than once: {anew}")
    for turn in turns:
        verdict.turns += 1
        if turn.state != "ended":
            verdict.lost += 1
            verdict.wrong.append(f"turn {turn.id} is {turn.state}: {turn.waits}")
        elif turn.reason not in (EndReason.ANSWERED, EndReason.CANCELED):
            verdict.wrong.append(f"turn {turn.id} ended as {turn.reason}")
        mine = cards[f"{turn.project}/{turn.id}"]
        planned = [one for step in place.plans.of(turn.project, turn.id, turn.question).steps for one in step]
        if twice := [key for key, times in Counter(map(_numbered, mine)).items() if key and times > 1]:
            verdict.wrong.append(f"calls of {turn.id} that were accepted more than once: {twice}")
        for card in mine:
            verdict.calls += 1
            key = (turn.project, f"{turn.id}/{card.call.id}")
            code = "" if card.result is None or card.result.error is None else card.result.error.code
            verdict.again += card.attempt > 1
            verdict.unknown += code == Code.OUTCOME_UNKNOWN
            if not any(one.is_made_by(card.call) for one in planned):
                verdict.wrong.append(f"call {key} was never planned")
            if card.result is not None and card.result.handle and not await _is_kept(store, card):
                verdict.wrong.append(f"the whole output of {key} is not kept")
            for wrong in wrong_about_call(card, effects.pop(key, [])):
                verdict.wrong.append(f"{card.call.name} {key}: {wrong}")
                verdict.lost += wrong == NO_RESULT
                verdict.duplicated += wrong == TWICE
    if effects:
        verdict.wrong.append(f"effects of calls that are not on record: {list(effects)}")


async def _is_kept(store: Store, card: CallCard) -> bool:
    assert card.result is not None
    assert card.result.handle is not None
    try:
        await of_project(store, card.project).fetch(card.result.handle)
    except NotFound:
        return False
    return True


def _numbered(card: CallCard) -> int:
    number = card.call.arguments.get("number", 0)
    return number if isinstance(number, int) else 0
