"""What people put into requests: each value with the way it is said and what it is as an argument."""

import json
import random
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from training import quantities
from training.numbers import plain_number, spoken

DATA = Path(__file__).parent / "data"

_ARTICLE = re.compile("^(the|a|an|my|our) ")
Value = tuple[str, Any]
Draw = random.Random


@cache
def words(kind: str) -> tuple[str, ...]:
    """The lines of a word list; empty if there is none of that name."""
    path = DATA / "words" / f"{kind}.txt"
    return tuple(path.read_text(encoding="utf-8").splitlines()) if path.exists() else ()


def draw(kind: str, rng: Draw) -> Value:
    """A value of that kind: `int 1 10`, `list food 2 4`, `low=low,not urgent; high=high`, or the name of a list."""
    if kind.startswith("just "):
        value = json.loads(kind[5:])
        return str(value), value
    if "=" in kind:
        return _choice(kind, rng)
    if kind.startswith("of "):
        text = _thing(rng) if rng.random() < 0.22 else rng.choice(kind[3:].split(",")).strip()
        return text, _ARTICLE.sub("", text)
    name, *bounds = kind.split()
    maker = _MAKERS.get(name)
    if maker is not None:
        return maker(rng, *bounds)
    text = (_fresh(name, rng) if rng.random() < 0.3 else "") or (
        rng.choice(words(name)) if words(name) else _fail(kind)
    )
    return text, text


def choices(kind: str) -> tuple[str, ...]:
    """The values of an enum kind."""
    return tuple(part.split("=")[0].strip() for part in kind.split(";"))


def _fail(kind: str) -> str:
    raise KeyError(f"no kind of value is called {kind!r}")


def _choice(kind: str, rng: Draw) -> Value:
    value, said = rng.choice(kind.split(";")).split("=")
    return rng.choice(said.split(",")).strip(), value.strip()


def _int(rng: Draw, low: str = "1", high: str = "100", *_: str) -> Value:
    top = int(high)
    number = rng.randint(int(low), top if rng.random() < 0.6 else min(top, int(low) + 20))
    if rng.random() < 0.3 and top >= 20:
        number = min(top, max(int(low), round(number, -1)))
    return spoken(number, rng), number


def _number(rng: Draw, low: str = "0", high: str = "100", digits: str = "1") -> Value:
    value = plain_number(round(rng.uniform(float(low), float(high)), rng.randint(0, int(digits))))
    return str(value), value


def _money(rng: Draw, low: str = "1", high: str = "900") -> Value:
    value = plain_number(round(rng.uniform(float(low), float(high)), rng.choice([0, 0, 2])))
    shown = f"{value:.2f}" if isinstance(value, float) else str(value)
    return rng.choice([f"${shown}", f"{shown} dollars", f"€{shown}", f"{shown} euros", shown, f"{shown} bucks"]), value


def _percent(rng: Draw, low: str = "1", high: str = "100") -> Value:
    value = rng.randint(int(low), int(high))
    return rng.choice([f"{value}%", f"{value}%", f"{value} percent", f"{value} per cent"]), value


_UNITS = {"second": 1, "minute": 60, "hour": 3600}
_SPOKEN_TIMES = {
    "half a minute": 30,
    "a minute": 60,
    "one minute": 60,
    "a minute and a half": 90,
    "two and a half minutes": 150,
    "a couple of minutes": 120,
    "half an hour": 1800,
    "an hour": 3600,
    "a quarter of an hour": 900,
    "a second": 1,
    "half a second": 0.5,
}


def _seconds(rng: Draw, most: str = "300") -> Value:
    """A stretch of time, said in any unit, as seconds."""
    limit = float(most)
    if rng.random() < 0.5:
        return quantities.measure(rng, "duration", "seconds", "1", most)
    if rng.random() < 0.12:
        said, value = rng.choice([pair for pair in _SPOKEN_TIMES.items() if pair[1] <= limit])
        return said, value
    unit = rng.choices(["second", "minute", "hour"], [6, 3, 1])[0]
    if _UNITS[unit] > limit:
        unit = "second"
    number = rng.randint(1, max(1, min(90 if unit == "second" else 45, int(limit // _UNITS[unit]))))
    if unit == "second" and rng.random() < 0.12:
        value = round(rng.uniform(0.1, 9.5), 1)
        return f"{value} seconds", plain_number(value)
    short = {"second": ["s", "sec", " sec", " secs"], "minute": ["min", " min", " mins"], "hour": ["h", " hrs"]}[unit]
    if rng.random() < 0.2:
        return f"{number}{rng.choice(short)}", number * _UNITS[unit]
    return f"{spoken(number, rng)} {unit}{'s' * (number != 1)}", number * _UNITS[unit]


def _span(rng: Draw, unit: str, low: str = "1", high: str = "60") -> Value:
    """So many minutes, hours or days, as that number."""
    number = rng.randint(int(low), int(high))
    return f"{spoken(number, rng)} {unit}{'s' * (number != 1)}", number


def _list(rng: Draw, kind: str, low: str = "2", high: str = "4") -> Value:
    items: list[Value] = []
    for _ in range(rng.randint(int(low), int(high))):
        item = draw(kind, rng)
        if item[1] not in [known for _, known in items]:
            items.append(item)
    quote = rng.choice(["'", '"']) if rng.random() < 0.08 else ""
    said = [f"{quote}{item[0]}{quote}" for item in items]
    joint = rng.choice([" and ", ", ", " and ", ", and ", " and ", " plus ", " & "])
    text = joint.join([", ".join(said[:-1]), said[-1]]) if len(said) > 1 else said[0]
    return text, [item[1] for item in items]


def _path(rng: Draw, *endings: str) -> Value:
    stem = rng.choice(words("stem")) if rng.random() < 0.6 else _made_up(rng)
    if rng.random() < 0.12:
        joined = [rng.choice([common(rng), rng.choice(words("stem"))]) for _ in range(2)]
        stem = rng.choice(["_", "-", ".", ""]).join(
            word if rng.random() < 0.6 else word.capitalize() for word in joined
        )
    if rng.random() < 0.15:
        stem = (
            f"{stem}{rng.choice(['_', '-', ''])}{rng.choice(['2', '2024', '2026', 'old', 'final', 'v2', '01', 'new'])}"
        )
    name = f"{stem}.{rng.choice(endings or words('ending'))}"
    if rng.random() < 0.06:
        name = rng.choice(["Makefile", "Dockerfile", "LICENSE", ".env", ".gitignore", "README", "go.mod"])
    depth = rng.choices([0, 1, 2, 3], [50, 30, 15, 5])[0]
    folders = [_part("folder", rng) for _ in range(depth)]
    root = rng.choice(["", "", "", "", "/", "./", "~/", "../"]) if depth else rng.choice(["", "", "", "", "", "./"])
    path = root + "/".join([*folders, name])
    return path, path


def _dir(rng: Draw) -> Value:
    parts = [_part("folder", rng) for _ in range(rng.choice([1, 1, 1, 2, 2, 3]))]
    path = rng.choice(["", "", "", "/", "./", "~/"]) + "/".join(parts) + rng.choice(["", "", "", "/"])
    return path, path


def common(rng: Draw) -> str:
    """Any word: the lists are small, and a model that knows them by heart would not learn to copy."""
    return rng.choice(words("common"))


def _part(kind: str, rng: Draw) -> str:
    """A word of a list, or now and then any other."""
    return common(rng) if rng.random() < 0.3 else rng.choice(words(kind))


def _thing(rng: Draw) -> str:
    """Something that may stand anywhere: only its place in the request says what it is."""
    noun = _part("thing", rng).removesuffix("s")
    return rng.choice(
        [
            common(rng),
            f"{common(rng)} {noun}",
            f"{common(rng).capitalize()} {common(rng).capitalize()}",
            rng.choice(words("product")),
            rng.choice(words("device")),
            f"{rng.choice(words('adj'))} {noun}",
            _made_up(rng).capitalize(),
            f"{noun} {rng.randint(1, 40)}",
            f"{_made_up(rng)} {noun}",
            f"the {rng.choice(words('adj'))} {noun}",
        ]
    )


def _made_up(rng: Draw) -> str:
    """A word that nobody has seen, to be copied letter by letter, or a common one where nobody expects it."""
    luck = rng.random()
    if luck < 0.35:
        return common(rng)
    if luck < 0.65:
        return "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 4)))
    first, last = rng.choice(_STARTS), rng.choice(_ENDS)
    return (
        first
        + rng.choice(["a", "e", "i", "o", "u", "ai", "ee", "ou", "y"])
        + rng.choice(["", "ra", "li", "to", "n"])
        + last
    )


_STARTS = "b br ch cl d dr f fl g gr h j k kr l m n p pr qu r s sch sh sk st t th tr v w wh x y z".split()
_ENDS = "ck ct ll ld lm mp nd ng nt rd rk rn rt sh ss st th tt x dge ley son ton ville wick burg".split()


def _name(rng: Draw) -> Value:
    word = _made_up(rng).capitalize()
    return word, word


def _id(rng: Draw, *prefixes: str) -> Value:
    digits = str(rng.randint(1, 10 ** rng.randint(2, 6)))
    letters = "".join(rng.choice("abcdefghkmnpqrstuvwxyz0123456789") for _ in range(rng.randint(4, 7)))
    shapes = [digits, f"{letters[:2].upper()}-{digits}", letters, f"{rng.choice(prefixes or ('id',))}-{digits}"]
    shapes += [f"{rng.choice(prefixes or ('ref',))}_{letters}", f"{rng.choice('ABCDKPTX')}{digits}"]
    text = rng.choice(shapes)
    return text, text


def _hash(rng: Draw) -> Value:
    text = "".join(rng.choice("0123456789abcdef") for _ in range(rng.choice([7, 7, 8, 12])))
    if rng.random() < 0.3:
        text = rng.choice(["HEAD", "HEAD~1", "HEAD~2", "main", "v1.2.0", "origin/main"])
    return text, text


def _email(rng: Draw) -> Value:
    who = rng.choice(words("person")).lower().replace("é", "e").replace("ö", "oe").replace(". ", ".").replace(" ", ".")
    who = common(rng) if rng.random() < 0.2 else who.replace("'", "")
    who += rng.choice(["", "", f".{_made_up(rng)}", str(rng.randint(1, 99))])
    text = f"{who}@{_domain(rng)}"
    return text, text


def _domain(rng: Draw) -> str:
    own = rng.choice(["com", "org", "net", "de", "co.uk", "io", "dev", "example", "school"])
    return f"{common(rng)}.{own}" if rng.random() < 0.35 else rng.choice(words("domain"))


def _url(rng: Draw) -> Value:
    domain = _domain(rng)
    tail = rng.choice(["", "", "/", f"/{rng.choice(words('stem'))}", f"/{rng.choice(words('folder'))}/{_made_up(rng)}"])
    tail += rng.choice(["", "", "", f"?id={rng.randint(1, 999)}", ".html" if len(tail) > 1 else ""])
    text = rng.choice(["https://", "https://", "https://www.", "http://"]) + domain + tail
    return text, text


def _host(rng: Draw) -> Value:
    numbers = f"{rng.choice(['10.0', '192.168', '172.16'])}.{rng.randint(0, 20)}.{rng.randint(1, 254)}"
    text = rng.choice([_domain(rng), numbers, f"{_made_up(rng)}.local", "localhost", "8.8.8.8"])
    return text, text


def _date(rng: Draw) -> Value:
    """A day as it was said."""
    month, day = rng.choice(words("month")), rng.randint(1, 28)
    year, number = rng.randint(2023, 2028), words("month").index(month) + 1
    text = rng.choice(
        [
            f"{year}-{number:02}-{day:02}",
            f"{year}-{number:02}-{day:02}",
            f"{month} {day}",
            f"{day} {month}",
            f"{month} {day}, {year}",
            rng.choice(words("weekday")),
            rng.choice(["tomorrow", "today", "next week", "tonight"]),
            f"next {rng.choice(words('weekday'))}",
        ]
    )
    return text, text


def _isodate(rng: Draw) -> Value:
    text = f"{rng.randint(2023, 2028)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    return text, text


def _time(rng: Draw) -> Value:
    if rng.random() < 0.4:
        return quantities.measure(rng, "clock", "said", "5", "23")
    hour, minute = rng.randint(1, 12), rng.choice([0, 0, 15, 30, 45, rng.randint(1, 59)])
    text = rng.choice(
        [
            f"{hour}:{minute:02}",
            f"{hour + 11:02}:{minute:02}",
            f"{hour} {rng.choice(['am', 'pm'])}",
            f"{hour}pm",
            "noon",
        ]
    )
    return text, text


def _phone(rng: Draw) -> Value:
    parts = [str(rng.randint(100, 999)), str(rng.randint(100, 999)), str(rng.randint(1000, 9999))]
    text = rng.choice([" ".join(parts), "-".join(parts), "+" + "".join(parts), f"+49 {' '.join(parts[:2])}"])
    return text, text


def _coin(rng: Draw) -> Value:
    text = "".join(rng.choice("ABCDEFGHKLMNPRSTUVX") for _ in range(rng.choice([3, 4])))
    return text, text


def _glob(rng: Draw) -> Value:
    ending = rng.choice(words("ending"))
    stem = rng.choice(words("stem"))
    text = rng.choice(
        [f"*.{ending}", f"**/*.{ending}", f"{rng.choice(words('folder'))}/*.{ending}", f"{stem}*", f"*_{stem}.*"]
    )
    return text, text


def _composed(rng: Draw) -> str:
    """Words that nobody has put together before."""
    who, did, what, when = (rng.choice(words(part)) for part in ("who", "did", "what", "when"))
    adjective, thing, act, theme = (_part(part, rng) for part in ("adj", "thing", "act", "theme"))
    return rng.choice(
        [
            " ".join(common(rng) for _ in range(rng.randint(1, 5))),
            f"the {common(rng)} is {common(rng)} {when}",
            f"{act} {common(rng)}, {common(rng)} and {thing}",
            f"{who} {did} the {adjective} {common(rng)}",
            f"{common(rng)} for {rng.choice(words('person'))} {when}",
            f"{who} {did} {what}",
            f"{who} {did} {what} {when}",
            f"{did} {what} {when}",
            f"{adjective} {thing} {theme}",
            f"{adjective} {thing}",
            f"{act} {what} {when}",
            f"{act} the {adjective} {thing}",
            f"{thing} and {rng.choice(words('thing'))}",
            f"{rng.randint(2, 99)} {thing} for {rng.choice(words('person'))}",
            f"{_made_up(rng)} {thing} {_made_up(rng)}",
            f"{rng.choice(words('person'))} {did} {what}",
        ]
    )


def _text(rng: Draw) -> Value:
    """A thing somebody would say or write down; now and then several sentences, or lines."""
    if rng.random() < 0.14:
        return _long(rng)
    text = rng.choice(words("sentence")) if rng.random() < 0.4 else _composed(rng)
    if rng.random() < 0.1:
        text = f"{rng.choice(words('person'))}: {text}"
    if rng.random() < 0.25:
        text = text[:1].upper() + text[1:]
    if rng.random() < 0.1:
        text = text.upper() if rng.random() < 0.3 else f"{text}{rng.choice(['!', ' 🎉', ' :)', '?', ' – ok', '...'])}"
    return text, text


def _long(rng: Draw) -> Value:
    pieces = [rng.choice(words("sentence")) if rng.random() < 0.6 else _composed(rng) for _ in range(rng.randint(2, 4))]
    full = [piece[:1].upper() + piece[1:].rstrip(".") for piece in pieces]
    text = rng.choice(
        [
            ". ".join(full) + ".",
            ". ".join(full) + ".",
            "\n".join(pieces),
            "\n".join(f"- {piece}" for piece in pieces),
            "\n".join(f"{number}. {piece}" for number, piece in enumerate(pieces, 1)),
            f"{full[0]},\n{full[1]}.\n{rng.choice(words('person'))}",
        ]
    )
    return text, text


def _fresh(kind: str, rng: Draw) -> str:
    """Something of a kind that stands in no list; empty for a kind of which nothing new can be made."""
    adjective, thing, act = (_part(part, rng) for part in ("adj", "thing", "act"))
    what = rng.choice(words("what"))
    return _fresh_phrase(kind, rng, adjective, thing, act, what) or _fresh_name(kind, rng, adjective, thing, act)


def _fresh_phrase(kind: str, rng: Draw, adjective: str, thing: str, act: str, what: str) -> str:
    match kind:
        case "topic":
            return rng.choice(
                [
                    f"{adjective} {thing}",
                    f"{thing} {rng.choice(words('theme'))}",
                    f"how to {act} {thing}",
                    " ".join(common(rng) for _ in range(rng.randint(1, 4))),
                ]
            )
        case "task" | "instruction":
            return rng.choice(
                [
                    f"{act} {what}",
                    f"{act} the {adjective} {thing}",
                    f"{act} {thing} with {rng.choice(words('person'))}",
                    f"{act} the {common(rng)} and the {common(rng)}",
                ]
            )
        case "commit":
            return rng.choice(
                [f"{act} {thing}", f"{act} {_made_up(rng)} module", f"fix #{rng.randint(1, 999)}: {adjective} {thing}"]
            )
        case "title":
            return rng.choice(
                [
                    f"{adjective} {thing}".capitalize(),
                    f"{_made_up(rng).capitalize()} {rng.choice(words('theme'))}",
                    f"{common(rng).capitalize()} {common(rng)}",
                    f"{common(rng)} {common(rng)}",
                ]
            )
    return ""


def _fresh_name(kind: str, rng: Draw, adjective: str, thing: str, act: str) -> str:
    match kind:
        case "pattern":
            return rng.choice([_made_up(rng), f"{_made_up(rng)}_{_made_up(rng)}", f"{thing} {_made_up(rng)}", thing])
        case "symbol":
            return rng.choice(
                [
                    f"{act.split(maxsplit=1)[0]}_{thing}",
                    f"{thing.capitalize()}{_made_up(rng).capitalize()}",
                    _made_up(rng),
                ]
            )
        case "shell":
            return rng.choice([f"echo {_made_up(rng)}", f"ls {rng.choice(words('folder'))}", f"cat {_path(rng)[1]}"])
        case "word":
            return rng.choice([thing, adjective, _made_up(rng)])
        case "branch":
            return f"{rng.choice(['feature', 'fix', 'wip'])}/{_made_up(rng)}"
        case "product" | "device" | "food" | "plant" | "dish" | "room" | "tag" | "color":
            return rng.choice([f"{adjective} {rng.choice(words(kind))}", common(rng), common(rng)])
        case "book" | "song" | "movie":
            return " ".join(common(rng).capitalize() for _ in range(rng.randint(1, 3)))
        case "sentence" | "question" | "reason":
            return _composed(rng)
        case (
            "place"
            | "person"
            | "company"
            | "agent"
            | "server"
            | "surname"
            | "username"
            | "skillname"
            | "dbname"
            | "flag"
        ):
            name = _made_up(rng)
            return name if words(kind)[0].islower() else name.capitalize()
    return ""


_MAKERS: dict[str, Callable[..., Value]] = {
    "int": _int,
    "number": _number,
    "money": _money,
    "percent": _percent,
    "seconds": _seconds,
    "span": _span,
    "list": _list,
    "path": _path,
    "dir": _dir,
    "madeup": _name,
    "id": _id,
    "hash": _hash,
    "email": _email,
    "url": _url,
    "host": _host,
    "date": _date,
    "isodate": _isodate,
    "time": _time,
    "phone": _phone,
    "ticker": _coin,
    "glob": _glob,
    "text": _text,
    "measure": quantities.measure,
}

_SHAPES: dict[str, dict[str, Any]] = {
    "bool": {"type": "boolean"},
    "span": {"type": "integer"},
    "object": {"type": "object"},
    "objects": {"type": "array", "items": {"type": "object"}},
}
_NUMERIC = {"int": "integer", "number": "number", "money": "number", "percent": "number", "seconds": "number"}


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind's values."""
    name, *rest = kind.split()
    if "=" in kind:
        return {"type": "string", "enum": list(choices(kind))}
    if name == "list":
        return {"type": "array", "items": schema_of(" ".join(rest[:1]))}
    if name == "measure":
        return {"type": quantities.schema_of(*rest[:2])}
    if name in _SHAPES:
        return dict(_SHAPES[name])
    return {"type": _NUMERIC.get(name, "string")}


def filled(template: str, values: dict[str, str]) -> str:
    """The template with every `{name}` replaced."""
    return re.sub(r"\{([\w.]+)\}", lambda slot: values[slot[1]], template)
