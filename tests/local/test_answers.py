"""An answer of the embedded model tells something of the result it answers."""

from typing import Any

import pytest

from toolwire.models.local_answers import MOST_CHARS, untold
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.outcomes import Code, Status


def came(value: Any, name: str = "search") -> ToolResult:
    text = value if isinstance(value, str) else ""
    return ToolResult("1", name, Status.SUCCESS, (Text(text),), structured=None if text else value)


@pytest.mark.parametrize(
    ("value", "added"),
    [
        ({"results": [{"title": "Line 3", "url": "https://pune.example"}]}, "search: results title Line 3"),
        ("The museum opens at ten", "search: The museum opens at ten"),
        ({"celsius": 21.5}, "search: celsius 21.5"),
        (["bread", "milk"], "search: bread; milk"),
    ],
)
def test_what_came_back_follows_an_answer_that_tells_nothing_of_it(value: Any, added: str) -> None:
    assert untold("It worked.", [came(value)]).startswith(added)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("It is 21.5 degrees.", {"celsius": 21.5, "room": "hall"}),
        ("In the hall.", {"celsius": 21.5, "room": "hall"}),
        ("I waited 2 seconds.", {"waited": 2.0}),
        ("That makes 12,450.", {"result": 12450}),
        ("Done.", {"ok": True}),
        ("Done.", "done"),
        ("Done.", {"status": "ok", "error": None}),
        ("There is nothing.", {"files": []}),
    ],
)
def test_nothing_follows_an_answer_that_tells_a_piece_or_a_result_without_news(answer: str, value: Any) -> None:
    assert untold(answer, [came(value)]) == ""


def test_only_the_result_that_is_not_told_follows() -> None:
    assert untold("It is 21 degrees.", [came({"celsius": 21}), came({"open": "9 to 5"}, "hours")]) == (
        "hours: open 9 to 5"
    )


def test_a_failure_is_left_to_the_answer() -> None:
    failed = ToolResult.failed(ToolCall("search", {}), Code.EXECUTION_FAILED, "no network")
    assert untold("That didn't work.", [failed]) == ""


def test_a_huge_result_is_cut() -> None:
    deep: Any = "end"
    for _ in range(50):
        deep = {"in": [deep]}
    assert len(untold("It worked.", [came({"rows": [{"n": n} for n in range(10_000)], "deep": deep})])) <= MOST_CHARS
