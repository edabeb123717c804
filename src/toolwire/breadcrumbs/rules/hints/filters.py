"""Keeps or removes the parts of a context that paths name, in one walk over it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolwire.breadcrumbs.rules.hints.paths import ANY, Path, Step
from toolwire.errors import InvalidRecord

MOST_VISITS = 100_000
"""So often may a value meet a path. Without a limit, many wildcards over a large context would take minutes."""

_Branch = dict[Step, Any]
_WHOLE: _Branch = {}
_NOTHING = object()


def keep_only(context: Any, paths: Sequence[Path]) -> Any:
    """What the paths reach. Objects and arrays on the way to it stay; items of an array move up."""
    kept = _Walk(keeps=True).of(context, [_tree(paths)])
    return _empty_like(context) if kept is _NOTHING else kept


def leave_out(context: Any, paths: Sequence[Path]) -> Any:
    """Everything but what the paths reach."""
    left = _Walk(keeps=False).of(context, [_tree(paths)])
    return _empty_like(context) if left is _NOTHING else left


def _tree(paths: Sequence[Path]) -> _Branch:
    """The paths by their steps. A branch without steps is the end of a path: what lies below is meant as well."""
    root: _Branch = {}
    for path in paths:
        branch = root
        for step in path[:-1]:
            branch = branch.setdefault(step, {})
            if branch is _WHOLE:
                break
        else:
            branch[path[-1]] = _WHOLE
    return root


class _Walk:
    def __init__(self, *, keeps: bool) -> None:
        self._keeps = keeps
        self._visits = 0

    def of(self, value: Any, branches: list[_Branch]) -> Any:
        """The value without what is not wanted of it, or `_NOTHING`."""
        if isinstance(value, Mapping):
            parts = ((key, self._part(item, key, branches)) for key, item in value.items())
            changed: Any = {key: part for key, part in parts if part is not _NOTHING}
        elif isinstance(value, list):
            items = (self._part(item, place, branches) for place, item in enumerate(value))
            changed = [part for part in items if part is not _NOTHING]
        else:
            return _NOTHING if self._keeps else value
        return _NOTHING if self._keeps and not changed else changed

    def _part(self, value: Any, step: Step, branches: list[_Branch]) -> Any:
        further = list(self._further(step, branches))
        if any(branch is _WHOLE for branch in further):
            return value if self._keeps else _NOTHING
        if not further:
            return _NOTHING if self._keeps else value
        return self.of(value, further)

    def _further(self, step: Step, branches: list[_Branch]) -> Iterator[_Branch]:
        self._visits += len(branches)
        if self._visits > MOST_VISITS:
            raise InvalidRecord("include and exclude of llm_hints are too costly for this context; name fewer paths")
        for branch in branches:
            if step in branch:
                yield branch[step]
            if ANY in branch:
                yield branch[ANY]


def _empty_like(context: Any) -> Any:
    return [] if isinstance(context, list) else {}
