"""`toolwire serve` delivers changes of records; killed in the middle, the next process delivers them."""

import json
import queue
import signal
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from tests.cli.stage import LIMIT_S, Stage
from tests.gateway.test_serve import address, first_line
from toolwire.cli.entry.exits import Exit
from toolwire.execute.webhook import is_signed


class Receiver(ThreadingHTTPServer):
    """Keeps what it is told, and answers once it may."""

    def __init__(self) -> None:
        self.told: queue.Queue[tuple[dict[str, str], bytes]] = queue.Queue()
        self.may_answer = threading.Event()
        super().__init__(("127.0.0.1", 0), _Hook)


class _Hook(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.told.put(({name.lower(): text for name, text in self.headers.items()}, body))
        self.server.may_answer.wait(LIMIT_S)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.may_answer.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def test_a_delivery_survives_kill_9_and_arrives_again_under_the_same_id(stage: Stage, receiver: Receiver) -> None:
    stage.settings(
        f'[records]\nwriters = ["ANN"]\nkey_file = "{stage.folder}/records.key"\n'
        f'webhook_hosts = ["127.0.0.1:{receiver.server_port}"]\n'
        '[serve]\nupstream = "http://127.0.0.1:9"\nport = 0\ntoken_env = ["ANN"]\n'
    )
    process = stage.start("serve", ANN="a-long-token")
    headers = {"authorization": "Bearer a-long-token"}
    with httpx2.Client(base_url=address(first_line(process)), headers=headers, timeout=LIMIT_S) as client:
        wanted = {"selector": {"all_tags": ["door"]}, "url": f"http://127.0.0.1:{receiver.server_port}/hook"}
        made = client.post("/v1/records", json={"schema_name": "subscription.v1", "context": wanted}).json()
        (key,) = client.get(f"/v1/records/{made['id']}/signing-keys").json()["keys"]
        client.post("/v1/records", json={"schema_name": "note.v1", "tags": ["door"], "title": "open"})
        before, _ = receiver.told.get(timeout=LIMIT_S)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=LIMIT_S)

    receiver.may_answer.set()
    ran = stage.run("run", "--once")
    after, body = receiver.told.get(timeout=LIMIT_S)

    assert (ran.code, ran.out) == (Exit.DONE, ""), ran.err
    assert before["x-toolwire-delivery"] == after["x-toolwire-delivery"]
    assert json.loads(body)["record"]["title"] == "open"
    stamp = after["x-toolwire-timestamp"]
    assert is_signed(key.encode(), stamp, body, after["x-toolwire-signature"], time.time())
    assert stage.run("run", "--once").code == Exit.DONE
    assert receiver.told.empty(), "what has arrived is not sent again"


def test_a_webhook_made_at_the_terminal_is_looked_after_by_run_and_doctor_tells_of_dead_letters(stage: Stage) -> None:
    subscription = '{"selector": {"schema_name": "note.v1"}, "url": "http://127.0.0.1:9/"}'
    made = stage.run("records", "create", "subscription.v1", subscription, "--json").json
    stage.run("records", "create", "note.v1", "--title", "lost", "--ttl", "24h")
    ran = stage.run("run", "--once")
    (letter,) = stage.run("records", "list", "--schema", "webhook.dead_letter.v1", "--json").json
    findings = stage.run("doctor", "--json").json["findings"]

    assert ran.code == Exit.DONE, ran.err
    assert letter["tags"] == [f"subscription:{made['id']}"]
    (webhooks,) = [one for one in findings if one["what"] == "webhooks"]
    assert (webhooks["state"], webhooks["said"]) == ("warn", "0 deliveries wait to be tried again, 1 were given up")
