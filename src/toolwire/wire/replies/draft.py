"""What a provider says, put together piece by piece, whether it comes whole or as a stream."""

import itertools
from typing import Any

from toolwire.protocol.calls import Problem
from toolwire.protocol.chat import CallDelta, Delta, ReasoningDelta, Usage
from toolwire.wire.text.scan import MAX_CALLS

CUT_REASONS = frozenset(
    {
        "length",
        "max_tokens",
        "max_output_tokens",
        "MAX_TOKENS",
        "incomplete",
        "model_length",
        "model_context_window_exceeded",
    }
)
_COMPLETENESS_CHECKS = 8


class OpenCall:
    """A native call that is being written. A `surplus` one is counted, and nothing of it is kept."""

    __slots__ = ("alias", "arguments", "checks", "cut", "fragments", "free_text", "name", "position", "raw", "surplus")

    def __init__(self, position: int, name: str, alias: str | None) -> None:
        self.position = position
        self.name = name
        self.alias = alias
        self.arguments: Any = None
        self.fragments: list[str] = []
        self.free_text = False
        self.cut = False
        self.checks = _COMPLETENESS_CHECKS
        self.raw: Any = None
        self.surplus = False

    @property
    def half_built(self) -> bool:
        """Whether a provider that sends arguments value by value has not said that these are all."""
        return self.cut and not self.fragments

    def written(self) -> Any:
        """The arguments as they arrived: joined fragments if there were any, else the whole value."""
        joined = "".join(self.fragments)
        return joined if joined.strip() or self.arguments is None else self.arguments


class Draft:
    """Collects text, reasoning, calls and the rest of one reply; `deltas` is what a watcher has not seen yet.

    Every call that is shown, here or in the text, takes the next of `positions`. `heard` names the items whose words
    came piece by piece, so that they are not read again where they are repeated.
    """

    __slots__ = (
        "_break",
        "_kept",
        "_kept_by_key",
        "_surplus",
        "by_key",
        "calls",
        "carrier",
        "deltas",
        "finish_reason",
        "heard",
        "left_out",
        "model",
        "new_text",
        "positions",
        "problems",
        "reasoning",
        "said",
        "usage",
    )  # fmt: skip

    def __init__(self, finish_reason: str | None = None) -> None:
        self.new_text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[OpenCall] = []
        self.positions = itertools.count()
        self.by_key: dict[Any, OpenCall] = {}
        self.carrier = ""
        self._kept: list[dict[str, Any]] = []
        self._kept_by_key: dict[Any, dict[str, Any]] = {}
        self.deltas: list[Delta] = []
        self.problems: list[Problem] = []
        self.finish_reason = finish_reason
        self.usage = Usage()
        self.model = ""
        self.said = False
        self.heard: set[Any] = set()
        self.left_out = 0
        self._surplus = OpenCall(-1, "", None)
        self._surplus.surplus = True
        self._break = False

    def say(self, text: Any) -> None:
        """More of the answer's text."""
        if isinstance(text, str) and text:
            if self._break:
                self.new_text.append("\n")
                self._break = False
            self.new_text.append(text)
            self.said = True

    def think(self, text: Any) -> None:
        """More reasoning that the provider already kept apart."""
        if isinstance(text, str) and text:
            self.reasoning.append(text)
            self.deltas.append(ReasoningDelta(text))

    def open(self, key: Any, name: Any, alias: Any, raw: Any = None) -> OpenCall:
        """Begin a call; later fragments find it by `key`."""
        self._break = True
        named = name if isinstance(name, str) else ""
        if len(self.calls) >= MAX_CALLS:
            self.left_out += 1
            self.by_key[key] = self._surplus
            return self._surplus
        call = OpenCall(next(self.positions), named, alias if isinstance(alias, str) and alias else None)
        call.raw = raw
        self.calls.append(call)
        self.by_key[key] = call
        self.deltas.append(CallDelta(call.position, named))
        return call

    def add(self, call: OpenCall, fragment: Any) -> None:
        """One more piece of a call's arguments."""
        if call.surplus:
            return
        if isinstance(fragment, str):
            if fragment:
                call.fragments.append(fragment)
                self.deltas.append(CallDelta(call.position, "", fragment))
        elif fragment is not None:
            call.arguments = fragment

    def keep(self, provider: str, item: dict[str, Any], by: Any = None) -> None:
        """Keep an item that the provider wants back unchanged; `by` finds it again for what is streamed into it."""
        self.carrier = provider
        self._kept.append(item)
        if by is not None:
            self._kept_by_key[by] = item

    def keeps(self, by: Any) -> bool:
        """Whether an item is kept under this key."""
        return by in self._kept_by_key

    def extend(self, by: Any, field: str, more: Any) -> None:
        """Append text to a field of a kept item."""
        item = self._kept_by_key.get(by)
        if item is not None and isinstance(more, str):
            item.setdefault(field, []).append(more)

    def carry(self) -> dict[str, Any] | None:
        """What goes back to the provider unchanged: its name and its items in order."""
        if not self._kept:
            return None
        items = [{name: "".join(it) if _is_text(it) else it for name, it in item.items()} for item in self._kept]
        return {"provider": self.carrier, "items": items}

    def ended(self, reason: Any) -> None:
        """The provider says why the reply ended."""
        if isinstance(reason, str) and reason:
            self.finish_reason = reason

    @property
    def cut(self) -> bool:
        return self.finish_reason in CUT_REASONS


def _is_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)


def key(value: Any) -> Any:
    """A block index or item id as something to look up by; a hostile one finds nothing."""
    return value if isinstance(value, int | str | tuple) else None


def count(value: Any) -> int:
    """A token count as a provider gives it, whole or as a float without a fraction; anything else is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
