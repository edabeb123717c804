"""JMESPath with limits: a query takes a bounded number of steps, and nothing it builds grows beyond a bound.

Values in a query are shared, not copied: `[@, @] | [@, @] | …` costs nothing to compute and everything to write down.
Each value is therefore weighed as it would be written down, and a query that builds too much is stopped.
"""

from typing import Any

import jmespath
from jmespath import exceptions, functions, visitor

LONGEST_QUERY = 2000
MOST_STEPS = 500_000
HEAVIEST = 2_000_000
MOST_ITEMS = 4_000_000
_SHOWN = 300


class BadQuery(Exception):
    """A query that cannot be read, does not fit its data, or wants too much. The text says which."""


def check_query(query: str) -> str:
    """The query, if it is one. Raises BadQuery."""
    _parsed(query)
    return query


def search(query: str, data: Any) -> Any:
    """What a JMESPath query finds in JSON data. Raises BadQuery."""
    parsed = _parsed(query)
    try:
        return _Interpreter(data).visit(parsed, data)
    except exceptions.JMESPathError as wrong:
        raise BadQuery(f"the query does not fit the data: {_short(wrong)}") from None
    except RecursionError:
        raise BadQuery("the query is nested too deeply") from None
    except (TypeError, AttributeError, KeyError, ArithmeticError) as odd:
        raise BadQuery(f"the query does not fit the data: {type(odd).__name__}") from None


def _parsed(query: str) -> Any:
    if len(query) > LONGEST_QUERY:
        raise BadQuery(f"a query has at most {LONGEST_QUERY} characters")
    try:
        return jmespath.compile(query).parsed
    except exceptions.JMESPathError as wrong:
        raise BadQuery(f"{query[:100]!r} is no JMESPath: {_short(wrong)}") from None
    except RecursionError:
        raise BadQuery("the query is nested too deeply") from None


def _short(wrong: Exception) -> str:
    text = " ".join(str(wrong).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


class _Functions(functions.Functions):
    """The functions of JMESPath. Only `join` can make more of its arguments than they weigh together."""

    @functions.signature({"types": ["string"]}, {"types": ["array-string"]})
    def _func_join(self, separator: str, array: list[str]) -> str:
        if len(separator) * len(array) > HEAVIEST:
            raise BadQuery("the query joins too much text")
        return separator.join(array)


class _Interpreter(visitor.TreeInterpreter):
    def __init__(self, data: Any) -> None:
        super().__init__(visitor.Options(custom_functions=_Functions()))
        self._steps = self._items = 0
        # By identity; the value is kept, so that its identity stays its own.
        self._weighed: dict[int, tuple[Any, int]] = {}
        self._weigh_all(data)

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise BadQuery(f"the query takes more than {MOST_STEPS} steps")
        value = super().visit(node, *args, **kwargs)
        if isinstance(value, (list, dict)) and id(value) not in self._weighed:
            self._weigh(value)
        return value

    def _weigh_all(self, data: Any) -> None:
        """Weigh the data from its leaves up, however deep it is."""
        waiting = [data]
        order = []
        while waiting:
            value = waiting.pop()
            if isinstance(value, (list, dict)):
                order.append(value)
                waiting.extend(value.values() if isinstance(value, dict) else value)
        for value in reversed(order):
            self._weigh(value)

    def _weigh(self, value: "list[Any] | dict[str, Any]") -> None:
        self._items += len(value)
        if self._items > MOST_ITEMS:
            raise BadQuery(f"the query goes through more than {MOST_ITEMS} items")
        parts = value.values() if isinstance(value, dict) else value
        weight = 1 + sum(map(self._weight, parts)) + (sum(map(len, value)) if isinstance(value, dict) else 0)
        if weight > HEAVIEST:
            raise BadQuery("the data, or what the query makes of it, is too large")
        self._weighed[id(value)] = (value, weight)

    def _weight(self, part: Any) -> int:
        if isinstance(part, (list, dict)):
            if id(part) not in self._weighed:
                self._weigh(part)
            return self._weighed[id(part)][1]
        return 1 + len(part) if isinstance(part, str) else 1
