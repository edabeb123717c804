"""What each change of the SQLite store does to a page.

A change that must not happen gives back the exception instead of raising it, so that the others of its transaction,
and the audit row about it, are kept all the same.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from toolwire.errors import StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.budgets import Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Ending, Turn
from toolwire.protocol.values import dataclass, quick
from toolwire.record import refusals
from toolwire.record.asked import Asked
from toolwire.record.contract import LoopMetrics, Reservation, TurnStats
from toolwire.record.liveness import Liveness
from toolwire.record.owners import mark_key
from toolwire.record.page import LOOP_SUMS, Page
from toolwire.record.reads import spent as day_spending
from toolwire.record.reserving import reserved
from toolwire.record.rows import CALL, RESULT, Row, audit_rows, card_row, column, identity, result_row, waits_json
from toolwire.record.tally import day_of, loop_metrics, spending
from toolwire.wire.faithful import dump, load
from toolwire.wire.format_tally import FormatTally, read_tally, write_tally
from toolwire.wire.stored import read_approval, write_approval

_BEGIN = """
    INSERT INTO turns (id, project, agent, thread, model, epoch, owner, state, opening, history, history_upto,
                       started_at, updated_at, since, calls, own_time, waits)
    VALUES (?, ?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
# Nobody wrote down how long a killed process went on: the results after its last word say when they came, and what
# they took. The less of both counts, since people may have been waited for.
_UNWRITTEN = """
    SELECT min(max(r.created_at) - t.updated_at,
               (total(json_extract(r.context, '$.elapsed_ms')) + total(json_extract(r.context, '$.queued_ms'))) / 1e3)
    FROM turns t JOIN records r ON r.turn_id = t.id AND r.schema_name = 'tool.result' AND r.created_at > t.updated_at
    WHERE t.id = ?
"""
_TAKE_OVER = """
    UPDATE turns SET epoch = epoch + 1, owner = ?1, state = 'running', updated_at = ?2, since = ?2,
        before_s = ran_s + ?3, ran_s = ran_s + ?3
    WHERE id = ?4 AND epoch = ?5 AND state <> 'ended'
"""
_TOUCH = """
    UPDATE turns SET updated_at = ?1, ran_s = coalesce(?2, ran_s), calls = calls + ?3, tokens = ?4, cost_usd = ?5
    WHERE id = ?6 AND epoch = ?7 AND state <> 'ended'
"""
_RELEASE = """
    UPDATE turns SET owner = NULL, state = 'interrupted', updated_at = ?1, ran_s = coalesce(?2, ran_s), waits = ?5
    WHERE id = ?3 AND epoch = ?4 AND state <> 'ended'
"""
_OWNED = "SELECT id, epoch FROM turns INDEXED BY turns_running WHERE state = 'running' AND owner = ?"
_LET_GO = "UPDATE turns SET owner = NULL, state = 'interrupted' WHERE id = ? AND epoch = ? AND state = 'running'"
_END = """
    UPDATE turns SET owner = NULL, state = 'ended', ending = ?, updated_at = ?,
        calls = max(calls + coalesce((SELECT c.calls FROM charges c WHERE c.turn_id = turns.id), 0), 0),
        ended = (SELECT coalesce(max(other.ended), 0) + 1 FROM turns other WHERE other.thread = turns.thread)
    WHERE id = ? AND epoch = ? AND state <> 'ended'
"""
_CHARGED = "DELETE FROM charges WHERE turn_id = ?"
_START = """
    INSERT INTO starts (turn_id, call_id, starts) VALUES (?, ?, 1)
    ON CONFLICT (turn_id, call_id) DO UPDATE SET starts = starts + 1
"""
_WITHOUT_RESULT = """
    SELECT c.call_id, json_extract(c.context, '$.attempt') FROM records c
    WHERE c.turn_id = ? AND c.schema_name = 'tool.call' AND NOT EXISTS (
        SELECT 1 FROM records r WHERE r.turn_id = c.turn_id AND r.call_id = c.call_id AND r.schema_name = 'tool.result'
    )
"""
_STARTED = """
    SELECT c.call_id FROM records c LEFT JOIN starts s ON s.turn_id = c.turn_id AND s.call_id = c.call_id
    WHERE c.turn_id = ? AND c.schema_name = 'tool.call'
        AND coalesce(json_extract(c.context, '$.attempt'), 0) + coalesce(s.starts, 0) > 0 AND NOT EXISTS (
        SELECT 1 FROM records r WHERE r.turn_id = c.turn_id AND r.call_id = c.call_id AND r.schema_name = 'tool.result'
    )
"""
_NOT_STARTED = "INSERT OR REPLACE INTO starts (turn_id, call_id, starts) VALUES (?, ?, ?)"
_SET_LOOP = "INSERT OR REPLACE INTO loop_metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_SPEND = """
    INSERT INTO spending (project, agent, day, calls, tokens, cost_usd, wall_s)
    VALUES (?, ?, ?, (SELECT calls FROM turns WHERE id = ?), ?, ?, ?)
    ON CONFLICT (project, agent, day) DO UPDATE SET calls = calls + excluded.calls, tokens = tokens + excluded.tokens,
        cost_usd = cost_usd + excluded.cost_usd, wall_s = wall_s + excluded.wall_s
"""
_ASKED = "SELECT body FROM approvals WHERE turn_id = ? AND call_id = ?"
_APPROVAL = "SELECT body FROM approvals WHERE id = ?"
_ASK = "INSERT INTO approvals (id, turn_id, call_id, body, expires_at) VALUES (?, ?, ?, ?, ?)"
_ANSWER = "UPDATE approvals SET body = ?, decided = ?, stands_until = ? WHERE id = ?"

_FORMAT = "SELECT tally FROM format_tallies WHERE model = ? AND offered = ?"
_SET_FORMAT = "INSERT OR REPLACE INTO format_tallies VALUES (?, ?, ?)"


Begun = Callable[[str], "Collection[bytes] | None"]
"""The keys of the calls that an owner had begun; None where that is not known."""


def begin(page: Page, turn_id: str, row: Row) -> StoreError | None:
    if page.turn(turn_id):
        return refusals.already_begun(turn_id)
    page.connection.execute(_BEGIN, row)
    page.set_turn(turn_id, row[5], "running")
    page.known.here.add(turn_id)
    return None


def resume(
    page: Page, turn_id: str, owner: str, taken: Callable[[str, str], bool], owners: Liveness, at: float
) -> int | StoreError:
    """Take over a turn that nobody has `taken`; its new epoch.

    Calls that its owner had not begun are as before it. The notes about all others pass to the new owner.
    """
    known = page.turn(turn_id)
    if known is None:
        return refusals.no_turn(turn_id)
    epoch, state = known
    if state == "ended":
        return refusals.ended(turn_id)
    (before,) = page.connection.execute("SELECT owner FROM turns WHERE id = ?", (turn_id,)).fetchone()
    if before is not None and taken(before, turn_id):
        return refusals.owned(turn_id)
    if before is not None:
        _forget_starts(page, turn_id, owners.begun(before))
    for (call_id,) in page.connection.execute(_STARTED, (turn_id,)).fetchall():
        owners.mark(turn_id, call_id)
    (unwritten_s,) = page.connection.execute(_UNWRITTEN, (turn_id,)).fetchone()
    page.connection.execute(_TAKE_OVER, (owner, at, max(unwritten_s or 0.0, 0.0), turn_id, epoch))
    page.set_turn(turn_id, epoch + 1, "running")
    return int(epoch) + 1


def say(
    page: Page,
    turn: Turn,
    row: Row,
    cards: Sequence["OpenCard"],
    audit: Sequence[Row],
    sums: Row,
    at: float,
    ran_s: float | None,
    reserve: Reservation | None = None,
) -> Sequence["OpenCard"] | StoreError:
    """A reply or a note, the cards that come with it, and what the turn has used by then."""
    if refusal := _not_held(page, turn):
        return refusal
    for card in cards:
        if (found := card.found(page)) is not None and isinstance(kept := card.checked(page, found), StoreError):
            return kept
    wanted = sum(card.card.result is None for card in cards)
    charged = wanted if reserve is None else 0
    page.connection.execute(_TOUCH, (at, ran_s, charged, *sums, column(turn.id), turn.epoch))
    if reserve is not None and wanted:
        cards, audit = _reserved(page, reserve, cards, audit, at)
    page.records.append(row)
    for card in cards:
        card.put(page)
    page.audit.extend(audit)
    return cards


def _reserved(
    page: Page, reserve: Reservation, cards: Sequence["OpenCard"], audit: Sequence[Row], at: float
) -> tuple[Sequence["OpenCard"], Sequence[Row]]:
    """The cards that the day has room for, and the rest refused; nobody else can count at this moment."""
    of = cards[0].card
    spent = Spending()
    page.write_charges()
    for agent in reserve.accounts:
        spent += day_spending(page.connection, of.project, agent, day_of(at), "")
    outcome = reserved(reserve, [one.card for one in cards], spent)
    kept, rows = list(cards), list(audit)
    for place, row in outcome.denied.items():
        kept[place] = open_card(outcome.cards[place], (), at)
        rows[place : place + 1] = audit_rows([row])
    page.charge(column(of.turn_id), outcome.charged)
    return kept, rows


@quick
@dataclass(frozen=True, slots=True)
class OpenCard:
    """A card to be written down unless its identity is taken."""

    card: CallCard
    key: tuple[str, str]
    row: Row
    result_row: Row | None
    audit: Sequence[Row]
    at: float
    reserve: Reservation | None = None

    def __call__(self, page: Page) -> CallCard | StoreError:
        if refusal := _stale(page, self.card, self.key[0]):
            return refusal
        found = self.found(page)
        if found is None:
            return self._new(page)
        checked = self.checked(page, found)
        if isinstance(checked, StoreError) or checked.result is not None or self.card.result is None:
            return checked
        self.put(page)
        if not checked.attempt:  # it was reserved, and is refused now
            page.charge(self.key[0], -1)
        return replace(checked, result=self.card.result)

    def _new(self, page: Page) -> CallCard:
        one, audit = self, self.audit
        if self.card.result is None:
            if self.reserve is None:
                page.charge(self.key[0], 1)
            else:
                [one], audit = _reserved(page, self.reserve, [self], audit, self.at)
        page.audit.extend(audit)
        one.put(page)
        return one.card

    def found(self, page: Page) -> CallCard | None:
        return page.card(self.key) if CALL in page.kept(self.key) else None

    def checked(self, page: Page, found: CallCard) -> CallCard | StoreError:
        """The card kept first, under the caller's epoch, if it is for the same arguments."""
        if found.args_digest == self.card.args_digest:
            return replace(found, epoch=self.card.epoch)
        page.audit.extend(audit_rows([refusals.conflict_row(self.card, self.at)]))
        return refusals.conflict(self.card)

    def put(self, page: Page) -> None:
        kinds = page.kept(self.key)
        if CALL not in kinds:
            page.records.append(self.row)
            kinds.add(CALL)
        if self.card.result is not None and self.result_row is not None and RESULT not in kinds:
            page.add_result(kinds, self.card.result, self.result_row, self.at)


def open_card(card: CallCard, audit: Sequence[AuditRow], at: float, reserve: Reservation | None = None) -> OpenCard:
    result = None if card.result is None else result_row(card, card.result, at)
    row = card_row(card)
    return OpenCard(card, (row[7], row[8]), row, result, audit_rows(audit), at, reserve)


def start(page: Page, card: CallCard, audit: Sequence[Row]) -> CallCard | StoreError:
    key = identity(card)
    if refusal := _stale(page, card, key[0]):
        return refusal
    kinds = page.kept(key)
    if CALL not in kinds:
        return refusals.no_call(card)
    if RESULT not in kinds:
        page.connection.execute(_START, key)
        page.audit.extend(audit)
    return replace(page.card(key), epoch=card.epoch)


def close(
    page: Page, card: CallCard, result: ToolResult, row: Row, audit: Sequence[Row], at: float, *, ran: bool
) -> ToolResult | StoreError:
    key = (row[7], row[8])
    if refusal := _stale(page, card, key[0]):
        return refusal
    kinds = page.kept(key)
    if CALL not in kinds:
        return refusals.no_call(card)
    if RESULT in kinds and (first := page.card(key).result) is not None:
        page.audit.extend(audit_rows([refusals.late_result(card, result, at)]))
        return first
    page.add_result(kinds, result, row, at)
    if not ran:
        page.charge(key[0], -1)
    page.audit.extend(audit)
    return result


def end(page: Page, turn: Turn, ending: Ending, stats: TurnStats, at: float) -> StoreError | None:
    if refusal := _not_held(page, turn):
        return refusal
    kept = dump({"reason": ending.reason.value, "answer": ending.answer})
    page.write_charges()
    page.connection.execute(_END, (kept, at, column(turn.id), turn.epoch))
    page.connection.execute(_CHARGED, (column(turn.id),))
    page.set_turn(column(turn.id), turn.epoch, "ended")
    whose = column(turn.project)
    sums = page.connection.execute(LOOP_SUMS, (whose,)).fetchone()
    metrics = loop_metrics(LoopMetrics(*sums) if sums else LoopMetrics(), stats, ending.reason)
    page.connection.execute(_SET_LOOP, (whose, *(getattr(metrics, name) for name in LoopMetrics.__slots__)))
    for tally in stats.formats:
        _count_format(page, tally)
    used = spending(Spending(), stats, 0)
    row = (whose, column(turn.agent), day_of(at), column(turn.id), used.tokens, used.cost_usd, used.wall_s)
    page.connection.execute(_SPEND, row)
    return None


def _count_format(page: Page, tally: FormatTally) -> None:
    key = (column(tally.model), column(tally.offered))
    known = page.connection.execute(_FORMAT, key).fetchone()
    total = read_tally(load(known[0])) + tally if known else tally
    page.connection.execute(_SET_FORMAT, (*key, dump(write_tally(total))))


def _forget_starts(page: Page, turn_id: str, begun: Collection[bytes] | None) -> None:
    """Calls without a result that were written down as started, and that nobody had begun, have not been started."""
    if begun is None:
        return
    for call_id, opened_as in page.connection.execute(_WITHOUT_RESULT, (turn_id,)).fetchall():
        if mark_key(turn_id, call_id) not in begun:
            page.connection.execute(_NOT_STARTED, (turn_id, call_id, -(opened_as or 0)))


def release(
    page: Page, turn: Turn, at: float, ran_s: float | None, begun: Collection[bytes] | None
) -> StoreError | None:
    if refusal := _not_held(page, turn):
        return refusal
    _forget_starts(page, column(turn.id), begun)
    page.connection.execute(_RELEASE, (at, ran_s, column(turn.id), turn.epoch, waits_json(turn.waits)))
    page.set_turn(column(turn.id), turn.epoch, "interrupted")
    return None


def release_unrun(page: Page, owner: str, runs: Callable[[str], bool], begun: Begun) -> None:
    """Let go of all that a store owns but does not run."""
    for turn_id, epoch in page.connection.execute(_OWNED, (owner,)).fetchall():
        if not runs(turn_id):
            _forget_starts(page, turn_id, begun(owner))
            page.connection.execute(_LET_GO, (turn_id, epoch))
            page.set_turn(turn_id, epoch, "interrupted")


def ask_people(page: Page, card: ApprovalCard, audit: Sequence[Row], asked: Asked) -> ApprovalCard:
    key = (column(card.turn_id), column(card.call_id))
    known = page.connection.execute(_ASKED, key).fetchone()
    if known is not None:
        first = read_approval(load(known[0]))
        return first.at(asked.date(first.id))
    page.connection.execute(_ASK, (column(card.id), *key, dump(write_approval(card)), card.expires_at))
    page.audit.extend(audit)
    return card


def answer(page: Page, approval_id: str, answer: Approval, at: float, asked: Asked) -> ApprovalCard | StoreError:
    known = page.connection.execute(_APPROVAL, (column(approval_id),)).fetchone()
    if known is None:
        return refusals.no_approval(approval_id)
    card = read_approval(load(known[0])).at(asked.date(approval_id))
    if card.state is not ApprovalState.OPEN:
        return refusals.decided(card)
    turn = page.turn(column(card.turn_id))
    if turn is not None and turn[1] == "ended":
        return refusals.ended_before_answer(card)
    after = card.answered(answer, at)
    _keep_answers(page, after)
    page.audit.extend(audit_rows([refusals.answer_row(card, answer, at)]))
    return after


def revoke(page: Page, approval_id: str, by: str, at: float) -> ApprovalCard | StoreError:
    known = page.connection.execute(_APPROVAL, (column(approval_id),)).fetchone()
    if known is None:
        return refusals.no_approval(approval_id)
    card = read_approval(load(known[0])).at(at)
    if card.stands_until <= at:
        return refusals.stands_no_more(card)
    _keep_answers(page, card.revoked())
    page.audit.extend(audit_rows([refusals.revoked_row(card, by, at)]))
    return card.revoked()


def _keep_answers(page: Page, card: ApprovalCard) -> None:
    decided = int(card.state is not ApprovalState.OPEN)
    page.connection.execute(_ANSWER, (dump(write_approval(card)), decided, card.stands_until, column(card.id)))


def append(page: Page, audit: Sequence[Row]) -> None:
    page.audit.extend(audit)


def _not_held(page: Page, turn: Turn) -> StoreError | None:
    """Why this epoch may not change the turn any more, if so."""
    known = page.turn(column(turn.id))
    if known is None:
        return refusals.no_turn(turn.id)
    current, state = known
    if current != turn.epoch:
        return refusals.taken_over(turn.id, turn.epoch, current)
    return refusals.ended(turn.id) if state == "ended" else None


def _stale(page: Page, card: CallCard, turn_id: str) -> StoreError | None:
    known = page.turn(turn_id)
    if known is None or known[0] == card.epoch:
        return None
    return refusals.taken_over(card.turn_id, card.epoch, known[0])
