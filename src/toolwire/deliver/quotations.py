"""Calls that are only quoted: what a tool gave, and the model repeats word for word, is nobody's request. Pure."""

from collections.abc import Iterable
from functools import lru_cache
from html import unescape

from toolwire.protocol.calls import Problem, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, ResultsMessage
from toolwire.protocol.values import changed

NATIVE = "native"
# A result may hold JSON or markup: a quotation of what it says differs by blanks and escapes alone.
_BLANKS = {ord(char): None for char in " \t\r\n\\"}
_ESCAPED = {"\\n": "", "\\r": "", "\\t": "", "\\u003c": "<", "\\u003e": ">", "\\u0026": "&", "\\u0027": "'"}


def unquoted(reply: Reply, messages: Iterable[Message]) -> Reply:
    """The reply without calls in its text that stand word for word in an earlier result: those are text.

    Where strangers may have written the result, blanks and escapes make no difference. A call in a provider's own field
    is never a quotation. Costs nothing where no call came in text.
    """
    for call in reply.calls:
        if call.format != NATIVE:
            break
    else:
        return reply
    written = [call for call in reply.calls if call.format != NATIVE and call.name in str(call.raw)]
    results = [result for said in messages if isinstance(said, ResultsMessage) for result in said.results]
    quoted = [call for call in written if _is_quoted(str(call.raw).strip(), results)]
    if not quoted:
        return reply
    kept = tuple(call for call in reply.calls if call not in quoted)
    said = "\n".join([reply.content, *(str(call.raw) for call in quoted)]) if reply.content.strip() else ""
    return changed(reply, content=said, calls=kept, problems=(*reply.problems, *map(_problem, quoted)))


def _is_quoted(text: str, results: Iterable[ToolResult]) -> bool:
    squeezed = _squeezed(text)
    return any(squeezed in _squeezed(result.text) if result.untrusted else text in result.text for result in results)


@lru_cache(maxsize=256)  # every step of a turn looks at the same results again
def _squeezed(text: str) -> str:
    for escape, char in _ESCAPED.items():
        text = text.replace(escape, char)
    return unescape(text).translate(_BLANKS)


def _problem(call: ToolCall) -> Problem:
    why = f"A call of {call.name!r} stands word for word in a tool's result, so it is a quotation and was not run."
    return Problem("quoted", why)
