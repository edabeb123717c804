"""What each change of the SQLite store does to a page.

A change that must not happen gives back the exception instead of raising it, so that the others of its transaction,
and the audit row about it, are kept all the same.
"""

from collections.abc import Callable, Collection, Sequence

from toolwire.errors import StoreError
from toolwire.protocol.approvals import Approval, ApprovalCard, ApprovalState
from toolwire.protocol.budgets import Spending
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.protocol.turns import Ending, Turn
from toolwire.protocol.values import dataclass, quick
from toolwire.record import ledger
from toolwire.record.asked import Asked
from toolwire.record.contract import LoopMetrics, Reservation, TurnStats
from toolwire.record.ledger import Alive, Answered, Claim, Step
from toolwire.record.liveness import Liveness
from toolwire.record.owners import mark_key
from toolwire.record.page import CARD_COLUMNS, LOOP_SUMS, Page, TurnRow
from toolwire.record.reads import spent as day_spending
from toolwire.record.reserving import reserved
from toolwire.record.rows import (
    Row,
    audit_rows,
    card_row,
    column,
    identity,
    project_key,
    read_card,
    result_row,
    waits_json,
)  # fmt: skip
from toolwire.record.tally import day_of, loop_metrics, spending
from toolwire.wire.faithful import dump, load
from toolwire.wire.format_tally import FormatTally, read_tally, write_tally
from toolwire.wire.stored import read_approval, write_approval

_BEGIN = """
    INSERT INTO turns (seq, id, project, agent, thread, model, epoch, owner, state, opening, history, history_upto,
                       started_at, updated_at, since, calls, own_time, waits)
    VALUES ((SELECT max(coalesce((SELECT max(seq) FROM turns), 0),
                        coalesce((SELECT seq FROM cursor_floors WHERE kind = 'turns'), 0)) + 1),
            ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?, ?, ?, ?, ?, ?)
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
        ended = (SELECT coalesce(max(other.ended), 0) + 1 FROM turns other
                 WHERE other.thread = turns.thread AND other.project = turns.project)
    WHERE id = ? AND epoch = ? AND state <> 'ended'
"""
_CHARGED = "DELETE FROM charges WHERE turn_id = ?"
_UNFINISHED = f"""
    {CARD_COLUMNS}
    FROM records c LEFT JOIN starts s ON s.turn_id = c.turn_id AND s.call_id = c.call_id
    LEFT JOIN records r ON r.turn_id = c.turn_id AND r.call_id = c.call_id AND r.schema_name = 'tool.result'
    WHERE c.turn_id = ? AND c.schema_name = 'tool.call' AND r.id IS NULL
"""
_NOT_STARTED = """
    INSERT OR REPLACE INTO starts (turn_id, call_id, starts)
    SELECT turn_id, call_id, -coalesce(json_extract(context, '$.attempt'), 0) FROM records
    WHERE turn_id = ? AND call_id = ? AND schema_name = 'tool.call'
"""
_SET_LOOP = "INSERT OR REPLACE INTO loop_metrics VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"

_SPEND = """
    INSERT INTO spending (project, agent, day, calls, tokens, cost_usd, wall_s)
    VALUES (?, ?, ?, (SELECT calls FROM turns WHERE id = ?), ?, ?, ?)
    ON CONFLICT (project, agent, day) DO UPDATE SET calls = calls + excluded.calls, tokens = tokens + excluded.tokens,
        cost_usd = cost_usd + excluded.cost_usd, wall_s = wall_s + excluded.wall_s
"""
_ASKED = "SELECT body FROM approvals WHERE turn_id = ? AND call_id = ?"
_APPROVAL = "SELECT body FROM approvals WHERE id = ?"
_ASK = """
    INSERT INTO approvals (seq, id, turn_id, call_id, body, expires_at)
    VALUES ((SELECT max(coalesce((SELECT max(seq) FROM approvals), 0),
                        coalesce((SELECT seq FROM cursor_floors WHERE kind = 'approvals'), 0)) + 1), ?, ?, ?, ?, ?)
"""
_ANSWER = "UPDATE approvals SET body = ?, decided = ?, stands_until = ? WHERE id = ?"

_FORMAT = "SELECT tally FROM format_tallies WHERE model = ? AND offered = ?"
_SET_FORMAT = "INSERT OR REPLACE INTO format_tallies VALUES (?, ?, ?)"


Begun = Callable[[str], "Collection[bytes] | None"]
"""The keys of the calls that an owner had begun; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Now:
    """When a change is made, by which store, and who is alive."""

    at: float
    store: str
    alive: Alive


def begin(page: Page, turn_id: str, row: Row) -> StoreError | None:
    if refusal := ledger.begin(turn_id, page.turn(turn_id)):
        return refusal
    page.connection.execute(_BEGIN, row)
    page.set_turn(turn_id, TurnRow(row[1], row[5], ledger.RUNNING, row[6]))
    page.known.here.add(turn_id)
    return None


def resume(
    page: Page, turn_id: str, owner: str, taken: Callable[[str, str], bool], owners: Liveness, at: float
) -> int | StoreError:
    """Take over a turn that nobody has `taken`; its new epoch.

    Calls that its owner had not begun are as before it. The notes about all others pass to the new owner.
    """
    known = page.turn(turn_id)
    epoch = ledger.resume(turn_id, known, lambda before: taken(before, turn_id))
    if isinstance(epoch, StoreError) or known is None:
        return epoch
    if known.owner is not None:
        _forget_starts(page, turn_id, owners.begun(known.owner))
    for card in _unfinished(page, turn_id):
        if card.attempt:
            owners.mark(turn_id, identity(card)[1])
    (unwritten_s,) = page.connection.execute(_UNWRITTEN, (turn_id,)).fetchone()
    page.connection.execute(_TAKE_OVER, (owner, at, max(unwritten_s or 0.0, 0.0), turn_id, known.epoch))
    page.set_turn(turn_id, TurnRow(known.project, epoch, ledger.RUNNING, owner))
    return epoch


def say(
    page: Page,
    turn: Turn,
    row: Row,
    cards: Sequence["OpenCard"],
    audit: Sequence[Row],
    sums: Row,
    now: Now,
    ran_s: float | None,
    reserve: Reservation | None = None,
) -> Sequence["OpenCard"] | StoreError:
    """A reply or a note, the cards that come with it, and what the turn has used by then."""
    known = page.turn(column(turn.id))
    if refusal := ledger.change_turn(turn, known):
        return refusal
    steps = [ledger.add_call(one.card, page.call(one.key), known, now.at, now.alive, now.store) for one in cards]
    for answer, _, conflict, _ in steps:
        if isinstance(answer, StoreError):
            page.audit.extend(audit_rows(conflict))
            return answer
    charged = sum([step[3] for step in steps]) if reserve is None else 0
    page.connection.execute(_TOUCH, (now.at, ran_s, charged, *sums, column(turn.id), turn.epoch))
    if reserve is not None and any(one.card.result is None for one in cards):
        cards, audit = _reserved(page, reserve, cards, audit, now.at)
        steps = [ledger.add_call(one.card, page.call(one.key), known, now.at, now.alive, now.store) for one in cards]
    page.records.append(row)
    for one, (_, kept, _, _) in zip(cards, steps, strict=True):
        one.put(page, kept)
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
        kept[place] = open_card(outcome.cards[place], (), cards[place].now)
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
    now: Now
    reserve: Reservation | None = None

    def __call__(self, page: Page) -> CallCard | StoreError:
        now, turn, kept = self.now, page.turn(self.key[0]), page.call(self.key)
        step = ledger.open_call(self.card, kept, turn, now.at, now.alive, now.store)
        answer, after, audit, charge = step
        if kept is None and after is not None:
            return self._new(page, step)
        page.audit.extend(audit_rows(audit))
        self.put(page, after)
        page.charge(self.key[0], charge)
        return answer

    def _new(self, page: Page, step: Step[CallCard]) -> CallCard | StoreError:
        one, audit, now = self, self.audit, self.now
        if self.reserve is None:
            page.charge(self.key[0], step[3])
        elif self.card.result is None:
            [one], audit = _reserved(page, self.reserve, [self], audit, now.at)
            step = ledger.add_call(one.card, None, page.turn(self.key[0]), now.at, now.alive, now.store)
        page.audit.extend(audit)
        one.put(page, step[1])
        return step[0]

    def put(self, page: Page, card: CallCard | None) -> None:
        """Write down what the rule says."""
        if card is None:
            return
        if page.call(self.key) is None:
            page.add_call(self.key, card, self.row)
        if card.result is not None and self.result_row is not None:
            page.end_call(self.key, card.result, self.result_row, self.now.at)


def open_card(card: CallCard, audit: Sequence[AuditRow], now: Now, reserve: Reservation | None = None) -> OpenCard:
    result = None if card.result is None else result_row(card, card.result, now.at)
    row = card_row(card)
    return OpenCard(card, (row[7], row[8]), row, result, audit_rows(audit), now, reserve)


def claim(page: Page, card: CallCard, audit: Sequence[Row], now: Now, claim: Claim) -> CallCard | StoreError:
    key = identity(card)
    kept = page.call(key)
    answer, mine, _, _ = ledger.claim_call(card, kept, page.turn(key[0]), now.at, now.alive, claim)
    if mine is not None and kept is not None:
        page.claim_call(key, mine, more=mine.attempt - kept.attempt)
        page.audit.extend(audit)
    return answer


def renew(page: Page, card: CallCard, store: str, until: float | None) -> CallCard | StoreError:
    key = identity(card)
    answer, longer, _, _ = ledger.renew_call(card, page.call(key), page.turn(key[0]), store, until)
    if longer is not None:
        page.claim_call(key, longer, more=0)
    return answer


def close(
    page: Page, card: CallCard, result: ToolResult, row: Row, audit: Sequence[Row], now: Now, *, ran: bool
) -> ToolResult | StoreError:
    key = (row[7], row[8])
    answer, ended, late, charge = ledger.close_call(
        card, result, page.call(key), page.turn(key[0]), now.at, now.alive, now.store, ran=ran
    )
    if ended is None:
        page.audit.extend(audit_rows(late))
        return answer
    page.end_call(key, result, row, now.at)
    if charge:
        page.charge(key[0], charge)
    page.audit.extend(audit)
    return result


def _unfinished(page: Page, turn_id: str) -> list[CallCard]:
    """The calls of a turn that have no result."""
    page.flush()
    return [read_card(row) for row in page.connection.execute(_UNFINISHED, (turn_id,)).fetchall()]


def end(page: Page, turn: Turn, ending: Ending, stats: TurnStats, at: float) -> StoreError | None:
    if refusal := ledger.change_turn(turn, page.turn(column(turn.id))):
        return refusal
    kept = dump({"reason": ending.reason.value, "answer": ending.answer})
    page.write_charges()
    page.connection.execute(_END, (kept, at, column(turn.id), turn.epoch))
    page.connection.execute(_CHARGED, (column(turn.id),))
    page.set_turn(column(turn.id), TurnRow(turn.project, turn.epoch, ledger.ENDED, None))
    whose = column(turn.project)
    sums = page.connection.execute(LOOP_SUMS, (whose,)).fetchone()
    metrics = loop_metrics(LoopMetrics(*sums) if sums else LoopMetrics(), stats, ending.reason)
    page.connection.execute(_SET_LOOP, (whose, *(getattr(metrics, name) for name in LoopMetrics.__slots__)))
    for tally in stats.formats:
        _count_format(page, turn.project, tally)
    used = spending(Spending(), stats, 0)
    row = (whose, column(turn.agent), day_of(at), column(turn.id), used.tokens, used.cost_usd, used.wall_s)
    page.connection.execute(_SPEND, row)
    return None


def _count_format(page: Page, project: str, tally: FormatTally) -> None:
    key = (project_key(project, tally.model), column(tally.offered))
    known = page.connection.execute(_FORMAT, key).fetchone()
    total = read_tally(load(known[0])) + tally if known else tally
    page.connection.execute(_SET_FORMAT, (*key, dump(write_tally(total))))


def _forget_starts(page: Page, turn_id: str, begun: Collection[bytes] | None) -> None:
    """Calls without a result that were written down as started, and that nobody had begun, have not been started."""
    if begun is None:
        return
    for card in ledger.not_begun(_unfinished(page, turn_id), ledger.is_begun(begun, mark_key)):
        page.connection.execute(_NOT_STARTED, identity(card))
        page.known.calls.pop(identity(card), None)


def release(
    page: Page, turn: Turn, at: float, ran_s: float | None, begun: Collection[bytes] | None
) -> StoreError | None:
    if refusal := ledger.change_turn(turn, page.turn(column(turn.id))):
        return refusal
    _forget_starts(page, column(turn.id), begun)
    page.connection.execute(_RELEASE, (at, ran_s, column(turn.id), turn.epoch, waits_json(turn.waits)))
    page.set_turn(column(turn.id), TurnRow(turn.project, turn.epoch, ledger.INTERRUPTED, None))
    return None


def release_unrun(page: Page, owner: str, runs: Callable[[str], bool], begun: Begun) -> None:
    """Let go of all that a store owns but does not run."""
    for turn_id, epoch in page.connection.execute(_OWNED, (owner,)).fetchall():
        if not runs(turn_id):
            _forget_starts(page, turn_id, begun(owner))
            page.connection.execute(_LET_GO, (turn_id, epoch))
            page.known.turns.pop(turn_id, None)


def request_approval(page: Page, card: ApprovalCard, audit: Sequence[Row], asked: Asked) -> ApprovalCard | StoreError:
    key = (column(card.turn_id), column(card.call_id))
    known = page.connection.execute(_ASKED, key).fetchone()
    first = None if known is None else read_approval(load(known[0]))
    kept = ledger.request_approval(card, first, asked.date(first.id) if first else 0.0)
    if kept is not None:
        return kept
    page.connection.execute(_ASK, (column(card.id), *key, dump(write_approval(card)), card.expires_at))
    page.audit.extend(audit)
    return card


def answer(page: Page, approval_id: str, answer: Approval, at: float, asked: Asked) -> ApprovalCard | StoreError:
    card = _approval(page, approval_id)
    turn = None if card is None else page.turn(column(card.turn_id))
    return _keep_answer(
        page, ledger.answer(approval_id, card, turn, answer, at=at, date=asked.date(approval_id))
    )  # fmt: skip


def revoke(page: Page, approval_id: str, by: str, at: float, asked: Asked) -> ApprovalCard | StoreError:
    card = _approval(page, approval_id)
    return _keep_answer(page, ledger.revoke(approval_id, card, by, at, asked.date(approval_id)))


def _approval(page: Page, approval_id: str) -> ApprovalCard | None:
    row = page.connection.execute(_APPROVAL, (column(approval_id),)).fetchone()
    return None if row is None else read_approval(load(row[0]))


def _keep_answer(page: Page, done: Answered | StoreError) -> ApprovalCard | StoreError:
    if isinstance(done, StoreError):
        return done
    card = done.card
    decided = int(card.state is not ApprovalState.OPEN)
    page.connection.execute(_ANSWER, (dump(write_approval(card)), decided, card.stands_until, column(card.id)))
    page.audit.extend(audit_rows([done.audit]))
    return card


def append(page: Page, audit: Sequence[Row]) -> None:
    page.audit.extend(audit)
