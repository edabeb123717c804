"""Requests that take several calls, written one by one: at once, or one after another.

`data/spoken_chains.txt` has apps and tools as `spoken` has them. Under a request (`> …`) stand its calls, those made at
once on one line (`name {arguments} -> result && …`), and the answer (`= …`).
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from training.catalogue import world
from training.making import Dialogue, Maker, result
from training.naming import Made, make
from training.outcomes import told_plainly
from training.slots import other_text
from training.spoken import Talked, choices_of, family_of, flat, tools_in
from training.values import DATA

OTHER = 0.35
NATURAL = 0.2
SHORTEST, LONGEST = 3, 40
_CALL = re.compile(r"^([\w.-]+) (\{.*\}) -> (.+)$")
Call = tuple[str, dict[str, Any], Any]


@dataclass(frozen=True, slots=True)
class Errand:
    """A request, its calls step by step with what comes back, and the answer."""

    app: str
    said: str
    steps: tuple[tuple[Call, ...], ...]
    answer: str


@dataclass(slots=True)
class App:
    tools: dict[str, Talked] = field(default_factory=dict)
    errands: list[Errand] = field(default_factory=list)


@cache
def apps() -> tuple[App, ...]:
    text = (DATA / "spoken_chains.txt").read_text(encoding="utf-8")
    return tuple(_app(part) for part in re.split(r"^== ", text, flags=re.MULTILINE) if part.strip())


def _app(text: str) -> App:
    name, *rows = filter(None, text.splitlines())
    defined = [row for row in rows if row.startswith(("tool ", "in "))]
    app = App({tool.name: tool for tool in tools_in(f"chains/{name}", "\n".join(defined))})
    app.errands = list(_errands(name, [row for row in rows if not row.startswith(("tool ", "in "))]))
    return app


def _errands(app: str, rows: list[str]) -> Iterator[Errand]:
    said, steps = "", list[tuple[Call, ...]]()
    for row in rows:
        if row.startswith("> "):
            said, steps = row[2:], []
        elif row.startswith("= "):
            yield Errand(app, said, tuple(steps), row[2:])
        else:
            steps.append(tuple(_call(part) for part in row.split(" && ")))


def _call(text: str) -> Call:
    found = _CALL.match(text.strip())
    if not found:
        raise ValueError(f"not a call: {text!r}")
    return found[1], json.loads(found[2]), json.loads(found[3])


def errand(maker: Maker) -> Dialogue:
    """One of these requests, now and then with other names and numbers in it."""
    app = maker.rng.choice(apps())
    chosen = _changed(maker.rng.choice(app.errands), app, maker)
    mades = {name: _made(app.tools[name], chosen, maker) for name in _names(chosen)}
    talk = Dialogue("errand", maker.offer(list(mades.values()), maker.seeds()))
    talk.user(chosen.said)
    for step in chosen.steps:
        talk.calls(*[(mades[name], _arguments(mades[name], arguments)) for name, arguments, _ in step])
        talk.gets(*[result(mades[name], came) for name, _, came in step])
    talk.says(_answer(chosen, maker))
    return talk


def _answer(errand: Errand, maker: Maker) -> str:
    """What the last calls came to. Free words where there is little to tell: more of them teach to make things up."""
    plain = [not isinstance(came, dict) or _is_flat(came) for _, _, came in errand.steps[-1]]
    if not all(plain) or maker.rng.random() < NATURAL:
        return errand.answer
    return " ".join(told_plainly(came, maker.rng) for _, _, came in errand.steps[-1])


def _is_flat(came: Any) -> bool:
    """Whether the object has nothing but single values and lists of texts, which can be told plainly."""
    items = [item for value in came.values() for item in (value if isinstance(value, list) else [value])]
    return not any(isinstance(item, dict | list) for item in items)


def _names(errand: Errand) -> list[str]:
    return list(dict.fromkeys(name for step in errand.steps for name, _, _ in step))


def _made(tool: Talked, errand: Errand, maker: Maker) -> Made:
    given = [arguments for step in errand.steps for name, arguments, _ in step if name == tool.name]
    family = family_of(tool, given, world().by_name)
    need = frozenset(role for arguments in given for role, _ in flat(arguments, family.roles))
    return make(family, maker.rng, need, plain=bool(family.seed) and maker.rng.random() < 0.7)


def _arguments(made: Made, arguments: dict[str, Any]) -> dict[str, Any]:
    return made.arguments(dict(flat(arguments, made.family.roles)))


def _changed(errand: Errand, app: App, maker: Maker) -> Errand:
    """The errand with some of its texts replaced, the same way everywhere."""
    whole: Any = [errand.said, [[list(call) for call in step] for step in errand.steps], errand.answer]
    closed = {choice for tool in app.tools.values() for choice in choices_of(tool)}
    for text in dict.fromkeys(_texts(errand)):
        if SHORTEST <= len(text) <= LONGEST and text not in closed and maker.rng.random() < OTHER:
            whole = _replaced(whole, text, other_text(text, maker.rng))
    said, steps, answer = whole
    return Errand(errand.app, said, tuple(tuple(tuple(call) for call in step) for step in steps), answer)


def _texts(errand: Errand) -> Iterator[str]:
    """What is said and passed on, or came back and is passed on."""
    known = [errand.said]
    for step in errand.steps:
        heard = " ".join(known)
        yield from (text for _, arguments, _ in step for text in _strings(arguments) if text in heard)
        known += [text for _, _, came in step for text in _strings(came)]


def _strings(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for item in value.values():
                yield from _strings(item)
        case list():
            for item in value:
                yield from _strings(item)


def _replaced(value: Any, old: str, new: str) -> Any:
    match value:
        case str():
            return re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", lambda _: new, value)
        case dict():
            return {key: _replaced(item, old, new) for key, item in value.items()}
        case list():
            return [_replaced(item, old, new) for item in value]
    return value
