"""What is loaded or compiled when it is first used."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from toolwire.lazy import lazy_pattern
from toolwire.lazy_attributes import lazy_attribute

PATIENCE_S = 5.0


def test_a_lazy_pattern_finds_what_the_compiled_one_finds() -> None:
    text, data = lazy_pattern(r"(?P<word>[a-z]+)\d", re.IGNORECASE), lazy_pattern(rb"\x00+")

    assert [found["word"] for found in text.finditer("Ab1 cd e2")] == ["Ab", "e"]
    assert text.sub("-", "a1b2") == "--"
    assert text.pattern == r"(?P<word>[a-z]+)\d"
    assert data.fullmatch(b"\x00\x00")
    assert not data.search(b"a")


def test_a_lazy_pattern_is_compiled_when_it_is_first_used() -> None:
    broken = lazy_pattern("(")

    with pytest.raises(re.error, match="unterminated subpattern"):
        broken.search("a")


class Shelf:
    """Makes a box when someone looks into it."""

    def __init__(self, *given: list[str]) -> None:
        self.made = 0
        self.making, self.may_end = threading.Event(), threading.Event()
        for box in given:
            self.box = box

    @lazy_attribute
    def box(self) -> list[str]:
        """What is in it."""
        self.made += 1
        self.making.set()
        self.may_end.wait(PATIENCE_S)
        return []


def test_a_lazy_attribute_is_made_when_it_is_first_used_and_once_for_each_object() -> None:
    one, other = Shelf(), Shelf()
    one.may_end.set()
    assert (one.made, "box" in vars(one)) == (0, False)

    one.box.append("a pen")

    assert (one.box, one.made, other.made) == (["a pen"], 1, 0)


def test_a_lazy_attribute_that_was_set_is_not_made() -> None:
    given = Shelf(["a book"])

    assert (given.box, given.made) == (["a book"], 0)


def test_threads_that_need_a_lazy_attribute_at_the_same_time_get_the_same_one() -> None:
    shelf, comes = Shelf(), threading.Event()

    def second() -> list[str]:
        comes.set()
        return shelf.box

    with ThreadPoolExecutor(2) as threads:
        found = [threads.submit(lambda: shelf.box)]
        assert shelf.making.wait(PATIENCE_S)
        found.append(threads.submit(second))
        assert comes.wait(PATIENCE_S)
        shelf.may_end.set()
        boxes = [each.result() for each in found]

    assert (boxes[0] is boxes[1], shelf.made) == (True, 1)


def test_a_lazy_attribute_that_cannot_be_made_is_tried_again() -> None:
    class Door:
        is_open = False

        @lazy_attribute
        def room(self) -> str:
            if not self.is_open:
                raise OSError("the door is closed")
            return "a room"

    door = Door()
    with pytest.raises(OSError, match="closed"):
        _ = door.room
    door.is_open = True

    assert door.room == "a room"
