"""Asking the person at the terminal: for approval of a call, and for a word before a step."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence

from rich.text import Text

from toolwire.cli.asked_about import shown_pattern, spelled_out
from toolwire.cli.screen import Screen
from toolwire.cli.text import clean, distinct
from toolwire.errors import ToolFailure
from toolwire.people import Approve
from toolwire.protocol.approvals import Approval, Scope
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.outcomes import Code
from toolwire.protocol.turns import Ending, EndReason, Turn

ReadLine = Callable[[], Awaitable[str | None]]


def someone_is_there() -> bool:
    """Whether questions can be asked and answered here."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


async def terminal_line() -> str | None:
    """One line from the terminal, None at its end. Waits without a thread, so that Ctrl-C can end the wait."""
    loop, handle = asyncio.get_running_loop(), sys.stdin.fileno()
    answer: asyncio.Future[bytes] = loop.create_future()

    def ready() -> None:
        if not answer.done():
            answer.set_result(os.read(handle, 65_536))

    loop.add_reader(handle, ready)
    try:
        line = await answer
    finally:
        loop.remove_reader(handle)
    return line.decode("utf-8", "replace").rstrip("\r\n") if line else None


class Person:
    """Approves calls and steers turns. `always` is remembered within one turn, for one tool and one reason to ask."""

    def __init__(self, screen: Screen, read_line: ReadLine = terminal_line, *, agrees: bool = False) -> None:
        self._screen = screen
        self._read_line = read_line
        self._agrees = agrees
        self.present = someone_is_there()
        self._always: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    def forget(self) -> None:
        """A new turn begins: nothing is approved for it yet."""
        self._always.clear()

    @property
    def approver(self) -> Approve | None:
        """Who is asked before a call; None where nobody is, so that the turn waits until someone has answered."""
        return self.approve if self.present or self._agrees else None

    async def approve(self, request: NeedsApproval) -> Approval:
        """A person's word about exactly this call."""
        if self._agrees:
            return Approval(granted=True, by="--yes")
        async with self._one_at_a_time:
            if request.policy in self._always:
                return Approval(granted=True, by="terminal", reason="always in this turn")
            self._show(request)
            like_it = shown_pattern(request.allowed.tool.name, request.allowed.arguments)
            if like_it:
                self._screen.err.print(
                    Text(f"p says yes to all of {clean(like_it)!r} for a day.", "dim"), soft_wrap=True
                )
            word = ((await self._asked("Run it? [y/N/always] ")) or "").strip().lower()
            if word in ("a", "always"):
                self._always.add(request.policy)
                return Approval(granted=True, by="terminal", scope=Scope.TURN)
            if like_it and word in ("p", "pattern"):
                return Approval(granted=True, by="terminal", scope=Scope.PATTERN, pattern=like_it)
            return Approval(granted=word in ("y", "yes"), by="terminal")

    async def answer(self, prompt: str, choices: Sequence[str]) -> str:
        """What the person says to a question of the model's. Raises ToolFailure when there is no answer."""
        async with self._one_at_a_time:
            self._screen.err.print(Text(f"\n{clean(prompt)}", "yellow"), soft_wrap=True)
            for number, choice in enumerate(choices, 1):
                self._screen.err.print(Text(f"{number}. {clean(choice)}"), soft_wrap=True)
            said = await self._asked("Your answer: ")
        if said is None:
            raise ToolFailure("the user left without an answer", code=Code.UNAVAILABLE)
        return said

    async def intervene(self, turn: Turn) -> str | Ending | None:
        """Before each further step: an empty line goes on, `stop` ends the turn, other words go to the model."""
        if turn.iterations == 0 or not self.present:
            return None
        word = (await self._asked("Enter goes on, stop ends, other words go to the model: ")) or ""
        match word.strip():
            case "":
                return None
            case "stop":
                return Ending(EndReason.STOPPED, "Stopped by the user.")
            case words:
                return words

    async def _asked(self, prompt: str) -> str | None:
        self._screen.err.print(Text(prompt, "bold"), end="", soft_wrap=True)
        return await self._read_line()

    def _show(self, request: NeedsApproval) -> None:
        arguments = spelled_out(request.allowed.arguments)
        self._screen.err.print(Text(f"\n{distinct(request.reason)}", "yellow"), soft_wrap=True)
        self._screen.err.print(
            Text.assemble((request.allowed.tool.name, "bold"), " ", clean(arguments)), soft_wrap=True
        )
