"""What a tool may know and do about the call it serves."""

import posixpath
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from toolwire.protocol.calls import Allowed
from toolwire.protocol.provenance import FILE, Touched, UntrustedMark
from toolwire.protocol.tools import Grant
from toolwire.protocol.tracing import NO_TRACE, TraceContext
from toolwire.protocol.traffic import NO_TRAFFIC, Traffic


def _no_report(message: str, fraction: float | None) -> None:
    """There is no watcher."""


def _no_output(text: str, stream: str) -> None:
    """There is no watcher."""


class Recorder(Protocol):
    """Puts on record what calls tell, and knows what earlier turns left behind."""

    async def record_told(self, context: "Context", tool: str) -> None:
        """Record what was told to a context after its call had ended, such as by a command in the background."""
        ...

    async def marks(self, project: str) -> Sequence[UntrustedMark]:
        """What turns of a project wrote after they had read untrusted content."""
        ...


class _NoRecorder:
    async def record_told(self, context: "Context", tool: str) -> None:
        """No record is kept."""

    async def marks(self, project: str) -> Sequence[UntrustedMark]:  # noqa: ARG002
        """Nothing is known."""
        return ()


_NO_RECORDER = _NoRecorder()


def not_noted(turn_id: str, call_id: str) -> None:
    """No record is kept of what begins."""


def _never() -> bool:
    return False


class Trial:
    """A run in which a call changes and reaches nothing; `wanted` says what it would have needed, None if nothing."""

    __slots__ = ("wanted",)

    def __init__(self) -> None:
        self.wanted: str | None = None


class CallInfo(Struct, frozen=True):
    """What a tool may know about its call. Data only, so that it can travel with the call; see `Context`."""

    call_id: str = ""
    turn_id: str = ""
    attempt: int = 1
    timeout_s: float = 30.0
    project: str = "default"
    agent: str = "agent"
    thread: str = ""
    grant: Grant = Grant()
    tainted_by: tuple[str, ...] = ()
    approved: bool = False
    is_trial: bool = False
    record_id: str = ""
    epoch: int = 0
    trace: TraceContext = NO_TRACE
    step_id: str = ""


class Context(Struct, frozen=True, eq=False):
    """Given to a tool function that has a parameter of this type; that parameter is not shown to models.

    `idempotency_key` is the same each time the same call is tried, so a remote service can recognise it. `thread`
    names the conversation that the turn belongs to, if it belongs to one. `tainted_by` names
    the untrusted content that the turn had read before this call. `approved` says that the call was decided about, so
    that whatever in it needed approval has it. An executor says `begins(turn_id, call_id)` just before the tool begins,
    from whichever thread, and has secrets put in place by `reveal(allowed)` where the tool lives, not before.

    Of a call that is sent to a process which claims it, `record_id` names the card, judged under `epoch` of its turn,
    and `step_id` the step of its turn. One that is a turn by itself `ends_turn` with its result.

    `trace` is the span of the call, or the one above it: for what the tool sends on, and for a process that runs it.

    `config` is what the configuration gives that a call names by `config_id`, keys among it; it stays in this process.

    With a `trial`, the tool must change nothing and reach nothing, and says in it what it would have needed.
    """

    call_id: str = ""
    turn_id: str = ""
    project: str = "default"
    agent: str = "agent"
    grant: Grant = Grant()
    timeout_s: float = 30.0
    attempt: int = 1
    report: Callable[[str, float | None], None] = _no_report
    canceled: Callable[[], bool] = _never
    thread: str = ""
    told: list[tuple[str, str] | str | Traffic | Touched] = []
    tainted_by: tuple[str, ...] = ()
    recorder: Recorder = _NO_RECORDER
    trial: Trial | None = None
    approved: bool = False
    begins: Callable[[str, str], None] = not_noted
    reveal: Callable[[Allowed], Allowed] | None = None
    record_id: str = ""
    epoch: int = 0
    trace: TraceContext = NO_TRACE
    step_id: str = ""
    write: Callable[[str, str], None] = _no_output
    config: Mapping[str, Any] | None = None
    ends_turn: bool = False

    @staticmethod
    def of(info: CallInfo, report: Callable[[str, float | None], None] = _no_report) -> "Context":
        """A context with this data, for a call that has come from another process."""
        return Context(
            info.call_id, info.turn_id, info.project, info.agent, info.grant, info.timeout_s, info.attempt, report,
            thread=info.thread, tainted_by=info.tainted_by, trial=Trial() if info.is_trial else None,
            approved=info.approved, record_id=info.record_id, epoch=info.epoch, trace=info.trace,
            step_id=info.step_id,
        )  # fmt: skip

    def __repr__(self) -> str:
        """Only its data: a configuration may have keys in it."""
        return f"Context({self.info!r})"

    @property
    def info(self) -> CallInfo:
        """Its data, without what it can do."""
        return CallInfo(
            self.call_id, self.turn_id, self.attempt, self.timeout_s, self.project, self.agent, self.thread,
            self.grant, self.tainted_by, self.approved, self.trial is not None, self.record_id, self.epoch,
            self.trace, self.step_id,
        )  # fmt: skip

    @property
    def idempotency_key(self) -> str:
        return f"{self.turn_id}/{self.call_id}"

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Tell the watchers of the turn how far the work is; `fraction` runs from 0 to 1."""
        self.report(message, fraction)

    def output(self, text: str, stream: str = "stdout") -> None:
        """Show the watchers of the turn what the tool writes while it works. Its result is another matter."""
        self.write(text, stream)

    def ran_in(self, engine: str, profile: str, traffic: Traffic = NO_TRAFFIC) -> None:
        """Say which sandbox confined what the tool ran, and where that went; the result will name both.

        Where a host was really reached, the result is untrusted; the audit log says which, and what was refused.
        """
        if engine:
            self.told.append((engine, profile))
        if traffic:
            self.told.append(traffic)

    def read_file(self, root: str, path: str, inode: str = "", version: str = "") -> None:
        """Say that the content of a file was read: if an untrusted turn wrote it, this result is untrusted too."""
        resource = FILE + posixpath.normpath(posixpath.join(root, path))
        self.told.append(Touched(resource, inode=inode, version=version))

    def wrote_file(self, root: str, path: str) -> None:
        """Say that a file was written: what an untrusted turn writes is untrusted for those that read it later."""
        self.told.append(Touched(FILE + posixpath.normpath(posixpath.join(root, path)), writes=True))

    def touched(self, resource: str, *, writes: bool = False) -> None:
        """The same for something that is not a file, such as a list that is kept between turns."""
        self.told.append(Touched(resource, writes))

    def read_from(self, place: str) -> None:
        """Say where something was read that is untrusted, such as a URL; the result will name it.

        A result that was read somewhere is untrusted whatever its tool is: a tool cannot make itself trusted.
        """
        self.told.append(place)
