"""`toolwire worker` behind a broker, and commands whose calls it runs: real processes, a real NATS server."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bus.servers import NatsServer
from tests.cli.stage import LIMIT_S, Stage, scripted

AWAY = '[bus]\nkind = "nats"\nurl = ["nats://127.0.0.1:1"]\n'
GARDEN = '''
import os, time
from pathlib import Path
from toolwire import Effect, tool


@tool(effect=Effect.PURE)
def where() -> dict:
    """Say in which process this runs."""
    return {"process": os.getpid()}


@tool
def dig() -> str:
    """Dig until a file says that it is enough."""
    Path("digging").write_text(str(os.getpid()))
    while not Path("enough").exists():
        time.sleep(0.01)
    return "dug"
'''


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def shed(stage: Stage, nats: NatsServer) -> Stage:
    """A project of its own for each test, since all share the broker."""
    stage.module("garden", GARDEN)
    stage.settings(
        f"""
        [tools]
        modules = ["garden:where", "garden:dig"]
        [bus]
        kind = "nats"
        url = ["{nats.url}"]
        [services.shed]
        via = "bus"
        tools = ["where", "dig"]
        """
    )
    return stage


def of(stage: Stage) -> tuple[str, str]:
    """The flags that name the project of a test."""
    return "--project", f"p{abs(hash(str(stage.folder)))}"


def work(stage: Stage) -> "subprocess.Popen[bytes]":
    process = stage.start("worker", "shed", *of(stage))
    assert process.stdout is not None
    line = process.stdout.readline()
    assert b"Running 2 tools for calls at cg.v1r4.p" in line, (line, process.communicate(timeout=LIMIT_S))
    return process


def test_calls_of_a_command_and_of_a_model_run_in_workers_behind_the_broker(shed: Stage) -> None:
    worker = work(shed)
    there = shed.run("call", "where", "--json", *of(shed))
    with scripted([("where", {}), ("where", {})], "Done.") as model:
        asked = shed.run("ask", "Where?", *model.flags, *of(shed))
    answers = [one["content"] for one in model.requests[1]["messages"] if one["role"] == "tool"]

    assert there.json["structured"]["process"] == worker.pid
    assert asked.out.strip() == "Done."
    assert [json.loads(answer)["process"] for answer in answers] == [worker.pid, worker.pid]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LIMIT_S) == 0


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_a_call_that_no_worker_takes_says_what_it_waits_for_and_how_to_start_one(
    shed: Stage, words: tuple[str, ...]
) -> None:
    caller = shed.start("call", "where", *words, *of(shed))
    assert caller.stderr is not None
    told = caller.stderr.readline().decode()
    worker = work(shed)
    out, _ = caller.communicate(timeout=LIMIT_S)

    project = " ".join(of(shed))
    assert told == f"· where: no worker has taken it yet; start one with: toolwire worker shed {project}\n"
    assert caller.returncode == 0
    assert str(worker.pid) in out.decode()


def test_a_question_whose_call_no_worker_takes_says_so_too(shed: Stage) -> None:
    with scripted([("where", {})], "Done.") as model:
        asking = shed.start("ask", "Where?", "--json", *model.flags, *of(shed))
        assert asking.stderr is not None
        told = asking.stderr.readline().decode()
        work(shed)
        out, _ = asking.communicate(timeout=LIMIT_S)

    assert "start one with: toolwire worker shed --project p" in told
    assert json.loads(out)["answer"] == "Done."


def test_who_only_looks_is_shown_the_tools_where_the_broker_of_a_service_is_missing(stage: Stage) -> None:
    """As in a terminal without the variables that `toolwire up` prints. What would call a tool is still refused."""
    stage.settings('[services.shed]\nvia = "bus"\ntools = ["echo"]\n')
    sentence = "services.shed.via = bus needs a broker that other processes reach"
    for words in (("status",), ("tools", "list"), ("tools", "show", "echo")):
        shown, as_json = stage.run(*words), stage.run(*words, "--json")
        assert (shown.code, as_json.code) == (0, 0), (words, shown.err)
        assert "echo" in shown.out
        assert "echo" in json.dumps(as_json.json)
        assert [ran.err.count(f"Warning: {sentence}") for ran in (shown, as_json)] == [1, 1], words
    for words in (("call", "echo", "text=a"), ("preflight", "echo", "text=a"), ("ask", "Hello?")):
        refused = stage.run(*words)
        assert (refused.code, sentence in refused.err, "Warning" in refused.err) == (2, True, False), words
    [found] = [one for one in stage.run("doctor", "--json").json["findings"] if one["what"] == "bus"]
    assert (found["state"], sentence in found["said"]) == ("broken", True)


def test_a_call_of_a_built_in_tool_runs_here_beside_built_in_tools_behind_the_broker(stage: Stage) -> None:
    stage.settings(f'[services.shed]\nvia = "bus"\ntools = ["echo"]\n{AWAY}')
    ran = stage.run("call", "calculator", "expression=1+1")

    assert (ran.code, '"result":2' in ran.out) == (0, True), ran.err


@pytest.mark.parametrize("words", [("worker", "shed"), ("run",), ("run", "--once")])
def test_a_project_that_no_subject_can_name_is_refused(stage: Stage, words: tuple[str, ...]) -> None:
    stage.settings(f'[services.shed]\nvia = "bus"\ntools = ["echo"]\n{AWAY}')
    ran = stage.run(*words, "--project", "a b")

    assert ran.code == 2
    assert "--project: the name of a project that uses a bus must be" in ran.err


def test_a_worker_that_is_killed_over_an_unsafe_call_leaves_its_outcome_unknown(shed: Stage) -> None:
    # Its lease has to run out first; the usual one takes half of the time that a command gets here.
    shed.settings((shed.folder / "toolwire.toml").read_text() + "[store]\nlease_s = 3\n")
    worker = work(shed)
    caller = shed.start("call", "dig", "--yes", "--json", *of(shed), stdin=subprocess.DEVNULL)
    begun = shed.folder / "digging"
    while not begun.exists() or not begun.read_text():
        assert caller.poll() is None, caller.communicate(timeout=LIMIT_S)
    worker.kill()
    out, err = caller.communicate(timeout=LIMIT_S)

    assert caller.returncode == 1, err
    assert json.loads(out)["error"]["code"] == "outcome_unknown"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ('[services.shed]\nvia = "bus"\ntools = ["where"]\n', "set bus.kind = nats and bus.url"),
        ('[services.shed]\nvia = "bus"\n[bus]\nkind = "nats"\nurl = ["nats://127.0.0.1:1"]\n', "no NATS server"),
        ('[services."a b"]\nvia = "bus"\n[bus]\nkind = "nats"\nurl = ["nats://127.0.0.1:1"]\n', "a b"),
    ],
)
def test_a_worker_that_cannot_be_is_told_why(stage: Stage, settings: str, sentence: str) -> None:
    stage.settings(settings)
    ran = stage.run("worker", "a b" if "a b" in settings else "shed")

    assert ran.code != 0
    assert sentence in ran.err
