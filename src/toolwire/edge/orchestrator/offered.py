"""Tools of devices as agents are offered them: what a device says, checked, and held to what the operator says. Pure.

A device may be hostile. It cannot take the name of another tool, cannot make its tools look more harmless than the
operator's settings allow, and cannot fill a model's context. What is wrong with one of its tools costs only that tool.
"""

import fnmatch
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.canonical import digest
from toolwire.define.functions import tool_name
from toolwire.define.schemas import compile_schema, object_schema, plain_copy
from toolwire.define.tables import Table
from toolwire.define.versions import is_version
from toolwire.deliver.visible_text import visible
from toolwire.edge.orchestrator.presence import Device, offering
from toolwire.errors import DefinitionError
from toolwire.protocol.tools import Edge, Effect, Tier, Tool

MOST_TOOLS = 128
MOST_FAULTS = 20
LONGEST_DESCRIPTION = 1_000
LONGEST_NAME = 64
LONGEST_S = 86_400
MOST_NAMED = 50
"""So many devices are named to a model as a choice; all others are reached by their names, too."""

ADDRESSEE = "agent"
"""The argument that names the device which is to run a call, where several can."""

PREFIX = "device_"
_PERMISSIONS = 20
_FLOOR = {Effect.PURE: Tier.CRAWL, Effect.IDEMPOTENT: Tier.WALK}


class DeviceLimits(Struct, frozen=True):
    """What the operator says about a device: which of its tools count, and the least that they ask for.

    `needs` are permissions that every call needs beside those that the device says; `tier` is the lowest tier.
    """

    tools: tuple[str, ...] = ("*",)
    tier: Tier = Tier.CRAWL
    needs: frozenset[str] = frozenset()
    confirm: bool = False
    untrusted: bool = False


NO_LIMITS = DeviceLimits()


def read_device_tools(
    device_id: str, listed: Sequence[Any], limits: DeviceLimits = NO_LIMITS
) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """The tools of a device as far as they can be offered, and what is wrong with the others."""
    tools: dict[str, Tool] = {}
    faults: list[str] = []
    if len(listed) > MOST_TOOLS:
        faults.append(f"{device_id} offers {len(listed)} tools; the first {MOST_TOOLS} count")
    for number, one in enumerate(listed[:MOST_TOOLS]):
        try:
            tool = _read(f"tool {number} of {device_id}", one, device_id, limits)
        except (DefinitionError, RecursionError) as wrong:
            faults.append(visible(str(wrong))[:500])
            continue
        if tool.name in tools:
            faults.append(f"{device_id} offers {tool.name!r} twice; the first one counts")
        elif any(fnmatch.fnmatchcase(tool.name, pattern) for pattern in limits.tools):
            tools[tool.name] = tool
    return tuple(tools.values()), tuple(faults[:MOST_FAULTS])


def _read(where: str, said: Any, device_id: str, limits: DeviceLimits) -> Tool:
    """Raises DefinitionError."""
    if not isinstance(said, Mapping):
        raise DefinitionError(f"{where} is not an object")
    entry = Table(where, dict(said))
    name = tool_name(entry.text("name", most=LONGEST_NAME))
    where = f"{where} ({name})"
    effect = Effect(entry.choice("effect", Effect, Effect.UNSAFE))
    timeout_s = _seconds(entry, "timeout_s", 30.0)
    schema = entry.values.get("output_schema")
    return Tool(
        name,
        visible(entry.text("description", most=100_000)).strip()[:LONGEST_DESCRIPTION],
        object_schema(entry.table("input_schema").values, f"{where}.input_schema"),
        _checked_schema(schema, f"{where}.output_schema") if schema is not None else None,
        tier=max(_tier(entry, effect), limits.tier),
        needs=_needs(entry) | limits.needs,
        effect=effect,
        requires_confirmation=limits.confirm or _flag(entry, "requires_confirmation"),
        timeout_s=timeout_s,
        max_timeout_s=max(_seconds(entry, "max_timeout_s", 300.0), timeout_s),
        polling=_flag(entry, "polling"),
        untrusted=limits.untrusted or _flag(entry, "untrusted"),
        version=version if is_version(version := entry.text("version", "1", most=40)) else "1",
        platforms=frozenset(),  # the device offers only what runs there, and this machine is another one
        target=Edge(device_id),
    )


def _checked_schema(schema: Any, owner: str) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise DefinitionError(f"{owner} is not an object")
    compile_schema(document := plain_copy(schema, owner), owner)
    return document


def _flag(entry: Table, key: str) -> bool:
    return entry.values.get(key) is True


def _seconds(entry: Table, key: str, usual: float) -> float:
    value = entry.values.get(key, usual)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= LONGEST_S:
        entry.wrong(key, f"must be seconds, at most {LONGEST_S}")
    return float(value)


def _tier(entry: Table, effect: Effect) -> Tier:
    """The tier that it asks for, and never less than its own effects call for."""
    usual = _FLOOR.get(effect, Tier.WALK)
    said = entry.values.get("tier", usual.name)
    name = said.upper() if isinstance(said, str) else ""
    if name not in Tier.__members__:
        entry.wrong("tier", "must be crawl, walk or run")
    return max(Tier[name], usual)


def _needs(entry: Table) -> frozenset[str]:
    said = entry.values.get("needs", ())
    if not isinstance(said, (list, tuple)) or len(said) > _PERMISSIONS:
        entry.wrong("needs", f"must be a list of at most {_PERMISSIONS} permissions")
    for one in said:
        if not isinstance(one, str) or not one.replace("_", "").isalnum() or len(one) > LONGEST_NAME:
            entry.wrong("needs", "must be words such as gpio")
    return frozenset(said)


def offered_tools(devices: Sequence[Device], taken: Collection[str] = ()) -> tuple[Tool, ...]:
    """The tools of all devices under one name each. Where another tool has `taken` its name, it begins with `device_`.

    Devices that have the same tool share one: the model may name one of them, else the router does. A device whose tool
    of that name has another schema is offered it under a name of its own.
    """
    found: list[Tool] = []
    names = set(taken)
    for name, several in sorted(offering(devices).items()):
        plain = f"{PREFIX}{name}" if name in taken else name
        for number, same in enumerate(_alike(name, several)):
            own = plain if number == 0 else f"{plain}_{_plain(same[0].id)}"[:LONGEST_NAME]
            if own not in names:
                names.add(own)
                found.append(_shared(own, name, same))
    return tuple(found)


def _alike(name: str, devices: Iterable[Device]) -> list[list[Device]]:
    """The devices in groups with the same schema, the largest group first."""
    groups: dict[str, list[Device]] = {}
    for device in devices:
        groups.setdefault(_form(device, name), []).append(device)
    sizes = Counter({form: len(group) for form, group in groups.items()})
    return [groups[form] for form, _ in sorted(sizes.items(), key=lambda one: (-one[1], groups[one[0]][0].id))]


def _form(device: Device, name: str) -> str:
    """What devices must have in common to share a tool. One with an argument `agent` of its own is never shared."""
    schema = dict(tool_of(device, name).input_schema)
    return digest([schema, device.id if ADDRESSEE in schema["properties"] else ""])


def tool_of(device: Device, name: str) -> Tool:
    return next(one for one in device.tools if one.name == name)


def _shared(own: str, name: str, devices: Sequence[Device]) -> Tool:
    """One tool for several devices: it asks for as much as the strictest of them does."""
    several = [tool_of(device, name) for device in devices]
    first = several[0]
    ids = [device.id for device in devices]
    shared = replace(
        first,
        name=own,
        tier=max(one.tier for one in several),
        needs=frozenset().union(*(one.needs for one in several)),
        effect=max((one.effect for one in several), key=list(Effect).index),
        requires_confirmation=any(one.requires_confirmation for one in several),
        untrusted=any(one.untrusted for one in several),
        timeout_s=max(one.timeout_s for one in several),
        max_timeout_s=max(one.max_timeout_s for one in several),
        output_schema=first.output_schema if all(one.output_schema == first.output_schema for one in several) else None,
        target=Edge(ids[0] if len(ids) == 1 else "", name),
    )
    return shared if len(ids) == 1 else _with_choice(shared, ids)


def _with_choice(tool: Tool, ids: Sequence[str]) -> Tool:
    """The tool with an argument that names a device."""
    schema = dict(tool.input_schema)
    named = ", ".join(ids[:MOST_NAMED])
    more = f" and {len(ids) - MOST_NAMED} more (see nodes)" if len(ids) > MOST_NAMED else ""
    choice = {"type": "string", "maxLength": 128, "description": f"The device to run it on; one is chosen for you "
              f"where you leave it out. There are {named}{more}."}  # fmt: skip
    return replace(tool, input_schema={**schema, "properties": {**schema["properties"], ADDRESSEE: choice}})


def _plain(device_id: str) -> str:
    return "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in device_id)
