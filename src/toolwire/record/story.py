"""A turn told as messages: what was said, with each complete set of results after the reply that asked for it."""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeVar

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage
from toolwire.protocol.outcomes import Code, Status

T = TypeVar("T")
Said = Reply | Note
INTERRUPTED = "This question was interrupted before it was answered. What is told above has happened."


def events(
    said: Iterable[Said], results: Mapping[str, ToolResult], detached: Collection[str] = ()
) -> tuple[Message, ...]:
    """Everything that happened since the turn began; results of a step that is not complete stay out.

    Of a `detached` call the model heard that it runs on its own, whatever has come of it since.
    """
    return tuple(_tell(said, results, detached, keep_open=True))


def history(
    said: Iterable[Said], results: Mapping[str, ToolResult], detached: Collection[str] = ()
) -> tuple[Message, ...]:
    """The same for an ended turn: a reply whose calls never got all their results stays out, as no model accepts it."""
    return tuple(_tell(said, results, detached, keep_open=False))


def unfinished(
    said: Iterable[Said], results: Mapping[str, ToolResult], detached: Collection[str] = ()
) -> tuple[Message, ...]:
    """The same for a turn that was interrupted: its effects have happened, so what it did is told up to there."""
    said = tuple(said)
    asked = [call for message in said if isinstance(message, Reply) for call in message.calls]
    answers = {call.id: results.get(call.id) or _without_result(call) for call in asked}
    return (*_tell(said, answers, detached, keep_open=False), Note(INTERRUPTED))


def merge_turns(ended: Iterable[tuple[int, T]], left: Iterable[tuple[int, T]]) -> Iterator[T]:
    """Ended turns in their order, each one that was left before the first that began after it; with their numbers."""
    waiting = deque(left)
    for number, one in ended:
        while waiting and waiting[0][0] < number:
            yield waiting.popleft()[1]
        yield one
    yield from (one for _, one in waiting)


def _without_result(call: ToolCall) -> ToolResult:
    message = (
        f"No result of {call.name!r} is on record: it was interrupted, or waits to be approved. "
        "It may or may not have taken effect. Check before you repeat it."
    )
    return ToolResult.failed(call, Code.OUTCOME_UNKNOWN, message)


def receipt(call: ToolCall) -> ToolResult:
    """What the model reads in the place of a result that its turn does not wait for."""
    words = f"{call.name!r} was started and runs on its own. Its result is kept as that of call {call.id}."
    return ToolResult(call.id, call.name, Status.SUCCESS, (Text(words),))


def _tell(
    said: Iterable[Said], results: Mapping[str, ToolResult], detached: Collection[str], *, keep_open: bool
) -> Iterator[Message]:
    for message in said:
        calls = message.calls if isinstance(message, Reply) else ()
        told = {call.id: receipt(call) for call in calls if call.id in detached} if detached else {}
        answers = tuple(
            told.get(call.id) or results[call.id] for call in calls if call.id in told or call.id in results
        )  # fmt: skip
        complete = len(answers) == len(calls)
        if complete or keep_open:
            yield message
        if calls and complete:
            yield ResultsMessage(answers)
