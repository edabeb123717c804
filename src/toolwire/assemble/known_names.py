"""Names in settings that restrict or grant: a misspelled one would be void without a word, so it is refused.

Known are the built-in tools of all groups, whether they are offered or not, and the tools of modules and skills that
the settings lead to. A tool that only comes later cannot be told from a slip, so it is refused too until it is there.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

from toolwire.assemble.agent_names import agents_of
from toolwire.define.nearest import nearest
from toolwire.errors import SettingsError
from toolwire.protocol.policy import Rule
from toolwire.protocol.tools import Tool
from toolwire.settings import SecretLine, Settings
from toolwire.toolbox.registry import BUILT_IN, PERMISSIONS, built_in_tool


def require_known_names(settings: Settings, present: Iterable[Tool], offered: Iterable[str] = ()) -> None:
    """Raise SettingsError for the first name in the settings that stands for nothing.

    `present` are the tools that were made, `offered` the names of built-in tools that could be.
    """
    known = _KnownNames(present, frozenset(offered))
    for fault in (
        *_agent_faults(settings),
        *_permission_faults(settings, known),
        *_rule_faults(settings, known),
        *_secret_faults(settings, known),
        *(f"{_at(settings, 'grant.confirmed')} names tools: {wrong}"
          for wrong in known.tool_faults(name for name in settings.grants.confirmed if name != "*")),
    ):  # fmt: skip
        raise SettingsError(fault)


class _KnownNames:
    """The tools that settings can mean."""

    def __init__(self, present: Iterable[Tool], offered: frozenset[str]) -> None:
        self._offered = offered
        self._present = {tool.name: tool for tool in present}
        self.names = self._present.keys() | BUILT_IN
        self.permissions = PERMISSIONS.union(*(tool.needs for tool in self._present.values()))

    def tool(self, name: str) -> Tool | None:
        return self._present.get(name) or (built_in_tool(name) if name in BUILT_IN else None)

    def offered(self, name: str) -> Tool | None:
        return self._present.get(name) or (built_in_tool(name) if name in self._offered else None)

    def needing(self, permission: str) -> Iterator[Tool]:
        for name in dict.fromkeys([*self._present, *sorted(BUILT_IN)]):  # what is there costs nothing to look at
            if (tool := self.tool(name)) is not None and permission in tool.needs:
                yield tool

    def tool_faults(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            if name not in self.names:
                yield f"there is no tool {name[:80]!r}; {_advice(name, self.names)}"

    def permission_faults(self, names: Iterable[str]) -> Iterator[str]:
        for name in names:
            if name not in self.permissions:
                yield f"no tool needs {name[:80]!r}; {_advice(name, self.permissions)}"


def _agent_faults(settings: Settings) -> Iterator[str]:
    known = (*agents_of(settings), *settings.devices)
    for name, own in settings.agents.items():
        if name not in known:
            key = next((key for key, value in own if value is not None), "tier")
            yield f"{_at(settings, f'agents.{name}.{key}')}: there is no agent {name[:80]!r}; {_advice(name, known)}"


def _permission_faults(settings: Settings, known: _KnownNames) -> Iterator[str]:
    for wrong in known.permission_faults(settings.grants.permissions):
        yield f"{_at(settings, 'grant.permissions')}: {wrong}"
    for agent, own in settings.agents.items():
        for wrong in known.permission_faults(own.permissions or ()):
            yield f"{_at(settings, f'agents.{agent}.permissions')}: {wrong}"


def _rule_faults(settings: Settings, known: _KnownNames) -> Iterator[str]:
    for text in settings.grants.rules:
        rule = Rule.parse(text)
        for wrong in (
            *known.tool_faults(sorted(rule.tools)),
            *known.permission_faults([rule.permission] if rule.permission else []),
            *_argument_faults(rule, known),
        ):
            yield f"{_at(settings, 'grant.rules')}: in {text[:120]!r} {wrong}"


def _argument_faults(rule: Rule, known: _KnownNames) -> Iterator[str]:
    """A rule may name tools of which some have no such argument; one of them, or one of their kind, has to have it."""
    if not rule.argument:
        return
    named = [tool for name in sorted(rule.tools) if (tool := known.tool(name)) is not None]
    needs = sorted({rule.permission} if rule.permission else {need for tool in named for need in tool.needs})
    alike = (tool for need in needs for tool in known.needing(need))
    if len(named) < len(rule.tools) or any(_takes(tool, rule.argument) for tool in chain(named, alike)):
        return
    meant = named or [tool for need in needs for tool in known.needing(need)]
    arguments = [name for tool in meant for name in tool.input_schema.get("properties", ())]
    whose = " and ".join(repr(tool.name) for tool in meant[:3]) or f"what needs {rule.permission}"
    yield f"{whose} has no argument {rule.argument[:80]!r}; {_advice(rule.argument, arguments)}"


def _takes(tool: Tool, argument: str) -> bool:
    schema = tool.input_schema
    return argument in schema.get("properties", ()) or schema.get("additionalProperties", True) is not False


def _secret_faults(settings: Settings, known: _KnownNames) -> Iterator[str]:
    for text in settings.tools.secrets:
        line = SecretLine.parse(text)
        for wrong in known.tool_faults(line.tools):
            yield f"{_at(settings, 'tools.secrets')}: in {text[:120]!r} {wrong}"
        for name in line.tools:
            tool = known.offered(name)
            if not line.hosts and tool is not None and "network" in tool.needs:
                yield (
                    f"{_at(settings, 'tools.secrets')}: {name} talks to the network, so say to which host the secret "
                    f'may go: "{line.variable} for {name} at HOST"'
                )


def _at(settings: Settings, key: str) -> str:
    return settings.origin(key).names(key)


def _advice(name: str, among: Iterable[str]) -> str:
    known = sorted(set(among))
    near = nearest(name, known)
    return f"did you mean {' or '.join(near)}?" if near else f"there are: {', '.join(known) or 'none'}."
