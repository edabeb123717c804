"""`toolwire chat`: one conversation, question after question."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from difflib import get_close_matches
from functools import partial
from time import perf_counter
from typing import Any

from msgspec.structs import replace
from uuid_utils import uuid7

from toolwire.agent import Agent, Answer
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.stores import store_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.agents import MOST_TURNS, Flags, begin_agent, resume_agent, show_summary
from toolwire.cli.resolve.options import (
    Allow,
    BaseUrl,
    Deadline,
    Groups,
    Home,
    Iterations,
    KeyEnv,
    Model,
    NoColor,
    NoTools,
    Profile,
    Project,
    Record,
    Replay,
    Root,
    System,
    Thread,
    Tier,
    Tokens,
    Yes,
)
from toolwire.cli.resolve.options import Trace as TraceFlag
from toolwire.cli.resolve.worker_wait import WorkerWait
from toolwire.cli.terminal.chat_input import BLOCK, PROMPT, line_editing, next_message
from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import one_line
from toolwire.cli.views.events import Trace
from toolwire.cli.views.prompts import TerminalUser
from toolwire.cli.views.watch import Watcher, Watchers
from toolwire.disclose.offer import visible_tools
from toolwire.errors import ToolwireError
from toolwire.protocol.chat import Message, Reply, UserMessage
from toolwire.protocol.events import Emit

HELP = {
    "/help": "show these words",
    "/tools": "show the tools that the model may call",
    "/new": "begin a new conversation",
    "/continue": "go on with the question that was interrupted last in this conversation",
    "/quit": "leave (so does Ctrl-D); Ctrl-C interrupts only the answer in progress",
    "\\": "at the end of a line: the message goes on in the next one",
    BLOCK: "before and after a message of several lines; a paste is one message anyway",
}
HISTORY = "history"
_MOST_SHOWN, _LONGEST_SHOWN = 6, 300


def chat(
    model: Model = None,
    base_url: BaseUrl = None,
    key_env: KeyEnv = None,
    profile: Profile = None,
    thread: Thread = "",
    system: System = "",
    tools: Groups = None,
    no_tools: NoTools = False,
    tier: Tier = None,
    allow: Allow = None,
    root: Root = None,
    yes: Yes = False,
    iterations: Iterations = None,
    deadline: Deadline = None,
    tokens: Tokens = None,
    record: Record = None,
    replay: Replay = None,
    project: Project = "default",
    home: Home = None,
    trace: TraceFlag = False,
    no_color: NoColor = False,
) -> Exit:
    """Talk with a model that can use tools. Each line or paste is a question; /help shows the other words."""
    flags = Flags(
        model=model, base_url=base_url, profile=profile, home=home, record=record, replay=replay, key_env=key_env,
        allow=allow or [], yes=yes, iterations=iterations, deadline=deadline, tokens=tokens, tier=tier, root=root,
        system=system, project=project, tools=tools, no_tools=no_tools,
    )  # fmt: skip
    place = flags.place(asks=True)
    screen = Screen.of(place.settings.output.color, no_color=no_color)
    with asyncio.Runner() as runner:
        room = _Conversation(flags, place, screen, runner, thread, trace=trace)
        try:
            room.open()
            with line_editing(place.home / HISTORY):
                room.talk()
        finally:
            room.close()
    return Exit.DONE


class _Conversation:
    """One chat: an agent that stays open, and the thread in which its turns are kept."""

    def __init__(
        self, flags: Flags, place: ProjectFolder, screen: Screen, runner: asyncio.Runner, thread: str, *, trace: bool
    ) -> None:
        self._flags = flags
        self._place = place
        self._screen = screen
        self._runner = runner
        self._thread = thread or _new_thread()
        self._trace = trace
        self._stack = AsyncExitStack()
        self._person = TerminalUser(screen, agrees=flags.yes)
        self._agent: Agent

    def open(self) -> None:
        self._agent = self._runner.run(self._open_agent())

    def close(self) -> None:
        self._runner.run(self._stack.aclose())

    def talk(self) -> None:
        """Take messages until their end."""
        if sys.stdin.isatty():
            tools = "no tools" if self._flags.no_tools else f"{len(self._offered())} tools"
            self._screen.tell(f"{self._agent.model.name} · {tools} · /help for help, Ctrl-D quits", "dim")
            self._show_history()
        while (message := next_message(self._screen)) is not None:
            words = message.strip()
            if words.startswith("/") and "\n" not in words:
                if words == "/quit":
                    return
                self._run_command(words)
            elif words:
                self._answer(partial(self._agent.ask, words, thread=self._thread))

    def _show_history(self) -> None:
        """The end of the conversation that is continued."""
        said = self._runner.run(self._agent.store.thread(self._thread))
        spoken = [line for message in said if (line := _history_line(message))]
        if len(spoken) > _MOST_SHOWN:
            self._screen.tell(f"({len(spoken) - _MOST_SHOWN} earlier messages)", "dim")
        for line in spoken[-_MOST_SHOWN:]:
            self._screen.tell(line, "dim")

    def _continue(self) -> None:
        """Go on with a turn of this conversation that was interrupted, here or in another process."""
        try:
            turn_id = self._runner.run(self._interrupted())
        except ToolwireError as error:
            self._screen.tell(str(error), "red")
            return
        if turn_id is None:
            self._screen.tell("No question of this conversation was interrupted.", "yellow")
        else:
            self._answer(partial(self._resume, turn_id))

    async def _resume(self, turn_id: str, on_event: Emit) -> Answer:
        """Go on as the turn began: another process, with other flags, may have begun it."""
        store = self._agent.store
        turn = (await store.turn(turn_id)).opening
        if turn.spec == self._agent.spec:
            return await self._agent.resume(turn_id, on_event=on_event)
        flags = replace(self._flags, record=None)  # a recording is a new file, and this chat has begun it
        async with resume_agent(flags, self._place, store, self._screen, turn) as agent:
            return await agent.resume(turn_id, on_event=on_event)

    async def _interrupted(self) -> str | None:
        left = await self._agent.store.turns(limit=MOST_TURNS, state="interrupted")
        return next((turn.id for turn in left if turn.thread == self._thread), None)

    def _answer(self, work: Callable[..., Coroutine[Any, Any, Answer]]) -> None:
        """One turn. What goes wrong in it does not end the chat."""
        self._person.forget()
        began, watcher = perf_counter(), Watcher(self._screen, show_question=not sys.stdin.isatty())
        shown = [Trace(self._screen, as_json=False)] if self._trace else []
        waits = [WorkerWait(self._screen, self._place, self._flags.home)] if self._place.uses_bus() else []
        watchers = Watchers(*shown, *waits, watcher)
        try:
            with watcher:
                answer = self._runner.run(work(on_event=watchers))
            show_summary(self._screen, answer, (perf_counter() - began) * 1000)
        except KeyboardInterrupt:
            self._tell_interrupted(watchers)
        except ToolwireError as error:
            self._screen.tell(str(error), "red")
            self._tell_interrupted(watchers)

    def _tell_interrupted(self, watchers: Watchers) -> None:
        if watchers.turn_id:
            self._screen.tell(
                "Interrupted. What was done so far is part of the conversation. Go on with /continue, "
                f"later with: {self._flags.resume_line(watchers.turn_id)}",
                "yellow",
            )

    async def _open_agent(self) -> Agent:
        store = await self._stack.enter_async_context(store_of(self._place))
        opening = begin_agent(self._flags, self._place, store, self._person)
        return await self._stack.enter_async_context(opening)

    def _run_command(self, word: str) -> None:
        match word:
            case "/help":
                self._screen.pairs(HELP)
            case "/tools":
                self._screen.pairs({tool: one_line(text, 100) for tool, text in self._offered().items()})
            case "/continue":
                self._continue()
            case "/new":
                self._thread = _new_thread()
                self._screen.tell("A new conversation begins.", "dim")
            case _:
                near = get_close_matches(word[:20], HELP, 1)
                self._screen.tell(f"There is no {one_line(word, 20)}; try {near[0] if near else '/help'}.", "yellow")

    def _offered(self) -> dict[str, str]:
        if self._flags.no_tools:
            return {}
        return {tool.name: tool.description for tool in visible_tools(self._agent.toolbox, self._agent.grant)}


def _history_line(message: Message) -> str:
    """What one side has said, on one line; nothing for calls and their results."""
    match message:
        case UserMessage() if message.text:
            return f"{PROMPT}{one_line(message.text, _LONGEST_SHOWN)}"
        case Reply() if message.content:
            return f"  {one_line(message.content, _LONGEST_SHOWN)}"
    return ""


def _new_thread() -> str:
    return f"chat-{uuid7()}"
