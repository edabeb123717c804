"""What a person sees while a turn goes on: the question, calls as they run, and the answer as it is written."""

from collections.abc import Callable, Mapping
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self

from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import arguments_line, clean, duration, one_line, quantity
from toolwire.lazy import lazy_module
from toolwire.protocol.attached_text import attached_text, own_words
from toolwire.protocol.calls import ToolCall, ToolResult
from toolwire.protocol.chat import ProviderWait, TextDelta
from toolwire.protocol.events import (
    ApprovalAsked,
    CallFinished,
    CallProgress,
    CallStarted,
    Emit,
    Event,
    ModelAsked,
    Noted,
    OutputDelta,
    TurnEnded,
    TurnStarted,
)
from toolwire.wire.replies.unsent import unsent

if TYPE_CHECKING:
    from rich import live as rich_live
    from rich import spinner as rich_spinner
    from rich.console import Group
    from rich.text import Text

    from toolwire.cli.terminal import drawing
else:
    # Loaded when something is shown: with --json nothing is.
    drawing = lazy_module("toolwire.cli.terminal.drawing")
    rich_live = lazy_module("rich.live")
    rich_spinner = lazy_module("rich.spinner")

_MARKS = {True: ("✓", "green"), False: ("✗", "red")}
_WIDEST = 160
_NOTICEABLE_S = 1.0
_ECHOED_LINES = 3


class Watchers:
    """Passes events on to all that show them, and remembers which turn they are about."""

    def __init__(self, *watchers: Emit) -> None:
        self.turn_id = ""
        self._watchers = watchers

    def __call__(self, event: Event) -> None:
        if isinstance(event, TurnStarted):
            self.turn_id = event.turn_id
        for watcher in self._watchers:
            watcher(event)


class Watcher:
    """Shows a turn. Only what the model says goes to standard output, piece by piece where it `streams`."""

    def __init__(
        self,
        screen: Screen,
        *,
        show_question: bool = True,
        streams: bool = True,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._screen = screen
        self._streams = streams
        self._show_question = show_question
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._thinking: _Running | None = None
        self._model = ""
        self._streamed = ""
        self._blanks = ""
        self._live: rich_live.Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._rest()
        self._end_line()

    def __call__(self, event: Event) -> None:
        match event:
            case TurnStarted():
                self._begin(event)
            case ModelAsked():
                self._end_line()
                self._thinking = _Running(f"{one_line(self._model, 40)} is thinking", self._clock())
                self._animate()
            case TextDelta(text):
                self._stream(text)
            case ProviderWait(wait_s, reason):
                if wait_s >= _NOTICEABLE_S:
                    again = f"asking again in {duration(wait_s * 1000)}"
                    self._screen.tell(f"· {again}: {one_line(reason, self._width)}", "yellow")
            case ApprovalAsked():
                self._rest()
                self._end_line()
            case CallStarted(call):
                self._thinking = None
                self._end_line()
                self._running[call.id] = _Running(_signature(call, self._width), self._clock())
                self._animate()
            case CallProgress(call_id, message, fraction):
                if running := self._running.get(call_id):
                    share = "" if fraction is None else f" {fraction:.0%}"
                    running.progress = one_line(f"{message}{share}", 40)
            case OutputDelta(call_id, text, stream):
                self._show_output(call_id, text, stream)
            case CallFinished(call, result):
                self._finish(call, result)
            case Noted(text):
                self._end_line()
                self._screen.tell(f"· {one_line(text, self._width - 4)}", "dim")
            case TurnEnded(ending=ending):
                self._rest()
                self._answer(ending.answer)

    def _show_output(self, call_id: str, text: str, stream: str) -> None:
        """Lines of a running tool, above what moves."""
        if call_id not in self._running:
            return
        self._end_line()
        for line in text.splitlines():
            self._screen.tell(f"  │ {one_line(line, self._width - 4)}", "red" if stream == "stderr" else "dim")

    @property
    def _width(self) -> int:
        return min(self._screen.err.width, _WIDEST) if self._screen.err.file.isatty() else _WIDEST

    def _begin(self, event: TurnStarted) -> None:
        self._model = event.model
        if event.lost:
            more = f" (and {len(event.lost) - 1} more)" if len(event.lost) > 1 else ""
            self._screen.tell(one_line(f"· not told to the model: {event.lost[0]}{more}", self._width), "yellow")
        if not self._show_question:
            return
        resumed = ("  (resumed)", "dim") if event.resumed else ""
        asked = (f"› {_question(event.question, self._width)}", "bold")
        self._screen.err.print(drawing.Text.assemble(asked, resumed), soft_wrap=True)

    def _stream(self, text: str) -> None:
        if not self._streams:
            return
        self._thinking = None
        self._rest()
        # Blanks wait for what follows them: those at the end of an answer are not part of it.
        text = self._blanks + (text if self._streamed else text.lstrip())
        said = text.rstrip()
        self._blanks = text[len(said) :]
        self._write(said)

    def _write(self, text: str) -> None:
        if text:
            self._streamed += text
            self._screen.out.file.write(clean(text))
            self._screen.out.file.flush()

    def _answer(self, answer: str) -> None:
        """What of the answer has not been streamed just now."""
        rest = unsent(self._streamed, answer)
        if self._streamed and rest != answer:
            self._write(rest)
            self._end_line()
        else:
            self._end_line()
            self._screen.say(answer)

    def _end_line(self) -> None:
        if self._streamed:
            self._screen.out.file.write("\n")
            self._screen.out.file.flush()
        self._streamed = self._blanks = ""

    def _finish(self, call: ToolCall, result: ToolResult) -> None:
        self._thinking = None
        self._end_line()
        self._running.pop(call.id, None)
        if self._screen.animates:
            self._screen.err.print(result_line(call, result, self._width), no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._screen.err.print(result_line(call, result, self._width), soft_wrap=True)
        if not self._running:
            self._rest()

    def _animate(self) -> None:
        if self._live is None and self._screen.animates:
            self._live = rich_live.Live(
                console=self._screen.err,
                get_renderable=self._moment,
                transient=True,
                refresh_per_second=12,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _rest(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _moment(self) -> "Group":
        """What runs right now. Called by the thread that animates, so it works on copies."""
        every = [each for each in (self._thinking, *self._running.copy().values()) if each is not None]
        return drawing.Group(*(each.shown(self._clock()) for each in every))


class _Running:
    """Something that takes time."""

    def __init__(self, what: str, since: float) -> None:
        self.progress = ""
        self._what = what
        self._since = since
        self._spinner = rich_spinner.Spinner("dots", style="cyan")

    def shown(self, now: float) -> "rich_spinner.Spinner":
        elapsed = f"  {duration((now - self._since) * 1000)}" if now - self._since >= 0.5 else ""
        progress = f"  {self.progress}" if self.progress else ""
        self._spinner.update(text=drawing.Text.assemble(self._what, (f"{progress}{elapsed}", "dim")))
        return self._spinner


def result_line(call: ToolCall, result: ToolResult, width: int) -> "Text":
    """One line about a call that ended: `✓ calculator(expression="2+2") → 4  0.3 ms`."""
    mark, style = _MARKS[result.ok]
    signature = _signature(call, width)
    time = duration(result.elapsed_ms) + (f", queued {duration(result.queued_ms)}" if result.queued_ms >= 50 else "")
    room = max(20, width - len(signature) - len(time) - 7)
    said = (_gist(result, room), "" if result.ok else "red")
    return drawing.Text.assemble((f"{mark} ", style), signature, (" → ", "dim"), said, (f"  {time}", "dim"))


def _gist(result: ToolResult, most: int) -> str:
    """A result as a person would write it: fields rather than JSON."""
    if isinstance(result.structured, Mapping) and result.ok:
        return arguments_line(result.structured, most)
    return one_line(result.text, most)


def _question(text: str, width: int) -> str:
    """The user's words in a few lines, and how much was sent along with them."""
    attached = attached_text(text)
    lines = attached.count("\n") + 1
    also = f"  (and {quantity(lines, 'line')} of piped text)" if attached else ""
    return one_line(own_words(text), _ECHOED_LINES * width - 2 - len(also)) + also


def _signature(call: ToolCall, width: int) -> str:
    return f"{one_line(call.name, 40)}({arguments_line(call.arguments, max(20, width // 2 - len(call.name)))})"
