"""Secrets that models never see: placeholders in arguments until the call runs, and nothing of them in results. Pure.

A model writes `{{secret:NAME}}`; the value takes its place when the call is executed, for the tools that may have it,
and is never in a card. In whatever comes back the value is taken out again, also where it was encoded.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from toolwire.deliver.url_passwords import NAME as URL_PASSWORD
from toolwire.protocol.calls import Allowed, Block, ErrorText, Resource, Text, ToolError, ToolResult
from toolwire.protocol.redaction import Redaction
from toolwire.protocol.tools import LIMIT

_PLACEHOLDER = re.compile(r"\{\{secret:([A-Za-z_][A-Za-z0-9_]{0,63})\}\}")
_PASSWORD = re.compile(rf"\{{\{{secret:({URL_PASSWORD}[A-Za-z0-9_]{{0,63}})\}}\}}")
_DEEPEST = 64
_TOO_DEEP = "[left out: a secret lies too deep in it]"


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that only the named tools may have; with no names, none may, and it is only taken out of results.

    `hosts` says for a tool where the value may go, as network rules do. A call that carries the value reaches no other
    host, and none at all for a tool that is not in there.
    """

    value: str = field(repr=False)
    tools: frozenset[str] = frozenset()
    hosts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    anywhere: bool = False


class NotYours(Exception):
    """A call asks for a secret that does not exist or that its tool may not have."""


class Secrets:
    """The secrets of a runtime."""

    def __init__(self, known: Mapping[str, Secret], added: Mapping[str, Secret] | None = None) -> None:
        self._added = dict(added or {})
        self._known = {**known, **self._added}
        self._redaction = Redaction({name: one.value for name, one in self._known.items()})

    def plus(self, more: Mapping[str, Secret], most: int) -> "Secrets":
        """These and more; of what was added in this way, the oldest go where there are more than `most`."""
        added = {**self._added, **more}
        kept = dict(list(added.items())[-most:])
        own = {name: one for name, one in self._known.items() if name not in self._added}
        return Secrets(own, kept)

    def revealed(self, allowed: Allowed) -> Allowed:
        """The call with values in place of placeholders. Raises NotYours, which names what would be right."""
        if not any("{{secret:" in text for text in _texts(allowed.arguments)):
            return allowed
        arguments = {key: self._filled(value, allowed.tool.name, 0) for key, value in allowed.arguments.items()}
        return replace(allowed, arguments=arguments)

    def with_passwords(self, allowed: Allowed) -> Allowed:
        """The call with the passwords that a model wrote into addresses, for a tool that lives elsewhere.

        All other secrets are put in place there.
        """
        tool = allowed.tool.name
        if not any(map(_PASSWORD.search, _texts(allowed.arguments))):
            return allowed
        arguments = {key: self._filled(value, tool, 0, _PASSWORD) for key, value in allowed.arguments.items()}
        return replace(allowed, arguments=arguments)

    def limits(self, allowed: Allowed) -> tuple[str, ...]:
        """Network rules that a call with these placeholders is held to, beside those of its grant: one a secret."""
        names = {name for text in _texts(allowed.arguments) for name in _PLACEHOLDER.findall(text)}
        used = [self._known[name] for name in sorted(names) if name in self._known]
        return tuple(f"{LIMIT}{','.join(one.hosts.get(allowed.tool.name, ()))}" for one in used if not one.anywhere)

    def scrubbed(self, result: ToolResult) -> ToolResult:
        """The result without any secret in it."""
        if not any(map(self._redaction.finds, _words_of(result))):
            return result
        error = result.error
        return replace(
            result,
            content=tuple(map(self._block, result.content)),
            structured=self._clean(result.structured, 0),
            stderr=self.clean(result.stderr),
            error=error
            and ToolError(error.code, self.clean(error.message), error.retryable, self._clean(error.detail, 0)),
        )

    def clean(self, text: str) -> str:
        """The text with the name of a secret where the secret was."""
        return self._redaction.clean(text)

    def _filled(self, value: Any, tool: str, depth: int, found: re.Pattern[str] = _PLACEHOLDER) -> Any:
        match value:
            case str():
                return found.sub(lambda match: self._value(match[1], tool), value)
            case dict() if depth < _DEEPEST:
                return {key: self._filled(inner, tool, depth + 1, found) for key, inner in value.items()}
            case list() if depth < _DEEPEST:
                return [self._filled(inner, tool, depth + 1, found) for inner in value]
        return value

    def _value(self, name: str, tool: str) -> str:
        secret = self._known.get(name)
        if secret is None and name.startswith(URL_PASSWORD):
            raise NotYours("the password in this address was not kept on record; make the call again with it")
        if secret is None or tool not in secret.tools:
            theirs = ", ".join(sorted(known for known, one in self._known.items() if tool in one.tools)) or "none"
            raise NotYours(f"{tool!r} may not have the secret {name!r}; it may have: {theirs}")
        return secret.value

    def _block(self, block: Block) -> Block:
        match block:
            case Text(text) | ErrorText(text):
                return replace(block, text=self.clean(text))
            case Resource(uri, title):
                return replace(block, uri=self.clean(uri), title=self.clean(title))
        return block

    def _clean(self, value: Any, depth: int) -> Any:
        match value:
            case str():
                return self.clean(value)
            case Mapping() if depth < _DEEPEST:
                return {self._clean(key, depth + 1): self._clean(inner, depth + 1) for key, inner in value.items()}
            case list() | tuple() if depth < _DEEPEST:
                return [self._clean(inner, depth + 1) for inner in value]
            case Mapping() | list() | tuple() if any(map(self._redaction.finds, _texts(value))):
                return _TOO_DEEP
        return value


NO_SECRETS = Secrets({})


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
