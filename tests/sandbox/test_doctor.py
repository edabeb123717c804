"""What `toolwire doctor` says about sandboxes."""

from tests.sandbox.conftest import report
from toolwire.cli.views.sandbox_engines import ExaminedEngine, engine_line, sandbox_lines, table
from toolwire.execute.sandbox.contract import EngineReport
from toolwire.execute.sandbox.examination import ProbeFinding
from toolwire.execute.sandbox.probes import PROBES, QUICK, probe_named
from toolwire.protocol.engines import ENGINES


def test_every_engine_is_named_with_what_came_of_trying_it() -> None:
    lines = {line.what: line for line in sandbox_lines()}

    for engine in ENGINES:
        line = lines[f"sandbox {engine}"]
        assert line.state in ({"ok", "warn", "unsafe"} if report(engine).usable else {"missing"})
    assert (lines["sandbox none"].state, lines["sandbox none"].said) == ("unsafe", "no walls at all")
    assert {"sandbox", "network", "kernel", "limits", "box user", "workspace"} <= lines.keys()
    assert f"held against all {len(QUICK)} quick probes" in lines["sandbox bubblewrap"].said
    assert "the engine none refuses to run" in lines["network"].said
    assert lines["sandbox none"].more == report("none").weaker
    assert all(line.advice for line in lines.values() if line.state != "ok")


def test_an_engine_that_does_not_hold_is_called_unsafe_and_each_weaker_promise_has_a_line_of_its_own() -> None:
    answers = tuple(ProbeFinding(probe, given=probe.name != "host_file") for probe in QUICK)

    line = engine_line(
        ExaminedEngine(EngineReport("podman", usable=True, version="1", weaker=("slow", "late")), answers)
    )

    assert (line.state, line.said) == ("unsafe", "1 did not hold: read a file of the host (host_file)")
    assert line.more == ("slow", "late")
    assert line.advice


def test_the_table_lists_what_an_engine_does_not_give_and_skips_nothing() -> None:
    answers = tuple(ProbeFinding(probe, given=probe.name != "host_file") for probe in PROBES)
    found = [
        ExaminedEngine(EngineReport("bubblewrap", usable=True, version="1", weaker=("slow",)), answers),
        ExaminedEngine(EngineReport("podman", usable=False, reason="it is not installed")),
    ]

    assert [line for line, _ in table(found)] == [
        f"bubblewrap 1: gives {len(PROBES) - 1} of {len(PROBES)}",
        f"  not given: {probe_named('host_file').tries} (host_file)",
        "  weaker here: slow",
        "podman: cannot be used here: it is not installed",
    ]
