"""Keep what a model said in a file, and let the file answer in its place.

A recording is one JSON object a line: the model's name, the print of the request, and the reply with its pieces, or the
error. A print holds digests and short excerpts, so that a replay can say what differs. Keys are in neither.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolwire.errors import ModelError, ModelRefused, ModelUnavailable, SettingsError
from toolwire.models.fingerprints import differences, fingerprint
from toolwire.protocol.chat import CallDelta, ChatModel, Delta, ReasoningDelta, Reply, Request, TextDelta
from toolwire.protocol.tools import Tool
from toolwire.wire.codecs.faithful import dump, load
from toolwire.wire.codecs.stored import read_reply, write_reply
from toolwire.wire.encode.outbound import Json

LARGEST_FILE = 256 * 1024 * 1024
_ERRORS = {kind.__name__: kind for kind in (ModelError, ModelRefused, ModelUnavailable)}
_DELTAS: dict[str, Callable[..., Delta]] = {"text": TextDelta, "reasoning": ReasoningDelta, "call": CallDelta}


class RecordingModel:
    """Another model, with every answer written to a new file as it comes. No file is ever replaced."""

    def __init__(self, inner: ChatModel, path: Path | str) -> None:
        self._inner = inner
        mode = "wb" if (path := Path(path)).exists() and not path.is_file() else "xb"  # a device has nothing to lose
        try:
            self._file = path.open(mode)
        except FileExistsError:
            raise SettingsError(
                f"the recording {path} exists already; choose another name for the new one, or delete it"
            ) from None
        except OSError as wrong:
            raise SettingsError(f"the recording {path} cannot be written: {wrong.strerror}") from None

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def longest_question(self) -> int | None:
        """How many characters of a question the recorded model reads."""
        most: int | None = getattr(self._inner, "longest_question", None)
        return most

    @property
    def most_tools(self) -> int | None:
        """As many as the other model can be shown."""
        most: int | None = getattr(self._inner, "most_tools", None)
        return most

    def losses(self, tools: Iterable[Tool]) -> tuple[str, ...]:
        """What the other model cannot be told of these tools."""
        lost = getattr(self._inner, "losses", None)
        return lost(tools) if lost else ()

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """Answer as the other model does. Raises what it raises, and ModelError when it cannot be written down."""
        shown: list[Delta] = []
        line: Json = {"model": self.name, "most_tools": self.most_tools, "request": fingerprint(request)}
        try:
            reply = await self._inner.ask(request, None if on_delta is None else _both(shown.append, on_delta))
        except ModelError as error:
            self._write(line | {"error": [type(error).__name__, str(error)], "deltas": _written(shown)})
            raise
        self._write(line | {"reply": write_reply(reply), "deltas": _written(shown)})
        return reply

    async def close(self) -> None:
        """Close the file and the other model. Harmless when called twice."""
        with suppress(OSError):  # what could not be written was said when it was written
            self._file.close()
        await self._inner.close()

    def _write(self, line: Json) -> None:
        try:
            self._file.write(dump(line).encode() + b"\n")
            self._file.flush()
        except (OSError, ValueError) as wrong:
            raise ModelUnavailable(f"the recording {self._file.name} cannot be written: {wrong}") from None


class ReplayModel:
    """Answers from a recording. A request that was not recorded is refused, with what differs."""

    def __init__(self, path: Path | str) -> None:
        self._path = path
        self._lines = _load(Path(path))
        self._count = len(self._lines)
        self._name = str(self._lines[0]["model"]) if self._lines else f"replay:{path}"
        self.most_tools: int | None = self._lines[0]["most_tools"] if self._lines else None

    @property
    def name(self) -> str:
        return self._name

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """The recorded answer to this request, pieces included. Raises ModelRefused when there is none."""
        line = self._take(fingerprint(request))
        if on_delta is not None:
            for delta in line["deltas"] or _at_once(line.get("reply")):
                on_delta(delta)
        if (error := line.get("error")) is not None:
            raise error
        reply: Reply = line["reply"]
        return reply

    async def close(self) -> None:
        """Nothing is held."""

    def _take(self, wanted: Json) -> Json:
        """The first unused line with this print: questions asked side by side may come in another order."""
        for position, line in enumerate(self._lines):
            if line["request"] == wanted:
                return self._lines.pop(position)
        if not self._lines:
            raise ModelRefused(
                f"the recording {self._path} has only {self._count} requests, and all have been answered"
            )
        differs = "; ".join(differences(self._lines[0]["request"], wanted))
        number = self._count - len(self._lines) + 1
        raise ModelRefused(f"request {number} is not the one in the recording {self._path}: {differs}")


def _both(first: Callable[[Delta], None], second: Callable[[Delta], None]) -> Callable[[Delta], None]:
    def show(delta: Delta) -> None:
        first(delta)
        second(delta)

    return show


def _at_once(reply: Reply | None) -> list[Delta]:
    """The one piece that stands for a reply recorded without a watcher."""
    return [TextDelta(reply.content)] if reply is not None and reply.content else []


def _written(deltas: list[Delta]) -> list[list[Any]]:
    return [_write_delta(delta) for delta in deltas]


def _write_delta(delta: Delta) -> list[Any]:
    match delta:
        case TextDelta(text):
            return ["text", text]
        case ReasoningDelta(text):
            return ["reasoning", text]
        case CallDelta(position, name, arguments):
            return ["call", position, name, arguments]


def _load(path: Path) -> list[Json]:
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise SettingsError(f"the recording {path} is larger than {LARGEST_FILE} bytes")
        lines = path.read_bytes().split(b"\n")
    except OSError as wrong:
        raise SettingsError(f"the recording {path} cannot be read: {wrong.strerror}") from None
    return [_read_line(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _read_line(path: Path, number: int, line: bytes) -> Json:
    try:
        data = load(line)
        read: Json = {"model": data["model"], "request": dict(data["request"]), "deltas": []}
        read["most_tools"] = None if (most := data.get("most_tools")) is None else int(most)
        read["deltas"] = [_DELTAS[kind](*fields) for kind, *fields in data["deltas"]]
        if "error" in data:
            kind, sentence = data["error"]
            return read | {"error": _ERRORS[kind](sentence)}
        return read | {"reply": read_reply(data["reply"])}
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError):
        raise SettingsError(f"line {number} of {path} is no recorded answer; record it again") from None
