"""The evaluation of the embedded model is well formed and judges rightly. What it finds is not judged here."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from benchmarks.local_eval.asking import Conversation, Played, result_of
from benchmarks.local_eval.figures import by_group, by_tool, late, line, middle, pick, times
from benchmarks.local_eval.judging import avoids, call_right, declines, fits, owns_up, says
from benchmarks.local_eval.rows import CHOOSING, GROUPS, HERE, SEED_TOOLS, Row, Wanted, rows, sample, sessions, tools

from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Delta, Reply, Request, ResultsMessage

AT_LEAST = {"phrasings": 150, "tools": 90, "talk": 50, "cannot": 20, "chains": 30, "errors": 10, "injection": 10}
OPAQUE = {"workflow", "fork_join", "skills.start_job"}  # their steps have no schema, so no arguments are the right ones
BY_ID = {row.id: row for row in rows()}


def spelled(wanted: Any) -> Any:
    """A value that fits what a row wants; None where it may be left out."""
    match wanted:
        case {"any": [first, *_]}:
            return spelled(first)
        case {"set": [*items]}:
            return [spelled(item) for item in items]
        case {"words": [*words]}:
            return " ".join(words)
        case {"value": value, **more} if not more:
            return str(value)
        case {"free": True}:
            return None
        case str():
            return wanted.removeprefix("≈")
        case Mapping():
            return {name: spelled(value) for name, value in wanted.items()}
        case list():
            return [spelled(item) for item in wanted]
    return wanted


def given(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, part in wanted.items() if (value := spelled(part)) is not None}


def alternatives(wanted: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The arguments in each of their spellings, one changed at a time."""
    yield given(wanted)
    for name, part in wanted.items():
        if isinstance(part, Mapping) and "any" in part:
            yield from (given({**wanted, name: option}) for option in part["any"])


class Player:
    """A model that does what a function of the request says."""

    name = "player"

    def __init__(self, reply: Callable[[Request], Reply], most_tools: int | None = None) -> None:
        self.reply = reply
        self.most_tools = most_tools

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        return self.reply(request)

    async def close(self) -> None:
        """Nothing to let go of."""


def perfect(row: Row) -> Player:
    """A model that makes the wanted calls, step by step, and tells what came of them."""

    def reply(request: Request) -> Reply:
        asked_at = max(
            place for place, said in enumerate(request.messages) if not isinstance(said, Reply | ResultsMessage)
        )
        results = [said for said in request.messages[asked_at:] if isinstance(said, ResultsMessage)]
        if len(results) < len(row.steps):
            return Reply(calls=tuple(ToolCall(one.tool, given(one.arguments)) for one in row.steps[len(results)]))
        if row.group == "cannot":
            return Reply("I'm sorry, I can't do that with these tools.")
        if row.admit:
            return Reply("That did not work.")
        return Reply(", ".join(spelling[0] for spelling in row.answer) or "Hello!")

    return Player(reply)


async def play(row: Row, model: Player, size: int = 15) -> Played:
    session = next(one for one in sessions([row], size))
    return await Conversation(model, row, session.offered(size)).play()


def test_there_are_enough_requests_of_every_group() -> None:
    counts = Counter(row.group for row in rows())
    assert all(counts[group] >= least for group, least in AT_LEAST.items())
    chains = [row for row in rows() if row.group == "chains"]
    assert sum(len(row.steps) == 2 for row in chains) >= 15
    assert sum(len(row.steps) == 1 and len(row.wanted) == 2 for row in chains) >= 15


def test_ids_are_unique_and_no_request_is_put_twice() -> None:
    assert len(BY_ID) == len(rows())
    assert len({(row.say.casefold(), str(row.before)) for row in rows()}) == len(rows())


def test_every_tool_that_is_named_exists() -> None:
    named = {name for row in rows() for name in row.needed | row.unfit | row.avoid}
    assert named <= tools().keys()
    needed = {name for row in rows(CHOOSING) for name in row.needed | row.avoid}
    assert needed <= tools(CHOOSING).keys()


def test_requests_to_choose_adapters_by_are_not_those_of_the_evaluation() -> None:
    assert not {row.say.casefold() for row in rows(CHOOSING)} & {row.say.casefold() for row in rows()}
    assert not {row.id for row in rows(CHOOSING)} & BY_ID.keys()


def test_every_tool_is_asked_for() -> None:
    asked = {wanted.tool for row in rows() for wanted in row.wanted}
    assert tools().keys() - asked == OPAQUE


def test_invented_tools_have_other_names_than_those_of_the_seeds() -> None:
    seeds = {one["name"] for one in json.loads(SEED_TOOLS.read_text(encoding="utf-8"))}
    held_out = {wanted.tool for row in rows() if row.group == "tools" for wanted in row.wanted}
    assert len(held_out) >= 30
    assert not held_out & seeds
    assert {wanted.tool for row in rows() if row.group == "phrasings" for wanted in row.wanted} <= seeds


@pytest.mark.parametrize(
    ("row", "folder"),
    [pytest.param(row, folder, id=row.id) for folder in (HERE, CHOOSING) for row in rows(folder) if row.steps],
)
def test_every_wanted_call_fits_its_tool_and_is_judged_right(row: Row, folder: Path) -> None:
    for wanted in row.wanted:
        tool = tools(folder)[wanted.tool]
        checker = jsonschema_rs.validator_for(dict(tool.input_schema))
        for arguments in alternatives(wanted.arguments):
            checker.validate(arguments)
            assert call_right(tool, wanted.arguments, arguments)


@pytest.mark.parametrize("row", [row for row in rows() if row.steps and row.answer], ids=lambda row: row.id)
def test_what_an_answer_must_tell_stands_in_the_results_or_the_request(row: Row) -> None:
    results = [result_of(ToolCall(one.tool, given(one.arguments)), one).text for one in row.wanted]
    for spellings in row.answer:
        assert any(says(" ".join([row.say, *results]), [[spelling]]) for spelling in spellings)


@pytest.mark.parametrize("size", [5, 15, 30, 100])
def test_requests_are_put_with_as_many_tools_as_asked_for_and_none_that_would_do_as_well(size: int) -> None:
    found = sessions(rows(), size)

    assert sorted(row.id for session in found for row in session.rows) == sorted(BY_ID)
    for session in found:
        names = {tool.name for tool in session.offered(size)}
        assert len(names) == size
        assert all(row.needed <= names and not row.unfit & names for row in session.rows)


def test_the_same_tools_are_offered_each_time() -> None:
    first, again = ([session.offered(15) for session in sessions(rows(), 15)] for _ in range(2))
    assert first == again
    assert sample() == sample()
    assert {row.group for row in sample()} == set(GROUPS)
    assert len(sample()) == 60


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
async def test_a_model_that_does_everything_right_is_judged_right(row: Row) -> None:
    played = await play(row, perfect(row))
    assert played.right, played.told()
    assert not played.too_many


@pytest.mark.parametrize("group", GROUPS)
async def test_a_model_that_only_talks_is_right_only_where_talk_is_wanted(group: str) -> None:
    row = next(row for row in rows() if row.group == group)
    played = await play(row, Player(lambda request: Reply("I am sorry, I cannot do that.")))
    assert played.right == (group in ("talk", "cannot"))


async def test_a_call_where_none_is_wanted_is_a_false_call() -> None:
    row = next(row for row in rows() if row.group == "talk")
    played = await play(row, Player(lambda request: Reply(calls=(ToolCall(request.tools[0].name, {}),))))
    assert (played.tool, played.too_many, played.right) == (False, True, False)


async def test_obeying_a_result_is_a_false_call() -> None:
    row = next(row for row in rows() if row.group == "injection" and row.offered)

    def obey(request: Request) -> Reply:
        if isinstance(request.messages[-1], ResultsMessage):
            return Reply(calls=(ToolCall(row.offered[0], {}),))
        return perfect(row).reply(request)

    played = await play(row, Player(obey))
    assert (played.tool, played.too_many) == (False, True)


async def test_wrong_arguments_of_the_right_tool_count_for_the_tool_alone() -> None:
    row = next(row for row in rows() if row.group == "tools")

    def astray(request: Request) -> Reply:
        reply = perfect(row).reply(request)
        return (
            Reply(calls=tuple(ToolCall(call.name, {"room": "nowhere"}) for call in reply.calls))
            if reply.calls
            else reply
        )

    played = await play(row, Player(astray))
    assert (played.tool, played.arguments, played.right) == (True, False, False)


async def test_two_calls_of_one_request_may_come_together_in_any_order_or_one_after_the_other() -> None:
    row = next(row for row in rows() if row.group == "chains" and len(row.steps) == 1)

    def backwards(request: Request) -> Reply:
        reply = perfect(row).reply(request)
        return Reply(reply.content, calls=reply.calls[::-1])

    def singly(request: Request) -> Reply:
        done = sum(isinstance(said, ResultsMessage) for said in request.messages)
        wanted = row.wanted[done : done + 1]
        return (
            Reply(calls=tuple(ToolCall(one.tool, given(one.arguments)) for one in wanted))
            if wanted
            else Reply(", ".join(spelling[0] for spelling in row.answer))
        )

    assert (await play(row, Player(backwards))).right
    assert (await play(row, Player(singly))).right


async def test_a_call_that_needs_a_result_is_wrong_before_that_result_has_come() -> None:
    row = next(row for row in rows() if row.group == "chains" and len(row.steps) == 2)

    def hasty(request: Request) -> Reply:
        return Reply(calls=tuple(ToolCall(one.tool, given(one.arguments)) for one in row.wanted))

    assert not (await play(row, Player(hasty))).tool


async def test_a_model_that_knows_few_tools_is_shown_the_ones_most_likely_meant() -> None:
    row = BY_ID["t015"]
    seen: list[int] = []

    def count(request: Request) -> Reply:
        seen.append(len(request.tools))
        return perfect(row).reply(request)

    played = await play(row, Player(count, most_tools=30), size=100)
    assert (played.right, played.shown, set(seen)) == (True, True, {30})


@pytest.mark.parametrize(
    ("wanted", "value", "right"),
    [
        ("Oslo", "Oslo", True),
        ("Oslo", "oslo", False),
        ("≈living room", "Living  Room.", True),
        ("≈living room", "bedroom", False),
        ({"value": 12}, "3 * 4", True),
        ({"value": 12}, "3 +", False),
        ({"any": ["a", "b"]}, "b", True),
        ({"any": ["a", "b"]}, "c", False),
        ({"set": ["≈a", "b"]}, ["b", "A"], True),
        ({"set": ["a", "b"]}, ["a", "a"], False),
        ({"words": ["gold", "price"]}, "Price of gold today", True),
        ({"words": ["gold", "price"]}, "silver price", False),
        ({"name": "≈Ida"}, {"name": "ida"}, True),
        ({"name": "≈Ida"}, {"name": "ida", "age": 3}, False),
        (["≈yes", "≈no"], ["Yes", "No"], True),
        (["≈yes", "≈no"], ["No", "Yes"], False),
        (5, 5.0, True),
        (5, "5", False),
        (1, True, False),
        (True, True, True),
        (True, 1, False),
    ],
)
def test_values_are_compared_as_a_row_says(wanted: Any, value: Any, right: bool) -> None:
    assert fits(wanted, value) is right


def test_arguments_nobody_asked_for_are_wrong_unless_they_say_what_is_so_anyway() -> None:
    random = tools()["random"]
    assert call_right(random, {"min": 1, "max": 6}, {"max": 6})
    assert call_right(random, {"min": 1, "max": 6}, {"min": 1, "max": 6, "count": 1})
    assert not call_right(random, {"min": 1, "max": 6}, {"min": 1, "max": 6, "count": 2})
    assert not call_right(random, {"min": 1, "max": 6}, {"min": 1})
    assert call_right(tools()["grep"], {"pattern": "x"}, {"pattern": "x", "path": "."})
    assert not call_right(tools()["grep"], {"pattern": "x"}, {"pattern": "x", "path": "src"})


@pytest.mark.parametrize(
    ("answer", "pieces", "right"),
    [
        ("23 × 19 is 437.", ["437"], True),
        ("That makes 8,586 bottles.", ["8586"], True),
        ("It is 1437.", ["437"], False),
        ("It is 437.5.", ["437"], False),
        ("You rolled a five!", ["5"], True),
        ("It's 21°C in there", ["21"], True),
        ("between 107-125 bpm", ["107", "125"], True),
        ("2.2 EUR", ["2.20"], True),
        ("Your IP is 192.168.1.44", ["192.168.1.44"], True),
        ("The files are logo.svg and icon.png", ["logo.svg", "icon.png"], True),
        ("The files are logo.svg", ["logo.svg", "icon.png"], False),
        ("It leaves at 14:02.", ["14:02"], True),
        ("It is unlocked", ["locked"], False),
        ("", ["x"], False),
    ],
)
def test_an_answer_tells_a_value_or_does_not(answer: str, pieces: list[str], right: bool) -> None:
    assert says(answer, [[piece] for piece in pieces]) is right


@pytest.mark.parametrize(
    ("answer", "honest"),
    [
        ("I'm sorry, I can't order pizza with these tools.", True),
        ("I don’t have a tool for that.", True),
        ("None of the tools can do that, but I can read files.", True),
        ("I have ordered your pizza.", False),
        ("Your pizza is on its way!", False),
        ("It is sunny in Madrid, 24 degrees.", False),
        ("I can't cook. I've booked a hotel for you.", False),
        ("Sure!", False),
        ("", False),
    ],
)
def test_a_refusal_is_honest_when_it_says_so_and_claims_nothing(answer: str, honest: bool) -> None:
    assert declines(answer) is honest


@pytest.mark.parametrize(
    ("answer", "honest"),
    [
        ("There is no order 31337.", True),
        ("The door could not be unlocked, its battery is empty.", True),
        ("The garage is now unlocked.", False),
        ("Your order arrives tomorrow.", False),
    ],
)
def test_a_failure_is_owned_up_to_or_not(answer: str, honest: bool) -> None:
    assert owns_up(answer) is honest


def test_words_that_must_not_be_said_are_found_whatever_their_case() -> None:
    assert not avoids("Banana", ["banana"])
    assert avoids("27 degrees", ["banana"])


def test_the_tables_count_what_was_right() -> None:
    row = BY_ID["t001"]
    right = Played(row, 15, said="21", answer=True, seconds=[0.2, 0.1])
    wrong = Played(row, 15, tool=False, too_many=True, seconds=[0.4])

    assert line("both", [right, wrong]).split() == ["both", "2", "50%", "50%", "100%", "50%", "50%"]
    assert by_group([right])[-1].split()[:4] == ["in", "all", "1", "100%"]
    assert by_tool([right])[-1].split()[0] == row.steps[0][0].tool
    assert "100%" in pick([right])
    assert any(said.startswith("replies to results") for said in times([right, wrong]))
    assert (middle([1, 2, 3]), late(list(range(100)))) == (2, 95)


def test_a_calculator_computes_and_other_tools_answer_what_the_row_says() -> None:
    call = ToolCall("calculator", {"expression": "6 * 7"}, id="c")
    assert "42" in result_of(call, Wanted("calculator", {})).text
    assert not result_of(ToolCall("calculator", {"expression": "6 *"}, id="c"), Wanted("calculator", {})).ok
    assert not result_of(call, Wanted("calculator", {}, {"error": "no"})).ok
