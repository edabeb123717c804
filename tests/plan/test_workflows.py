"""What a workflow runs next, and what is refused before anything runs."""

from typing import Any

import pytest

from toolwire.models.workflow import workflow_limits
from toolwire.plan.references import LONGEST_INPUT
from toolwire.plan.workflow_reading import BadWorkflow, read_workflow
from toolwire.plan.workflows import CHARS_PER_ROUND, MOST_ITEMS, CallOutcome, StepState, progress
from toolwire.protocol.turns import Limits

SEED = {
    "steps": [
        {"id": "num1", "tool": "random", "input": {"min": 1, "max": 100}},
        {"id": "num2", "tool": "random", "input": {"min": 1, "max": 100}},
        {
            "id": "sum",
            "tool": "calculator",
            "input": {"expression": "${num1.numbers[0]} + ${num2.numbers[0]}"},
            "dependencies": ["num1", "num2"],
        },
    ]
}


def run(data: dict[str, Any], answers: dict[str, Any], most: int = 50) -> tuple[dict[str, Any], list[list[str]]]:
    """The report at the end, and the keys of the calls of each round. An answer that is an exception is an error."""
    workflow = read_workflow(data)
    outcomes: dict[str, CallOutcome] = {}
    rounds: list[list[str]] = []
    for _ in range(most):
        now = progress(workflow, outcomes)
        if not now.calls:
            return {**now.report(), "states": dict(now.states)}, rounds
        rounds.append([call.key for call in now.calls])
        for call in now.calls:
            answer = answers.get(call.key, answers.get(call.tool))
            given = answer(call.arguments) if callable(answer) else answer
            outcomes[call.key] = CallOutcome(error=str(given)) if isinstance(given, Exception) else CallOutcome(given)
    raise AssertionError("it does not end")


@pytest.mark.feature("F166", "F168")
def test_the_workflow_of_the_standard_runs_in_two_levels() -> None:
    answers = {"num1": {"numbers": [7]}, "num2": {"numbers": [8]}, "calculator": lambda given: {"result": given}}
    report, rounds = run(SEED, answers)
    assert rounds == [["num1", "num2"], ["sum"]]
    assert report["results"]["sum"] == {"result": {"expression": "7 + 8"}}
    assert report["executionOrder"] == ["num1", "num2", "sum"]
    assert report["errors"] == {}


def test_a_reference_is_a_dependency_without_being_named() -> None:
    data = {"steps": [{"id": "b", "tool": "t", "input": {"x": "${a.v}"}}, {"id": "a", "tool": "t", "input": {}}]}
    assert run(data, {"t": {"v": 1}})[1] == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([{"id": "a", "tool": "t", "input": {"x": "${b.v}"}}], "names no step"),
        ([{"id": "a", "tool": "t", "dependencies": ["b"]}], "depends on 'b', which is not a step"),
        ([{"id": "a", "tool": "t"}, {"id": "a", "tool": "t"}], "two steps have the id 'a'"),
        (
            [{"id": "a", "tool": "t", "input": {"x": "${b.v}"}}, {"id": "b", "tool": "t", "input": {"x": "${a.v}"}}],
            "in a circle: a -> b -> a",
        ),
        ([{"id": "a", "tool": "t", "input": {"x": "${a.v}"}}], "in a circle: a -> a"),
        ([{"id": "a", "tool": "t", "input": {"x": "${a"}}], "no closing brace"),
        ([{"id": "a", "tool": "t", "input": {"x": "${item}"}}], "names no step"),
        ([{"id": "a", "tool": "t", "forEach": "${item}"}], "names no step"),
        ([{"id": "a", "tool": "t", "input": {"x": "${inputs.q}"}}], "names an input that the workflow does not have"),
        ([{"id": "a", "tool": "t", "when": "import os"}], "is not a condition"),
        ([{"id": "a", "tool": "t", "when": "open('x')"}], "is not a condition"),
        ([{"id": "a", "tool": "t", "when": "_reference_0"}], "is not a condition"),
        ([{"id": "a", "tool": "t", "retry": 99}], "from 1 to 10"),
        ([{"id": "a", "tool": "t", "input": []}], "must be an object"),
        ([{"id": "a", "tool": "t", "inptu": {}}], "unknown fields: inptu"),
        ([{"id": "a", "tool": "t", "needs": ["b"], "dependencies": ["b"]}], "twice"),
        ([{"id": "1a", "tool": "t"}], "needs an id"),
        ([{"id": "inputs", "tool": "t"}], "a meaning of its own"),
        ([{"id": "a"}], "needs the name of a tool"),
        ([{"id": "a", "tool": "t", "timeout": 0}], "number of seconds"),
        ([], "at least one step"),
        ([{"id": f"s{n}", "tool": "t"} for n in range(2_001)], "at most 2000 steps"),
    ],
)
def test_what_can_be_known_to_be_wrong_is_refused_before_anything_runs(steps: list[Any], said: str) -> None:
    with pytest.raises(BadWorkflow) as wrong:
        read_workflow({"steps": steps})
    assert said in str(wrong.value)


def test_an_unknown_tool_is_refused_where_the_tools_are_known() -> None:
    with pytest.raises(BadWorkflow, match="calls 'calculator', which cannot be used here"):
        read_workflow(SEED, tools=["random"])


def test_a_failed_step_stops_the_workflow_and_what_is_done_is_kept() -> None:
    data = {"steps": [{"id": "a", "tool": "ok"}, {"id": "b", "tool": "bad"}, {"id": "c", "tool": "ok", "needs": "a"}]}
    report, rounds = run(data, {"ok": 1, "bad": ValueError("no luck")})
    assert rounds == [["a", "b"]]
    assert report["results"] == {"a": 1}
    assert report["errors"] == {"b": "no luck"}


def test_with_continue_on_error_only_the_dependents_are_skipped() -> None:
    data = {
        "steps": [
            {"id": "a", "tool": "bad", "continueOnError": True},
            {"id": "b", "tool": "ok"},
            {"id": "c", "tool": "ok", "needs": ["a"]},
            {"id": "d", "tool": "ok", "needs": ["c"]},
            {"id": "e", "tool": "ok", "needs": ["b"]},
        ]
    }
    report, rounds = run(data, {"ok": 1, "bad": ValueError("x")})
    assert rounds == [["a", "b"], ["e"]]
    assert report["skipped"] == ["c", "d"]
    assert report["states"]["e"] is StepState.SUCCESS


def test_a_step_is_tried_again_as_often_as_it_says() -> None:
    data = {"steps": [{"id": "a", "tool": "t", "retry": {"attempts": 3, "delay": 1}}]}
    report, rounds = run(data, {"a": ValueError("1"), "a#2": ValueError("2"), "a#3": {"v": 3}})
    assert rounds == [["a"], ["a#2"], ["a#3"]]
    assert report["results"] == {"a": {"v": 3}}
    assert run(data, {"t": ValueError("never")})[0]["errors"] == {"a": "never"}


def test_a_condition_decides_whether_a_step_runs() -> None:
    def steps(when: str) -> dict[str, Any]:
        return {"steps": [{"id": "a", "tool": "t"}, {"id": "b", "tool": "t", "when": when}]}

    for when, runs in {
        "${a.n} > 3": True,
        "${a.n} > 3 and ${a.s} == 'no'": False,
        "not (${a.n} in [1, 2])": True,
        "'${a.s}' == 'yes'": True,
        "${a.none} == null": True,
        "${a.flag}": False,
        "1 < ${a.n} <= 5": True,
        "${a.n} == -5 or ${a.s} != 'yes'": False,
    }.items():
        report, _ = run(steps(when), {"t": {"n": 5, "s": "yes", "none": None, "flag": False}})
        assert (report["states"]["b"] is StepState.SUCCESS) is runs, when
    report, _ = run(steps("${a.n} > 'text'"), {"t": {"n": 5}})
    assert "cannot be compared" in report["errors"]["b"]


def test_a_step_maps_over_a_list() -> None:
    data = {
        "inputs": {"cities": ["Rome", "Oslo"]},
        "steps": [
            {"id": "look", "tool": "t", "forEach": "${inputs.cities}", "input": {"q": "${item}", "n": "${index}"}},
            {"id": "sum", "tool": "sum", "input": {"all": "${look}", "first": "${look[0].n}"}},
        ],
    }
    report, rounds = run(data, {"t": lambda given: {"n": given["n"], "q": given["q"]}, "sum": lambda given: given})
    assert rounds == [["look[0]", "look[1]"], ["sum"]]
    assert report["results"]["sum"] == {"all": [{"n": 0, "q": "Rome"}, {"n": 1, "q": "Oslo"}], "first": 0}
    data["inputs"] = {"cities": []}
    assert run(data, {"sum": ValueError("[0] of nothing")})[0]["results"] == {"look": []}
    data["inputs"] = {"cities": "Rome"}
    assert "is not a list" in run(data, {})[0]["errors"]["look"]


def test_a_value_that_is_missing_fails_its_step_alone() -> None:
    data = {
        "steps": [
            {"id": "a", "tool": "t"},
            {"id": "b", "tool": "t", "input": {"x": "${a.nope}"}, "continueOnError": True},
        ]
    }
    report, rounds = run(data, {"t": {"v": 1}})
    assert rounds == [["a"]]
    assert "a has no 'nope', only v" in report["errors"]["b"]


def test_levels_are_the_steps_that_can_run_together() -> None:
    assert read_workflow(SEED).levels() == (("num1", "num2"), ("sum",))


def test_a_step_over_as_many_items_as_allowed_comes_to_its_end_within_its_limits() -> None:
    data = {"steps": [{"id": "a", "tool": "t", "forEach": list(range(MOST_ITEMS)), "input": {"n": "${item}"}}]}
    report, rounds = run(data, {"t": lambda given: given["n"]})
    assert report["results"]["a"] == list(range(MOST_ITEMS))
    assert sum(map(len, rounds)) == MOST_ITEMS
    assert len(rounds) + 1 <= workflow_limits(read_workflow(data), Limits()).iterations


@pytest.mark.parametrize("given", ["${big}", "x${big}"])
def test_a_few_references_do_not_become_more_than_a_machine_can_hold(given: str) -> None:
    big = CallOutcome("y" * 900_000)
    many = read_workflow(
        {"steps": [{"id": "big", "tool": "t"}, {"id": "a", "tool": "t", "input": {"n": [given] * 9_000}}]}
    )
    refused = progress(many, {"big": big})
    assert (refused.states["a"], refused.calls) == (StepState.FAILED, ())
    assert "longer than" in refused.errors["a"]

    step = {"id": "a", "tool": "t", "forEach": list(range(5_000)), "input": {"n": given}}
    now = progress(read_workflow({"steps": [{"id": "big", "tool": "t"}, step]}), {"big": big})
    assert now.states["a"] is StepState.WAITING
    assert 0 < sum(len(call.arguments["n"]) for call in now.calls) <= CHARS_PER_ROUND + LONGEST_INPUT
