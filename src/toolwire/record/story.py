"""A turn told as messages: what was said, with each complete set of results after the reply that asked for it."""

from collections.abc import Iterable, Iterator, Mapping

from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage

Said = Reply | Note


def events(said: Iterable[Said], results: Mapping[str, ToolResult]) -> tuple[Message, ...]:
    """Everything that happened since the turn began; results of a step that is not complete stay out."""
    return tuple(_tell(said, results, keep_open=True))


def history(said: Iterable[Said], results: Mapping[str, ToolResult]) -> tuple[Message, ...]:
    """The same for an ended turn: a reply whose calls never got all their results stays out, as no model accepts it."""
    return tuple(_tell(said, results, keep_open=False))


def _tell(said: Iterable[Said], results: Mapping[str, ToolResult], *, keep_open: bool) -> Iterator[Message]:
    for message in said:
        calls = message.calls if isinstance(message, Reply) else ()
        answers = tuple(results[call.id] for call in calls if call.id in results)
        complete = len(answers) == len(calls)
        if complete or keep_open:
            yield message
        if calls and complete:
            yield ResultsMessage(answers)
