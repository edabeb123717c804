"""Chat completions in, chat completions out: everything passes, and calls that leaked into text become calls."""

from collections.abc import Sequence
from typing import Any

from toolwire.gateway import frames
from toolwire.gateway.calls import AnswerFollower, Closing, Ids, Ready, Tally, ending, ready_calls, shared_out
from toolwire.gateway.faults import Fault, error_body
from toolwire.wire.encode.outbound import Json
from toolwire.wire.replies.reply import parse_reply
from toolwire.wire.replies.unsent import collapse_space

_READ = ("content", "tool_calls")


def repair(answer: Json, tools: Sequence[Any], ids: Ids, tally: Tally) -> Json:
    """The same completion with its calls in order; the very same value where there is nothing to change."""
    choices = answer.get("choices")
    if not isinstance(choices, list):
        return answer
    mended = [_mended(choice, tools, ids, tally) for choice in choices]
    unchanged = all(new is old for new, old in zip(mended, choices, strict=True))
    return answer if unchanged else answer | {"choices": mended}


def _mended(choice: Any, tools: Sequence[Any], ids: Ids, tally: Tally) -> Any:
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(message, dict) or not isinstance(message.get("content"), str | list | None):
        return choice
    read = {"content": _words(message.get("content")), "tool_calls": message.get("tool_calls")}
    reply = parse_reply({"choices": [choice | {"message": read}]}, tools, "openai")
    calls = ready_calls(reply, ids, tally)
    given = _reason(choice)
    reason = reason_of(ending(given, calls, reply)) or "stop"
    ended = choice if reason == given or (given and not calls) else choice | {"finish_reason": reason}
    same_text = collapse_space(reply.content) == collapse_space(_words(message.get("content"))) and not reply.reasoning
    if same_text and _as_they_were(message.get("tool_calls"), calls):
        return ended
    content = message.get("content") if same_text else _content(message.get("content"), reply.content)
    return ended | {"message": _message(message, content, reply.reasoning, calls), "finish_reason": reason}


def _as_they_were(entries: Any, calls: list[Ready]) -> bool:
    """Whether the calls that came out are those that went in, written as they were."""
    listed = entries if isinstance(entries, list) else []
    return len(listed) == len(calls) and all(entry_of(new) is old for new, old in zip(calls, listed, strict=True))


def _words(content: Any) -> str:
    """The text of a message: its content, or what the text parts of it say."""
    if isinstance(content, list):
        return "".join(_part_text(part) or "" for part in content)
    return content if isinstance(content, str) else ""


def _part_text(part: Any) -> str | None:
    """The words of a part that is text; None for any other part."""
    match part:
        case str(words) | {"type": "text" | "output_text", "text": str(words)}:
            return words
        case _:
            return None


def _content(before: Any, kept: str) -> Any:
    """What was kept of a message's text, in the form in which it came; parts that are no text stay as they are."""
    if not isinstance(before, list):
        return kept
    shares = iter(shared_out([words for part in before if (words := _part_text(part)) is not None], kept))
    parts: list[Any] = []
    for part in before:
        words = _part_text(part)
        share = part if words is None else next(shares)
        if share is part or share == words:
            parts.append(part)
        elif share:
            parts.append(share if isinstance(part, str) else part | {"text": share})
    return parts


def _message(message: Json, content: Any, thought: str, calls: list[Ready]) -> Json:
    new = {name: value for name, value in message.items() if name != "tool_calls"}
    new["content"] = content if content or not calls else None
    if thought:
        before = message.get("reasoning_content")
        new["reasoning_content"] = f"{before}\n{thought}" if isinstance(before, str) and before else thought
    if calls:
        new["tool_calls"] = [entry_of(call) for call in calls]
    return new


def entry_of(call: Ready) -> Json:
    """The call as an entry of `tool_calls`: the upstream's own where it is right, with what else that says."""
    own: Json = call.raw
    match own:
        case {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": str(written)}} if (
            call.is_written(written)
        ):
            return own
        case {"type": "custom", "custom": dict(given)}:
            new = own | {"id": call.id, "custom": given | {"input": call.arguments.get("input", "")}}
            return own if new == own else new
        case {"function": dict()}:
            others = {name: value for name, value in own.items() if name != "index"}
        case _:
            others = {}
    function = {"name": call.name, "arguments": call.written}
    return others | {"id": call.id, "type": "function", "function": function}


def reason_of(word: str) -> str:
    return "tool_calls" if word == "calls" else word


class OpenAIStream:
    """A stream of chunks on its way through. `feed` takes payloads and gives frames; afterwards `ended` is set."""

    def __init__(self, tools: Sequence[Any], ids: Ids, tally: Tally) -> None:
        self.ended = False
        self._tools = tools
        self._ids = ids
        self._tally = tally
        self._choices: dict[int, _Choice] = {}
        self._head: Json = {}
        self._finished = False

    def feed(self, payload: bytes, chunk: Json) -> list[bytes]:
        """Take one chunk; give what the client may see now."""
        self._head = self._head or {name: chunk[name] for name in chunk if name not in ("choices", "usage")}
        choices = chunk.get("choices")
        listed = choices if isinstance(choices, list) else []
        self._finished = self._finished or any(_reason(choice) for choice in listed)
        if not self._tools:
            return [frames.verbatim(payload)]
        edited = [self._edited(choice) for choice in listed]
        if all(len(new) == 1 and new[0] is old for new, old in zip(edited, listed, strict=True)):
            return [frames.verbatim(payload)]
        return self._written(chunk, [choice for new in edited for choice in new])

    def done(self) -> list[bytes]:
        """The upstream said that its stream is over; choices that never said so are closed."""
        self.ended = True
        late = [one for index, state in self._choices.items() if not state.over for one in self._closed(index, {})]
        if not self._finished and not self._tools:
            late = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        return [*(frames.data(self._head | {"choices": [choice]}) for choice in late), frames.DONE]

    @property
    def complete(self) -> bool:
        """Whether the answer is whole, so that a connection that ends without a word has lost nothing."""
        return self._finished

    def fail(self, fault: Fault) -> list[bytes]:
        """End the stream with an error that clients raise."""
        self.ended = True
        return [frames.data(error_body(fault, "openai")), frames.DONE]

    def _edited(self, choice: Any) -> list[Any]:
        """One choice of a chunk as the choices to send in its place."""
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(delta, dict):
            return [choice]
        index = choice.get("index") if isinstance(choice.get("index"), int) else 0
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice(self._tools)
        if state.over or not isinstance(delta.get("content"), str | list | None):
            return [choice]
        sent = [one for part in _one_by_one(choice, delta) for one in state.edit(part, part["delta"])]
        return [*sent, *self._closed(index, choice)] if _reason(choice) else sent

    def _closed(self, index: int, last: Json) -> list[Json]:
        """What ends a choice: text that was held, its calls, and why it ended."""
        state = self._choices[index]
        closing = state.close(_reason(last), self._ids, self._tally)
        reason = reason_of(ending(_reason(last), closing.calls, closing.reply))
        final = {name: value for name, value in last.items() if name not in ("delta", "logprobs")}
        deltas: list[Json] = [{name: text} for name, text in _unsent(closing) if text]
        deltas += [{"tool_calls": [entry_of(call) | {"index": at}]} for at, call in enumerate(closing.calls)]
        said = [{"index": index, "delta": delta, "finish_reason": None} for delta in deltas]
        return [*said, final | {"index": index, "delta": {}, "finish_reason": reason}]

    def _written(self, chunk: Json, choices: list[Any]) -> list[bytes]:
        """One frame for each choice; what else the chunk says goes with the last one."""
        if not choices:
            return [frames.data(chunk | {"choices": []})] if chunk.get("usage") else []
        early = [frames.data(self._head | {"choices": [choice]}) for choice in choices[:-1]]
        return [*early, frames.data(chunk | {"choices": [choices[-1]]})]


class _Choice:
    """One choice of a stream: what its text and calls are so far."""

    def __init__(self, tools: Sequence[Any]) -> None:
        self.over = False
        self._following = AnswerFollower(tools, "openai")

    def edit(self, choice: Json, delta: Json) -> list[Json]:
        """The choice with only that text which cannot be part of a call; none where nothing is left of it."""
        content, calls = delta.get("content"), delta.get("tool_calls")
        if isinstance(content, list):
            return [self._open(choice)]  # nothing that people read as text
        if not content and not calls:
            return [] if _reason(choice) and not _says_more(choice, delta) else [self._open(choice)]
        text, thought = self._following.feed({"choices": [{"delta": {name: delta.get(name) for name in _READ}}]})
        if text == content and not calls and not thought:
            return [self._open(choice)]
        new = {name: value for name, value in delta.items() if name not in _READ}
        if text or "role" in new:
            new["content"] = text
        if thought:
            new["reasoning_content"] = thought
        return [self._open(choice | {"delta": new})] if new or choice.get("logprobs") else []

    def close(self, reason: str, ids: Ids, tally: Tally) -> Closing:
        self.over = True
        self._following.feed({"choices": [{"finish_reason": reason or "stop"}]})
        return self._following.close(ids, tally)

    def _open(self, choice: Json) -> Json:
        return choice | {"finish_reason": None} if _reason(choice) else choice


def _reason(choice: Any) -> str:
    reason = choice.get("finish_reason") if isinstance(choice, dict) else None
    return reason if isinstance(reason, str) else ""


def _one_by_one(choice: Json, delta: Json) -> list[Json]:
    """A choice whose content is a list as one choice for each of its parts, texts as plain text; any other as it is."""
    content = delta.get("content")
    if not isinstance(content, list):
        return [choice]
    said = [part if (words := _part_text(part)) is None else words for part in content]
    first = choice | {"finish_reason": None, "delta": {name: delta[name] for name in delta if name not in _READ}}
    parts = [first | {"delta": {"content": part if isinstance(part, str) else [part]}} for part in said]
    rest = {"tool_calls": delta["tool_calls"]} if delta.get("tool_calls") else {}
    before = [first] if first["delta"] else []
    return [*before, *parts, choice | {"delta": rest}]


def _says_more(choice: Json, delta: Json) -> bool:
    return bool(choice.get("logprobs")) or any(value for name, value in delta.items() if name not in _READ)


def _unsent(closing: Closing) -> tuple[tuple[str, str], ...]:
    return (("reasoning_content", closing.thought), ("content", closing.text))
