"""What is loaded or compiled when it is first used."""

import re

import pytest

from toolwire.lazy import lazy_pattern


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
