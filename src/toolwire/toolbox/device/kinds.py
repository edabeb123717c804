"""What device tools of one kind have in common."""

from collections.abc import Callable
from typing import Any, Unpack

from toolwire.define.functions import Options, tool
from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool


def sensing(**own: Unpack[Options]) -> Callable[[Callable[..., Any]], Tool]:
    """A tool that looks at this machine and changes nothing. What it tells changes, so asking again is no mistake."""
    options: Options = {
        "tier": Tier.CRAWL, "effect": Effect.PURE, "category": "device", "platforms": {"linux"}, "polling": True,
        "examples": ({},), **own,
    }  # fmt: skip
    return tool(**options)


def unavailable(message: str) -> ToolFailure:
    """What a tool says where the machine lacks what it needs."""
    return ToolFailure(message, code=Code.UNAVAILABLE)
