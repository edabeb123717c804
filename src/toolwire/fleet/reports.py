"""Takes the reports of services that have no access to the store, and gives their calls a result.

A report only routes. What counts is in the store: the dispatch of the call, and the result card that the service has
written over HTTP. The call is claimed and closed for the service, so the rules of a claim hold for it as for a worker.
Whatever is wrong with a report, nothing is changed by it, the audit log says so, and it does not come again. It does
while the store is away, and a few times where its card is not there: a service may report before its card is kept, and
a store that answers from a copy may lag behind.
"""

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from toolwire.bus.contract import Bus, Delivered
from toolwire.define.canonical import canonical
from toolwire.define.outputs import output_check
from toolwire.define.service_rows import read_registration
from toolwire.define.toolbox import Toolbox
from toolwire.errors import BusError, CallHeld, DefinitionError, Fenced, NotFound, StoreError, StoreUnavailable
from toolwire.fleet.parcels import Parcel, command_of, read_parcel, wakeup_message
from toolwire.fleet.service_claims import with_service_claim
from toolwire.hub.claimed import ClaimedJourney
from toolwire.hub.runtime import Runtime
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import AuditRow, CallCard, Dispatch
from toolwire.protocol.registrations import ResultCard
from toolwire.protocol.subjects import ROOT, VERSION
from toolwire.protocol.tools import BusService, Tool
from toolwire.protocol.turns import Limits
from toolwire.record.contract import Store
from toolwire.record.projects import ProjectStore, of_project
from toolwire.wire.codecs.faithful import load
from toolwire.wire.codecs.travelling import BadFrame, read_allowed
from toolwire.wire.utp.cards import ToolResultCard, decode_result_card, result_card_violations
from toolwire.wire.utp.messages import ToolCallback, callback_violations, decode_callback
from toolwire.wire.utp.outcome import CardOutcome, result_of
from toolwire.wire.utp.violations import Refusal

REFUSED = "report_refused"
"""The event in the audit log; its code says why."""

_RETRY_S = 1.0
CARD_PAUSES_S = (0.1, 0.5, 2.0, 5.0)
"""How long until a report is looked at again whose card is not there, after the first, the second … time."""

_HOLD_S = 60.0
"""How long a call is held whose service has not read its card, for the time that its result takes to be kept."""

_MOST_SHOWN = 5
_MOST_ROWS = 1_000

FindTool = Callable[[str, CallCard], Awaitable[Tool | None]]
"""The registered tool of a project that a card is about; None where it is not known any more."""

_log = logging.getLogger(__name__)


class ReportRefused(Exception):
    """A report that changes nothing, and why."""

    def __init__(self, code: str, *reasons: str) -> None:
        super().__init__("; ".join(reasons))
        self.code = code
        self.reasons = reasons


class CardMissing(ReportRefused):
    """The card that a report names is not there, or not yet."""


def reports_of(project: str = "*") -> str:
    """The subjects of all reports of a project."""
    return f"{ROOT}.{VERSION}.{project}.*.cmd.sys.execution.report"


def card_digest(body: bytes) -> str:
    """The digest of a card: SHA-256 of its canonical JSON. Raises ValueError for what is not JSON."""
    return hashlib.sha256(canonical(load(body))).hexdigest()


class ReportReceiver:
    """Serves the reports of a project, or of all of them. Receivers with the same `durable` name share the reports."""

    def __init__(
        self,
        store: Store,
        bus: Bus,
        *,
        durable: str,
        project: str = "*",
        find_tool: FindTool | None = None,
        clock: Callable[[], float] | None = None,
        card_pauses_s: Sequence[float] = CARD_PAUSES_S,
    ) -> None:
        self._store = store
        self._bus = bus
        self._durable = durable
        self._card_pauses_s = card_pauses_s
        self._project = project
        self._find_tool = find_tool or self._registered
        self._clock = clock or store.clock
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Receive until canceled."""
        async with self._bus.subscribe(reports_of(self._project), durable=self._durable) as reports:
            self.ready.set()
            async for delivered in reports:
                await self.handle(delivered)

    async def handle(self, delivered: Delivered) -> None:
        """One report, whatever is wrong with it."""
        try:
            pause_s = await self._receive(delivered.message, delivered.attempt)
        except StoreUnavailable as error:
            _log.warning("a report is put back: %s", error)
            await delivered.nak(_RETRY_S)
        except Exception:
            # A report that breaks the receiver would do so again. Its command is sent again, and the service reports.
            _log.exception("a report broke its receiver")
            await delivered.ack()
        else:
            await (delivered.ack() if pause_s is None else delivered.nak(pause_s))

    async def _receive(self, message: BusMessage, attempt: int) -> float | None:
        """Take a report; how long until it must come again, if it must."""
        callback = decode_callback(message)
        if isinstance(callback, Refusal):
            await self._audit_message(callback)
            return None
        view = of_project(self._store, callback.subject.project)
        try:
            held = await self._accept(view, callback)
        except ReportRefused as refused:
            if isinstance(refused, CardMissing) and attempt <= len(self._card_pauses_s):
                return self._card_pauses_s[attempt - 1]
            await self._audit(callback, refused)
            return None
        if held is not None:
            await self._wake(held, callback.subject.channel)
        return None

    async def _accept(self, view: ProjectStore, callback: ToolCallback) -> CallCard | None:
        """The card of a call that has its result by now; None for one that had it long ago. Raises ReportRefused."""
        try:
            dispatch, card = await view.dispatched_call(callback.agent_turn_id, callback.tool_call_id)
        except NotFound as unknown:
            ended = await _ended_call(view, callback)
            if ended is None:
                raise ReportRefused("unknown_call", str(unknown)) from None
            await self._note_late(view, ended, *await self._result_card(view, callback))
            return None
        parcel = _read(dispatch)
        is_stale = callback.turn_epoch < dispatch.epoch
        _require_same(parcel, replace(dispatch, epoch=callback.turn_epoch) if is_stale else dispatch, card, callback)
        kept, written = await self._result_card(view, callback)
        if is_stale:
            await self._note_late(view, card, kept, written)
            reason = f"turn_epoch is {callback.turn_epoch}, and the turn is in epoch {dispatch.epoch}"
            raise ReportRefused("stale_epoch", reason)
        if card.result is not None:
            await self._note_late(view, card, kept, written)
            return card
        claimed = replace(await with_service_claim(view, card), epoch=callback.turn_epoch)
        detail = {"service": kept.author, "card": kept.id, "digest": kept.digest}
        rows = [] if claimed.token else [AuditRow.about(claimed, "started", self._clock(), detail=detail)]
        try:
            # The same report that comes once more holds the call again, and another one need not wait for ever.
            until = None if claimed.token else self._clock() + _HOLD_S
            held = await view.claim(claimed, rows, until=until, token=f"report:{kept.id}:{kept.digest}")
        except CallHeld as other:
            raise ReportRefused("call_held", str(other)) from None
        except Fenced as other:  # the turn goes on elsewhere, and may never hear of this result
            await self._note_late(view, card, kept, written)
            raise ReportRefused("stale_epoch", str(other)) from None
        if held.result is not None:  # it has ended since it was looked at
            await self._note_late(view, held, kept, written)
        else:
            result = await self._shown(view, held, parcel, written)
            row = AuditRow.about(held, "finished", self._clock(), result=result, detail=detail)
            try:
                await view.close(held, result, [row])
            except Fenced as lost:
                raise ReportRefused("stale_epoch", str(lost)) from None
        return held

    async def _note_late(self, view: ProjectStore, card: CallCard, kept: ResultCard, written: ToolResultCard) -> None:
        """Audit a result that came after its call had ended. The one that counts may have come from this card.

        It is noted once; where two receivers get it at the same moment, each may note it.
        """
        rows = await view.audit_log(turn_id=card.turn_id, limit=_MOST_ROWS)
        if any(row.detail.get("card") == kept.id for row in rows):
            return
        detail = {"service": kept.author, "card": kept.id, "digest": kept.digest}
        result = result_of(_outcome(written), card.call)
        await view.audit([AuditRow.about(card, "late_result", self._clock(), result=result, detail=detail)])

    async def _result_card(self, view: ProjectStore, callback: ToolCallback) -> tuple[ResultCard, ToolResultCard]:
        try:
            kept = await view.result_card(callback.tool_result_card_id)
        except NotFound as unknown:
            raise CardMissing("unknown_card", str(unknown)) from None
        written = decode_result_card(kept.body)
        if isinstance(written, Refusal):
            raise ReportRefused(written.violations[0].code.value, *(one.message for one in written.violations))
        if card_digest(kept.body) != kept.digest:
            raise ReportRefused("digest_mismatch", f"card {kept.id!r} is not what its digest says")
        if violations := result_card_violations(callback, written):
            raise ReportRefused("changed_field", *(one.message for one in violations))
        return kept, written

    async def _shown(self, view: ProjectStore, held: CallCard, parcel: Parcel, written: ToolResultCard) -> ToolResult:
        """The result as any tool's is kept: bounded, marked as untrusted, in the form that was promised."""
        tool = await self._find_tool(view.project, held) or _unknown_tool(held)
        result = _checked(tool, held, result_of(_outcome(written), held.call))
        try:
            allowed, info = read_allowed(parcel.allowed, {tool.name: replace(tool, version=held.tool_version)})
        except BadFrame as wrong:
            return ToolResult.failed(held.call, Code.INVALID_OUTPUT, f"The result cannot be read: {wrong}.")
        info = replace(info, attempt=held.attempt, record_id=held.record_id, epoch=held.epoch)
        limits = Limits(result_chars=parcel.result_chars, envelope=parcel.envelope)
        runtime = Runtime(Toolbox(tool), view, executor=_GivenResult(result))
        return await ClaimedJourney(runtime, held, allowed, info, limits, None).run(allowed)

    async def _registered(self, project: str, card: CallCard) -> Tool | None:
        for row in await self._store.registered_tools(project=project):
            if (row.name, row.version) == (card.call.name, card.tool_version):
                try:
                    return read_registration(row).tool
                except DefinitionError:
                    return None
        return None

    async def _audit(self, callback: ToolCallback, refused: ReportRefused) -> None:
        project, turn_id, call_id = callback.subject.project, callback.agent_turn_id, callback.tool_call_id
        await self._write_refusal(project, turn_id, call_id, refused.code, refused.reasons)

    async def _audit_message(self, refusal: Refusal) -> None:
        """A message that is not a callback. It says nothing for sure but its subject."""
        project, turn_id, call_id = (
            str(refusal.known.get(name, "")) for name in ("project_id", "agent_turn_id", "tool_call_id")
        )
        reasons = [one.message for one in refusal.violations]
        await self._write_refusal(project, turn_id, call_id, refusal.violations[0].code.value, reasons)

    async def _write_refusal(self, project: str, turn_id: str, call_id: str, code: str, reasons: Sequence[str]) -> None:
        shown = [reason[:500] for reason in reasons[:_MOST_SHOWN]]
        _log.warning("a report is refused (%s): %s", code, "; ".join(shown))
        if project:
            detail = {"violations": shown}
            row = AuditRow(
                self._clock(), REFUSED, project, turn_id=turn_id, call_id=call_id, code=code, detail=detail
            )  # fmt: skip
            await self._store.audit([row])

    async def _wake(self, card: CallCard, channel: str) -> None:
        """Ring for the turn's runner. If that gets lost, the runner looks by itself."""
        message = wakeup_message(card, channel)
        if not isinstance(message, Refusal):
            try:
                await self._bus.publish(message)
            except BusError as error:
                _log.info("a wakeup is lost: %s", error)


class _GivenResult:
    """An executor for a call that was run elsewhere already."""

    def __init__(self, result: ToolResult) -> None:
        self._result = result

    async def execute(self, allowed: Allowed, context: Context) -> ToolResult:  # noqa: ARG002 -- as an executor
        return self._result

    async def close(self) -> None:
        """It holds nothing."""


async def _ended_call(view: ProjectStore, callback: ToolCallback) -> CallCard | None:
    """A call that is not on its way any more since it has ended; None where there never was one."""
    cards = await view.calls(turn_id=callback.agent_turn_id, limit=_MOST_ROWS)
    named = (card for card in cards if card.call.id == callback.tool_call_id)
    return next((card for card in named if card.result is not None), None)


def _outcome(written: ToolResultCard) -> CardOutcome:
    return CardOutcome(written.status, written.result, written.error, written.after_execution)


def _read(dispatch: Dispatch) -> Parcel:
    try:
        return read_parcel(dispatch)
    except StoreError as wrong:
        raise ReportRefused("unreadable", str(wrong)) from None


def _require_same(parcel: Parcel, dispatch: Dispatch, card: CallCard, callback: ToolCallback) -> None:
    """Refuse a report that says otherwise than its command what must not change."""
    if violations := callback_violations(command_of(parcel, dispatch, card), callback):
        raise ReportRefused("changed_field", *(one.message for one in violations))


def _unknown_tool(card: CallCard) -> Tool:
    """What stands for a tool that was removed since it was called. What it gives is not trusted."""
    return Tool(card.call.name, "", {"type": "object"}, untrusted=True, target=BusService(""))


def _checked(tool: Tool, card: CallCard, result: ToolResult) -> ToolResult:
    """The result, if it has the form that the tool was registered with."""
    if tool.output_schema is None or not result.ok:
        return result
    check = output_check(tool.output_schema, f"output_schema of tool {tool.name!r}")
    fault = check(result.structured, result.structured) if check is not None else ""
    if not fault:
        return result
    message = f"{tool.name!r} ran, but its result does not have the form that it was registered with: {fault}."
    return ToolResult.failed(card.call, Code.INVALID_OUTPUT, message)
