"""What tools of one kind have in common, said once. A kind is used like `tool`: `@looking(name="stat", …)`."""

from collections.abc import Callable
from typing import Any, Protocol, Unpack

from toolwire.define.functions import Options, tool
from toolwire.protocol.tools import Effect, Tier, Tool

WALK_TIME_S = 20.0


class ToolKind(Protocol):
    """Makes tools of one kind; what is said here wins over what the kind says."""

    def __call__(self, **own: Unpack[Options]) -> Callable[[Callable[..., Any]], Tool]: ...


def kind_of(**common: Unpack[Options]) -> ToolKind:
    """A kind of tools that have these options in common."""

    def of_this_kind(**own: Unpack[Options]) -> Callable[[Callable[..., Any]], Tool]:
        options: Options = {**common, **own}
        return tool(**options)

    return of_this_kind


looking = kind_of(
    tier=Tier.CRAWL, effect=Effect.PURE, category="file", reads=("file:{path}",), needs={"file_read"}
)  # fmt: skip
"""Looks at files."""

walking = kind_of(
    tier=Tier.CRAWL, effect=Effect.PURE, category="file", reads=("file:{path}",), needs={"file_read"},
    timeout_s=WALK_TIME_S,
)  # fmt: skip
"""Looks through many files."""

changing = kind_of(tier=Tier.RUN, effect=Effect.TRANSACTIONAL, journaled=True, category="file")
"""Changes files, all or nothing, and knows after a crash what it has done."""

listening = kind_of(
    tier=Tier.CRAWL, effect=Effect.PURE, category="session", needs={"session"}, polling=True, untrusted=True
)  # fmt: skip
"""Tells how sessions get on."""

sending = kind_of(tier=Tier.WALK, effect=Effect.UNSAFE, category="session", needs={"session"})
"""Sets others to work."""
