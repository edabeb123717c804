"""What a tool may know and do about the call it serves."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from toolwire.protocol.tools import Grant
from toolwire.protocol.traffic import NO_TRAFFIC, Traffic
from toolwire.protocol.values import quick


def _no_report(message: str, fraction: float | None) -> None:
    """Nobody watches."""


async def _no_record(context: "Context", tool: str, traffic: Traffic) -> None:
    """No audit log is kept."""


def _never() -> bool:
    return False


@quick
@dataclass(frozen=True, slots=True)
class Context:
    """Given to a tool function that has a parameter of this type; that parameter is not shown to models.

    `idempotency_key` is the same each time the same call is tried, so a remote service can recognise it. `thread`
    names the conversation that the turn belongs to, if it belongs to one.
    """

    call_id: str = ""
    turn_id: str = ""
    project: str = "default"
    agent: str = "agent"
    grant: Grant = Grant()
    timeout_s: float = 30.0
    attempt: int = 1
    report: Callable[[str, float | None], None] = field(default=_no_report, repr=False)
    canceled: Callable[[], bool] = field(default=_never, repr=False)
    thread: str = ""
    told: list[tuple[str, str] | str | Traffic] = field(default_factory=list, repr=False, compare=False)
    recorder: Callable[["Context", str, Traffic], Awaitable[None]] = field(
        default=_no_record, repr=False, compare=False
    )

    @property
    def idempotency_key(self) -> str:
        return f"{self.turn_id}/{self.call_id}"

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Tell whoever watches the turn how far the work is; `fraction` runs from 0 to 1."""
        self.report(message, fraction)

    def ran_in(self, engine: str, profile: str, traffic: Traffic = NO_TRAFFIC) -> None:
        """Say which sandbox confined what the tool ran, and where that went; the result will name both.

        Where a host was really reached, the result is untrusted; the audit log says which, and what was refused.
        """
        if engine:
            self.told.append((engine, profile))
        if traffic:
            self.told.append(traffic)

    async def record_traffic(self, tool: str, traffic: Traffic) -> None:
        """Put on record where work of this call went after the call had ended, such as a command in the background."""
        if traffic:
            await self.recorder(self, tool, traffic)

    def read_from(self, place: str) -> None:
        """Say where something was read that strangers may have written, such as a URL; the result will name it.

        A result that was read somewhere is untrusted whatever its tool is: nobody becomes trusted by saying so.
        """
        self.told.append(place)
