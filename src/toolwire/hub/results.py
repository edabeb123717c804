"""The end of a call's journey: what the model is shown of a result, and what is kept for later questions.

What takes long for a large result (taking out control sequences, redacting, encoding, digests) is done in a thread.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from toolwire.deliver import command_views
from toolwire.deliver.command_views import View
from toolwire.deliver.secrets import NO_SECRETS, Secrets
from toolwire.deliver.size import cleansed, fits, not_as_promised, taken_out, trimmed, whole
from toolwire.deliver.visible import is_plain_line, visible_result
from toolwire.errors import StoreUnavailable
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.outcomes import Code
from toolwire.protocol.turns import Limits
from toolwire.protocol.values import changed
from toolwire.record.contract import Store

P = ParamSpec("P")
T = TypeVar("T")
_LARGE_CHARS = 1 << 20


class Hub(Protocol):
    """What returning needs of the runtime. The `seal` is a secret of the process."""

    store: Store
    secrets: Secrets
    seal: bytes


def is_plain(result: ToolResult, limits: Limits) -> bool:
    """Whether the model sees the very result, as it sees most of them, so that nothing has to be kept."""
    return (
        result.error is None
        and not (limits.envelope and result.name in command_views.COMMANDS)
        and (
            is_plain_line(result, limits.result_chars)
            or (fits(result, limits.result_chars) and visible_result(result) is result)
        )
    )


async def returned(hub: Hub, limits: Limits, allowed: Allowed, result: ToolResult) -> ToolResult:
    """The result as the model sees it."""
    shown = await _worked(result, visible_result, result)
    if result.error is not None and result.error.code is Code.INVALID_OUTPUT:
        return await _set_aside(hub, result)
    if limits.envelope and (view := await _worked(shown, command_views.view_of, shown, allowed.arguments)):
        return await _enveloped(hub, limits, allowed, view, result, shown)
    if shown is not result:
        return await _cleansed(hub, limits, result, shown)
    return (
        result
        if fits(result, limits.result_chars)
        else await _shortened(hub, limits, result, await _worked(result, whole, result))
    )


async def _cleansed(hub: Hub, limits: Limits, result: ToolResult, shown: ToolResult) -> ToolResult:
    """A result from which something was taken out."""
    safe, raw = await _worked(result, _safe, hub, result, shown)
    safe = cleansed(safe, await _kept(hub, raw))
    return safe if fits(safe, limits.result_chars) else await _shortened(hub, limits, safe, raw)


async def _enveloped(
    hub: Hub, limits: Limits, allowed: Allowed, view: View, result: ToolResult, shown: ToolResult
) -> ToolResult:
    """What a command gave, in an envelope. What does not fit into it is kept, and what was taken out of it too."""
    most = limits.result_chars
    if shown is not result:
        safe, raw = await _worked(result, _safe, hub, result, shown)
        handle = await _kept(hub, raw)
        shown = changed(safe, handle=handle)
        view = command_views.with_note(command_views.view_of(safe, allowed.arguments), taken_out(handle))
    kept = None if command_views.fits(view, most) else await _kept(hub, view.body.encode("utf-8", "replace"))
    return command_views.enveloped(shown, view, most, kept, hub.seal)


async def _set_aside(hub: Hub, result: ToolResult) -> ToolResult:
    """A result that is not what its tool promises: what it gave is kept, and only the reason is shown."""
    given = changed(result, content=result.content[1:])
    _, raw = await _worked(given, _visible_and_safe, hub, given)
    return visible_result(not_as_promised(result, await _kept(hub, raw) if raw else None))


async def _shortened(hub: Hub, limits: Limits, shown: ToolResult, raw: bytes) -> ToolResult:
    """The result as the model will see it, and the whole kept."""
    return await _worked(shown, trimmed, shown, limits.result_chars, await _kept(hub, raw), raw)


def _visible_and_safe(hub: Hub, result: ToolResult) -> tuple[ToolResult, bytes]:
    return _safe(hub, result, visible_result(result))


def _safe(hub: Hub, result: ToolResult, shown: ToolResult) -> tuple[ToolResult, bytes]:
    """What may be shown, and what may be kept of it. A secret that hid behind what was taken out is found only now."""
    safe = shown if hub.secrets is NO_SECRETS else hub.secrets.scrubbed(shown)
    return safe, whole(result if safe == shown else safe)


async def _kept(hub: Hub, raw: bytes) -> str | None:
    """The handle of the whole output; a full disk costs the whole, not the result."""
    try:
        return await hub.store.keep(raw)
    except StoreUnavailable:
        return None


async def scrubbed(secrets: Secrets, result: ToolResult) -> ToolResult:
    """The result without any secret in it."""
    return await _worked(result, secrets.scrubbed, result)


async def _worked(result: ToolResult, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do some work on a result, in a thread where the result is large."""
    if fits(result, _LARGE_CHARS):
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
