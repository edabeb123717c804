"""Tables of a definition file, read key by key: what is wrong is said with the file, the key and the nearest key."""

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from msgspec import Struct

from toolwire.define.nearest import nearest
from toolwire.errors import DefinitionError

Kind = TypeVar("Kind")

_WORDS: dict[type, str] = {
    str: "text in quotes",
    bool: "true or false",
    int: "a whole number",
    dict: "a table",
    list: "a list",
}
_SHOWN = 60
_HIDDEN = frozenset(("Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"))
_HARMLESS = frozenset("\n\t\u200c\u200d")  # the last two join and part letters in Persian, Hindi and emoji


class Table(Struct, frozen=True):
    """One table of a file. `where` names the file and the key of the table in it."""

    where: str
    values: Mapping[str, Any]

    def only(self, known: Iterable[str]) -> "Table":
        """This table, if it has no other keys. Raises `DefinitionError` with the nearest known one."""
        names = tuple(known)
        for key in self.values:
            if key not in names:
                near = nearest(key, names, 1)
                advice = f"did you mean {near[0]}?" if near else f"it takes {', '.join(names)}."
                raise DefinitionError(f"{self.where}: unknown key {key[:_SHOWN]!r}; {advice}")
        return self

    def text(self, key: str, default: str | None = None, *, most: int = 2_000) -> str:
        """A text that is not empty. Without a default it must be there."""
        value = self._of(key, str, default)
        if not value.strip() and value != default:
            self.wrong(key, "is empty")
        if len(value) > most:
            self.wrong(key, f"has {len(value)} characters; at most {most} are allowed")
        if hides_something(value):
            self.wrong(key, "has invisible characters")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        return self._of(key, bool, default)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        value = self._of(key, int, default)
        if isinstance(value, bool) or not least <= value <= most:
            self.wrong(key, f"must be a whole number from {least} to {most}, not {value!r:.{_SHOWN}}")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        """A list of texts; one text stands for a list of one."""
        value = self.values.get(key, [])
        listed = [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(word, str) and word for word in listed):
            self.wrong(key, f"must be a list of words, not {value!r:.{_SHOWN}}")
        return tuple(listed)

    def choice(self, key: str, among: Iterable[str], default: str) -> str:
        return self.one_of(key, self._of(key, str, default), among)

    def one_of(self, key: str, word: str, among: Iterable[str]) -> str:
        """The word, if it is one of these. Raises `DefinitionError` with the nearest one."""
        names = tuple(among)
        if word not in names:
            near = nearest(word, names, 1)
            advice = f"; did you mean {near[0]!r}?" if near else ""
            self.wrong(key, f"is one of {', '.join(names)}, not {word[:_SHOWN]!r}{advice}")
        return word

    def table(self, key: str) -> "Table":
        return Table(f"{self.where}{_joined(self.where)}{key}", self._of(key, dict, {}))

    def tables(self, key: str, *, most: int = 200) -> tuple["Table", ...]:
        """A list of tables, each named by its place in the list."""
        value = self._of(key, list, [])
        if not all(isinstance(each, dict) for each in value):
            self.wrong(key, f"must be tables: write [[{key}]] above each")
        if len(value) > most:
            self.wrong(key, f"has {len(value)} entries; at most {most} are allowed")
        return tuple(
            Table(f"{self.where}{_joined(self.where)}{key}[{place}]", each) for place, each in enumerate(value)
        )

    def wrong(self, key: str, what: str) -> NoReturn:
        raise DefinitionError(f"{self.where}{_joined(self.where)}{key} {what}")

    def _of(self, key: str, kind: type[Kind], default: Kind | None) -> Kind:
        value = self.values.get(key, default)
        if value is None:
            self.wrong(key, "is missing")
        if not isinstance(value, kind):
            self.wrong(key, f"must be {_WORDS[kind]}, not {value!r:.{_SHOWN}}")
        return value


def hides_something(text: str) -> bool:
    """Whether a text has characters that a person who reads it cannot see, or that turn it around."""
    return any(unicodedata.category(sign) in _HIDDEN and sign not in _HARMLESS for sign in text)


def _joined(where: str) -> str:
    """What stands between a table and a key of it: `skill.toml: name`, but `skill.toml: tools[0].name`."""
    return "." if ": " in where else ": "
