"""What the model reads about calls that did not run to their end."""

from toolwire.protocol.calls import Denied, ToolCall, ToolResult
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard


def refusal_result(denied: Denied) -> ToolResult:
    """The result of a call that a rung of the ladder stopped."""
    return ToolResult.failed(denied.call, denied.code, denied.message, detail={"rule": denied.rule})


def rejection(call: ToolCall, reason: str) -> Denied:
    """The decision about a call that was denied, or that no approver was present for."""
    return Denied(call, Code.PERMISSION_DENIED, reason, "confirmation")


def canceled_result(call: ToolCall, *, begun: bool) -> ToolResult:
    """The result of a call that its turn gave up."""
    effect = "It had been started, so it may have taken effect." if begun else "It had not been started."
    return ToolResult.failed(call, Code.CANCELED, f"{call.name!r} was canceled. {effect}")


def unknown(card: CallCard) -> ToolResult:
    """The result of a call that a process began and died over, and that must not be run blindly again."""
    message = (
        f"{card.call.name!r} was started, but the process that ran it died before its result was known. "
        "It may or may not have taken effect, and it was not run again. Check before you repeat it."
    )
    return ToolResult.failed(card.call, Code.OUTCOME_UNKNOWN, message)


def not_taken(card: CallCard) -> ToolResult:
    """The result of a call that was sent and that no worker took."""
    message = (
        f"{card.call.name!r} was not started: no worker has taken it. Start one that runs this tool, and call it again."
    )
    return ToolResult.failed(card.call, Code.UNAVAILABLE, message)


def busy(call: ToolCall, resource: str, holder: str, waited_s: float) -> ToolResult:
    """The result of a call that waited in vain for what another, given-up call still works on."""
    message = (
        f"{call.name!r} was not started: {resource} is busy. {holder} was given up, but its work has not ended, and "
        f"{waited_s:g} s of waiting for it did not help. Try again later, or do without."
    )
    return ToolResult.failed(call, Code.UNAVAILABLE, message, detail={"resource": resource, "held_by": holder})
