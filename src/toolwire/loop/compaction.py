"""Long conversations: what no longer fits the model's window is told by a summary. Pure.

A summary is a turn of its own in the thread: a question that asks for it, the model's answer, and a note that says how
many of the messages before it are still told word for word. Nothing is removed from the record. What a model is sent is
a function of the whole conversation, so a resumed turn sends the same.
"""

import re
from collections.abc import Iterator, Sequence

from toolwire.lazy import lazy_pattern
from toolwire.loop.limits import CHARS_PER_TOKEN, words_of
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage, UserMessage

QUESTION = "Summarise our conversation so far, so that we can go on without it."
_TOLD = "The conversation before this summary is told by it, except for its last {} messages."
_NOTE = lazy_pattern(re.escape(_TOLD).replace(r"\{\}", r"(\d+)"), re.ASCII)
_INSTRUCTION = (
    "Summarise this conversation. Keep names, numbers, paths, decisions, what tools did and gave, and what is still to "
    "be done. Write only the summary.\n\n"
)
_KEEP_SHARE = 1 / 3  # of what may be sent before it is summarised
_PIECE_SHARE = 0.5


def summary_note(kept: int) -> Note:
    """The note that ends a summary, after which so many earlier messages are still told word for word."""
    return Note(_TOLD.format(kept))


def messages_to_send(messages: Sequence[Message]) -> tuple[Message, ...]:
    """What a model is sent of a conversation: its newest summary, the messages that it leaves out, and all since."""
    sent: list[Message] = []
    for message in messages:
        sent.append(message)
        if type(message) is Note and (kept := _kept(sent)) is not None:
            asked, summary = sent[-3:-1]
            before = sent[:-3]
            sent = [asked, summary, *before[max(len(before) - kept, 0) :]]
    return tuple(sent)


def _kept(sent: Sequence[Message]) -> int | None:
    """How many messages a summary leaves out, if the last three are one."""
    if len(sent) < 3 or sent[-3] != UserMessage(QUESTION) or not isinstance(sent[-2], Reply):
        return None
    found = _NOTE.fullmatch(sent[-1].text) if isinstance(sent[-1], Note) else None
    return int(found[1]) if found else None


def tokens(messages: Sequence[Message]) -> int:
    """About how many tokens messages are."""
    return sum(len(words_of(message)) for message in messages) // CHARS_PER_TOKEN


def outgrown(messages: Sequence[Message], window: int, compact_at: float) -> int:
    """How many of the oldest messages should be summarised; 0 while all fit.

    Turns stay whole, so a call is never parted from its result.
    """
    if tokens(messages) <= window * compact_at:
        return 0
    begins = [place for place, message in enumerate(messages) if isinstance(message, UserMessage)]
    fitting = [place for place in begins if tokens(messages[place:]) <= window * compact_at * _KEEP_SHARE]
    return fitting[0] if fitting else len(messages)


def summary_requests(messages: Sequence[Message], window: int, longest: int | None) -> Iterator[str]:
    """The conversation in pieces that fit the window, each to be summarised together with the summary before it."""
    most = int(window * CHARS_PER_TOKEN * _PIECE_SHARE)
    most = max((most if longest is None else min(most, longest)) - len(_INSTRUCTION), 200) // 2
    text = "\n".join(_line(message) for message in messages)
    return (text[begin : begin + most] for begin in range(0, len(text), most))


def summary_request(before: str, piece: str) -> str:
    """What the model is asked: the summary so far, and what was said after it."""
    so_far = f"Summary so far: {before[: len(piece)]}\n\n" if before else ""
    return f"{_INSTRUCTION}{so_far}{piece}"


def _line(message: Message) -> str:
    match message:
        case UserMessage(text):
            return f"User: {text}"
        case Note(text):
            return f"Note: {text}"
        case ResultsMessage(results):
            return "\n".join(f"Result of {result.name}: {result.text}" for result in results)
        case Reply():
            calls = "".join(f"\nCall: {call.name} {dict(call.arguments)}" for call in message.calls)
            return f"Assistant: {message.content}{calls}"
