"""Puts on record what devices send that changes nothing: reports that come late, and messages that break a rule."""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any

from toolwire.edge.orchestrator.client import EndedCall
from toolwire.errors import NotFound, StoreError
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import AuditRow, CallCard
from toolwire.record.contract import Store
from toolwire.wire.mqtt.commands import EdgeCommand
from toolwire.wire.mqtt.refusals import RefusedMessage
from toolwire.wire.mqtt.reports import EdgeReport
from toolwire.wire.mqtt.results import read_tool_result

LATE, REFUSED = "late_result", "report_refused"
MOST_WAITING = 1_000
MOST_SEEN = 10_000
MOST_A_MINUTE = 100
"""So many rows a minute are written about one device: a flood of ever new reports does not fill the record."""

GRACE_S = 5.0
"""How long the process that has sent a call gets to write its result down, before another one looks."""

_MOST_CALLS = 10_000
_OURS = frozenset({Code.CANCELED, Code.TIMEOUT, Code.UNAVAILABLE, Code.OUTCOME_UNKNOWN})
"""How a call ends whose report did not come."""

_log = logging.getLogger(__name__)


class UnexpectedReports:
    """Writes audit rows of one project, one after the other. `run` it as a task."""

    def __init__(
        self, store: Store, project: str, *, grace_s: float = GRACE_S, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._project = project
        self._grace_s = grace_s
        self._clock = clock
        self._waiting: asyncio.Queue[tuple[float, EdgeReport] | AuditRow] = asyncio.Queue(MOST_WAITING)
        self._seen: OrderedDict[tuple[str, str, str], None] = OrderedDict()
        self._minute, self._told = 0, Counter[str]()

    def late(self, report: EdgeReport, ended: EndedCall | None) -> None:
        if report.project not in ("", self._project) or not report.record_id:
            return
        if (ended is not None and ended.reported) or not self._is_new("late", report.agent_id, report.record_id):
            return
        if ended is None:  # another process may have sent it, and is about to write its result down
            self._put((asyncio.get_running_loop().time() + self._grace_s, report))
        else:
            self._put(self._late_row(report, ended.command.info))

    def refused(self, refused: RefusedMessage, about: EdgeCommand | None = None) -> None:
        if not self._is_new(refused.code.value, refused.agent_id, refused.request_id):
            return
        info = about.info if about is not None else {}
        detail = {"device": refused.agent_id, "request_id": refused.request_id, "violations": [refused.message[:500]]}
        self._put(self._row(REFUSED, info, about, refused.code.value, detail))

    async def run(self) -> None:
        """Write until canceled."""
        while True:
            match await self._waiting.get():
                case AuditRow() as row:
                    await self._write(row)
                case (at, report):
                    await asyncio.sleep(max(at - asyncio.get_running_loop().time(), 0.0))
                    await self._look(report)

    async def _look(self, report: EdgeReport) -> None:
        """Audit the report of a call of another process, if it came too late; or of none."""
        try:
            card = await self._card(report)
        except StoreError as error:
            _log.warning("a late report is not on record: %s", error)
            return
        if card is None:
            detail = {"device": report.agent_id, "request_id": report.request_id}
            await self._write(self._row(REFUSED, {}, None, "unknown_call", detail))
        elif card.result is not None and card.result.error is not None and card.result.error.code in _OURS:
            info = {"turn_id": card.turn_id, "call_id": card.call.id, "agent": card.agent}
            if report.status == "success" or report.body.get("error_type") != str(card.result.error.code):
                await self._write(self._late_row(report, info))

    async def _card(self, report: EdgeReport) -> CallCard | None:
        project, _, rest = report.record_id.partition("/")
        turn_id, _, call_id = rest.partition("/")
        if project != self._project or not turn_id:
            return None
        try:
            cards = await self._store.calls(turn_id=turn_id, limit=_MOST_CALLS, project=project)
        except NotFound:
            return None
        return next((card for card in cards if card.call.id == call_id), None)

    def _late_row(self, report: EdgeReport, info: Any) -> AuditRow:
        tool = str(report.body.get("tool", ""))[:200]
        call = ToolCall(tool, {}, str(info.get("call_id", "")))
        result = read_tool_result(report.body, call)
        detail = {"device": report.agent_id, "request_id": report.request_id}
        row = self._row(LATE, info, None, "", detail, tool)
        if isinstance(result, str):
            return row
        code = str(result.error.code) if result.error else ""
        return AuditRow(
            row.at, row.event, row.project, row.agent, row.turn_id, row.call_id, row.tool, status=result.status,
            code=code, elapsed_ms=result.elapsed_ms, detail=detail,
        )  # fmt: skip

    def _row(
        self, event: str, info: Any, about: EdgeCommand | None, code: str, detail: dict[str, Any], tool: str = ""
    ) -> AuditRow:  # fmt: skip
        named = tool or (str(about.payload.get("tool", "")) if about is not None else "")
        return AuditRow(
            self._clock(), event, self._project, str(info.get("agent", "")), str(info.get("turn_id", "")),
            str(info.get("call_id", "")), named, code=code, args_digest=about.digest if about else "", detail=detail,
        )  # fmt: skip

    def _is_new(self, *key: str) -> bool:
        """Whether this was not told before. A device that repeats itself does not fill the log."""
        what, device, request = key
        found = (what, device, request)
        if found in self._seen:
            return False
        self._seen[found] = None
        while len(self._seen) > MOST_SEEN:
            self._seen.popitem(last=False)
        return self._may_tell(device)

    def _may_tell(self, device: str) -> bool:
        minute = int(self._clock() // 60)
        if minute != self._minute:
            self._minute, self._told = minute, Counter()
        self._told[device] += 1
        if self._told[device] == MOST_A_MINUTE + 1:
            _log.warning("%s sends too much that is refused; what more comes in this minute is not on record", device)
        return self._told[device] <= MOST_A_MINUTE

    def _put(self, item: tuple[float, EdgeReport] | AuditRow) -> None:
        try:
            self._waiting.put_nowait(item)
        except asyncio.QueueFull:
            _log.warning("too many messages of devices are refused at once; some are not on record")

    async def _write(self, row: AuditRow) -> None:
        try:
            await self._store.audit([row])
        except StoreError as error:
            _log.warning("a message of a device is refused, and that is not on record: %s", error)
