"""What tools give back, and what an honest short answer makes of it."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from training.numbers import plain_number
from training.requests import Ask
from training.values import Draw, draw, words

Fields = dict[str, Any]
SHORT = 30
DONE = ("Done.", "That's done.", "OK, done.", "It worked.")


@dataclass(frozen=True, slots=True)
class Outcome:
    """A result (`shown`: text, or an object), the piece of it that later calls may use, and the answer to give."""

    shown: Any
    main: str
    answer: str


def outcome(asked: Ask, rng: Draw) -> Outcome:
    """What calling the tool came to. Nothing in the answer stands elsewhere than in request and result."""
    special = _SPECIAL.get(asked.family.group) or _SPECIAL.get(asked.family.name)
    if special:
        return special(asked, rng)
    if asked.family.texts and rng.random() < 0.4:
        return _text(_filled(rng.choice(asked.family.texts), rng), rng)
    if asked.family.results:
        return _object(asked, _fields(rng.choice(asked.family.results), asked, rng), rng)
    return _done(asked, rng)


def _fields(line: str, asked: Ask, rng: Draw) -> Fields:
    fields: Fields = {}
    for part in line.split("; "):
        name, _, kind = part.partition(" ")
        if kind.startswith("="):
            fields[name] = {"true": True, "false": False}.get(kind[1:], kind[1:])
        elif name in asked.values and rng.random() < 0.5:
            fields[name] = asked.values[name]
        else:
            fields[name] = draw(kind, rng)[1]
    return fields


def _object(asked: Ask, fields: Fields, rng: Draw) -> Outcome:
    values = {key: said(value) for key, value in {**asked.said, **fields}.items()}
    frames = [frame for frame in asked.family.answers if set(re.findall(r"\{([\w.]+)\}", frame)) <= values.keys()]
    news = {key: value for key, value in fields.items() if not isinstance(value, bool)}
    main = said(next(iter(news.values()), "done"))
    shown: Any = dict(fields)
    if len(news) == 1 and rng.random() < 0.25:
        shown = main
    elif rng.random() < 0.15:
        shown |= rng.choice([{"ok": True}, {"success": True}, {"cached": False}, {"error": None}])
    if frames and rng.random() < 0.7:
        return Outcome(shown, main, re.sub(r"\{([\w.]+)\}", lambda slot: values[slot[1]], rng.choice(frames)))
    return Outcome(shown, main, told(news, rng) if news else rng.choice(DONE))


def told_plainly(came: Any, rng: Draw) -> str:
    """What came back, in plain words."""
    if not isinstance(came, dict):
        return _text(said(came), rng).answer
    news = {key: value for key, value in came.items() if type(value) in (str, int, float)}
    listed = [value for value in came.values() if isinstance(value, list) and value]
    if not news and listed and all(isinstance(item, str) for item in listed[0]):
        return f"I found {', '.join(listed[0])}."
    return told(news, rng) if news else rng.choice(DONE)


def told(news: Mapping[str, Any], rng: Draw) -> str:
    """An object in words: its members by name."""
    pairs = [(key.replace("_", " "), said(value)) for key, value in news.items()]
    if len(pairs) == 1:
        label, value = pairs[0]
        return rng.choice([f"The {label} is {value}.", f"{label.capitalize()}: {value}.", f"The {label} is {value}."])
    if rng.random() < 0.5:
        listed = ", ".join(f"{label} {value}" for label, value in pairs)
        return f"{listed[:1].upper()}{listed[1:]}."
    parts = [f"the {label} is {value}" for label, value in pairs]
    text = ", ".join(parts[:-1]) + f" and {parts[-1]}."
    return text[:1].upper() + text[1:]


def said(value: Any) -> str:
    """A value as it is told."""
    match value:
        case str():
            return value
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(said, value))
        case float():
            return str(plain_number(value))
    return json.dumps(value, ensure_ascii=False)


def _text(text: str, rng: Draw) -> Outcome:
    ended = text if text[-1:] in ".!?" else f"{text}."
    plain = ended[:1].upper() + ended[1:]
    return Outcome(text, text, rng.choice([plain, plain, f"The result: {text}", f"It says: {text}"]))


def _filled(template: str, rng: Draw) -> str:
    kinds = {"t": "int 1 90", "n": "int 1 20", "s": "sentence", "p": "person", "h": "host"}
    return re.sub(r"\{(\w+)\}", lambda slot: str(draw(kinds.get(slot[1], slot[1]), rng)[1]), template)


def _done(asked: Ask, rng: Draw) -> Outcome:
    mark = draw("id", rng)[1]
    plain = _told_of(asked, rng)
    shape = rng.randint(0, 4)
    if shape == 0:
        return Outcome(
            {"ok": True, "id": mark}, mark, rng.choice([f"Done, the id is {mark}.", f"That's done ({mark})."])
        )
    if shape == 1:
        return Outcome(rng.choice([{"status": "ok"}, {"ok": True}, {"success": True}]), "ok", plain)
    if shape == 2:
        return Outcome("done", "done", plain)
    if shape == 3:
        status = rng.choice(words("status"))
        return Outcome({"status": status}, status, f"The status is {status}.")
    return _text(rng.choice(words("report")), rng)


def _told_of(asked: Ask, rng: Draw) -> str:
    """That it is done, and for what where that is short and was said."""
    roles = {name for name, role in asked.family.roles.items() if "=" not in role.kind}
    named = [said for role, said in asked.said.items() if role in roles and 1 < len(said) < SHORT]
    if not named or rng.random() < 0.3:
        return rng.choice(DONE)
    what = rng.choice(named).strip()
    return rng.choice([f"Done: {what}.", f"That's done for {what}.", f"{what}: done.", f"It worked for {what}."])


def _calculator(asked: Ask, rng: Draw) -> Outcome:
    written = str(asked.values["expression"])
    value = compute(written)
    text = str(value)
    shown = rng.choice(
        [
            {"result": value, "formatted": text, "exact": "." not in text or len(text) < 16, "expression": written},
            {"result": value, "formatted": text, "exact": True, "expression": written},
            {"result": value},
            {"value": value},
            text,
        ]
    )
    pretty = written.replace("*", " × ").replace("  ", " ")
    answers = [
        f"It is {text}.",
        f"The result is {text}.",
        f"That is {text}.",
        f"That makes {text}.",
        f"{text}.",
        f"{written} = {text}",
    ]
    return Outcome(shown, text, rng.choice([*answers, f"{pretty} is {text}."] if len(written) < 24 else answers[:4]))


def compute(expression: str) -> int | float:
    """The value of one of our own expressions."""
    python = re.sub(r"(\d+)!", r"factorial(\1)", expression.replace("^", "**"))
    python = re.sub(r"(\d+)°", r"radians(\1)", python)
    names = {**vars(math), "abs": abs, "round": round, "min": min, "max": max, "ceil": math.ceil}
    value = eval(python, {"__builtins__": {}}, names)
    short = round(value, 10)
    return plain_number(short if abs(short - value) <= 1e-14 * max(1, abs(value)) else value)


def _echo(asked: Ask, rng: Draw) -> Outcome:
    text = str(asked.values["message"])
    return Outcome(rng.choice([{"echo": text}, {"echo": text}, text]), text, text)


def _random(asked: Ask, rng: Draw) -> Outcome:
    low, high = int(asked.values.get("min", 1)), int(asked.values.get("max", 100))
    numbers = [rng.randint(min(low, high), max(low, high)) for _ in range(int(asked.values.get("count", 1)))]
    text = said(numbers)
    shown = rng.choice([{"numbers": numbers}, {"numbers": numbers}, text])
    many = len(numbers) > 1
    answers = [f"The numbers are {text}.", f"I drew {text}.", f"Here you go: {text}."]
    single = [f"The number is {text}.", f"I drew {text}.", f"It's {text}.", f"Your number is {text}."]
    return Outcome(shown, text if many else str(numbers[0]), rng.choice(answers if many else single))


def _timer(asked: Ask, rng: Draw) -> Outcome:
    value = asked.values["seconds"]
    unit = "second" if value == 1 else "seconds"
    answers = [f"{value} {unit} have passed.", f"Done, I waited {value} {unit}.", f"I waited {value} {unit}."]
    return Outcome(rng.choice([{"waited": value}, {"waited": value}, "done"]), str(value), rng.choice(answers))


def document(rng: Draw) -> list[str]:
    """The lines of a file or page."""
    match rng.randint(0, 4):
        case 0:
            return [f"{rng.choice(words('setting'))}: {draw('int 1 9000', rng)[1]}" for _ in range(rng.randint(1, 4))]
        case 1:
            return [f"- {rng.choice(words('task'))}" for _ in range(rng.randint(1, 5))]
        case 2:
            return [rng.choice(words("report")) for _ in range(rng.randint(1, 3))]
    return [rng.choice(words("sentence")) for _ in range(rng.choice([1, 1, 1, 2, 3, 6]))]


def _reading(asked: Ask, rng: Draw) -> Outcome:
    lines = document(rng)
    where = str(asked.values.get("path") or asked.values.get("url"))
    text = "\n".join(lines)
    shown: Any = text
    if rng.random() < 0.5 and "path" in asked.values:
        first = int(asked.values.get("offset", 1))
        shown = {"path": where, "text": text + rng.choice(["", "\n"]), "first_line": first}
        shown |= {"last_line": first + len(lines) - 1, "total_lines": first + len(lines) - 1}
        shown |= {"truncated": False, "note": ""}
    elif rng.random() < 0.2:
        shown = {"text": text, "url" if "url" in asked.values else "path": where}
    flat = " / ".join(lines)
    answers = [
        f"It says: {flat}",
        f"{where} says: {flat}",
        f"{where} contains: {flat}",
        f"Here is what it says: {flat}",
    ]
    return Outcome(shown, text if len(lines) > 1 else lines[0], rng.choice(answers))


def _listing(*kinds: str, noun: str) -> Callable[[Ask, Draw], Outcome]:
    def listing(asked: Ask, rng: Draw) -> Outcome:
        kind = rng.choice(kinds)
        items = [str(draw(kind, rng)[1]) for _ in range(rng.choice([0, 1, 2, 2, 3, 3, 4, 5]))]
        key = noun.rsplit(maxsplit=1)[-1]
        shown = rng.choice([{key: items}, {key: items, "count": len(items)}, "\n".join(items) or f"no {key}"])
        if not items:
            return Outcome(shown, f"no {key}", rng.choice([f"There are no {noun}.", f"I found no {noun}."]))
        text = ", ".join(items)
        answers = [f"I found {text}.", f"There is {text}." if len(items) == 1 else f"There are: {text}.", f"{text}"]
        return Outcome(shown, text, rng.choice([*answers, f"These are the {noun}: {text}"]))

    return listing


def _shell(asked: Ask, rng: Draw) -> Outcome:
    text = rng.choice([*document(rng), str(rng.randint(0, 500)), rng.choice(words("report")), ""])
    shown = rng.choice(
        [{"stdout": text, "exit_code": 0}, {"stdout": text, "stderr": "", "exit_code": 0}, text or "done"]
    )
    return Outcome(shown, text or "done", f"The output is: {text}" if text else "It ran and printed nothing.")


def _matches(asked: Ask, rng: Draw) -> Outcome:
    lines = [f"{draw('path', rng)[1]}:{rng.randint(1, 400)}" for _ in range(rng.choice([0, 1, 2, 3]))]
    what = str(asked.values.get("pattern") or asked.values.get("symbol") or asked.values.get("query"))
    shown = rng.choice([{"matches": lines}, "\n".join(lines) or "no matches"])
    if not lines:
        return Outcome(shown, "no matches", rng.choice([f"No matches for {what}.", "There are no matches."]))
    text = ", ".join(lines)
    return Outcome(
        shown, text, rng.choice([f"Found in {text}.", f"I found it in {text}.", f"{what} appears in {text}."])
    )


def _search(asked: Ask, rng: Draw) -> Outcome:
    found = [(rng.choice(words("topic")).capitalize(), str(draw("url", rng)[1])) for _ in range(rng.choice([1, 2, 3]))]
    shown: Any = {"results": [{"title": title, "url": url} for title, url in found]}
    if rng.random() < 0.3:
        shown = "\n".join(f"{title} - {url}" for title, url in found)
    text = "; ".join(f"{title} ({url})" for title, url in found)
    return Outcome(shown, found[0][1], rng.choice([f"I found: {text}.", f"Here is what I found: {text}."]))


_FILES = _listing("path", noun="files")
_SPECIAL: dict[str, Callable[[Ask, Draw], Outcome]] = {
    "calculator": _calculator,
    "echo": _echo,
    "random": _random,
    "timer": _timer,
    "fileread": _reading,
    "filehead": _reading,
    "filetail": _reading,
    "webfetch": _reading,
    "findfiles": _FILES,
    "listdir": _FILES,
    "searchtext": _matches,
    "whereused": _matches,
    "searchcode": _matches,
    "shell": _shell,
    "runcode": _shell,
    "procread": _shell,
    "websearch": _search,
    "codesearch": _search,
    "todoread": _listing("task", noun="tasks"),
    "sessionslist": _listing("id s", noun="sessions"),
    "agentslist": _listing("agent", noun="agents"),
    "gitlog": _listing("commit", noun="commits"),
    "gitstatus": _listing("path", noun="changed files"),
    "processes": _listing("server", noun="processes"),
    "gpiolist": _listing("int 0 40", noun="pins"),
}
