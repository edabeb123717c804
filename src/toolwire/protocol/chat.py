"""What is said to a model and what it says: messages, requests, replies, and the pieces of a streamed reply."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Protocol

from msgspec import Struct

from toolwire.protocol.calls import Block, Problem, Source, Text, ToolCall, ToolResult, in_words
from toolwire.protocol.tools import Tool


class Usage(Struct, frozen=True, gc=False):
    """What model calls consumed. `cost_usd` is None where no price is known, never zero by guess."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None

    def __add__(self, other: "Usage") -> "Usage":
        known = [cost for cost in (self.cost_usd, other.cost_usd) if cost is not None]
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            sum(known) if known else None,
        )

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


NO_USAGE = Usage()


class Reply(Struct, frozen=True, gc=False, eq=False):
    """One answer of a model: the text people see, its reasoning, the calls it asks for, and what was wrong with it.

    `carry` holds items that the provider wants back unchanged (signatures, reasoning items); nothing else reads it.
    `left_out` counts calls beyond the most that are read at all, and `raw` is the provider's own object: neither counts
    when replies are compared.
    """

    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    problems: tuple[Problem, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = NO_USAGE
    model: str = ""
    carry: Mapping[str, Any] | None = None
    raw: Any = None
    left_out: int = 0

    def __eq__(self, other: object) -> bool:
        return bool(_said(self) == _said(other)) if isinstance(other, Reply) else NotImplemented

    def __ne__(self, other: object) -> bool:  # that of `Struct` does not ask `__eq__`
        return not self == other

    def __hash__(self) -> int:
        return hash(_said(self))

    def __repr__(self) -> str:
        said = zip(_SAID, _said(self), strict=True)
        return f"Reply({', '.join(f'{name}={value!r}' for name, value in said)}, left_out={self.left_out})"


_SAID = tuple(name for name in Reply.__struct_fields__ if name not in {"raw", "left_out"})
_said = attrgetter(*_SAID)


class UserMessage(Struct, frozen=True, gc=False):
    """What a user said. Where pictures were shown too, `parts` has all of it in order, and `text` has it in words."""

    text: str
    parts: tuple[Block, ...] = ()

    @classmethod
    def of(cls, parts: Iterable[Block]) -> "UserMessage":
        """A message made of these parts."""
        kept = tuple(parts)
        text = "\n\n".join(map(in_words, kept))
        return cls(text) if all(isinstance(part, Text) for part in kept) else cls(text, kept)


class Note(Struct, frozen=True, gc=False):
    """A word from the runtime to the model in mid-conversation: a warning, or the request for a final answer."""

    text: str


class ResultsMessage(Struct, frozen=True, gc=False):
    """The results of one reply's calls, one for each, in the order of the calls."""

    results: tuple[ToolResult, ...]


Message = UserMessage | Reply | ResultsMessage | Note


def sources(message: Message) -> tuple[Source, ...]:
    """Where each block of a message comes from."""
    match message:
        case UserMessage(parts=parts):
            return (Source("user"),) * max(1, len(parts))
        case Reply(model=model):
            return (Source("model", model),)
        case ResultsMessage(results):
            return tuple(source for result in results for source in result.sources)
        case Note():
            return (Source("operator"),)


def untrusted_sources(messages: Iterable[Message]) -> tuple[Source, ...]:
    """The untrusted sources that were read, oldest first."""
    told = (said.results for said in messages if isinstance(said, ResultsMessage))
    return tuple(result.source for results in told for result in results if result.untrusted)


class Request(Struct, frozen=True):
    """Everything a model needs to answer once.

    `messages` only ever grows at its end within one `conversation`, and `tools` keeps its order, so that what was
    encoded for the last request can be used again. With `tools_off` the tools stay listed but may not be called.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    system: str = ""
    conversation: str = ""
    tools_off: bool = False
    max_tokens: int | None = None
    temperature: float | None = None


class TextDelta(Struct, frozen=True):
    """More of the text that people see."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """More of the model's reasoning."""

    text: str


class CallDelta(Struct, frozen=True):
    """More of a call being written: its place in the reply, its name once known, a piece of its arguments."""

    position: int
    name: str = ""
    arguments: str = ""


Delta = TextDelta | ReasoningDelta | CallDelta


class ProviderWait(Struct, frozen=True):
    """A provider cannot answer now, and is asked again after so many seconds. `reason` is what it said."""

    wait_s: float
    reason: str


class ChatModel(Protocol):
    """Anything that can answer a request. `name` is its `provider:model` string.

    A model that can be shown only so many tools says so in an attribute `most_tools`, and one that can read only
    questions of so many characters in `longest_question`. One that knows its window says so in `window_tokens`, one
    that knows how much it answers at most in `max_output_tokens`, and one that knows its prices has a method
    `price(usage)`, which gives US dollars or None.
    """

    @property
    def name(self) -> str: ...

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """Answer once, showing the pieces as they come if someone watches. Raises ModelError, and nothing else."""
        ...

    async def close(self) -> None:
        """Let go of connections. Harmless when called twice."""
        ...
