"""Calls that are only quoted: what a tool gave or a user sent along, and the model repeats, is not a request. Pure."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from html import unescape

from msgspec.structs import replace

from toolwire.protocol.attached_text import attached_text
from toolwire.protocol.calls import Problem, ToolCall
from toolwire.protocol.chat import Message, Reply, ResultsMessage, UserMessage

NATIVE = "native"
# A result may hold JSON or markup: a quotation of what it says differs by blanks and escapes alone.
_BLANKS = {ord(char): None for char in " \t\r\n\\"}
_ESCAPED = {"\\n": "", "\\r": "", "\\t": "", "\\u003c": "<", "\\u003e": ">", "\\u0026": "&", "\\u0027": "'"}


def drop_quoted_calls(reply: Reply, messages: Iterable[Message]) -> Reply:
    """The reply without calls in its text that stand word for word in an earlier result or attached text.

    Where the result is untrusted, blanks and escapes make no difference. A call in a provider's own field
    is never a quotation. Costs nothing where no call came in text.
    """
    for call in reply.calls:
        if call.format != NATIVE:
            break
    else:
        return reply
    written = [call for call in reply.calls if call.format != NATIVE and call.name in str(call.raw)]
    read = [shown for said in messages for shown in _shown(said)]
    quoted = [call for call in written if _is_quoted(str(call.raw).strip(), read)]
    if not quoted:
        return reply
    kept = tuple(call for call in reply.calls if call not in quoted)
    said = "\n".join([reply.content, *(str(call.raw) for call in quoted)]) if reply.content.strip() else ""
    return replace(reply, content=said, calls=kept, problems=(*reply.problems, *map(_problem, quoted)))


def _shown(message: Message) -> Iterator[tuple[str, bool]]:
    """The texts that the model was given to read, and whether others may have written them."""
    match message:
        case ResultsMessage(results):
            yield from ((result.text, result.untrusted) for result in results)
        case UserMessage(text) if attached := attached_text(text):
            yield attached, True


def _is_quoted(text: str, read: Iterable[tuple[str, bool]]) -> bool:
    squeezed = _squeezed(text)
    return any(squeezed in _squeezed(shown) if untrusted else text in shown for shown, untrusted in read)


@lru_cache(maxsize=256)  # every step of a turn looks at the same results again
def _squeezed(text: str) -> str:
    for escape, char in _ESCAPED.items():
        text = text.replace(escape, char)
    return unescape(text).translate(_BLANKS)


def _problem(call: ToolCall) -> Problem:
    why = f"A call of {call.name!r} stands word for word in what was read, so it is a quotation and was not run."
    return Problem("quoted", why)
