"""What is counted about formats, and what the coach makes of it."""

import json

import pytest

from toolwire.protocol.chat import Reply
from toolwire.protocol.tools import Tool
from toolwire.wire.formats.coach import choose_formats, possible_formats, recommend_format
from toolwire.wire.formats.costs import format_costs
from toolwire.wire.formats.preference import FormatChoice
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.formats.tally import FormatTally, merge_tallies, read_tally, tally, write_tally
from toolwire.wire.replies.reply import parse_reply

ROOM = {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]}
LAMP = Tool("lamp", "Switch a lamp.", ROOM)


def native(name: str, arguments: str) -> Reply:
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}
    answer = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    return parse_reply(answer, (LAMP,), "openai")


def in_text(text: str) -> Reply:
    return parse_reply(text, (LAMP,))


LEAKED = '<tool_call>\n{"name": "lamp", "arguments": {"room": "attic"}}\n</tool_call>'


@pytest.mark.feature("F227")
def test_a_clean_native_call_is_counted_as_such() -> None:
    counted = tally("m", "openai", native("lamp", '{"room":"attic"}'))

    assert (counted.replies, counted.calling, counted.calls, counted.clean) == (1, 1, 1, 1)
    assert (counted.success_rate, counted.mean_confidence) == (1.0, 1.0)
    assert counted.came_as == (("native", 1),)


@pytest.mark.feature("F227")
def test_repairs_bad_arguments_and_cut_calls_are_counted_apart() -> None:
    replies = [
        native("lamp", "{'room': 'attic',}"),
        native("lamp", '{"room": 5}'),
        native("lamp", "attic please"),
        parse_reply('<tool_call>\n{"name": "lamp", "arguments": {"room": "at', (LAMP,), finish_reason="length"),
        Reply("Good morning."),
    ]

    (counted,) = merge_tallies(tally("m", "openai", reply) for reply in replies)

    assert (counted.replies, counted.calling) == (5, 4)
    assert counted.repaired >= 1
    assert (counted.invalid + counted.malformed + counted.truncated) == 3
    assert counted.clean == 1
    assert counted.calls == 4


@pytest.mark.feature("F228")
def test_a_call_that_leaks_into_text_is_a_mismatch_where_native_tools_were_offered() -> None:
    assert tally("m", "openai", in_text(LEAKED)).mismatched == 1
    assert tally("m", "hermes", in_text(LEAKED)).mismatched == 0
    assert tally("m", "hermes", native("lamp", '{"room":"a"}')).mismatched == 0


@pytest.mark.feature("F228")
@pytest.mark.parametrize(
    "reply",
    [native("lampp", '{"room":"a"}'), in_text(LEAKED.replace("lamp", "lampp"))],
    ids=["native", "text"],
)
def test_a_name_that_was_not_offered_is_kept_by_name(reply: Reply) -> None:
    counted = tally("m", "openai", reply)

    assert counted.unknown == 1
    assert counted.unknown_names == (("lampp", 1),)
    assert counted.clean == 0


@pytest.mark.feature("F228")
def test_invented_names_cannot_fill_the_store() -> None:
    (counted,) = merge_tallies(tally("m", "openai", native(f"{'x' * 90}{n}", "{}")) for n in range(100))

    assert counted.unknown == 100
    assert len(counted.unknown_names) <= 20
    assert all(len(name) <= 64 for name, _ in counted.unknown_names)


def test_sums_survive_storage() -> None:
    (counted,) = merge_tallies([tally("m", "openai", in_text(LEAKED)), tally("m", "openai", native("other", "{}"))])

    assert read_tally(json.loads(json.dumps(write_tally(counted)))) == counted


def counted(offered: str, clean: int, calls: int) -> FormatTally:
    return FormatTally("ollama:qwen3:8b", offered, replies=calls, calling=calls, calls=calls, clean=clean)


@pytest.mark.feature("F086", "F229")
def test_the_coach_picks_the_format_that_has_worked_better_and_says_so() -> None:
    tallies = [counted("ollama", 60, 100), counted("hermes", 97, 100)]

    found = choose_formats(tallies, "ollama", "qwen3:8b")

    assert found.definition_format == "hermes"
    assert found.why == (
        "hermes worked in 97% of 100 calls of ollama:qwen3:8b, "
        "better than ollama worked in 60% of 100 calls of ollama:qwen3:8b"
    )


@pytest.mark.feature("F229")
@pytest.mark.parametrize(
    ("tallies", "why"),
    [
        ([], "0 calls observed"),
        ([counted("ollama", 5, 10), counted("hermes", 100, 100)], "10 calls observed"),
        ([counted("ollama", 95, 100), counted("hermes", 20, 20)], "nothing else that was tried is surely better"),
        ([counted("ollama", 60, 100), counted("hermes", 5, 5)], "nothing else that was tried is surely better"),
        ([counted("ollama", 60, 100), counted("anthropic", 100, 100)], "nothing else"),
        ([FormatTally("other", "hermes", calls=99, clean=99)], "0 calls observed"),
    ],
)
def test_the_coach_stays_with_the_usual_format_until_another_is_surely_better(
    tallies: list[FormatTally], why: str
) -> None:
    found = choose_formats(tallies, "ollama", "qwen3:8b")

    assert found.definition_format == "ollama"
    assert why in found.why


@pytest.mark.feature("F229")
def test_the_coach_can_be_sent_away_and_a_pinned_format_stands() -> None:
    tallies = [counted("ollama", 60, 100), counted("hermes", 97, 100)]

    assert choose_formats(tallies, "ollama", "qwen3:8b", FormatChoice(coach=False)).definition_format == "ollama"
    assert choose_formats(tallies, "ollama", "qwen3:8b", FormatChoice("qwen_xml")).definition_format == "qwen_xml"


def test_the_coach_only_knows_formats_that_the_api_can_carry() -> None:
    assert possible_formats("anthropic", "claude") == ("anthropic",)
    assert set(possible_formats("ollama", "m")) == {"ollama", "hermes", "qwen_xml", "rcrt", "grammar"}
    assert (
        recommend_format([counted("hermes", 99, 99)], "ollama:qwen3:8b", "openai", ("openai",)).definition_format
        == "openai"
    )


@pytest.mark.feature("F085")
def test_every_format_has_its_cost_in_tokens() -> None:
    costs = {cost.format: cost for cost in format_costs([LAMP] * 10)}

    assert costs.keys() == DIALECTS.keys()
    assert costs["openai"].per_tool > costs["anthropic"].per_tool
    assert costs["hermes"].fixed > costs["openai"].fixed
    assert all(cost.per_tool > 10 and cost.per_call > 5 and cost.per_result > 5 for cost in costs.values())


def test_counts_of_an_earlier_version_keep_the_unknown_names() -> None:
    """The field was called `strangers` in stores of earlier versions."""
    earlier = {"model": "m", "offered": "openai", "calls": 1, "strangers": {"lampp": 1}}
    assert read_tally(earlier).unknown_names == (("lampp", 1),)
    assert write_tally(read_tally(earlier))["unknown_names"] == {"lampp": 1}
