"""The webhook of the settings hears of a question that `toolwire call` leaves open."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.cli.stage import Stage
from toolwire.cli.entry.exits import Exit

TOOL = '''
from toolwire import Tier, tool

@tool(tier=Tier.RUN)
def unlock(door: int) -> str:
    """Unlock a door."""
    return "open"
'''


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    (tmp_path / "doors.py").write_text(TOOL, encoding="utf-8")
    yield stage
    stage.close()


@pytest.fixture
def heard() -> Iterator[tuple[int, list[tuple[str, bytes]]]]:
    """A server that keeps what it is told."""
    told: list[tuple[str, bytes]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            told.append((self.headers.get("x-toolwire-signature", ""), body))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port, told
    server.shutdown()
    thread.join()
    server.server_close()


def write_settings(stage: Stage, port: int) -> None:
    (stage.folder / "toolwire.toml").write_text(
        f'[tools]\nmodules = ["doors:unlock"]\n[grant]\ntier = "run"\n[approval]\nexpires_s = 60\n'
        f'webhook = "http://127.0.0.1:{port}/"\nwebhook_hosts = ["127.0.0.1:{port}"]\nwebhook_key_env = "HOOK"\n',
        encoding="utf-8",
    )


def test_a_question_is_announced_before_the_command_ends(
    stage: Stage, heard: tuple[int, list[tuple[str, bytes]]]
) -> None:
    port, told = heard
    write_settings(stage, port)

    ran = stage.run("call", "unlock", "door=7", HOOK="a-key-of-two")
    [asked] = stage.run("approvals", "--json").json

    [(signature, body)] = told
    said = json.loads(body)["approval"]
    assert ran.code == Exit.WAITING
    assert signature.startswith("v1=")
    assert (said["id"], said["digest"]) == (asked["id"], asked["digest"])
    assert said["expires_at"] - said["asked_at"] == pytest.approx(60)
    assert "arguments" not in said


def test_a_webhook_without_its_key_is_a_mistake_that_is_said(stage: Stage) -> None:
    write_settings(stage, 9)

    ran = stage.run("call", "unlock", "door=7")

    assert ran.code == 2
    assert "names HOOK" in ran.err
