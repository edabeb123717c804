"""Many selectors, made ready to find those that fit one record without looking at each.

Every selector has one *anchor*: something that a record must have for it to fit, and that few other selectors are
anchored at. That is a tag, a schema, the beginning of one, or what a condition asks of the value at its path. A record
leads to the anchors that it has; only the selectors there are checked. Selectors that say the same are checked once,
and so is each schema with tags that many selectors have in common.

What a condition can be found by:

    eq, in                     the value
    contains…                  an element of the list, or a part of the text
    starts_with                the beginning of the text
    gt, gte, lt, lte           the bound, in order (numbers)
    matches, ends_with, …      that there is a value at the path
    ne, not_in, exists false   nothing: a selector with only those is checked for every record

An index belongs to one thread: it notes in its parts which record it looked at last.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from toolwire.breadcrumbs.rules.selectors import (
    LONGEST_CONTAINED,
    LONGEST_NAME,
    MISSING,
    ContextMatch,
    Operator,
    Path,
    Selector,
    Step,
    contained_values,
    fits,
    value_at,
)
from toolwire.protocol.breadcrumbs import Record

_CONTAINING = (Operator.CONTAINS, Operator.CONTAINS_ANY, Operator.CONTAINS_ALL)
_ORDERING = (Operator.GT, Operator.GTE, Operator.LT, Operator.LTE)
_EXACT = (Operator.EQ, Operator.IN, Operator.CONTAINS, Operator.CONTAINS_ANY, Operator.STARTS_WITH, *_ORDERING)
_NUMBERS = (int, float)
_FEW = 512
"""So many selectors are checked one by one in a fraction of a millisecond."""


class _Base:
    """A schema with tags, without conditions, and whether the record of round `stamp` fits it."""

    __slots__ = ("holds", "selector", "stamp", "users")

    def __init__(self, selector: Selector) -> None:
        self.selector = selector
        self.users = 0
        self.stamp = 0
        self.holds = False


class _Place:
    """A path, and the value to which it leads in the record of round `stamp`."""

    __slots__ = ("path", "stamp", "users", "value")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.users = 0
        self.stamp = 0
        self.value: Any = MISSING


class _AlikeSelectors:
    """The names of all selectors that say the same, where they are anchored, and what that leaves to check."""

    __slots__ = ("anchors", "base", "names", "places", "selector", "stamp", "tests")

    def __init__(self, selector: Selector, base: _Base, places: list[_Place]) -> None:
        self.selector = selector
        self.base = base
        self.places = places
        self.names: dict[str, None] = {}
        self.anchors: _Anchors = []
        self.tests: list[tuple[_Place, Callable[[Any], bool]]] = []
        self.stamp = 0


_Bucket = dict[_AlikeSelectors, None]
_Anchors = list[tuple[dict[Any, _Bucket], Any]]
_Offer = tuple[int, _Anchors, ContextMatch | None]
"""How many selectors are there already, where that is, and the condition that it sees to."""


class _Bounds:
    """Selectors by a number that the value at a path is compared with, in order of that number."""

    __slots__ = ("_numbers", "_rows", "buckets", "is_sorted")

    def __init__(self) -> None:
        self.buckets: dict[Any, _Bucket] = {}
        self._rows: list[tuple[float, _Bucket]] = []
        self._numbers: list[float] = []
        self.is_sorted = True

    def kept_by(self, op: Operator, value: float) -> Iterator[_Bucket]:
        """The selectors whose bound this value keeps."""
        if not self.is_sorted:
            self._rows = sorted(self.buckets.items(), key=itemgetter(0))
            self._numbers = [number for number, _ in self._rows]
            self.is_sorted = True
        if op in (Operator.GT, Operator.GTE):
            find = bisect_left if op is Operator.GT else bisect_right
            rows = self._rows[: find(self._numbers, value)]
        else:
            find = bisect_right if op is Operator.LT else bisect_left
            rows = self._rows[find(self._numbers, value) :]
        return (bucket for _, bucket in rows)


class _Elements:
    """Selectors by what a list is to contain, or a text."""

    __slots__ = ("_lengths", "buckets", "is_counted")

    def __init__(self) -> None:
        self.buckets: dict[Any, _Bucket] = {}
        self._lengths: set[int] = set()
        self.is_counted = True

    def in_list(self, items: Sequence[Any]) -> Iterator[_Bucket]:
        if self.buckets:
            for key in {_key(item) for item in items[:LONGEST_CONTAINED] if _is_scalar(item)}:
                yield from _found(self.buckets, key)

    def in_text(self, text: str) -> Iterator[_Bucket]:
        """Goes through the text, or through the parts that are asked for, whichever is less."""
        text = text[:LONGEST_CONTAINED]
        if not self.is_counted:
            self._lengths = {len(part) for part in self.buckets if isinstance(part, str)}
            self.is_counted = True
        if len(text) * len(self._lengths) > len(self.buckets):
            yield from (bucket for part, bucket in self.buckets.items() if isinstance(part, str) and part in text)
            return
        for length in self._lengths:
            for part in {text[at : at + length] for at in range(len(text) - length + 1)}:
                yield from _found(self.buckets, part)


class _Node:
    """What selectors ask of the value at one path, and of what lies below it."""

    __slots__ = ("beginnings", "below", "bounds", "elements", "present", "values")

    def __init__(self) -> None:
        self.below: dict[Step, _Node] = {}
        self.values: dict[Any, _Bucket] = {}
        self.beginnings: dict[Any, _Bucket] = {}
        self.present: dict[Any, _Bucket] = {}
        self.elements = _Elements()
        self.bounds: dict[Operator, _Bounds] = {}

    def is_empty(self) -> bool:
        held = self.below or self.values or self.elements.buckets or self.beginnings or self.present
        return not held and not any(bounds.buckets for bounds in self.bounds.values())

    def buckets(self, value: Any) -> Iterator[_Bucket]:
        """The selectors at this path that the value there may fulfil."""
        yield from self.present.values()
        if isinstance(value, str):
            yield from _found(self.values, value)
            yield from self.elements.in_text(value)
            yield from _beginning(self.beginnings, value)
        elif isinstance(value, (list, tuple)):
            yield from self.elements.in_list(value)
        elif _is_scalar(value):
            yield from _found(self.values, _key(value))
            if isinstance(value, _NUMBERS) and not isinstance(value, bool):
                for op, bounds in self.bounds.items():
                    yield from bounds.kept_by(op, value)


class SelectorIndex:
    """Selectors by name. `match` gives the names of those that fit a record."""

    def __init__(self, selectors: Iterable[tuple[str, Selector]] = ()) -> None:
        self._groups: dict[bytes, _AlikeSelectors] = {}
        self._by_name: dict[str, _AlikeSelectors] = {}
        self._bases: dict[Selector, _Base] = {}
        self._places: dict[Path, _Place] = {}
        self._tags: dict[Any, _Bucket] = {}
        self._schemas: dict[Any, _Bucket] = {}
        self._prefixes: dict[Any, _Bucket] = {}
        self._unanchored: dict[Any, _Bucket] = {}
        self._root = _Node()
        self._round = 0
        for name, selector in selectors:
            self.add(name, selector)

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, name: str, selector: Selector) -> None:
        """Have a selector from now on, in the place of one with the same name."""
        self.remove(name)
        group = self._groups.get(selector.key)
        if group is None:
            group = self._groups[selector.key] = self._new_group(selector)
        group.names[name] = None
        self._by_name[name] = group

    def remove(self, name: str) -> None:
        """Forget a selector. Harmless for one that is not there."""
        group = self._by_name.pop(name, None)
        if group is None:
            return
        del group.names[name]
        if not group.names:
            self._drop(group)

    def match(self, record: Record) -> list[str]:
        """The names of all selectors that fit a record, in no order."""
        self._round = this = self._round + 1
        found: list[str] = []
        for bucket in self._buckets(record):
            for group in bucket:
                if group.stamp == this:
                    continue
                group.stamp = this
                base = group.base
                if base.stamp != this:
                    base.stamp, base.holds = this, fits(base.selector, record)
                if base.holds and (not group.tests or _passes(group, record, this)):
                    found += group.names
        return found

    def _new_group(self, selector: Selector) -> _AlikeSelectors:
        apart = Selector(selector.schema_name, selector.schema_prefix, selector.any_tags, selector.all_tags)
        base = self._bases.setdefault(apart, _Base(apart))
        base.users += 1
        places = [self._places.setdefault(one.path, _Place(one.path)) for one in selector.conditions]
        group = _AlikeSelectors(selector, base, places)
        _, group.anchors, seen_to = min(self._offers(selector), key=itemgetter(0))
        for place, condition in zip(places, selector.conditions, strict=True):
            place.users += 1
            if condition is not seen_to or condition.op not in _EXACT:
                group.tests.append((place, condition.test))
        for table, key in group.anchors:
            table.setdefault(key, {})[group] = None
        self._tidy(group)
        return group

    def _drop(self, group: _AlikeSelectors) -> None:
        del self._groups[group.selector.key]
        for table, key in group.anchors:
            bucket = table[key]
            bucket.pop(group, None)
            if not bucket:
                del table[key]
        group.base.users -= 1
        if not group.base.users:
            del self._bases[group.base.selector]
        for place in group.places:
            place.users -= 1
            if not place.users:
                del self._places[place.path]
        self._tidy(group)

    def _buckets(self, record: Record) -> Iterator[_Bucket]:
        yield from self._unanchored.values()
        for tag in set(record.tags):
            yield from _found(self._tags, tag)
        yield from _found(self._schemas, record.schema_name)
        yield from _beginning(self._prefixes, record.schema_name)
        yield from _walk(self._root, record.context)

    def _offers(self, selector: Selector) -> Iterator[_Offer]:
        """Where a selector can be anchored, what tells most about a record first: of equal ones, the first is taken."""
        for condition in selector.conditions:
            yield from self._offers_of(condition)
        for tag in selector.all_tags:
            yield _offer(self._tags, [tag])
        if selector.any_tags:
            yield _offer(self._tags, selector.any_tags)
        if selector.schema_name:
            yield _offer(self._schemas, [selector.schema_name])
        if selector.schema_prefix:
            yield _offer(self._prefixes, [selector.schema_prefix])
        yield _offer(self._unanchored, [None])

    def _offers_of(self, condition: ContextMatch) -> Iterator[_Offer]:
        op, value = condition.op, condition.value
        if op in (Operator.NE, Operator.NOT_IN) or (op is Operator.EXISTS and not value):
            return
        node = self._node(condition.path)
        if op is Operator.EQ and _is_scalar(value):
            yield _offer(node.values, [_key(value)], condition)
        elif op is Operator.IN and all(_is_scalar(one) for one in value):
            yield _offer(node.values, {_key(one) for one in value}, condition)
        elif op in _CONTAINING and all(_is_scalar(one) for one in contained_values(condition)):
            keys = {_key(one) for one in contained_values(condition)}
            elements = node.elements.buckets
            apart = [_offer(elements, [key], condition) for key in keys]
            yield from apart if op is Operator.CONTAINS_ALL else [_offer(elements, keys, condition)]
        elif op is Operator.STARTS_WITH and value:
            yield _offer(node.beginnings, [value], condition)
        elif op in _ORDERING and isinstance(value, _NUMBERS):
            buckets = node.bounds.setdefault(op, _Bounds()).buckets
            # A value keeps many of the bounds, but what it leads to needs no further look at that condition.
            yield min(len(buckets), _FEW), [(buckets, value)], condition
        else:
            yield _offer(node.present, [None])

    def _node(self, path: Path) -> _Node:
        node = self._root
        for step in path:
            node = node.below.setdefault(step, _Node())
        return node

    def _tidy(self, group: _AlikeSelectors) -> None:
        """Drop nodes that hold nothing, and have what is kept in order put in order again."""
        for condition in group.selector.conditions:
            along = [self._root]
            for step in condition.path:
                if step not in along[-1].below:
                    break
                along.append(along[-1].below[step])
            along[-1].elements.is_counted = False
            if (bounds := along[-1].bounds.get(condition.op)) is not None:
                bounds.is_sorted = False
            for parent, step in reversed(list(zip(along, condition.path, strict=False))):
                if step in parent.below and parent.below[step].is_empty():
                    del parent.below[step]


def _passes(group: _AlikeSelectors, record: Record, this: int) -> bool:
    for place, test in group.tests:
        if place.stamp != this:
            place.stamp, place.value = this, value_at(record.context, place.path)
        if not test(place.value):
            return False
    return True


def _offer(table: dict[Any, _Bucket], keys: Iterable[Any], sees_to: ContextMatch | None = None) -> _Offer:
    anchors = [(table, key) for key in keys]
    return sum(len(table.get(key, ())) for _, key in anchors), anchors, sees_to


def _walk(node: _Node, value: Any) -> Iterator[_Bucket]:
    """The selectors along all paths that both they and the value have."""
    waiting = [(node, value)]
    while waiting:
        node, value = waiting.pop()
        yield from node.buckets(value)
        if node.below and isinstance(value, (Mapping, list, tuple)):
            waiting += _steps(node, value)


def _steps(node: _Node, value: Any) -> Iterator[tuple[_Node, Any]]:
    """The steps from here that lead somewhere: whichever is shorter is gone through, what is asked or what is there."""
    below = node.below
    if isinstance(value, Mapping) and len(value) < len(below):
        yield from ((below[name], inner) for name, inner in value.items() if name in below)
    elif not isinstance(value, Mapping) and 3 * len(value) < len(below):
        for at, inner in enumerate(value):
            for step in (at, at - len(value), str(at)):
                if step in below:
                    yield below[step], inner
    else:
        for step, inner_node in below.items():
            inner = value_at(value, (step,))
            if inner is not MISSING:
                yield inner_node, inner


def _found(table: dict[Any, _Bucket], key: Any) -> Iterator[_Bucket]:
    bucket = table.get(key)
    if bucket is not None:
        yield bucket


def _beginning(table: dict[Any, _Bucket], text: str) -> Iterator[_Bucket]:
    if table:
        for end in range(1, min(LONGEST_NAME, len(text)) + 1):
            yield from _found(table, text[:end])


def _is_scalar(value: Any) -> bool:
    return value is None or isinstance(value, (str, bool, *_NUMBERS))


def _key(value: Any) -> Any:
    """What a value is looked up by: equal numbers are the same, and true is not 1."""
    return (value,) if isinstance(value, bool) else value
