"""What is kept: the call card, and the audit row."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.tools import USUAL, Agreement

LONGEST_NAME = 800
"""In bytes: what every store can look for. An index of PostgreSQL takes 2,704 for a row, and some rows have three."""
SURELY_SHORT = LONGEST_NAME // 4
"""In characters: a name of no more has no more bytes than `LONGEST_NAME`."""


def is_long(name: str, most: int = LONGEST_NAME) -> bool:
    """Whether a name is too long to be looked for in every store."""
    return len(name) > SURELY_SHORT and len(name.encode("utf-8", "backslashreplace")) > most


def short_name(name: str, most: int = LONGEST_NAME) -> str:
    """A name under which something is looked for: of a long one, as models invent some, the beginning and a digest."""
    if not is_long(name, most):
        return name
    whole = name.encode("utf-8", "backslashreplace")
    return f"{whole[:most].decode(errors='ignore')}…sha256:{sha256(whole).hexdigest()}"


class CallCard(Struct, frozen=True, gc=False):
    """What is written down before a tool runs. `(turn_id, call.id)` is its identity; `result` is set once it ended.

    `attempt` counts how often a process claimed it, to run it; `args_digest` is the SHA-256 of the canonical arguments.

    Of the newest claim, `token` is known to its holder alone, and to whom the holder gives it. A claim lasts `until` a
    date; without one, for as long as its `owner` is alive; and without both, for as long as its turn is run by the
    process that claimed it, under the same epoch. A card that is opened as claimed has its `record_id` for a token.

    `step` counts the replies of the turn up to the one that made the call; 0 where that is not known. `agreed` is what
    was agreed about the call when it was accepted, whatever is registered for its tool by now. The turn of a `detached`
    call does not wait for it any more. `cancel` asks the holder to stop, and says why; `renew` brings it there.
    """

    record_id: str
    turn_id: str
    epoch: int
    call: ToolCall
    args_digest: str
    project: str = "default"
    agent: str = "agent"
    effect: str = "unsafe"
    tool_version: str = ""
    created_at: float = 0.0
    attempt: int = 0
    result: ToolResult | None = None
    token: str = ""
    owner: str = ""
    until: float | None = None
    step: int = 0
    agreed: Agreement = USUAL
    detached: bool = False
    cancel: str = ""

    @property
    def step_id(self) -> str:
        """The step of its turn as commands name it; empty where that is not known."""
        return step_id(self.turn_id, self.step) if self.step else ""


def step_id(turn_id: str, step: int) -> str:
    """The name of a step, unique among all turns of a project."""
    return f"step_{turn_id}_{step}"


class Dispatch(Struct, frozen=True):
    """A call that was given to a process elsewhere, which claims it. There is one for each call, in the store.

    `card_id` is the `record_id` of its card, by which a process asks for it. `message` is JSON with all that the
    process needs, and `subject` where its command goes. It is sent at the time
    `due`, and then again with pauses, until the call has a result: `sent` counts how often. If it is not claimed before
    `expires_at` it is given up. `repeatable` says that it may be claimed again after a holder that died.
    """

    project: str
    turn_id: str
    call_id: str
    card_id: str
    epoch: int
    subject: str
    message: str
    due: float
    expires_at: float
    repeatable: bool = False
    sent: int = 0


class AuditRow(Struct, frozen=True, gc=False):
    """One line of the audit log: who did what to which call, under which rule, and how it went."""

    at: float
    event: str
    project: str = "default"
    agent: str = ""
    turn_id: str = ""
    call_id: str = ""
    tool: str = ""
    rule: str = ""
    status: str = ""
    code: str = ""
    args_digest: str = ""
    elapsed_ms: float | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)
    seq: int = 0

    @staticmethod
    def about(
        card: CallCard,
        event: str,
        at: float,
        rule: str = "",
        result: ToolResult | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> "AuditRow":
        """A line about a call: its identity from the card, its outcome from the result if it has one."""
        call = card.call
        name = call.name
        if len(name) > SURELY_SHORT:
            name = short_name(name)
        if result is None:
            return AuditRow(
                at, event, card.project, card.agent, card.turn_id, call.id, name, rule, "", "", card.args_digest, None,
                detail or _NO_DETAIL,
            )  # fmt: skip
        if result.engine or result.untrusted or result.blocked_ms or result.truncated:
            detail = {**(detail or {}), **_circumstances(result)}
        return AuditRow(
            at, event, card.project, card.agent, card.turn_id, call.id, name, rule, result.status,
            result.error.code if result.error else "", card.args_digest, result.elapsed_ms, detail or _NO_DETAIL,
        )  # fmt: skip


def _circumstances(result: ToolResult) -> dict[str, Any]:
    """Where a result was made and read, and whether its whole is lost, as far as there is something to say."""
    box: dict[str, Any] = {"engine": result.engine, "profile": result.profile} if result.engine else {}
    if result.blocked_ms:
        box["blocked_ms"] = result.blocked_ms
    if result.truncated and not result.handle:
        box["output_lost"] = True
    return {**box, "untrusted": True, "origins": list(result.origins)} if result.untrusted else box


_NO_DETAIL: Mapping[str, Any] = {}
