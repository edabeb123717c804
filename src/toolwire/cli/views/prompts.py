"""Asking the person at the terminal: for approval of a call, and for a word before a step."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from toolwire.cli.terminal.identity import system_user
from toolwire.cli.terminal.input import discard_typed_ahead, user_is_present
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean, distinct_line, one_line
from toolwire.errors import ToolFailure
from toolwire.hub.services import Approve
from toolwire.lazy import lazy_module
from toolwire.protocol.approvals import Approval, Scope
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.outcomes import Code
from toolwire.protocol.turns import Ending, EndReason, Turn

if TYPE_CHECKING:
    from toolwire.cli.views import arguments
    from toolwire.decide import patterns
else:
    # Loaded where a person is asked.
    arguments = lazy_module("toolwire.cli.views.arguments")
    patterns = lazy_module("toolwire.decide.patterns")

ReadLine = Callable[[], Awaitable[str | None]]

_RUN_IT = "Run it? [y/N/always] "
_ANSWERS = "Answer y (yes), n (no; words after it go to the model) or always (for this turn)"


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


class TerminalUser:
    """Approves calls and steers turns. `always` is remembered within one turn, for one tool and one reason to ask."""

    def __init__(self, screen: Screen, read_line: ReadLine = terminal_line, *, agrees: bool = False) -> None:
        self._screen = screen
        self._read_line = read_line
        self._agrees = agrees
        self.present = user_is_present()
        self._always: set[str] = set()
        self._one_at_a_time = asyncio.Lock()

    def forget(self) -> None:
        """A new turn begins: nothing is approved for it yet."""
        self._always.clear()

    @property
    def approver(self) -> Approve | None:
        """What approves calls; None where no user is present, so that the turn waits for an approval."""
        return self.approve if self.present or self._agrees else None

    async def approve(self, request: NeedsApproval) -> Approval:
        """The user's answer about exactly this call."""
        if self._agrees:
            return Approval(granted=True, by=system_user(), reason="--yes")
        async with self._one_at_a_time:
            if request.policy in self._always:
                return Approval(granted=True, by=system_user(), reason="always in this turn")
            self._show(request)
            like_it = arguments.pattern_to_offer(request.allowed.tool.name, request.allowed.arguments)
            if like_it:
                covers = patterns.pattern_scope(request.allowed.arguments, like_it)
                self._screen.tell(f"p says yes to all of {clean(like_it)!r} for a day: {covers}.", "dim")
            return await self._decision(request.policy, like_it)

    async def _decision(self, policy: str, pattern: str) -> Approval:
        """An answer that can be understood; any other is asked for again."""
        while True:
            line = ((await self._prompt(_RUN_IT)) or "").strip()
            word, _, words = line.replace(",", " ", 1).partition(" ")
            match word.lower().rstrip(".!:"), words.strip():
                case "y" | "yes", "":
                    return Approval(granted=True, by=system_user())
                case "a" | "always", "":
                    self._always.add(policy)
                    return Approval(granted=True, by=system_user(), scope=Scope.TURN)
                case "p" | "pattern", "" if pattern:
                    return Approval(granted=True, by=system_user(), scope=Scope.PATTERN, pattern=pattern)
                case "" | "n" | "no", _:
                    return Approval(granted=False, by=system_user(), reason=words.strip())
            also = ", or p (for all like it)" if pattern else ""
            self._screen.tell(f"{_ANSWERS}{also}.", "yellow")

    async def answer(self, prompt: str, choices: Sequence[str]) -> str:
        """What the person says to a question of the model's. Raises ToolFailure when there is no answer."""
        async with self._one_at_a_time:
            self._screen.tell(f"\n{clean(prompt)}", "yellow")
            for number, choice in enumerate(choices, 1):
                self._screen.tell(f"{number}. {clean(choice)}")
            said = await self._prompt("Your answer: ")
        if said is None:
            raise ToolFailure("the user left without an answer", code=Code.UNAVAILABLE)
        return said

    async def intervene(self, turn: Turn) -> str | Ending | None:
        """Before each further step: an empty line goes on, `stop` or Ctrl-D ends it, other words go to the model."""
        if turn.iterations == 0 or not self.present:
            return None
        line = await self._prompt("Enter goes on, stop ends, other words go to the model: ")
        if line is None or line.strip() == "stop":
            return Ending(EndReason.STOPPED, "Stopped by the user.")
        return line.strip() or None

    async def _prompt(self, prompt: str) -> str | None:
        """What is typed after the prompt is shown; nothing from before can be an answer to it."""
        if early := discard_typed_ahead():
            told = f"Discarded, since it was typed before this question: {one_line(early, 200)}"
            self._screen.tell(told, "dim")
            discard_typed_ahead()  # telling took a moment
        self._screen.prompt(prompt)
        line = await self._read_line()
        if line is None:
            self._screen.prompt("\n")  # Ctrl-D ends no line, and what comes next begins one
        return line

    def _show(self, request: NeedsApproval) -> None:
        shown = arguments.format_arguments(request.allowed.arguments)
        self._screen.tell(f"\n{distinct_line(request.reason)}", "yellow")
        self._screen.tell_named(request.allowed.tool.name, shown)
