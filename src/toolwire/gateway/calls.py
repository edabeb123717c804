"""From what was read to what a client gets: the calls with unique ids, the text that is still unsent, and a tally."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolwire.protocol.calls import Problem, ToolCall
from toolwire.protocol.chat import CallDelta, Delta, ReasoningDelta, Reply, TextDelta
from toolwire.wire.encode.outbound import to_json
from toolwire.wire.encode.tool_names import NameMap
from toolwire.wire.lenient.arguments import NotRead, Read, read_arguments
from toolwire.wire.replies.draft import CUT_REASONS
from toolwire.wire.replies.reply import StreamParser
from toolwire.wire.replies.unsent import after, collapse_space, unsent

_MOST_PIECES = 64
SAME_NAMES = NameMap((), {})
_CALL_REASONS = frozenset({"tool_calls", "tool_use", "function_call", ""})


class Ids:
    """Gives every call an id that no other call of the conversation has; the upstream's own where it is new.

    `single` says that the client takes at most one call in an answer.
    """

    def __init__(self, taken: Iterable[str], mint: Callable[[], str], *, single: bool = False) -> None:
        self.single = single
        self._taken = set(taken)
        self._mint = mint

    def claim(self, alias: str | None) -> str:
        chosen = alias or ""
        while not chosen or chosen in self._taken:
            chosen = self._mint()
        self._taken.add(chosen)
        return chosen


class Tally(Struct):
    """What happened to one answer, for the log: calls passed on, how many of them were made whole, what was wrong."""

    calls: int = 0
    repaired: int = 0
    problems: list[str] = field(default_factory=list)

    def count(self, reply: Reply) -> None:
        mended = {problem.call for problem in reply.problems if problem.code == "repaired"}
        self.calls += len(reply.calls)
        self.repaired += sum(call.format != "native" or call.position in mended for call in reply.calls)
        self.problems += [problem.code for problem in reply.problems if problem.code != "repaired"]


class Ready(Struct, frozen=True):
    """A call as the client will get it. `raw` is the upstream's own entry, `broken` are unreadable arguments."""

    id: str
    name: str
    arguments: Mapping[str, Any]
    raw: Any = None
    broken: str | None = None

    @property
    def written(self) -> str:
        """The arguments as JSON text; as the model wrote them where they are no JSON."""
        return to_json(self.arguments).decode() if self.broken is None else self.broken

    def is_written(self, words: str) -> bool:
        """Whether these words are the arguments, so that they can stay as they are."""
        if self.broken is not None:
            return words == self.broken
        return read_arguments(words, finished=False) == Read((dict(self.arguments),))

    @property
    def value(self) -> Mapping[str, Any]:
        """The arguments as an object; one that says so where they could not be read."""
        return self.arguments if self.broken is None else {"INVALID_JSON": self.broken}


def ready_calls(reply: Reply, ids: Ids, tally: Tally, broken: Iterable[tuple[str, str]] = ()) -> list[Ready]:
    """The calls of a reply, ready for a client. `broken` are names and arguments of calls that could not be read."""
    if ids.single and len(reply.calls) > 1:
        told = Problem("too_many_calls", "the client takes one call at a time; the others were left out")
        problems = [one for one in reply.problems if not one.call]
        reply = replace(reply, calls=reply.calls[:1], problems=(*problems, told))
    tally.count(reply)
    left = list(broken)
    return [_ready(call, ids, left) for call in reply.calls]


def _ready(call: ToolCall, ids: Ids, broken: list[tuple[str, str]]) -> Ready:
    raw = call.raw if call.format == "native" else None
    words = (_words(raw) or _taken(call.name, broken)) if call.fault else None
    return Ready(ids.claim(call.alias), call.name, call.arguments, raw, words)


def _taken(name: str, broken: list[tuple[str, str]]) -> str:
    """The first arguments that were written for a tool of this name, perhaps behind a prefix, taken off the list."""
    at = next((at for at, (called, _) in enumerate(broken) if called.endswith(name)), None)
    return "" if at is None else broken.pop(at)[1]


def _words(raw: Any) -> str:
    match raw:
        case {"function": {"arguments": str(words)}} | {"arguments": str(words)} | {"input": str(words)}:
            return words
        case _:
            return ""


def ending(reason: str, calls: Sequence[Ready], reply: Reply) -> str:
    """Why an answer ended: `calls`, `length`, `stop`, or the upstream's own word where it says more than these."""
    cut = any(problem.code == "truncated" for problem in reply.problems)
    if reason in CUT_REASONS or (cut and not calls):
        return "length"
    if calls:
        return "calls"
    return "stop" if reason in _CALL_REASONS else reason


class Closing(Struct, frozen=True):
    """What is still to be said at the end of an answer."""

    text: str
    thought: str
    calls: list[Ready]
    reply: Reply


class AnswerFollower:
    """Reads one answer as it comes and says what may be shown; everything else is held until it is certain."""

    def __init__(self, tools: Sequence[Any], provider: str, names: NameMap = SAME_NAMES) -> None:
        self._parser = StreamParser(tools, provider)
        self._own = names
        self._text: list[str] = []
        self._thought: list[str] = []
        self._names: dict[int, str] = {}
        self._written: dict[int, list[str]] = {}

    def feed(self, piece: Any) -> tuple[str, str]:
        """The text and the reasoning that became certain."""
        deltas = self._parser.feed(piece)
        for delta in deltas:
            if isinstance(delta, CallDelta):
                self._names.setdefault(delta.position, self._own.name(delta.name))
                self._written.setdefault(delta.position, []).append(delta.arguments)
        text, thought = delta_texts(deltas)
        if text:
            self._text.append(text)
        if thought:
            self._thought.append(thought)
        return text, thought

    def close(self, ids: Ids, tally: Tally) -> Closing:
        """The rest of the text, and the calls."""
        reply = self._own.restore(self._parser.finish())
        shown = "".join(self._text)
        thought = unsent("".join(self._thought), reply.reasoning)
        if thought and collapse_space(thought) in collapse_space(shown):
            thought = ""  # it turned out to be reasoning only after it had been shown as text
        return Closing(unsent(shown, reply.content), thought, ready_calls(reply, ids, tally, self._broken()), reply)

    def _broken(self) -> list[tuple[str, str]]:
        """The calls whose arguments could not be read, by name, in the order in which they were begun."""
        calls = ((self._names[at], "".join(pieces)) for at, pieces in sorted(self._written.items()))
        return [(name, words) for name, words in calls if isinstance(read_arguments(words, finished=True), NotRead)]


def delta_texts(deltas: Iterable[Delta]) -> tuple[str, str]:
    """The text and the reasoning in some deltas."""
    text = [delta.text for delta in deltas if isinstance(delta, TextDelta)]
    thought = [delta.text for delta in deltas if isinstance(delta, ReasoningDelta)]
    return "".join(text), "".join(thought)


def shared_out(pieces: Sequence[str], kept: str) -> list[str]:
    """What was kept of some pieces of text, given back to each: the very same piece where nothing was taken from it."""
    if len(pieces) > _MOST_PIECES:
        return [kept, *("" for _ in pieces[1:])]
    shares: list[str] = []
    for at, piece in enumerate(pieces):
        bare, left = collapse_space(piece), collapse_space(kept)
        if left.startswith(bare):
            shares.append(piece)
            kept = after(kept, len(bare))
            continue
        following = next((words for later in pieces[at + 1 :] if (words := collapse_space(later))), "")
        size = left.find(following) if following else -1
        rest = after(kept, size) if size >= 0 else ""
        shares.append(kept[: len(kept) - len(rest)].strip())
        kept = rest
    return shares
