"""Slots for the values of a written request, so that others can stand in their place."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from training.families import Frame, Role
from training.values import Draw, common, draw

OTHER_TEXT = 0.3
OTHER_NUMBER = 0.5
LONGEST = 40
FEW_WORDS = 3
MANY = 2
NAMES = ("person", "madeup", "surname", "company", "place")
FORMATS = ("HH:MM", "YYYY-MM-DD")
_NUMBER = re.compile(r"(?<![\w.{])\d+(?:\.\d+)?(?![\w.}])")
_MARKED = re.compile(r"[@/\\#<>{}\[\]|`*]|[a-z]\.[a-z]")


def slotted(text: str, fixed: dict[str, Any], roles: Mapping[str, Role], rng: Draw) -> tuple[Frame, dict[str, str]]:
    """The request with slots for what stands in it word for word; each is filled as it was, or by another value."""
    if _MARKED.search(text):
        return Frame("{all}", fixed, False), {"all": just(text)}
    found = _Slots(text, list(_leaves(fixed)), rng)
    for role in sorted(fixed, key=lambda role: -len(str(fixed[role]))):
        if role == "expression" and not _place(fixed[role]).search(found.text):
            fixed[role] = found.sum(fixed[role])
            continue
        if "=" in roles[role].kind or not re.fullmatch(r"[\w.]+", role):
            continue
        if isinstance(fixed[role], list):
            fixed[role] = [found.item(f"{role}.{place}", item) for place, item in enumerate(fixed[role])]
        elif found.slot(role, fixed[role], keep=_is_kept(roles[role])) != fixed[role]:
            del fixed[role]
    return Frame(found.text, fixed, False), found.kinds


def _is_kept(role: Role) -> bool:
    """Whether another value would make no sense: a date, a time, a sum."""
    return role.name == "expression" or role.about in FORMATS


class _Slots:
    """A request whose values become slots."""

    def __init__(self, text: str, values: list[Any], rng: Draw) -> None:
        self.text, self.rng = text, rng
        self.kinds: dict[str, str] = {}
        # Where a number was derived from what was said, another number would make it wrong.
        self.exact = all(_place(value).search(text) for value in values if type(value) in (int, float))

    def slot(self, name: str, value: Any, *, keep: bool = False) -> Any:
        """`{name}` if the value stands in the request, which has a slot there from now on; else the value."""
        if type(value) not in (str, int, float) or not value or not _place(value).search(self.text):
            return value
        self.text = _place(value).sub(f"{{{name}}}", self.text)
        self.kinds[name] = just(value if keep else self._other(value))
        return f"{{{name}}}"

    def item(self, name: str, value: Any) -> Any:
        """As `slot`; numbers in lists stay as they are."""
        return self.slot(name, value) if isinstance(value, str) else value

    def sum(self, expression: str) -> str:
        """The expression with slots for numbers that stand once in it and once in the request."""
        for place, number in enumerate(dict.fromkeys(_NUMBER.findall(expression))):
            value = json.loads(number)
            where = _place(value)
            if str(value) == number and len(where.findall(self.text)) == 1 == _NUMBER.findall(expression).count(number):
                name = f"number.{place}"
                self.text = where.sub(f"{{{name}}}", self.text)
                self.kinds[name] = just(_other_number(value, self.rng) if self.rng.random() < OTHER_NUMBER else value)
                expression = re.sub(rf"(?<![\w.{{]){re.escape(number)}(?![\w.}}])", f"{{{name}}}", expression)
        return expression

    def _other(self, value: Any) -> Any:
        if isinstance(value, str):
            return other_text(value, self.rng) if self.rng.random() < OTHER_TEXT and len(value) <= LONGEST else value
        if not self.exact or type(value) is not int or value < MANY or self.rng.random() > OTHER_NUMBER:
            return value
        return _other_number(value, self.rng)


def _place(value: Any) -> re.Pattern[str]:
    """Where the value stands as a word or number of its own, and in no slot."""
    if isinstance(value, str):
        return re.compile(rf"(?<![\w{{.]){re.escape(value)}(?![\w}}]|\.\w)")
    return re.compile(rf"(?<![\w.,:/{{-]){re.escape(json.dumps(value))}(?![\w:/}}-]|[.,]\d)")


def other_text(value: str, rng: Draw) -> str:
    """Something else of the same kind, as far as its letters tell."""
    parts = value.split(" ")
    if _MARKED.search(value) or re.search(r"\d[:-]\d", value):
        return value
    if any(char.isdigit() for char in value):
        return re.sub(r"\d", lambda digit: rng.choice("123456789"), value)
    if all(part[:1].isupper() for part in parts):
        return str(draw(rng.choice(NAMES), rng)[1])
    if len(parts) <= FEW_WORDS and value.islower():
        return " ".join(common(rng) for _ in range(rng.randint(1, len(parts))))
    return value


def _other_number(value: Any, rng: Draw) -> Any:
    if value < MANY:
        return value
    if isinstance(value, float):
        return round(value * rng.uniform(0.5, 2), len(str(value).partition(".")[2]))
    other = rng.randint(max(MANY, value // 2), value * 2)
    if value % 5 == 0 and other > 5:
        other -= other % 5
    return min(other, 100) if value <= 100 else other


def _leaves(fixed: Mapping[str, Any]) -> Iterator[Any]:
    for value in fixed.values():
        yield from value if isinstance(value, list) else [value]


def just(value: Any) -> str:
    """The kind of which there is but this one value."""
    return f"just {json.dumps(value, ensure_ascii=False)}"
