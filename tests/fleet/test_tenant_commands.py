"""`toolwire worker` and `toolwire run` for several projects: each with its own folder, settings and secrets."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bus.servers import NatsServer, free_port
from tests.cli.stage import LIMIT_S, Stage
from toolwire.bus.nats_connection import NatsServers
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.cli.entry.exits import Exit
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import Subject
from toolwire.record.sqlite import SqliteStore

BANK = '''
import os
from toolwire import Effect, tool


@tool(effect=Effect.PURE)
def pay(key: str = "") -> dict:
    """Say in which process this runs, and how long the key is."""
    return {"process": os.getpid(), "length": len(key)}
'''
BROKER = '[bus]\nkind = "nats"\nurl = ["{url}"]\n{more}\n'
SETTINGS = '[tools]\nmodules = ["bank:pay"]\n[services.{service}]\nvia = "bus"\ntools = ["pay"]\n'
PASSWORD = "correct-horse"
ROLES = ("orchestrator", "worker")


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.module("bank", BANK)
    yield stage
    stage.close()


def names(stage: Stage) -> tuple[str, str, str]:
    """Two projects and a service of this test alone, since all share the broker."""
    number = abs(hash(str(stage.folder)))
    return f"a{number}", f"b{number}", f"bank{number}"


def start_worker(stage: Stage, *words: str, of: str) -> "subprocess.Popen[bytes]":
    process = stage.start("worker", *words, A_KEY=PASSWORD, SHARED_KEY=PASSWORD)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    assert f"Running 1 tool for calls of {of} at cg.v1r4.*" in line, (line, process.communicate(timeout=LIMIT_S))
    return process


def pay(stage: Stage, project: str, key: str = "", **environ: str) -> dict[str, Any]:
    said = (f"key={key}",) if key else ()
    stage.environ.update(environ)
    found: dict[str, Any] = stage.run("call", "pay", *said, "--yes", "--json", "--project", project).json
    return found


def test_a_worker_of_all_projects_keeps_the_secrets_of_each_to_itself(stage: Stage, nats: NatsServer) -> None:
    a, b, service = names(stage)
    shared = SETTINGS.format(service=service).replace("[services", 'secrets = ["SHARED_KEY for pay"]\n[services')
    stage.settings(shared + BROKER.format(url=nats.url, more=""))
    own = stage.folder / "projects" / a
    own.mkdir(parents=True)
    (own / "toolwire.toml").write_text('[tools]\nsecrets = ["A_KEY for pay"]\n')
    stage.environ["TOOLWIRE_TRUST"] = f"{stage.folder}:{own}"
    worker = start_worker(stage, service, "--all-projects", of="all projects")

    assert pay(stage, a, "{{secret:A_KEY}}")["structured"] == {"process": worker.pid, "length": len(PASSWORD)}
    said = pay(stage, b, "{{secret:A_KEY}},{{secret:SHARED_KEY}}")
    assert said["structured"] == {"process": worker.pid, "length": len("{{secret:A_KEY}},{{secret:SHARED_KEY}}")}
    assert sorted(one.name for one in (stage.folder / "projects").iterdir()) == [a, b]
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(LIMIT_S) == 0


def test_settings_of_a_project_that_are_not_trusted_stop_its_calls_alone(stage: Stage, nats: NatsServer) -> None:
    """As a tool may have written them. The model does not hear what they say."""
    a, b, service = names(stage)
    stage.settings(SETTINGS.format(service=service) + BROKER.format(url=nats.url, more=""))
    own = stage.folder / "projects" / a
    own.mkdir(parents=True)
    (own / "toolwire.toml").write_text('[tools]\nsecrets = ["A_KEY for pay"]\n')
    worker = start_worker(stage, service, "--projects", f"{a},{b}", of=f"projects {a}, {b}")

    refused = pay(stage, a, "{{secret:A_KEY}}")
    assert (refused["ok"], refused["error"]["code"]) == (False, "unavailable")
    assert (str(stage.folder) in json.dumps(refused), PASSWORD in json.dumps(refused)) == (False, False)
    assert pay(stage, b)["ok"]
    worker.send_signal(signal.SIGTERM)
    _, err = worker.communicate(timeout=LIMIT_S)
    assert b"toolwire trust" in err


def test_a_worker_waits_for_the_accounts_of_its_projects_and_reaches_each_with_its_own_key(stage: Stage) -> None:
    a, b, service = names(stage)
    port = free_port()
    words = ("--project", a, "--project", b, "--all-projects", "--node", f"127.0.0.1:{port}", "--no-tls")
    written = stage.run("nats", "config", "keys", *words, "--stream-mb", "8", "--json")
    assert written.code == 0, written.err
    users = {one["name"] for one in written.json["users"]}
    assert users == {f"{p}-{r}" for p in (f"project-{a}", f"project-{b}", "all-projects") for r in ROLES}
    server = NatsServer(stage.folder, config=Path(written.json["configs"][0]), port=port)
    server.start()
    try:
        key = 'credentials = "keys/project-{project}-worker.nk"\nstream_mb = 8'
        stage.settings(SETTINGS.format(service=service) + BROKER.format(url=server.url, more=key))
        stopped, early = (stage.start("worker", service, "--projects", f"{a},{b}") for _ in range(2))
        for one in (stopped, early):
            assert one.stderr is not None
            line = one.stderr.readline().decode()
            assert line.startswith("Waiting: the streams at 127.0.0.1:"), line
            assert "may not make them; start what runs turns first: toolwire run" in line
        stopped.send_signal(signal.SIGTERM)
        out, err = stopped.communicate(timeout=LIMIT_S)
        assert (stopped.returncode, out, err) == (Exit.DONE, b"", b""), "said once, and nothing was run"
        orchestrator = {"TOOLWIRE_BUS__CREDENTIALS": str(stage.folder / "keys" / "project-{project}-orchestrator.nk")}
        for project in (a, b):
            key = orchestrator["TOOLWIRE_BUS__CREDENTIALS"].replace("{project}", project)
            assert stage.run("nats", "check", TOOLWIRE_BUS__CREDENTIALS=key).code == 0
        refused = stage.run("worker", service, "--all-projects")
        assert (refused.code, "name them with --projects" in refused.err) == (Exit.USAGE, True), refused.err
        assert early.stdout is not None
        assert f"Running 1 tool for calls of projects {a}, {b}" in early.stdout.readline().decode()
        for project in (a, b):
            assert pay(stage, project, "123", **orchestrator)["structured"] == {"process": early.pid, "length": 3}
        early.send_signal(signal.SIGTERM)
        assert early.wait(LIMIT_S) == 0
    finally:
        server.kill()


@pytest.mark.parametrize("shared", [False, True], ids=["one", "all"])
def test_a_runner_receives_the_reports_of_services(stage: Stage, nats: NatsServer, shared: bool) -> None:
    """One that is wrong is on record at once, which shows who read it."""
    project = names(stage)[0]
    stage.settings(BROKER.format(url=nats.url, more=""))
    runner = stage.start("run", *(("--all-projects",) if shared else ("--project", project)))
    assert runner.stderr is not None
    assert b"Waiting for turns" in runner.stderr.readline()

    async def report() -> list[str]:
        async with nats_bus(NatsServers((nats.url,))) as bus, await SqliteStore.at(stage.folder / ".toolwire") as store:
            await bus.publish(BusMessage(str(Subject.report(project, "public")), b"{}"))
            async with asyncio.timeout(LIMIT_S):
                while not (rows := await store.audit_log(project=project)):  # noqa: ASYNC110 -- of another process
                    await asyncio.sleep(0.02)
        return [row.event for row in rows]

    assert asyncio.run(report()) == ["report_refused"]
    runner.send_signal(signal.SIGINT)
    runner.communicate(timeout=LIMIT_S)


def test_a_worker_at_a_socket_serves_one_project(stage: Stage) -> None:
    stage.settings('[services.bank]\nsocket = "bank.sock"\ntools = ["pay"]\n[tools]\nmodules = ["bank:pay"]\n')
    ran = stage.run("worker", "bank", "--all-projects")

    assert (ran.code, "serves one project" in ran.err) == (Exit.USAGE, True), ran.err
