"""What each change of the SQLite store does in a transaction.

A change that must not happen gives back the exception instead of raising it, so that the others of its transaction,
and the audit row about it, are kept all the same.
"""

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from msgspec import Struct

from toolwire.errors import StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.budgets import Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Ending, Turn
from toolwire.record import ledger, refusals, reserved_usage
from toolwire.record.approval_clock import ApprovalClock
from toolwire.record.contract import Ends, LoopMetrics, Reservation, TurnStats
from toolwire.record.ledger import Answered, Claim, Step
from toolwire.record.liveness import Liveness
from toolwire.record.owners import mark_key
from toolwire.record.reads import read_spending as day_spending
from toolwire.record.reserving import reserve_cards
from toolwire.record.rows import (
    CallKey,
    Row,
    TurnKey,
    audit_rows,
    call_key,
    card_row,
    column,
    note_keys,
    read_card,
    result_row,
    turn_key,
    upsert,
    waits_json,
)  # fmt: skip
from toolwire.record.tally import day_of, loop_metrics, spending
from toolwire.record.transaction import CARD_COLUMNS, CARD_JOINS, Transaction, TurnRow
from toolwire.wire.codecs.faithful import dump, load
from toolwire.wire.codecs.stored import read_approval, write_approval, write_ending
from toolwire.wire.formats.tally import FormatTally, read_tally, write_tally

BEGIN_TURN = """
    INSERT INTO turns (seq, id, project, agent, thread, model, epoch, owner, state, opening, history, history_upto,
                       started_at, updated_at, since, calls, own_time, waits)
    VALUES ((SELECT max(coalesce((SELECT max(seq) FROM turns), 0),
                        coalesce((SELECT seq FROM cursor_floors WHERE kind = 'turns'), 0)) + 1),
            ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# How long a killed process went on is not written down: the results after its last word say when they came, and what
# they took. The less of both counts, since people may have been waited for.
_UNWRITTEN = """coalesce(max((
        SELECT min(max(r.created_at - turns.updated_at), (
            total(json_extract(r.context, '$.elapsed_ms')) + total(json_extract(r.context, '$.queued_ms'))
        ) / 1e3)
        FROM records r WHERE r.project = turns.project AND r.turn_id = turns.id AND r.schema_name = 'tool.result'
            AND r.created_at > turns.updated_at
    ), 0.0), 0.0)"""
TAKE_OVER = f"""
    UPDATE turns SET epoch = epoch + 1, owner = ?1, state = 'running', updated_at = ?2, since = ?2,
        before_s = ran_s + {_UNWRITTEN}, ran_s = ran_s + {_UNWRITTEN}
    WHERE project = ?3 AND id = ?4 AND epoch = ?5 AND state <> 'ended'
"""  # noqa: S608 -- our own words
TOUCH = """
    UPDATE turns SET updated_at = ?1, ran_s = coalesce(?2, ran_s), calls = calls + ?3, tokens = ?4, cost_usd = ?5
    WHERE project = ?6 AND id = ?7 AND epoch = ?8 AND state <> 'ended'
"""
RELEASE_TURN = """
    UPDATE turns SET owner = NULL, state = 'interrupted', updated_at = ?1, ran_s = coalesce(?2, ran_s), waits = ?6
    WHERE project = ?3 AND id = ?4 AND epoch = ?5 AND state <> 'ended'
"""
_OWNED = "SELECT project, id, epoch FROM turns INDEXED BY turns_running WHERE state = 'running' AND owner = ?"
_LET_GO = """
    UPDATE turns SET owner = NULL, state = 'interrupted'
    WHERE project = ? AND id = ? AND epoch = ? AND state = 'running'
"""
END_TURN = """
    UPDATE turns SET owner = NULL, state = 'ended', ending = ?, updated_at = ?,
        calls = max(calls + coalesce((SELECT c.calls FROM charges c
                                      WHERE c.turn_id = turns.id AND c.project = turns.project), 0), 0),
        ended = (SELECT coalesce(max(other.ended), 0) + 1 FROM turns other
                 WHERE other.thread = turns.thread AND other.project = turns.project)
    WHERE project = ? AND id = ? AND epoch = ? AND state <> 'ended'
"""
CHARGED = "DELETE FROM charges WHERE project = ? AND turn_id = ?"
UNFINISHED = f"""
    {CARD_COLUMNS}
    FROM records c
    {CARD_JOINS}
    WHERE c.project = ? AND c.turn_id = ? AND c.schema_name = 'tool.call' AND r.id IS NULL
"""
_NOT_STARTED = """
    INSERT INTO starts (project, turn_id, call_id, starts)
    SELECT project, turn_id, call_id, -CAST(coalesce(json_extract(context, '$.attempt'), 0) AS INTEGER) FROM records
    WHERE project = ? AND turn_id = ? AND call_id = ? AND schema_name = 'tool.call'
    ON CONFLICT (turn_id, project, call_id) DO UPDATE SET starts = excluded.starts, owner = NULL, until = NULL,
        epoch = NULL, token = NULL
"""
SPEND = """
    INSERT INTO spending (project, agent, day, calls, tokens, cost_usd, wall_s)
    VALUES (?1, ?2, ?3, (SELECT calls FROM turns WHERE project = ?1 AND id = ?4), ?5, ?6, ?7)
    ON CONFLICT (project, agent, day) DO UPDATE SET
        calls = spending.calls + excluded.calls, tokens = spending.tokens + excluded.tokens,
        cost_usd = spending.cost_usd + excluded.cost_usd, wall_s = spending.wall_s + excluded.wall_s
"""
_ASKED = "SELECT body FROM approvals WHERE project = ? AND turn_id = ? AND call_id = ?"
_APPROVAL = "SELECT body FROM approvals WHERE project = ? AND id = ?"
_ASK = """
    INSERT INTO approvals (seq, id, project, turn_id, call_id, body, expires_at)
    VALUES ((SELECT max(coalesce((SELECT max(seq) FROM approvals), 0),
                        coalesce((SELECT seq FROM cursor_floors WHERE kind = 'approvals'), 0)) + 1), ?, ?, ?, ?, ?, ?)
"""
_ANSWER = "UPDATE approvals SET body = ?, decided = ?, stands_until = ? WHERE project = ? AND id = ?"

_FORMAT = "SELECT tally FROM format_tallies WHERE project = ? AND model = ? AND offered = ?"
_SET_FORMAT = upsert("format_tallies", ("project", "model", "offered"), "tally")


T = TypeVar("T")
Seen = tuple[CallKey, TurnRow | None, CallCard]
"""A call without a result and its turn, as they were read."""
Begun = Callable[[str], "Collection[bytes] | None"]
"""The keys of the calls that an owner had begun; None where that is not known."""


class ChangeTime(Struct, frozen=True):
    """When a change is made, and by which store."""

    at: float
    store: str


def begin(
    tx: Transaction, key: TurnKey, row: Row, first: "OpenCard | None" = None
) -> CallCard | StoreError | None:  # fmt: skip
    """A new turn, and what came of its first call if that is written down with it."""
    if refusal := ledger.begin(key[1], tx.turn(key), dict(zip(ledger.NAMES_OF_TURN, row[1:5], strict=True))):
        return refusal
    tx.connection.execute(BEGIN_TURN, row)
    tx.set_turn(key, TurnRow(row[5], row[7], row[6]))
    if row[6] is not None:
        tx.known.here.add(key)
    return None if first is None else first(tx)


def resume(
    tx: Transaction, key: TurnKey, runs: Callable[[TurnKey], bool], owners: Liveness, at: float
) -> int | StoreError:
    """Take over a turn that no living owner runs; its new epoch. What this owner itself `runs`, it knows.

    Calls that its owner had not begun are as before it. The notes about all others pass to the new owner.
    """
    known, owner = tx.turn(key), owners.name
    epoch = ledger.resume(key[1], known, lambda old: runs(key) if old == owner else tx.alive(old))
    if isinstance(epoch, StoreError) or known is None:
        return epoch
    if known.owner is not None:
        _forget_starts(tx, key, owners.begun(known.owner))
    for card in _unfinished(tx, key):
        if card.attempt:
            owners.mark(note_keys(card)[0], column(card.call.id))
    tx.connection.execute(TAKE_OVER, (owner, at, *key, known.epoch))
    tx.set_turn(key, TurnRow(epoch, ledger.RUNNING, owner))
    return epoch


def say(
    tx: Transaction,
    turn: Turn,
    row: Row,
    cards: Sequence["OpenCard"],
    audit: Sequence[Row],
    sums: Row,
    now: ChangeTime,
    ran_s: float | None,
    reserve: Reservation | None = None,
) -> Sequence["OpenCard"] | StoreError:
    """A reply or a note, the cards that come with it, and what the turn has used by then."""
    key = turn_key(turn)
    known = tx.turn(key)
    if refusal := ledger.change_turn(turn, known):
        return refusal
    if reserve is not None:
        if reserve.settles:
            reserved_usage.release(tx, turn)
        reserve = None if reserve.most is None else reserve
    steps = [ledger.add_call(one.card, tx.call(one.key), known, now.at, tx.alive, now.store) for one in cards]
    for answer, _, conflict, _ in steps:
        if isinstance(answer, StoreError):
            tx.audit.extend(audit_rows(conflict))
            return answer
    charged = sum([step[3] for step in steps]) if reserve is None else 0
    tx.connection.execute(TOUCH, (now.at, ran_s, charged, *sums, *key, turn.epoch))
    if reserve is not None and any(one.card.result is None for one in cards):
        cards, audit = _reserved(tx, reserve, cards, audit, now.at)
        steps = [ledger.add_call(one.card, tx.call(one.key), known, now.at, tx.alive, now.store) for one in cards]
    tx.records.append(row)
    for one, (_, kept, _, _) in zip(cards, steps, strict=True):
        one.put(tx, kept)
    tx.audit.extend(audit)
    return cards


def _reserved(
    tx: Transaction, reserve: Reservation, cards: Sequence["OpenCard"], audit: Sequence[Row], at: float
) -> tuple[Sequence["OpenCard"], Sequence[Row]]:
    """The cards that the day has room for, and the rest refused; no other process counts at this moment."""
    of = cards[0].card
    spent = Spending()
    tx.write_charges()
    for agent in reserve.accounts:
        spent += day_spending(tx.connection, of.project, agent, day_of(at), "")
    outcome = reserve_cards(reserve, [one.card for one in cards], spent)
    kept, rows = list(cards), list(audit)
    for place, row in outcome.denied.items():
        kept[place] = open_card(outcome.cards[place], (), cards[place].now)
        rows[place : place + 1] = audit_rows([row])
    tx.charge(cards[0].key[:2], outcome.charged)
    return kept, rows


class OpenCard(Struct, frozen=True):
    """A card to be written down unless its identity is taken."""

    card: CallCard
    key: CallKey
    row: Row
    result_row: Row | None
    audit: Sequence[Row]
    now: ChangeTime
    reserve: Reservation | None = None

    def __call__(self, tx: Transaction) -> CallCard | StoreError:
        now, turn, kept = self.now, tx.turn(self.key[:2]), tx.call(self.key)
        step = ledger.open_call(self.card, kept, turn, now.at, tx.alive, now.store)
        answer, after, audit, charge = step
        if kept is None and after is not None:
            return self._new(tx, step)
        tx.audit.extend(audit_rows(audit))
        self.put(tx, after)
        tx.charge(self.key[:2], charge)
        return answer

    def _new(self, tx: Transaction, step: Step[CallCard]) -> CallCard | StoreError:
        one, audit, now = self, self.audit, self.now
        if self.reserve is None:
            tx.charge(self.key[:2], step[3])
        elif self.card.result is None:
            [one], audit = _reserved(tx, self.reserve, [self], audit, now.at)
            step = ledger.add_call(one.card, None, tx.turn(self.key[:2]), now.at, tx.alive, now.store)
        tx.audit.extend(audit)
        if step[1] is not None:
            one._add(tx, step[1])
        return step[0]

    def put(self, tx: Transaction, card: CallCard | None) -> None:
        """Write down what the rule says."""
        if card is None:
            return
        if tx.call(self.key) is None:
            self._add(tx, card)
        else:
            self._end(tx, card)

    def _add(self, tx: Transaction, card: CallCard) -> None:
        tx.add_call(self.key, card, self.row)
        if card.result is not None:
            self._end(tx, card)

    def _end(self, tx: Transaction, card: CallCard) -> None:
        if card.result is not None and self.result_row is not None:
            tx.end_call(self.key, card.result, self.result_row, self.now.at)


def open_card(
    card: CallCard, audit: Sequence[AuditRow], now: ChangeTime, reserve: Reservation | None = None
) -> OpenCard:
    result = None if card.result is None else result_row(card, card.result, now.at)
    row = card_row(card)
    return OpenCard(card, (row[1], row[7], row[8]), row, result, audit_rows(audit), now, reserve)


def claim(
    tx: Transaction, card: CallCard, audit: Sequence[Row], now: ChangeTime, claim: Claim
) -> CallCard | StoreError:
    key = call_key(card)
    kept = tx.call(key)
    answer, mine, _, _ = ledger.claim_call(card, kept, tx.turn(key[:2]), now.at, tx.alive, claim)
    if mine is not None and kept is not None:
        tx.claim_call(key, mine, more=mine.attempt - kept.attempt)
        tx.audit.extend(audit)
    return answer


def after_reading(tx: Transaction, change: Callable[[Transaction], T], seen: Seen) -> T:  # noqa: ARG001 -- for `Needs`
    """A change of a call that was read just before. A server is then not asked again what was `seen`."""
    return change(tx)


def renew(tx: Transaction, card: CallCard, store: str, until: float | None) -> CallCard | StoreError:
    key = call_key(card)
    answer, longer, _, _ = ledger.renew_call(card, tx.call(key), tx.turn(key[:2]), store, until)
    if longer is not None:
        tx.claim_call(key, longer, more=0)
    return answer


def mark(
    tx: Transaction, card: CallCard, rule: Callable[[CallCard, CallCard | None, TurnRow | None], Step[CallCard]]
) -> CallCard | StoreError:
    """Let a rule mark a call."""
    key = call_key(card)
    answer, marked, _, _ = rule(card, tx.call(key), tx.turn(key[:2]))
    if marked is not None:
        tx.mark_call(key, marked)
    return answer


def close(
    tx: Transaction, card: CallCard, result: ToolResult, row: Row, audit: Sequence[Row], now: ChangeTime, *, ran: bool
) -> ToolResult | StoreError:
    key, turn = (row[1], row[7], row[8]), (row[1], row[7])
    # What a holder brings counts whatever becomes of the turn meanwhile, so that the turn may change.
    kept_turn = tx.turn(turn) if not card.token else tx.turn_of_holder(turn)
    refused = ledger.refuse_close(card, result, tx.call(key), kept_turn, now.at, tx.alive, now.store)
    if refused is not None:
        tx.audit.extend(audit_rows(refused[2]))
        return refused[0]
    tx.end_call(key, result, row, now.at)
    if not ran:
        tx.charge(turn, -1)
    tx.audit.extend(audit)
    return result


def claim_and(tx: Transaction, card: CallCard, now: ChangeTime, by: Claim, change: Callable[[Transaction], T]) -> T:
    """A change of a call that ran before it was claimed. Where the claim is refused, so is what its holder does."""
    claim(tx, card, (), now, by)
    return change(tx)


def _unfinished(tx: Transaction, key: TurnKey) -> list[CallCard]:
    """The calls of a turn that have no result."""
    if tx.facts is not None and (known := tx.facts.unfinished_of(key)) is not None:
        return known
    tx.flush()
    return [read_card(row) for row in tx.connection.execute(UNFINISHED, key).fetchall()]


def end(tx: Transaction, turn: Turn, ending: Ending, stats: TurnStats, at: float) -> StoreError | None:
    key = turn_key(turn)
    if refusal := ledger.change_turn(turn, tx.turn(key)):
        return refusal
    kept = dump(write_ending(ending))
    tx.write_charges()
    tx.connection.execute(END_TURN, (kept, at, *key, turn.epoch))
    tx.connection.execute(CHARGED, key)
    tx.set_turn(key, TurnRow(turn.epoch, ledger.ENDED, None))
    whose, turn_id = key
    tx.loops[whose] = loop_metrics(tx.loops.get(whose, LoopMetrics()), stats, ending.reason)
    for tally in stats.formats:
        _count_format(tx, turn.project, tally)
    used = spending(Spending(), stats, 0)
    row = (whose, column(turn.agent), day_of(at), turn_id, used.tokens, used.cost_usd, used.wall_s)
    tx.connection.execute(SPEND, row)
    return None


def close_and_end(
    tx: Transaction,
    change: Callable[[Transaction], ToolResult | StoreError],
    ends: Ends,
    at: float,
    tell_end: Callable[[bool], None] | None = None,
) -> ToolResult | StoreError:
    """Close the only call of a turn, which ends with it; for another process than its runner, if it still runs."""
    first = change(tx)
    if isinstance(first, StoreError):
        return first
    turn, stats = ends(first)
    if tell_end is not None:
        tell_end(still_runs := ledger.still_runs(turn.epoch, tx.turn(turn_key(turn))))
        if not still_runs:
            return first
    return end(tx, turn, refusals.ending_of(turn), stats, at) or first


def _count_format(tx: Transaction, project: str, tally: FormatTally) -> None:
    key = (column(project), column(tally.model), column(tally.offered))
    known = tx.connection.execute(_FORMAT, key).fetchone()
    total = read_tally(load(known[0])) + tally if known else tally
    tx.connection.execute(_SET_FORMAT, (*key, dump(write_tally(total))))


def _forget_starts(tx: Transaction, key: TurnKey, begun: Collection[bytes] | None) -> None:
    """Calls without a result that were written down as started, and that had not begun, have not been started."""
    if begun is None:
        return
    cards = ledger.not_begun(_unfinished(tx, key), lambda card: _has_note(card, begun))
    for card in cards:
        tx.connection.execute(_NOT_STARTED, call_key(card))
    if cards:
        tx.forget_calls(key)


def _has_note(card: CallCard, begun: Collection[bytes]) -> bool:
    """Whether its owner had noted that a call begins."""
    return any(mark_key(turn, column(card.call.id)) in begun for turn in note_keys(card))


def release(
    tx: Transaction, turn: Turn, at: float, ran_s: float | None, begun: Collection[bytes] | None
) -> StoreError | None:
    key = turn_key(turn)
    if refusal := ledger.change_turn(turn, tx.turn(key)):
        return refusal
    _forget_starts(tx, key, begun)
    tx.connection.execute(RELEASE_TURN, (at, ran_s, *key, turn.epoch, waits_json(turn.waits)))
    tx.set_turn(key, TurnRow(turn.epoch, ledger.INTERRUPTED, None))
    return None


def release_unrun(tx: Transaction, owner: str, runs: Callable[[TurnKey], bool], begun: Begun) -> None:
    """Let go of all that a store owns but does not run."""
    for project, turn_id, epoch in tx.connection.execute(_OWNED, (owner,)).fetchall():
        key = (project, turn_id)
        if not runs(key):
            _forget_starts(tx, key, begun(owner))
            tx.connection.execute(_LET_GO, (*key, epoch))
            tx.known.turns.pop(key, None)


def request_approval(
    tx: Transaction, card: ApprovalCard, audit: Sequence[Row], asked: ApprovalClock
) -> ApprovalCard | StoreError:
    key = (column(card.project), column(card.turn_id), column(card.call_id))
    known = tx.connection.execute(_ASKED, key).fetchone()
    first = None if known is None else read_approval(load(known[0]))
    kept = ledger.request_approval(first, asked.date(first) if first else 0.0)
    if kept is not None:
        return kept
    tx.connection.execute(_ASK, (column(card.id), *key, dump(write_approval(card)), card.expires_at))
    tx.audit.extend(audit)
    return card


def answer(
    tx: Transaction, project: str, approval_id: str, answer: Approval, at: float, asked: ApprovalClock
) -> ApprovalCard | StoreError:
    card = _approval(tx, project, approval_id)
    turn = None if card is None else tx.turn((column(project), column(card.turn_id)))
    date = 0.0 if card is None else asked.date(card)
    return _keep_answer(tx, ledger.answer(approval_id, card, turn, answer, at=at, date=date))


def revoke(
    tx: Transaction, project: str, approval_id: str, by: str, at: float, asked: ApprovalClock
) -> ApprovalCard | StoreError:
    card = _approval(tx, project, approval_id)
    date = 0.0 if card is None else asked.date(card)
    return _keep_answer(tx, ledger.revoke(approval_id, card, by, at, date))


def _approval(tx: Transaction, project: str, approval_id: str) -> ApprovalCard | None:
    row = tx.connection.execute(_APPROVAL, (column(project), column(approval_id))).fetchone()
    return None if row is None else read_approval(load(row[0]))


def _keep_answer(tx: Transaction, done: Answered | StoreError) -> ApprovalCard | StoreError:
    if isinstance(done, StoreError):
        return done
    card = done.card
    decided = int(card.state is not ApprovalState.OPEN)
    key = (column(card.project), column(card.id))
    tx.connection.execute(_ANSWER, (dump(write_approval(card)), decided, card.stands_until, *key))
    tx.audit.extend(audit_rows([done.audit]))
    return card


def append(tx: Transaction, audit: Sequence[Row]) -> None:
    tx.audit.extend(audit)
