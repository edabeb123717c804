"""The doors of the inbound side: any model's answer, whole or streamed, becomes one Reply."""

from collections.abc import Sequence
from typing import Any

from toolwire.protocol.chat import Delta, Reply
from toolwire.wire.native.detect import reader_for, unwrap_event
from toolwire.wire.replies.draft import Draft
from toolwire.wire.replies.offered import Offered, index_tools
from toolwire.wire.replies.plain import json_or_text, plain
from toolwire.wire.replies.settle import CallCollector
from toolwire.wire.text.live import LiveText
from toolwire.wire.text.reading import read_text
from toolwire.wire.text.scan import MAX_CALLS

_TEXT = frozenset({"auto", "text", "generic"})
_NOTHING = Draft()


def parse_reply(
    response: Any, tools: Sequence[Any] = (), provider: str = "auto", finish_reason: str | None = None
) -> Reply:
    """Read a whole answer: text, a provider's JSON, or an SDK's object. Never raises on what a model wrote."""
    if isinstance(response, str) and provider in _TEXT:
        return _reply(
            index_tools(tools), _NOTHING if finish_reason is None else Draft(finish_reason), response, response
        )
    draft = Draft(finish_reason)
    data = plain(response)
    if isinstance(data, list):
        for piece in data:
            _read(draft, plain(piece), provider)
    else:
        _read(draft, data, provider)
    return _reply(index_tools(tools), draft, "".join(draft.new_text), response, streamed=isinstance(data, list))


class StreamParser:
    """Reads an answer piece by piece. `feed` gives what became certain, `finish` the same Reply as the whole would."""

    __slots__ = ("_draft", "_offered", "_plain", "_provider", "_text")

    def __init__(self, tools: Sequence[Any] = (), provider: str = "auto", finish_reason: str | None = None) -> None:
        self._offered = index_tools(tools)
        self._provider = provider
        self._plain = provider in _TEXT
        self._draft = Draft(finish_reason)
        self._text = LiveText(self._offered, self._draft.positions)

    def feed(self, chunk: Any) -> list[Delta]:
        """Take the next piece: text, a decoded event or chunk, or an SDK's object."""
        if self._plain and isinstance(chunk, str):
            return self._text.feed(chunk)
        draft = self._draft
        _read(draft, plain(chunk), self._provider)
        shown, draft.deltas = draft.deltas, []
        if draft.new_text:
            said, draft.new_text = "".join(draft.new_text), []
            shown.extend(self._text.feed(said))
        return shown

    def finish(self, finish_reason: str | None = None) -> Reply:
        """The whole reply. Calls that were not finished are reported, never made up.

        A stream often learns why it ended only at its end: `finish_reason` counts for more than what was said before.
        """
        self._draft.ended(finish_reason)
        text = self._text.whole()
        return _reply(self._offered, self._draft, text, text, streamed=True)


def _read(draft: Draft, data: Any, provider: str) -> None:
    """Put a piece of an answer into the draft."""
    if isinstance(data, str):
        found = json_or_text(data) if provider not in _TEXT and data.lstrip().startswith("{") else data
        data = found if isinstance(found, dict) else data
    if isinstance(data, dict):
        sent = unwrap_event(data)
        if sent is not None:
            reader_for(provider, sent)(draft, sent)
    elif isinstance(data, str):
        draft.say(data)


def _reply(offers: Offered, draft: Draft, text: str, raw: Any, *, streamed: bool = False) -> Reply:
    """Settle the native calls, then those in the text, which come after them.

    A stream that never said why it ended has broken off: a call without any argument may be one whose were lost.
    """
    settled = CallCollector(offers)
    settled.problems.extend(draft.problems)
    cut = draft.cut
    finished = draft.finish_reason is not None and not cut
    broken_off = streamed and draft.finish_reason is None
    for call in draft.calls:
        if call.half_built:
            settled.report("truncated", f"a call of {call.name!r} was cut off")
            continue
        written = {"input": call.written()} if call.free_text else call.written()
        settled.native(call.name, written, call.alias, call.raw, finished=finished, cut=cut or call.cut or broken_off)
    if draft.left_out:
        settled.report("too_many_calls", f"only the first {MAX_CALLS} calls were read, {draft.left_out} were left out")
    reading = read_text(text, offers, cut=cut)
    for code, message in reading.problems:
        settled.report(code, message)
    settled.texts(reading.found, text)
    thoughts = [thought for thought in ("".join(draft.reasoning), reading.reasoning) if thought]
    return Reply(
        content=reading.content,
        reasoning="\n".join(thoughts),
        calls=tuple(settled.calls),
        problems=tuple(settled.problems),
        finish_reason=draft.finish_reason or "stop",
        usage=draft.usage,
        model=draft.model,
        carry=draft.carry(),
        raw=raw,
        left_out=draft.left_out,
    )
