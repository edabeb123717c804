"""Tool names for wires that take fewer of them than we do, and the way back.

A character that a wire does not take becomes `_x<hex>_`; a name that is still too long ends in `_h` and 128 bits of
its digest. In such a name no `x` or `h` of its own follows an underscore, and a name that merely looks escaped is
escaped as well, so two names never meet. The escaping looks at nothing but the name: it stays while tools come and go.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool
from toolwire.protocol.values import changed, quick

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

    kept = lru_cache(_KEPT_NAMES)(wire)
    return lambda name: kept(name) if len(name) <= _LONGEST_KEPT else wire(name)


def _escaped(name: str, fits: re.Pattern[str]) -> str:
    if not name:
        return "_x_"
    out = ""
    for char in name:
        bare = fits.fullmatch(out[:1] + char) and not (out.endswith("_") and char in "xh")
        out += char if bare else f"_x{ord(char):x}_"
    return out


@quick
@dataclass(frozen=True, slots=True)
class NameMap:
    """The offered tools as a model sees them, and what each of their names means here.

    Give `tools` to the parser in place of the offered ones, then `restore` what it read.
    """

    tools: tuple[Tool, ...]
    originals: Mapping[str, str]

    @classmethod
    def of(cls, tools: Iterable[Tool], wire_name: WireName) -> "NameMap":
        """The names of these tools on a wire (`Dialect.wire_name`)."""
        offered = tuple(tools)
        originals = {wire: tool.name for tool in offered if (wire := wire_name(tool.name)) != tool.name}
        if not originals:
            return cls(offered, {})
        return cls(tuple(_renamed(tool, wire_name(tool.name)) for tool in offered), originals)

    def name(self, wire: str) -> str:
        """What a name on the wire means here."""
        return self.originals.get(wire, wire)

    def restore(self, reply: Reply) -> Reply:
        """The same reply with our own names in its calls."""
        if not self.originals or not reply.calls:
            return reply
        return changed(reply, calls=tuple(self._restored(call) for call in reply.calls))

    def _restored(self, call: ToolCall) -> ToolCall:
        name = self.name(call.name)
        return call if name == call.name else changed(call, name=name)


def _renamed(tool: Tool, name: str) -> Tool:
    return tool if name == tool.name else changed(tool, name=name)
