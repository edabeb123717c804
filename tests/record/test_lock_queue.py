"""Who goes first where calls of several processes want the same lock."""

import pytest

from toolwire.record.lock_queue import LockLine, may_go


def line(number: int, *, resource: str = "shared:a", writes: bool = True, most: int | None = None) -> LockLine:
    return LockLine(number, f"token-{number}", f"owner-{number}", resource, writes, most)


def goes(token: int, *lines: LockLine, dead: tuple[int, ...] = ()) -> bool | None:
    return may_go(f"token-{token}", iter(lines), lambda owner: owner not in {f"owner-{number}" for number in dead})


def test_the_first_goes_and_a_ticket_that_is_not_there_does_not() -> None:
    assert goes(1, line(1), line(2)) is True
    assert goes(3, line(1), line(2)) is None
    assert goes(1) is None


@pytest.mark.parametrize(
    ("first", "second", "goes_too"),
    [(True, True, False), (True, False, False), (False, True, False), (False, False, True)],
)
def test_a_writer_waits_for_all_before_it_and_a_reader_for_writers(first: bool, second: bool, goes_too: bool) -> None:
    assert goes(2, line(1, writes=first), line(2, writes=second)) is goes_too


def test_a_reader_does_not_pass_a_writer_that_waits() -> None:
    lines = line(1, writes=False), line(2), line(3, writes=False)
    assert [goes(number, *lines) for number in (1, 2, 3)] == [True, False, False]


def test_what_came_later_or_is_another_resource_or_belongs_to_the_dead_is_not_waited_for() -> None:
    assert goes(1, line(2), line(1)) is True
    assert goes(2, line(1, resource="shared:b"), line(2)) is True
    assert goes(2, line(1), line(2), dead=(1,)) is True
    assert goes(3, line(1), line(2), line(3), dead=(1,)) is False


def test_so_many_calls_are_in_flight_as_there_are_places() -> None:
    lines = [line(number, resource="tool:x", writes=False, most=2) for number in (1, 2, 3, 4)]
    assert [goes(number, *lines) for number in (1, 2, 3, 4)] == [True, True, False, False]
    assert [goes(number, *lines, dead=(1,)) for number in (2, 3, 4)] == [True, True, False]


def test_a_call_goes_when_nothing_of_all_that_it_claims_is_in_the_way() -> None:
    lines = line(1, resource="shared:b"), line(2), line(2, resource="shared:b")
    assert goes(2, *lines) is False
    assert goes(2, *lines[1:]) is True
