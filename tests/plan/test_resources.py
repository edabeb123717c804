"""Which things a call touches, and which calls must not run at the same time."""

import pytest

from toolwire.plan.resources import LockClaim, claims
from toolwire.protocol.tools import Tool

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}, "into": {"type": "string", "default": "out"}}}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"path": "a.txt"}, [("file:out", True), ("file:a.txt", False)]),
        ({"path": "./x/../a.txt", "into": "a.txt"}, [("file:a.txt", True)]),
        ({}, [("file:out", True), ("file:.", False)]),
    ],
)
def test_templates_are_filled_from_arguments_and_defaults(
    arguments: dict[str, str], expected: list[tuple[str, bool]]
) -> None:
    copy = Tool("copy", "copy", SCHEMA, reads=("file:{path}",), writes=("file:{into}",))
    assert [(claim.resource, claim.writes) for claim in claims(copy, arguments)] == expected


def test_a_file_is_one_resource_however_its_path_is_written() -> None:
    write = Tool("write", "write", SCHEMA, writes=("file:{path}",))
    ways = ("a.txt", "./a.txt", "x/../a.txt", "/ws/a.txt")
    assert {claims(write, {"path": way}, "/ws") for way in ways} == {(LockClaim("file:/ws/a.txt", writes=True),)}


def test_a_tool_that_declares_nothing_claims_nothing() -> None:
    assert claims(Tool("look", "look", SCHEMA), {"path": "a.txt"}, "/ws") == ()


@pytest.mark.parametrize("template", ["db:{path}", "the printer", "{path}"])
def test_only_what_is_called_a_file_is_read_as_a_path(template: str) -> None:
    touch = Tool("touch", "touch", SCHEMA, reads=(template,))
    [claim] = claims(touch, {"path": "./a/../b"}, "/ws")
    assert claim.resource == template.format(path="./a/../b")


def test_an_argument_that_is_neither_given_nor_known_is_empty() -> None:
    touch = Tool("touch", "touch", {"type": "object", "properties": {"path": True}}, reads=("db:{path}", "db:{more}x"))
    assert [claim.resource for claim in claims(touch, {})] == ["db:", "db:x"]


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        (LockClaim("a", writes=True), LockClaim("a", writes=True), True),
        (LockClaim("a", writes=True), LockClaim("a", writes=False), True),
        (LockClaim("a", writes=False), LockClaim("a", writes=True), True),
        (LockClaim("a", writes=False), LockClaim("a", writes=False), False),
        (LockClaim("a", writes=True), LockClaim("b", writes=True), False),
    ],
)
def test_two_claims_conflict_where_one_resource_is_written(one: LockClaim, other: LockClaim, conflict: bool) -> None:
    assert one.conflicts(other) is conflict
