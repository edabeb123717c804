"""The end of a call's journey: what the model is shown of a result, and what is kept for later questions.

What takes long for a large result (taking out control sequences, redacting, encoding, digests) is done in a thread.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from msgspec.structs import replace

from toolwire.deliver import command_views
from toolwire.deliver.command_views import View
from toolwire.deliver.secrets import NO_SECRETS
from toolwire.deliver.size import fits, mark_removed, not_as_promised, taken_out, trim_result, whole
from toolwire.deliver.visible import visible_result
from toolwire.errors import StoreUnavailable
from toolwire.hub.services import Services
from toolwire.protocol.calls import Allowed, Text, ToolResult
from toolwire.protocol.outcomes import Code
from toolwire.protocol.turns import Limits

P = ParamSpec("P")
T = TypeVar("T")
_LARGE_CHARS = 1 << 20


def is_plain(result: ToolResult, limits: Limits) -> bool:
    """Whether the model sees the very result, as it sees most of them, so that nothing has to be kept."""
    if result.error is not None or (limits.envelope and result.name in command_views.COMMANDS):
        return False
    content = result.content
    if len(content) == 1 and type(only := content[0]) is Text and result.structured is None and not result.stderr:
        line = only.text  # most results are a short line, and a quick look spares them the rest
        if len(line) <= limits.result_chars and line.isascii() and line.isprintable():
            return True
    return fits(result, limits.result_chars) and visible_result(result) is result


async def show_result(services: Services, limits: Limits, allowed: Allowed, result: ToolResult) -> ToolResult:
    """The result as the model sees it."""
    shown = await _worked(result, visible_result, result)
    if result.error is not None and result.error.code is Code.INVALID_OUTPUT:
        return await _set_aside(services, result)
    if limits.envelope and (view := await _worked(shown, command_views.view_of, shown, allowed.arguments)):
        return await _enveloped(services, limits, allowed, view, result, shown)
    if shown is not result:
        return await _cleansed(services, limits, result, shown)
    return (
        result
        if fits(result, limits.result_chars)
        else await _shortened(services, limits, result, await _worked(result, whole, result))
    )


async def _cleansed(services: Services, limits: Limits, result: ToolResult, shown: ToolResult) -> ToolResult:
    """A result from which something was taken out."""
    safe, raw = await _worked(result, _safe, services, result, shown)
    safe = mark_removed(safe, await _kept(services, raw))
    return safe if fits(safe, limits.result_chars) else await _shortened(services, limits, safe, raw)


async def _enveloped(
    services: Services, limits: Limits, allowed: Allowed, view: View, result: ToolResult, shown: ToolResult
) -> ToolResult:
    """What a command gave, in an envelope. What does not fit into it is kept, and what was taken out of it too."""
    most = limits.result_chars
    if shown is not result:
        safe, raw = await _worked(result, _safe, services, result, shown)
        handle = await _kept(services, raw)
        shown = replace(safe, handle=handle)
        view = command_views.with_note(command_views.view_of(safe, allowed.arguments), taken_out(handle))
    kept = None if command_views.fits(view, most) else await _kept(services, view.body.encode("utf-8", "replace"))
    return command_views.with_envelope(shown, view, most, kept, services.seal)


async def _set_aside(services: Services, result: ToolResult) -> ToolResult:
    """A result that is not what its tool promises: what it gave is kept, and only the reason is shown."""
    given = replace(result, content=result.content[1:])
    _, raw = await _worked(given, _visible_and_safe, services, given)
    return visible_result(not_as_promised(result, await _kept(services, raw) if raw else None))


async def _shortened(services: Services, limits: Limits, shown: ToolResult, raw: bytes) -> ToolResult:
    """The result as the model will see it, and the whole kept."""
    return await _worked(shown, trim_result, shown, limits.result_chars, await _kept(services, raw), raw)


def _visible_and_safe(services: Services, result: ToolResult) -> tuple[ToolResult, bytes]:
    return _safe(services, result, visible_result(result))


def _safe(services: Services, result: ToolResult, shown: ToolResult) -> tuple[ToolResult, bytes]:
    """What may be shown, and what may be kept of it. A secret that hid behind what was taken out is found only now."""
    safe = shown if services.secrets is NO_SECRETS else services.secrets.scrubbed(shown)
    return safe, whole(result if safe == shown else safe)


async def _kept(services: Services, raw: bytes) -> str | None:
    """The handle of the whole output; a full disk costs the whole, not the result."""
    try:
        return await services.store.keep(raw)
    except StoreUnavailable:
        return None


async def without_secrets(services: Services, result: ToolResult) -> ToolResult:
    """The result without any secret in it."""
    return await _worked(result, services.secrets.scrubbed, result)


async def _worked(result: ToolResult, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do some work on a result, in a thread where the result is large."""
    if fits(result, _LARGE_CHARS):
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)
