"""Workflows from the command line and as a tool: steps are calls like any other, and none runs twice."""

import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.cli.conftest import Inside
from tests.cli.painter import waiting
from tests.cli.stage import Stage, scripted
from tests.cli.test_resume import MARKERS, Ledger
from toolwire.cli.entry.exits import Exit

SUM = """
name: sum
inputs: {low: 7}
steps:
  - {id: num1, tool: random, input: {min: "${inputs.low}", max: "${inputs.low}"}}
  - {id: num2, tool: random, input: {min: 5, max: 5}}
  - {id: sum, tool: calculator, input: {expression: "${num1.numbers[0]} + ${num2.numbers[0]}"}}
  - {id: tell, tool: echo, when: "${sum.result} > 12", input: {message: "it is ${sum.result}"}}
"""


def written(folder: Path, steps: Sequence[Mapping[str, Any]], name: str = "flow.json") -> str:
    (folder / name).write_text(json.dumps({"steps": steps}), encoding="utf-8")
    return name


@pytest.mark.feature("F166", "F167", "F168")
def test_a_workflow_of_a_file_runs_with_types_conditions_and_inputs(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "sum.yaml").write_text(SUM, encoding="utf-8")
    report = inside("workflow", "run", "sum.yaml").json
    assert report["results"]["sum"]["result"] == 12
    assert report["executionOrder"] == ["num1", "num2", "sum"]
    assert report["skipped"] == ["tell"]
    report = inside("workflow", "run", "sum.yaml", "--input", "low=8", "--json").json
    assert report["results"]["tell"]["echo"] == "it is 13"
    assert report["errors"] == {}
    misspelled = inside("workflow", "run", "sum.yaml", "--input", "lo=8")
    assert (misspelled.code, misspelled.out) == (Exit.USAGE, "")
    assert "--input lo: no step of sum.yaml uses it; its inputs are low" in misspelled.err


def test_a_workflow_that_cannot_run_says_all_that_is_wrong_and_runs_nothing(painter: Inside, tmp_path: Path) -> None:
    steps = [
        {"id": "a", "tool": "paint", "input": {"colour": "red"}},
        {"id": "b", "tool": "paitn", "input": {"colour": "${c.x}"}},
    ]
    ran = painter("workflow", "run", written(tmp_path, steps), "--yes")
    assert ran.code == Exit.USAGE
    assert "calls 'paitn', which cannot be used here" in ran.err
    assert "${c.x} names no step" in ran.err
    assert not (tmp_path / "painted").exists()
    assert painter("workflow", "validate", "flow.json").code == Exit.USAGE
    assert painter("workflow", "validate", "missing.yaml").code == Exit.USAGE
    assert painter("workflow", "run", "flow.json", "--input", "x").code == Exit.USAGE


def test_a_failed_step_is_the_exit_code_and_what_is_done_is_told(inside: Inside, tmp_path: Path) -> None:
    steps: list[dict[str, Any]] = [
        {"id": "a", "tool": "echo", "input": {"message": "hi"}},
        {"id": "b", "tool": "calculator", "input": {"expression": "1 / 0"}, "retry": 2},
        {"id": "c", "tool": "echo", "input": {"message": "${b.result}"}},
    ]
    ran = inside("workflow", "run", written(tmp_path, steps))
    assert ran.code == Exit.FAILED
    report = ran.json
    assert report["results"] == {"a": {"echo": "hi"}}
    assert list(report["errors"]) == ["b"]
    assert len(re.findall(r"calculator\(", ran.err)) == 2


def test_a_step_that_needs_approval_waits_for_it_and_goes_on(painter: Inside, tmp_path: Path) -> None:
    steps = [
        {"id": "a", "tool": "echo", "input": {"message": "red"}},
        {"id": "b", "tool": "paint", "input": {"colour": "${a.echo}"}},
        {"id": "c", "tool": "calculator", "input": {"expression": "1 / 0"}, "dependencies": ["b"]},
    ]
    ran = painter("workflow", "run", written(tmp_path, steps))
    assert ran.code == Exit.WAITING
    turn, approval = waiting(painter)
    assert f"--resume {turn}" in ran.err
    assert painter("approve", approval).code == 0
    assert painter("ask", "--resume", turn, "--json").code == Exit.FAILED  # as `workflow run` does for the last step
    assert (tmp_path / "painted").read_text() == "red\n"


@pytest.mark.parametrize("stopped_by", [signal.SIGKILL, signal.SIGINT])
def test_a_workflow_that_is_stopped_goes_on_and_repeats_no_finished_step(
    stage: Stage, stopped_by: signal.Signals
) -> None:
    stage.settings('[tools]\nmodules = ["mine:tools"]\n')
    stage.module("mine", MARKERS)
    ledger = Ledger(stage.folder)
    steps = [
        *({"id": f"s{n}", "tool": "mark", "input": {"name": f"s{n}"}} for n in range(3)),
        {"id": "stop", "tool": "mark_again", "input": {"name": "hangup"}, "needs": ["s0", "s1", "s2"]},
        {"id": "end", "tool": "mark", "input": {"name": "end-${stop}"}},
    ]
    process = stage.start("workflow", "run", written(stage.folder, steps))
    ledger.wait_until_a_tool_hangs()
    os.kill(process.pid, stopped_by)
    process.communicate()
    (stage.folder / "calm").touch()
    ran = stage.run("ask", "--resume", "--json")
    os.close(ledger.bell)
    assert ran.code == 0, ran.err
    assert json.loads(ran.json["answer"])["executionOrder"] == ["s0", "s1", "s2", "stop", "end"]
    assert {name: ledger.marks[name] for name in ("s0", "s1", "s2", "hangup", "up", "end-marked")} == {
        "s0": 1, "s1": 1, "s2": 1, "hangup": 1, "up": 2, "end-marked": 1,  # up: again, and in what the end writes
    }  # fmt: skip


@pytest.mark.feature("F242")
def test_a_model_runs_a_workflow_as_one_call(stage: Stage) -> None:
    steps = [
        {"id": "step1", "tool": "random", "input": {"min": 3, "max": 3}},
        {
            "id": "step2",
            "tool": "calculator",
            "input": {"expression": "${step1.numbers[0]} + 5"},
            "dependencies": ["step1"],
        },
    ]
    with scripted([("workflow", {"steps": steps})], "It is 8.") as model:
        ran = stage.run("ask", "Roll and add five", "--tools", "workflow", *model.flags)
        assert ran.code == 0, ran.err
        [told] = [said for said in model.requests[1]["messages"] if said["role"] == "tool"]
    report = json.loads(told["content"])
    assert report["results"]["step2"]["result"] == 8
    assert report["executionOrder"] == ["step1", "step2"]


def test_a_models_workflow_may_do_no_more_than_the_model_itself(stage: Stage) -> None:
    stage.settings('[tools]\ngroups = ["workflow", "coding"]\n')
    steps = [{"id": "a", "tool": "write", "input": {"path": "x", "content": "y"}}]
    with scripted([("workflow", {"steps": steps})], "No.") as model:
        stage.run("ask", "Write x", *model.flags)
        [told] = [said for said in model.requests[1]["messages"] if said["role"] == "tool"]
    assert "nothing was run: step 'a' calls 'write', which cannot be used here" in told["content"]
    assert not (stage.folder / "x").exists()


def test_what_the_steps_of_a_models_workflow_used_counts_for_the_day(stage: Stage) -> None:
    stage.settings('[tools]\ngroups = ["workflow"]\n[budget]\ncalls = 4\n')
    steps = [{"id": f"s{n}", "tool": "random", "input": {"min": n, "max": n}} for n in range(3)]
    with scripted([("workflow", {"steps": steps})], "Done.") as model:
        assert stage.run("ask", "Roll", *model.flags).code == 0

    assert "4 calls of 4 calls" in stage.run("status").out
    assert stage.run("call", "random", "min=1", "max=1").code != 0


def test_a_graph_shows_levels_and_is_well_formed_svg(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "sum.yaml").write_text(SUM, encoding="utf-8")
    text = inside("workflow", "graph", "sum.yaml").out
    assert text.splitlines()[0] == "level 1"
    assert "sum: calculator · after num1, num2" in text
    svg = ElementTree.fromstring(inside("workflow", "graph", "sum.yaml", "--svg").out)
    assert len(svg.findall(".//{http://www.w3.org/2000/svg}rect")) == 4
    assert len(svg.findall(".//{http://www.w3.org/2000/svg}path")) == 3
