"""Families of tools: what a tool is for, how it may be named, how people ask for it, what comes back.

A family is written in a small text format (`data/families/*.txt`): a head line `# name`, then keywords with their
lines. See `training/README.md`.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from training.values import DATA

HELD_FRAMES = 50


@dataclass(frozen=True, slots=True)
class Role:
    """One thing a request says: its first name is used in frames, the others are names that a tool may use.

    With a `label`, the tool calls it that and nothing else; `about` describes it.
    """

    names: tuple[str, ...]
    kind: str
    must: bool
    about: str = ""
    label: str = ""

    @property
    def name(self) -> str:
        return self.names[0]


@dataclass(frozen=True, slots=True)
class Frame:
    """A way to ask. `fixed` are arguments that the wording itself means, in which `{slot}` stands for a value that
    was said; a held frame is never trained on."""

    text: str
    fixed: dict[str, Any]
    held: bool

    @property
    def roles(self) -> frozenset[str]:
        return frozenset(re.findall(r"\{([\w.]+)\}", self.text)) | self.fixed.keys()


@dataclass(slots=True)
class Family:
    name: str
    names: list[str] = field(default_factory=list)
    purposes: list[str] = field(default_factory=list)
    roles: dict[str, Role] = field(default_factory=dict)
    slots: dict[str, str] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    bare: list[str] = field(default_factory=list)
    group: str = ""
    cannot: str = ""
    seed: str = ""
    tags: frozenset[str] = frozenset()
    more: bool = False
    app: str = ""

    @property
    def held(self) -> bool:
        return "held" in self.tags

    def asked(self, held: bool | None) -> list[Frame]:
        return [frame for frame in self.frames if held is None or frame.held == held]


def frame_of(line: str, family: str) -> Frame:
    """`text => key=value; key=value`; `\\n` in the text is a line break."""
    text, _, fixed = line.replace("\\n", "\n").partition(" => ")
    pairs = [pair.partition("=") for pair in fixed.split("; ") if pair]
    digest = hashlib.sha256(f"{family}:{text}".encode()).digest()
    return Frame(text, {key.strip(): _literal(value) for key, _, value in pairs}, digest[0] % HELD_FRAMES == 0)


def parse(text: str) -> Iterator[Family]:
    """The families of one file."""
    family: Family | None = None
    word = ""
    for line in text.splitlines():
        if line.startswith(("# ", "+ ")):
            if family:
                yield family
            name = line[2:].strip()
            family, word = Family(name, group=name, more=line.startswith("+")), ""
        elif line.startswith("  ") and family:
            _add(family, word, line.strip())
        elif line.strip() and family:
            word, _, rest = line.partition(" ")
            if rest:
                _add(family, word, rest.strip())
    if family:
        yield family


def load(folder: Path = DATA / "families") -> list[Family]:
    """All families; `+ name` adds further frames to one that is written elsewhere."""
    read = [family for path in sorted(folder.glob("*.txt")) for family in parse(path.read_text(encoding="utf-8"))]
    found = {family.name: family for family in read if not family.more}
    for family in read:
        if family.more:
            found[family.name].frames += family.frames
            found[family.name].slots |= family.slots
    return [_checked(family) for family in found.values()]


@cache
def seed_tools() -> dict[str, dict[str, Any]]:
    """The definitions of the built-in tools by name."""
    listed = json.loads((DATA.parent / "seed_tools.json").read_text(encoding="utf-8"))
    return {tool["name"]: tool for tool in listed}


def _add(family: Family, word: str, line: str) -> None:
    match word:
        case "names":
            family.names += [name.strip() for name in line.split(";")]
        case "purpose":
            family.purposes += [purpose.strip() for purpose in line.split("|")]
        case "param":
            names, _, kind = line.partition(" ")
            role = Role(tuple(names.rstrip("*").split("/")), kind.strip(), names.endswith("*"))
            family.roles[role.name] = role
        case "slot":
            name, _, kind = line.partition(" ")
            family.slots[name] = kind
        case "say":
            family.frames.append(frame_of(line, family.name))
        case "result":
            family.results.append(line)
        case "text":
            family.texts.append(line)
        case "answer":
            family.answers.append(line)
        case "bare":
            family.bare.append(line)
        case "group" | "cannot" | "seed":
            setattr(family, word, line)
        case "tags":
            family.tags = frozenset(line.split())
        case _:
            raise ValueError(f"{family.name}: unknown keyword {word!r}")


def _checked(family: Family) -> Family:
    known = family.roles.keys() | family.slots.keys()
    for frame in family.frames:
        strange = frame.roles - known
        if strange:
            raise ValueError(f"{family.name}: {frame.text!r} names {sorted(strange)}")
    return family


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
