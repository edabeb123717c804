"""Slips that real models make around one tool: which of them still run, through the whole loop and when read alone."""

import json
from typing import Any

import pytest
from benchmarks.recovery import Outcome, recovered

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .slips import MORE, QUOTED, SLIPS, SUM, TOLD, TWO
from .test_native import ADD, completion

TEXTS = [name for name in SLIPS if name.startswith("t")]


@pytest.mark.parametrize("slip", SLIPS)
async def test_every_slip_of_the_bench_ends_in_one_run_with_the_right_arguments(slip: str) -> None:
    """Through the whole loop. What cannot be read is told to the model, which then calls properly."""
    outcome = await recovered(SLIPS[slip])

    assert outcome == Outcome("It is 42.", (SUM,), told=slip in TOLD)


@pytest.mark.parametrize("slip", TEXTS)
async def test_a_slip_in_text_runs_once_when_it_is_streamed_character_by_character(slip: str) -> None:
    assert await recovered(SLIPS[slip], streamed=True) == Outcome("It is 42.", (SUM,), told=False)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("way", MORE)
async def test_other_ways_to_say_it_run_once_too(way: str, streamed: bool) -> None:
    outcome = await recovered(MORE[way], streamed=streamed and isinstance(MORE[way], str))

    assert outcome == Outcome("It is 42.", (SUM,), told=way.startswith("cut"))


@pytest.mark.parametrize("streamed", [False, True])
async def test_two_calls_in_one_text_both_run(streamed: bool) -> None:
    """At the same time, so either may be first."""
    runs = (await recovered(TWO, streamed=streamed)).runs

    assert sorted(runs, key=str) == [{"a": 1, "b": 1}, SUM]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_call_that_is_only_quoted_does_not_run(streamed: bool) -> None:
    assert await recovered(QUOTED, streamed=streamed) == Outcome(QUOTED, (), told=False)


def codes(reply: Reply) -> set[str]:
    return {problem.code for problem in reply.problems}


@pytest.mark.feature("F100")
@pytest.mark.parametrize("slip", sorted(SLIPS.keys() - TOLD.keys()))
def test_a_slip_that_leaves_no_doubt_still_runs(slip: str) -> None:
    reply = parse_reply(SLIPS[slip], tools=[ADD])

    assert [(call.name, call.arguments, call.fault) for call in reply.calls] == [("add", SUM, "")]


@pytest.mark.parametrize("slip", ["n01", "n02", "n03", "n04", "n05", "n06", "n07", "n09", "n14"])
def test_what_was_repaired_is_said(slip: str) -> None:
    assert "repaired" in codes(parse_reply(SLIPS[slip], tools=[ADD]))


@pytest.mark.parametrize("slip", TEXTS)
def test_the_same_text_one_character_at_a_time_gives_the_same_reply(slip: str) -> None:
    parser = StreamParser(tools=[ADD])
    for character in SLIPS[slip]:
        parser.feed(character)

    assert parser.finish() == parse_reply(SLIPS[slip], tools=[ADD])


def test_a_cut_off_call_does_not_run_when_the_length_limit_cut_it() -> None:
    reply = parse_reply(completion('{"a": 40, "b": 2', reason="length"), tools=[ADD])

    assert (reply.calls, codes(reply)) == ((), {"truncated"})


def test_an_invented_tool_is_kept_so_that_the_model_can_be_told() -> None:
    reply = parse_reply(completion('{"a": 40, "b": 2}', name="sum_numbers"), tools=[ADD])

    assert [call.name for call in reply.calls] == ["sum_numbers"]
    assert "unknown_tool" in codes(reply)


@pytest.mark.parametrize("written", ['{"a": 40, "b": 2, "note": "x"}', '{"a": 40}'])
def test_arguments_that_do_not_fit_are_kept_as_written_and_reported(written: str) -> None:
    reply = parse_reply(completion(written), tools=[ADD])

    assert reply.calls[0].arguments == json.loads(written)
    assert "invalid_arguments" in codes(reply)


def doubled(first: str, second: str) -> list[tuple[str | None, Any]]:
    response = completion(json.dumps(SUM))
    [call] = response["choices"][0]["message"]["tool_calls"]
    response["choices"][0]["message"]["tool_calls"] = [call, call | json.loads(first), call | json.loads(second)]
    return [(call.alias, call.arguments) for call in parse_reply(response, tools=[ADD]).calls]


def test_n11_a_call_written_twice_under_one_id_counts_once() -> None:
    assert doubled("{}", "{}") == [("call_1", SUM)]


def test_n11_the_same_call_under_two_ids_is_two_calls() -> None:
    """We chose it: a model that rolls a die twice means two calls, and gives them two ids."""
    other = {"function": {"name": "add", "arguments": '{"a": 1, "b": 1}'}}

    assert doubled('{"id": "call_2"}', json.dumps(other)) == [
        ("call_1", SUM),
        ("call_2", SUM),
        ("call_1", {"a": 1, "b": 1}),
    ]
