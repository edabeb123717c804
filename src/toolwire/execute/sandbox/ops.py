"""The one door to the engines: chooses, starts, follows and cleans up."""

import asyncio
from collections.abc import Mapping
from time import perf_counter

from msgspec.structs import replace

from toolwire.errors import SandboxUnavailable, ToolFailure
from toolwire.execute.sandbox.capture import BoxWatch, CommandNotStarted
from toolwire.execute.sandbox.contract import Box, Engine, EngineReport
from toolwire.execute.sandbox.refusals import explain_refusals
from toolwire.execute.sandbox.starter import STARTER
from toolwire.protocol.engines import DEFAULT_ENGINE, ENGINES
from toolwire.protocol.operations import Command, Listener, Ran
from toolwire.protocol.outcomes import Code

_MOST_NAMED = 5
_MOST_ARGUMENT_BYTES = 120_000  # the kernel takes 128 KiB for one argument


def strongest(*names: str) -> str:
    """The strongest of these engines. Raises SandboxUnavailable for a name that is none."""
    for name in names:
        if name and name not in ENGINES:
            raise SandboxUnavailable(f"there is no sandbox engine {name!r}; there are {', '.join(ENGINES)}")
    return max((name for name in names if name), key=ENGINES.index)


class Sandbox:
    """Runs every command in the strongest of: what the policy demands, what the tool asks for, what is usual.

    So neither a tool nor a model can ask for less. An engine that is missing or fails is never replaced by another.
    """

    def __init__(
        self, engines: Mapping[str, Engine], *, floor: str = DEFAULT_ENGINE, default: str = DEFAULT_ENGINE
    ) -> None:
        self._engines = engines
        self._least = strongest(floor, default)
        self._reports: dict[str, EngineReport] = {}
        self._left: list[Box] = []

    @property
    def healthy(self) -> bool:
        """Whether everything that ran here is gone. Nothing more is run until it is."""
        return not self._left

    def choice(self, wish: str = "") -> str:
        """The engine for a command that asks for `wish`."""
        return strongest(self._least, wish)

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        _check(command)
        if self._left and not await asyncio.to_thread(self._recover):
            raise SandboxUnavailable("an earlier command left something behind that would not go; look at this machine")
        name = self.choice(command.engine)
        engine = self._engines.get(name)
        if engine is None or not getattr(engine, "tells_at_start", False):
            engine = await self._usable(name)
        began = perf_counter()
        try:
            box = await _launched(engine, command)
        except (SandboxUnavailable, OSError):
            await self._examine(name)
            raise
        try:
            return await self._run_in(box, command, listener, began)
        except CommandNotStarted:  # other errors say nothing about the engine: the command may have run
            await self._examine(name)
            raise

    async def _examine(self, name: str) -> None:
        """After a command that has not begun: find out whether any would. Raises SandboxUnavailable if none."""
        self._reports.pop(name, None)
        await self._usable(name)

    async def _run_in(self, box: Box, command: Command, listener: Listener | None, began: float) -> Ran:
        try:
            ran = await self._follow(box, command, listener, began)
        except ToolFailure:
            _require_clean(box)
            raise
        _require_clean(box)
        return _with_notes(ran, box)

    async def _follow(self, box: Box, command: Command, listener: Listener | None, began: float) -> Ran:
        """Follow a box to its end, and close it whatever happens."""
        try:
            return await BoxWatch(box, command, listener, began).end()
        finally:
            if not await asyncio.shield(asyncio.to_thread(box.close)):
                self._left.append(box)

    def _recover(self) -> bool:
        """Try once more to remove what would not go; True when all of it is gone."""
        self._left = [box for box in self._left if box.group is not None and not box.group.remove()]
        return not self._left

    async def report(self, name: str) -> EngineReport:
        """What an engine can do here. Looked at once if it works, and again each time if it does not."""
        known = self._reports.get(name)
        if known is not None and known.usable:
            return known
        engine = self._engines.get(name)
        missing = EngineReport(name, usable=False, reason="it is not set up")
        self._reports[name] = await asyncio.to_thread(engine.probe) if engine else missing
        return self._reports[name]

    async def _usable(self, name: str) -> Engine:
        report = await self.report(name)
        if not report.usable:
            raise SandboxUnavailable(
                f"the sandbox engine {name} is needed and cannot be used here: {report.reason}", detail={"engine": name}
            )
        return self._engines[name]


async def _launched(engine: Engine, command: Command) -> Box:
    """The started box. A caller who gives up while it starts leaves no box behind."""
    starting = STARTER.do(lambda: engine.launch(command))
    try:
        return await asyncio.shield(asyncio.wrap_future(starting))
    except asyncio.CancelledError:
        starting.add_done_callback(lambda done: None if done.exception() else done.result().close())
        raise


def _require_clean(box: Box) -> None:
    """Raises ToolFailure where something planted could not be removed."""
    if box.workspace is not None and (failed := box.workspace.failures()):
        raise ToolFailure(
            f"the command has made {', '.join(failed[:_MOST_NAMED])}, which other programs obey, and toolwire could "
            "not move it aside. Look at it and remove it before you go on",
            code=Code.PERMISSION_DENIED,
        )


def _with_notes(ran: Ran, box: Box) -> Ran:
    """What ran, with what became of the workspace."""
    if box.workspace is None:
        return ran
    notes = [*explain_refusals(ran.stderr.text, box.workspace.protected_names()), *box.workspace.notes()]
    return replace(ran, notes=tuple(notes)) if notes else ran


def _check(command: Command) -> None:
    """Refuse what the kernel would misread or not take."""
    texts = (*command.argv, command.workspace, command.cwd, *command.env, *command.env.values())
    if not command.argv or any("\0" in text for text in texts):
        raise ToolFailure("a command must have words, and none of them may contain NUL", code=Code.INVALID_PARAMS)
    try:
        longest = max(len(text.encode("utf-8", "surrogateescape")) for text in texts)
    except UnicodeEncodeError:
        raise ToolFailure("a word of the command has half a character in it", code=Code.INVALID_PARAMS) from None
    if longest > _MOST_ARGUMENT_BYTES:
        raise ToolFailure(
            f"one word of the command is longer than {_MOST_ARGUMENT_BYTES} bytes; write it to a file first",
            code=Code.INVALID_PARAMS,
        )
    if any(not name.isidentifier() for name in command.env):
        raise ToolFailure("the name of an environment variable is not one", code=Code.INVALID_PARAMS)


def limit_time(command: Command, wall_s: float) -> Command:
    """The command with no more time than this."""
    return replace(command, limits=replace(command.limits, wall_s=min(wall_s, command.limits.wall_s)))
