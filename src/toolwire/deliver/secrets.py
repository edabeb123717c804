"""Secrets that models never see: placeholders in arguments until the call runs, and nothing of them in results. Pure.

A model writes `{{secret:NAME}}`; the value takes its place when the call is executed, for the tools that may have it,
and is never in a card. In whatever comes back the value is taken out again, also where it was encoded.
"""

import base64
import binascii
import codecs
import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

from toolwire.protocol.calls import Allowed, Block, ErrorText, Resource, Text, ToolError, ToolResult
from toolwire.protocol.values import changed

SHORTEST = 6
LONG = 16
"""From here on a value is also found where something stands between its letters, or a line of it stands alone."""

_PLACEHOLDER = re.compile(r"\{\{secret:([A-Za-z_][A-Za-z0-9_]{0,63})\}\}")
_DEEPEST = 64
_LOWER = re.compile("%[0-9A-F]{2}")


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that only the named tools may have; with no names, none may, and it is only taken out of results."""

    value: str = field(repr=False)
    tools: frozenset[str] = frozenset()


class NotYours(Exception):
    """A call asks for a secret that does not exist or that its tool may not have."""


class Secrets:
    """The secrets of a runtime. Values too short to be told from ordinary text are not looked for in results."""

    def __init__(self, known: Mapping[str, Secret]) -> None:
        self._known = dict(known)
        self._names = {form: name for name, one in known.items() for form in _forms(one.value)}
        longest_first = sorted(self._names, key=len, reverse=True)
        self._found = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None
        tight = ((form.translate(_BETWEEN), form) for form in longest_first)
        self._squeezed = {squeezed: form for squeezed, form in tight if len(squeezed) >= LONG}
        self._tight = re.compile("|".join(map(re.escape, self._squeezed))) if self._squeezed else None

    def revealed(self, allowed: Allowed) -> Allowed:
        """The call with values in place of placeholders. Raises NotYours, which names what would be right."""
        if not any("{{secret:" in text for text in _texts(allowed.arguments)):
            return allowed
        arguments = {key: self._filled(value, allowed.tool.name, 0) for key, value in allowed.arguments.items()}
        return changed(allowed, arguments=arguments)

    def scrubbed(self, result: ToolResult) -> ToolResult:
        """The result without any secret in it."""
        if self._found is None or not any(map(self._holds_one, _words_of(result))):
            return result
        error = result.error
        return changed(
            result,
            content=tuple(map(self._block, result.content)),
            structured=self._clean(result.structured, 0),
            stderr=self.clean(result.stderr),
            error=error
            and ToolError(error.code, self.clean(error.message), error.retryable, self._clean(error.detail, 0)),
        )

    def clean(self, text: str) -> str:
        """The text with the name of a secret where the secret was."""
        found = self._found
        if found is None:
            return text
        plain = found.sub(lambda match: f"[secret {self._names[match[0]]}]", text)
        for squeezed in self._spread(plain):
            name = self._names[self._squeezed[squeezed]].replace("\\", "")
            plain = re.sub(_GAP.join(map(re.escape, squeezed)), f"[secret {name}]", plain)
        return plain

    def _holds_one(self, text: str) -> bool:
        found = self._found
        return found is not None and (found.search(text) is not None or bool(self._spread(text)))

    def _spread(self, text: str) -> set[str]:
        """The values in a text with something between their letters: line ends, or what separates bytes in a dump."""
        if self._tight is None or len(text) < LONG:
            return set()
        squeezed = text.translate(_BETWEEN)
        return set(self._tight.findall(squeezed)) if len(squeezed) < len(text) else set()

    def _filled(self, value: Any, tool: str, depth: int) -> Any:
        match value:
            case str():
                return _PLACEHOLDER.sub(lambda match: self._value(match[1], tool), value)
            case dict() if depth < _DEEPEST:
                return {key: self._filled(inner, tool, depth + 1) for key, inner in value.items()}
            case list() if depth < _DEEPEST:
                return [self._filled(inner, tool, depth + 1) for inner in value]
        return value

    def _value(self, name: str, tool: str) -> str:
        secret = self._known.get(name)
        if secret is None or tool not in secret.tools:
            theirs = ", ".join(sorted(known for known, one in self._known.items() if tool in one.tools)) or "none"
            raise NotYours(f"{tool!r} may not have the secret {name!r}; it may have: {theirs}")
        return secret.value

    def _block(self, block: Block) -> Block:
        match block:
            case Text(text) | ErrorText(text):
                return changed(block, text=self.clean(text))
            case Resource(uri, title):
                return changed(block, uri=self.clean(uri), title=self.clean(title))
        return block

    def _clean(self, value: Any, depth: int) -> Any:
        match value:
            case str():
                return self.clean(value)
            case Mapping() if depth < _DEEPEST:
                return {self._clean(key, depth + 1): self._clean(inner, depth + 1) for key, inner in value.items()}
            case list() | tuple() if depth < _DEEPEST:
                return [self._clean(inner, depth + 1) for inner in value]
        return value


NO_SECRETS = Secrets({})


_BETWEEN = dict.fromkeys(map(ord, " \t\r\n:\u200b\u200c\u200d\u2060\ufeff"))
_GAP = "[ \t\r\n:\u200b\u200c\u200d\u2060\ufeff]{0,8}"


def _forms(value: str) -> Iterator[str]:
    """A value as it may show up: whole or without the blanks around it, and every long line of it."""
    for whole in {value, value.strip()}:
        if len(whole) >= SHORTEST:
            yield from _spellings(whole)
    lines = [line.strip() for line in value.splitlines()]
    yield from (line for line in lines if len(line) >= LONG and not line.startswith("-----"))


def _spellings(value: str) -> Iterator[str]:
    """Plain, as text in JSON, Python or HTML, in URLs, in hexadecimal, in base32, in base64 at any of its offsets,
    backwards, in rot13 and in wide characters. What is compressed, encrypted or twice encoded is not found.
    """
    data = value.encode("utf-8", "surrogatepass")
    yield value
    yield from {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    yield from {html.escape(value), html.escape(value, quote=False)}
    urls = {quote(data, safe=""), quote(data), quote_plus(data), quote(data).replace("%", "%25")}
    yield from urls | {_LOWER.sub(lambda code: code[0].lower(), url) for url in urls}
    yield base64.b32encode(data).decode().rstrip("=")
    yield from {binascii.hexlify(data).decode(), binascii.hexlify(data).decode().upper()}
    for offset in range(3):
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(b"\0" * offset + data).decode()
            # The first and last letters also depend on what stands around the value.
            yield text[(0, 2, 3)[offset] : len(text) - (0, 3, 2)[(offset + len(data)) % 3] or None]
    yield from (value[::-1], codecs.encode(value, "rot13"))
    yield from (_misread(value, encoding) for encoding in ("utf-16-le", "utf-16-be", "utf-32-le"))


def _misread(value: str, encoding: str) -> str:
    """Text in wide characters as it looks to whoever takes it for UTF-8: with NULs between its letters."""
    return value.encode(encoding, "surrogatepass").decode("utf-8", "replace").strip("\0")


def _texts(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, Mapping):
            waiting.extend(item.values())
            waiting.extend(item)
        elif isinstance(item, list | tuple):
            waiting.extend(item)


def _words_of(result: ToolResult) -> Iterator[str]:
    yield result.text
    yield result.stderr
    yield from _texts(result.structured)
    if result.error is not None:
        yield result.error.message
        yield from _texts(result.error.detail)
