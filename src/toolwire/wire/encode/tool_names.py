"""Tool names for wires that take fewer of them than we do, and the way back.

A character that a wire does not take becomes `_x<hex>_`; a name that is still too long ends in `_h` and 128 bits of
its digest. In such a name no `x` or `h` of its own follows an underscore, and a name that merely looks escaped is
escaped as well, so two names never meet. The escaping looks at nothing but the name: it stays while tools come and go.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool

WireName = Callable[[str], str]

_LOOKS_ESCAPED = re.compile(r"_x[0-9a-f]{0,6}_|_h[0-9a-f]{32}\Z")
_DIGEST_CHARS = 32
_KEPT_NAMES = 4096
_LONGEST_KEPT = 256


def any_name(name: str) -> str:
    """For wires on which every name is fine."""
    return name


def alphabet(first: str, rest: str, longest: int) -> WireName:
    """The names of one wire: what may come first and what may follow, as character classes, and how many."""
    fits = re.compile(f"[{first}][{rest}]{{0,{longest - 1}}}")

    def wire(name: str) -> str:
        if fits.fullmatch(name) and not _LOOKS_ESCAPED.search(name):
            return name
        text = _escaped(name[: longest + 1], fits)
        if len(text) <= longest:
            return text
        digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
        return f"{text[: longest - _DIGEST_CHARS - 2]}_h{digest}"

    return _WireNames(wire).__getitem__


class _WireNames(dict[str, str]):
    """Names on the wire, each found once. Names come from models too, so only so many and so long ones are kept."""

    def __init__(self, wire: WireName) -> None:
        self._wire = wire

    def __missing__(self, name: str) -> str:
        found = self._wire(name)
        if len(name) <= _LONGEST_KEPT and len(self) < _KEPT_NAMES:
            self[name] = found
        return found


def _escaped(name: str, fits: re.Pattern[str]) -> str:
    if not name:
        return "_x_"
    out = ""
    for char in name:
        bare = fits.fullmatch(out[:1] + char) and not (out.endswith("_") and char in "xh")
        out += char if bare else f"_x{ord(char):x}_"
    return out


class NameMap(Struct, frozen=True):
    """The offered tools as a model sees them, and what each of their names means here.

    Give `tools` to the parser in place of the offered ones, then `restore` what it read.
    """

    tools: tuple[Tool, ...]
    originals: Mapping[str, str]

    @classmethod
    def of(cls, tools: Iterable[Tool], wire_name: WireName) -> "NameMap":
        """The names of these tools on a wire (`Dialect.wire_name`). The same tools are renamed once."""
        offered = tuple(tools)
        originals = {wire: tool.name for tool in offered if (wire := wire_name(tool.name)) != tool.name}
        return cls(_renamed(offered, wire_name) if originals else offered, originals)

    def name(self, wire: str) -> str:
        """What a name on the wire means here."""
        return self.originals.get(wire, wire)

    def restore(self, reply: Reply) -> Reply:
        """The same reply with our own names in its calls."""
        if not self.originals or not reply.calls:
            return reply
        return replace(reply, calls=tuple(self._restored(call) for call in reply.calls))

    def _restored(self, call: ToolCall) -> ToolCall:
        name = self.name(call.name)
        return call if name == call.name else replace(call, name=name)


_KEPT_LISTS = 16
_kept_lists: dict[tuple[Any, ...], tuple[tuple[Tool, ...], tuple[Tool, ...]]] = {}


def _renamed(tools: tuple[Tool, ...], wire_name: WireName) -> tuple[Tool, ...]:
    """The tools under their names on the wire: the same values each time, since the parser knows tools by identity."""
    key = (wire_name, *map(id, tools))
    found = _kept_lists.get(key)
    if found is None:
        if len(_kept_lists) >= _KEPT_LISTS:
            _kept_lists.pop(next(iter(_kept_lists)), None)
        found = (tools, tuple(_under(tool, wire_name(tool.name)) for tool in tools))
        _kept_lists[key] = found
    return found[1]


def _under(tool: Tool, name: str) -> Tool:
    return tool if name == tool.name else replace(tool, name=name)
