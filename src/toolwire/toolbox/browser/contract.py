"""What the browser tool needs of a browser: a tab for each conversation, reaching what its grant allows."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from toolwire.decide.address_rules import AddressRules
from toolwire.execute.egress.traffic import TrafficLog
from toolwire.protocol.tools import limits_of
from toolwire.protocol.traffic import Traffic


class TabOwner(Struct, frozen=True):
    """Whose tab it is, and what its grant says about hosts and addresses. Two visitors share nothing, not a process."""

    owner: str
    network: tuple[str, ...]
    rules: AddressRules = AddressRules()

    def without_limits(self) -> "TabOwner":
        """The same between calls that carry a secret."""
        limits = limits_of(self.network)
        return replace(self, network=tuple(entry for entry in self.network if entry not in limits))


class TabState(Struct, frozen=True):
    """Where a tab is. `refused` are places that the page wanted and did not get since the last look."""

    url: str
    title: str
    status: int | None = None
    refused: tuple[str, ...] = ()


class Tab(Protocol):
    """One page that is open. All methods raise ToolFailure, with a sentence about the page.

    `log` says where its pages went since it was opened.
    """

    @property
    def log(self) -> TrafficLog: ...

    async def navigate(self, url: str) -> None: ...

    async def click(self, selector: str) -> None: ...

    async def type(self, selector: str, text: str, *, submit: bool) -> None: ...

    async def html(self, selector: str, most: int) -> str: ...

    async def controls(self, selector: str) -> str:
        """What can be read and used on the page, by role and name."""
        ...

    async def screenshot(self, selector: str, *, full_page: bool) -> bytes: ...

    async def evaluate(self, script: str) -> Any: ...

    async def seen(self) -> TabState: ...


class BrowserOps(Protocol):
    """Lends tabs. A visitor who comes again finds the tab as it was left. `box` is the engine and profile around it."""

    box: tuple[str, str]

    def tab(self, visitor: TabOwner, timeout_s: float) -> AbstractAsyncContextManager[Tab]:
        """The visitor's tab, for one visitor's use at a time; what takes longer than `timeout_s` fails."""
        ...

    async def leave(self, visitor: TabOwner) -> Traffic | None:
        """Close the visitor's tab with everything that it remembers; None when there is none.

        Gives back where its pages went since they were last looked at.
        """
        ...
