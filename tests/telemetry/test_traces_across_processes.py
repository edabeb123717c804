"""One trace over several processes: where a turn begins, where its calls run, and where it is resumed."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.stage import LIMIT_S, Stage, scripted
from tests.telemetry.collector import Collector, collecting
from toolwire.cli.entry.exits import Exit

TOOLS = '''
from toolwire import Context, Effect, Tier, tool

@tool(effect=Effect.PURE)
def measure(room: str, key: str = "") -> str:
    """Measure a room."""
    return f"{room} has 12 m2 {key}"

@tool(tier=Tier.RUN, needs=["brushes"])
def paint(colour: str) -> str:
    """Paint the door."""
    return f"it is {colour}"
'''
SETTINGS = """
[tools]
modules = ["brushwork:paint", "brushwork:measure"]
secrets = ["KEY for measure"]
[grant]
tier = "run"
permissions = ["file_read", "brushes"]
[services.shed]
socket = "shed.sock"
tools = ["measure"]
"""
ALONE = SETTINGS.partition("[services")[0]
STEPS = ([("measure", {"room": "kitchen"})], [("paint", {"colour": "red"})], "It is red.")
PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.module("brushwork", TOOLS)
    stage.settings(ALONE)
    yield stage
    stage.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def test_a_turn_of_three_processes_is_one_trace(stage: Stage, collector: Collector) -> None:
    """One begins it and waits for approval, a worker runs a call, and a third goes on with it to its end."""
    stage.settings(f'{SETTINGS}[telemetry]\nendpoint = "{collector.url}"\n')
    worker = stage.start("worker", "shed", OTEL_SERVICE_NAME="shed")
    assert worker.stdout is not None
    worker.stdout.readline()
    with scripted(*STEPS) as model:
        assert stage.run("ask", "Measure, then paint.", *model.flags).code == Exit.WAITING
        [asked] = stage.run("approvals", "--json").json
        assert stage.run("approve", asked["id"]).code == Exit.DONE
        assert collector.of("invoke_agent") == []  # it has not ended
        assert stage.run("run", "--once", "--json", OTEL_SERVICE_NAME="runner").json["state"] == "ended"
    worker.send_signal(signal.SIGTERM)
    worker.communicate(timeout=LIMIT_S)

    [turn], chats = collector.of("invoke_agent"), collector.of("chat")
    measured, served, painted = collector.of("execute_tool")
    by_service = {span.span_id: span.resource["service.name"] for span in collector.spans}
    assert {span.trace_id for span in collector.spans} == {asked["turn_id"].replace("-", "")}
    assert (turn.parent_id, by_service[turn.span_id]) == ("", "runner")
    assert [(span.parent_id, by_service[span.span_id]) for span in chats] == [
        (turn.span_id, "toolwire"), (turn.span_id, "toolwire"), (turn.span_id, "runner"),
    ]  # fmt: skip
    assert (measured.parent_id, by_service[measured.span_id]) == (turn.span_id, "toolwire")
    assert (served.parent_id, by_service[served.span_id]) == (measured.span_id, "shed")
    assert (painted.parent_id, by_service[painted.span_id]) == (turn.span_id, "runner")
    assert [span.attributes["gen_ai.tool.name"] for span in (measured, served, painted)] == [
        "measure", "measure", "paint",
    ]  # fmt: skip
    assert len({span.span_id for span in collector.spans}) == len(collector.spans) == 7
    assert turn.began <= min(span.began for span in collector.spans)
    assert turn.ended >= max(span.ended for span in collector.spans if span is not served)
    assert set(collector.paths) == {"/v1/traces"}


def test_the_turn_of_a_sub_agent_lies_below_the_call_that_began_it(stage: Stage, collector: Collector) -> None:
    stage.settings(f'{ALONE}[telemetry]\nendpoint = "{collector.url}"\n')
    with scripted([("task", {"prompt": "Measure the hall."})], "It has 12 m2.", "12 m2.") as model:
        asked = stage.run("ask", "How large?", "--tools", "teamwork", "--allow", "session", "--yes", *model.flags)

    assert asked.out.strip() == "12 m2.", asked.err
    whole, inner = collector.of("invoke_agent")
    [task] = collector.of("execute_tool")
    assert (task.parent_id, inner.parent_id) == (whole.span_id, task.span_id)
    assert [span.parent_id for span in collector.of("chat")] == [whole.span_id, inner.span_id, whole.span_id]
    assert {span.trace_id for span in collector.spans} == {whole.trace_id}


def test_a_turn_that_is_canceled_has_its_span(stage: Stage, collector: Collector) -> None:
    stage.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    assert stage.run("call", "paint", "colour=red").code == Exit.WAITING
    [asked] = stage.run("approvals", "--json").json
    for _ in range(2):
        assert stage.run("run", "--cancel", asked["turn_id"]).code == Exit.DONE

    [turn] = collector.of("invoke_agent")
    assert turn.attributes["toolwire.turn.end_reason"] == "canceled"
    assert turn.trace_id == asked["turn_id"].replace("-", "")


def test_a_collector_on_this_machine_is_reached_without_the_proxy_of_the_environment(
    stage: Stage, collector: Collector
) -> None:
    stage.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "HTTP_PROXY": "http://127.0.0.1:9"}
    stage.environ |= {"http_proxy": "http://127.0.0.1:9"}
    stage.run("call", "paint", "colour=red", "--tier", "run", "--allow", "brushes", "--yes")

    assert collector.of("invoke_agent")


def test_variables_of_opentelemetry_are_enough_and_texts_are_sent_only_when_switched_on(
    stage: Stage, collector: Collector
) -> None:
    stage.environ |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "KEY": "correct-horse-battery"}
    words = ("call", "measure", "room=hall", "key={{secret:KEY}}")
    assert stage.run(*words).code == Exit.DONE
    [plain] = collector.of("execute_tool")
    assert stage.run(*words, TOOLWIRE_TELEMETRY__CONTENTS="yes").code == Exit.DONE

    [_, full] = collector.of("execute_tool")
    assert "gen_ai.tool.call.result" not in plain.attributes
    assert "hall has 12 m2" in full.attributes["gen_ai.tool.call.result"]
    assert all("correct-horse" not in str(span.attributes) for span in collector.spans)
    assert full.resource["service.name"] == "toolwire"
    collector.spans.clear()
    for off in (
        {"OTEL_SDK_DISABLED": "true"},
        {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
        {"OTEL_TRACES_SAMPLER": "always_off"},
        {"TOOLWIRE_TELEMETRY__EXPORTER": "off"},
        {"TOOLWIRE_TELEMETRY__SAMPLING": "0"},
    ):
        stage.environ |= off
        assert stage.run(*words).code == Exit.DONE
        stage.environ = {name: value for name, value in stage.environ.items() if name not in off}
    assert collector.spans == []


def test_a_collector_that_never_answers_holds_up_no_command(stage: Stage) -> None:
    with collecting(hangs=True) as hanging:
        stage.environ |= {"TOOLWIRE_TELEMETRY__ENDPOINT": hanging.url, "TOOLWIRE_TELEMETRY__FLUSH_S": "0.2"}
        ran = stage.run("call", "measure", "room=hall")
        was_asked, was_over = hanging.arrived.is_set(), hanging.over.is_set()

    assert (ran.code, was_over) == (Exit.DONE, False), ran.err
    assert was_asked


def test_a_collector_that_is_down_is_told_once_and_fails_nothing(stage: Stage) -> None:
    ran = stage.run("call", "calculator", "expression=6*7", TOOLWIRE_TELEMETRY__ENDPOINT="http://127.0.0.1:9")
    assert (ran.code, "42" in ran.out) == (Exit.DONE, True), ran.err
    assert ran.err.count("traces cannot be sent") == 1
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("name", "value"),
    [("OTEL_BSP_MAX_QUEUE_SIZE", "0"), ("OTEL_BSP_MAX_QUEUE_SIZE", "10"), ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x")],
)
def test_a_variable_that_opentelemetry_refuses_costs_traces_and_fails_only_settings_that_ask_for_them(
    stage: Stage, name: str, value: str
) -> None:
    words = ("call", "measure", "room=kitchen")
    ran = stage.run(*words, stdin=b"", OTEL_TRACES_EXPORTER="console", **{name: value})
    assert (ran.code, "an OTEL_* variable cannot be used" in ran.err) == (0, True), ran.err
    asked = stage.run(*words, stdin=b"", TOOLWIRE_TELEMETRY__EXPORTER="console", **{name: value})
    assert (asked.code, "an OTEL_* variable cannot be used" in asked.err) == (2, True), asked.err


def test_spans_can_be_written_to_the_terminal(stage: Stage) -> None:
    ran = stage.run("call", "calculator", "expression=6*7", "--json", TOOLWIRE_TELEMETRY__EXPORTER="console")
    assert ran.json["structured"]["result"] == 42
    assert '"execute_tool calculator"' in ran.err


def test_a_project_that_wants_to_send_traces_must_be_trusted(stage: Stage) -> None:
    stage.settings('[telemetry]\nendpoint = "http://collector.invalid"\n')
    ran = stage.run("call", "calculator", "expression=6*7", TOOLWIRE_TRUST="")
    assert ran.code != Exit.DONE
    assert "telemetry.endpoint" in ran.err


def test_without_settings_nothing_of_telemetry_is_loaded(stage: Stage) -> None:
    program = (
        "import sys\nfrom toolwire.cli import main\nsys.argv = ['toolwire', 'call', 'calculator', 'expression=6*7']\n"
        "try:\n    main()\nfinally:\n"
        "    heavy = ('opentelemetry', 'prometheus_client', 'requests', 'google', 'toolwire.telemetry')\n"
        "    print([name for name in sys.modules if name.startswith(heavy)], file=sys.stderr)"
    )
    command, given = [sys.executable, "-c", program], stage._environ({})
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT_S, cwd=stage.folder, env=given, check=True
    )
    assert ("42" in done.stdout, done.stderr.strip().splitlines()[-1]) == (True, "[]")


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        ({"TOOLWIRE_TELEMETRY__ENDPOINT": "http://127.0.0.1:9"}, Exit.USAGE, "pip install 'toolwire[telemetry]'"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}, Exit.DONE, "pip install 'toolwire[telemetry]'"),
        ({}, Exit.DONE, ""),
    ],
)
def test_without_the_extra_only_settings_that_ask_for_traces_fail(
    stage: Stage, given: dict[str, str], code: Exit, told: str
) -> None:
    program = (
        "import sys\nsys.modules['opentelemetry'] = sys.modules['prometheus_client'] = None\n"
        "from toolwire.cli import main\nsys.argv = ['toolwire', 'call', 'calculator', 'expression=6*7']\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=LIMIT_S, cwd=stage.folder, env=stage._environ(given), check=False,
    )  # fmt: skip
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert ("42" in done.stdout) is (code == Exit.DONE)
