"""The doors of the inbound side: any model's answer, whole or streamed, becomes one Reply."""

from collections.abc import Sequence
from typing import Any

from toolwire.protocol.chat import Delta, Reply
from toolwire.wire.draft import Draft
from toolwire.wire.native.detect import reader_for
from toolwire.wire.offered import offered
from toolwire.wire.plain import decoded, plain
from toolwire.wire.settle import Settled
from toolwire.wire.text.live import LiveText
from toolwire.wire.text.reading import read_text


def parse_reply(
    response: Any, tools: Sequence[Any] = (), provider: str = "auto", finish_reason: str | None = None
) -> Reply:
    """Read a whole answer: text, a provider's JSON, or an SDK's object. Never raises on what a model wrote."""
    parser = StreamParser(tools, provider, finish_reason)
    parser.feed(response)
    return parser.finish(raw=response)


class StreamParser:
    """Reads an answer piece by piece. `feed` gives what became certain, `finish` the same Reply as the whole would."""

    def __init__(self, tools: Sequence[Any] = (), provider: str = "auto", finish_reason: str | None = None) -> None:
        self._offered = offered(tools)
        self._provider = provider
        self._draft = Draft(finish_reason)
        self._text = LiveText(self._offered)
        self._given = finish_reason

    def feed(self, chunk: Any) -> list[Delta]:
        """Take the next piece: text, a decoded event or chunk, or an SDK's object."""
        if isinstance(chunk, str):
            if self._provider in ("auto", "text") or not isinstance(data := decoded(chunk), dict):
                return self._text.feed(chunk)
        else:
            data = plain(chunk)
        draft = self._draft
        if isinstance(data, dict):
            reader_for(self._provider, data)(draft, data)
        elif isinstance(data, str):
            draft.say(data)
        shown, draft.deltas = draft.deltas, []
        if draft.new_text:
            said, draft.new_text = "".join(draft.new_text), []
            shown.extend(self._text.feed(said))
        return shown

    def finish(self, raw: Any = None) -> Reply:
        """The whole reply. Calls that were not finished are reported, never made up."""
        draft = self._draft
        settled = Settled(self._offered)
        settled.problems.extend(draft.problems)
        ended = self._given is not None or draft.finish_reason is not None
        for call in draft.calls:
            written = {"input": call.written()} if call.free_text else call.written()
            settled.native(
                call.name, written, call.alias, call.raw, finished=ended and not draft.cut, cut=draft.cut or call.cut
            )
        text = self._text.whole()
        reading = read_text(text, self._offered)
        for code, message in reading.problems:
            settled.report(code, message)
        settled.texts(reading.found, text)
        return Reply(
            content=reading.content,
            reasoning=_joined("".join(draft.reasoning), reading.reasoning),
            calls=tuple(settled.calls),
            problems=tuple(settled.problems),
            finish_reason=draft.finish_reason or "stop",
            usage=draft.usage,
            model=draft.model,
            carry=draft.carry(),
            raw=raw,
        )


def _joined(first: str, second: str) -> str:
    return f"{first}\n{second}" if first and second else first or second
