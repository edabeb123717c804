"""What a tool has told about its own call, in its result."""

from collections.abc import Callable

from msgspec.structs import replace

from toolwire.deliver.origins import origins
from toolwire.protocol.calls import Allowed, ToolResult
from toolwire.protocol.context import Context
from toolwire.protocol.traffic import Traffic


def with_told(result: ToolResult, allowed: Allowed, context: Context, clean: Callable[[str], str]) -> ToolResult:
    """The result with the sandbox that its tool has told of and, if it is untrusted, where it was read.

    What the executor itself has said about both is kept: it may be on another machine. `clean` takes out secrets.
    """
    boxes = [one for one in context.told if isinstance(one, tuple)]
    if boxes:
        engine, profile = boxes[-1]
        result = replace(result, engine=engine, profile=profile)
    read = [one for one in context.told if isinstance(one, str)]
    read += [host for one in context.told if isinstance(one, Traffic) for host in one.origins]
    if not (read or allowed.tool.untrusted or result.untrusted):
        return result
    found = origins(list(map(clean, read)), allowed.arguments)
    return replace(result, untrusted=True, origins=tuple(dict.fromkeys((*result.origins, *found))))
