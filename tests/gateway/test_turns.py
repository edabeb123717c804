"""`toolwire serve --agents`: turns are begun, watched, resumed and canceled over HTTP."""

import json
import signal
import socket
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.painter import TOOLS
from tests.cli.stage import LIMIT_S, Script, Stage, scripted
from tests.gateway.test_serve import address, first_line
from tests.no_tls import NO_TLS
from toolwire.cli.entry.exits import Exit

TOKEN = "a-long-token"
SETTINGS = """
profile = "small"
[profiles.small]
provider = "openai-compatible"
model = "scripted"
url = "{url}"
[tools]
modules = ["brushwork:paint"]
groups = ["read_only"]
[grant]
tier = "run"
permissions = ["file_read", "brushes"]
"""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.module("brushwork", TOOLS)
    yield stage
    stage.close()


@dataclass(frozen=True, slots=True)
class Served:
    """A gateway that runs agents, and a client with its token."""

    process: Any
    http: httpx2.Client

    def post(self, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return self.http.post(path, json=body, headers=headers)

    def get(self, path: str) -> Any:
        return self.http.get(path).json()

    def begin(self, question: str = "Paint", **more: Any) -> str:
        begun = self.post("/v1/turns", {"question": question, **more})
        assert begun.status_code == 202, begun.text
        return str(begun.json()["id"])

    def events(self, turn: str, last: str = "") -> list[dict[str, Any]]:
        """All events up to where the stream ends by itself; each with the id that it was sent with."""
        told: list[dict[str, Any]] = []
        with self.http.stream("GET", f"/v1/turns/{turn}/events", headers={"last-event-id": last}) as answer:
            assert answer.status_code == 200
            event_id = ""
            for line in answer.read().decode().split("\n"):  # other line ends than this may stand in the data
                name, _, value = line.partition(": ")
                if name == "id":
                    event_id = value
                elif name == "data":
                    told.append({**json.loads(value), "id": event_id})
                    event_id = ""
        return told

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=LIMIT_S)


@contextmanager
def served(
    stage: Stage, model: Script, *flags: str, before: str = "", after: str = "", settings: str = SETTINGS
) -> Iterator[Served]:
    stage.settings(before + settings.format(url=model.url) + after)
    process = stage.start(
        "serve", "--upstream", model.url, "--port", "0", "--token-env", "ANN", "--agents", *flags, ANN=TOKEN
    )
    headers = {"authorization": f"Bearer {TOKEN}"}
    url = address(first_line(process))
    with httpx2.Client(base_url=url, headers=headers, timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as http:
        yield Served(process, http)


def names(events: list[dict[str, Any]]) -> list[str]:
    return [event["event"] for event in events]


def test_a_turn_is_begun_watched_and_shown_over_http(stage: Stage) -> None:
    with scripted("It is 437.") as model, served(stage, model) as server:
        turn = server.begin("What is 23 * 19?", thread="sums", system="Be short.")
        told = server.events(turn)
        shown = server.get(f"/v1/turns/{turn}")
        [row] = server.get("/v1/turns")["data"]
        followed = server.get("/v1/turns?after=0")

    assert names(told)[0] == "turn_started"
    assert names(told)[-1] == "turn_ended"
    assert "text" in names(told)
    assert "".join(event["text"] for event in told if event["event"] == "text") == "It is 437."
    places = [tuple(map(int, event["id"].split("."))) for event in told]
    assert places == sorted(set(places))
    assert (shown["state"], shown["answer"], shown["reason"]) == ("ended", "It is 437.", "answered")
    assert (shown["thread"], shown["waits"], shown["error"]) == ("sums", [], None)
    assert shown["usage"]["input_tokens"] > 0
    assert (row["id"], row["state"], row["answer"]) == (turn, "ended", "It is 437.")
    assert [each["id"] for each in followed["data"]] == [turn]
    assert model.requests[0]["messages"][0] == {"role": "system", "content": "Be short."}


@pytest.mark.parametrize("budget", ["", "[budget]\ncalls = 9\n"])
def test_a_turn_over_http_goes_on_with_the_choices_that_it_began_with(stage: Stage, budget: str) -> None:
    """Temperature and formats are those of its record; of limits the lesser counts."""
    leaked = '<tool_call>\n{"name": "paint", "arguments": {"colour": "red"}}\n</tool_call>'
    with scripted(leaked, "It is red.") as model:
        small = "[profiles.small.tools]\ndefinition_format = "
        with served(
            stage, model, before="temperature = 0.25\nmax_tokens = 300\n", after=f'{small}"hermes"\n'
        ) as server:
            turn = server.begin()
            server.events(turn)
            server.stop()
        after = f'{small}"openai"\n{budget}'
        with served(stage, model, before="temperature = 1.5\nmax_tokens = 120\n", after=after) as server:
            [asked] = server.get("/v1/approvals")["data"]
            assert server.post(f"/v1/approvals/{asked['id']}", {"granted": True}).status_code == 200
            server.events(turn)
            assert server.get(f"/v1/turns/{turn}")["answer"] == "It is red."

    first, then = model.requests
    assert (first["temperature"], first["max_tokens"], "tools" in first) == (0.25, 300, False)
    assert (then["temperature"], then["max_tokens"], "tools" in then) == (0.25, 120, False)


def test_a_turn_over_http_goes_on_with_the_budget_that_it_began_with(stage: Stage) -> None:
    with scripted([("paint", {"colour": "red"})], "It is red.") as model:
        with served(stage, model, after="[budget]\ncalls = 1\n") as server:
            turn = server.begin()
            server.events(turn)
            server.stop()
        with served(stage, model) as server:
            [asked] = server.get("/v1/approvals")["data"]
            assert server.post(f"/v1/approvals/{asked['id']}", {"granted": True}).status_code == 200
            with server.http.stream("GET", f"/v1/turns/{turn}/events") as answer:
                next(line for line in answer.iter_lines() if "turn_failed" in line)
            shown = server.get(f"/v1/turns/{turn}")

    assert "the turn began with this budget: go on then" in shown["error"]
    assert not (stage.folder / "painted").exists()


def kept(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that are kept: letters of a reply are not, since the reply tells the same."""
    return [event for event in events if event["event"] not in ("text", "reasoning", "call_written", "call_progress")]


def test_a_watcher_goes_on_after_a_restart_of_the_server(stage: Stage) -> None:
    with scripted([("paint", {"colour": "red"})], "It is red.", "Another.") as model:
        with served(stage, model) as server:
            turn = server.begin("Paint the door red")
            first = server.events(turn)
            server.stop()
        with served(stage, model) as server:
            [asked] = server.get("/v1/approvals")["data"]
            server.post(f"/v1/approvals/{asked['id']}", {"granted": True})
            then = server.events(turn, first[-1]["id"])
            server.stop()
        with served(stage, model) as server:
            again, middle = server.events(turn), server.events(turn, first[1]["id"])
            letters = [event["id"] for event in then if event["event"] == "text"]
            from_letter = server.events(turn, letters[0])
            by_address = server.http.get(f"/v1/turns/{turn}/events?after={first[1]['id']}").text
            seen_the_end = server.http.get(f"/v1/turns/{turn}/events", headers={"last-event-id": then[-1]["id"]})

    assert names(first)[-1] == "turn_waiting"
    assert (names(then)[0], names(then)[-1]) == ("turn_started", "turn_ended")
    assert again == kept([*first, *then])
    assert middle == kept([*first[2:], *then])
    assert from_letter == kept(then[[event["id"] for event in then].index(letters[0]) + 1 :])
    assert by_address.count("event: ") == len(middle)
    assert seen_the_end.status_code == 204


def test_a_server_that_is_killed_leaves_what_was_told_to_the_next_one(stage: Stage) -> None:
    with scripted("It is 437.") as model:
        with served(stage, model) as server:
            turn = server.begin()
            told = kept(server.events(turn))
            killed = server.begin("Again", thread="next")
            server.events(killed)  # by its end, the events of the turn before are on disk or lost
            server.process.kill()
            server.process.communicate(timeout=LIMIT_S)
        with served(stage, model) as server:
            again = server.events(turn)

    # What was not written when it was killed is missing, and then the watcher is told how the turn stands instead.
    assert again == told or names(again)[-1] == "turn_state"


def test_an_approval_over_http_is_enough_for_the_turn_to_go_on(stage: Stage) -> None:
    with scripted([("paint", {"colour": "red"})], "It is red.") as model, served(stage, model) as server:
        turn = server.begin("Paint the door red")
        first = server.events(turn)
        waiting = server.get(f"/v1/turns/{turn}")
        [asked] = server.get("/v1/approvals")["data"]
        assert not (stage.folder / "painted").exists()
        assert server.post(f"/v1/approvals/{asked['id']}", {"granted": True}).status_code == 200
        then = server.events(turn, first[-1]["id"])
        shown = server.get(f"/v1/turns/{turn}")

    assert names(first)[-1] == "turn_waiting"
    assert (waiting["state"], waiting["answer"]) == ("waiting", None)
    assert waiting["waits"] == first[-1]["waits"]
    assert asked["id"] in json.dumps(waiting["waits"])
    assert then[0]["event"] == "turn_started"
    assert then[0]["resumed"]
    assert then[-1]["event"] == "turn_ended"
    assert then[-1]["answer"] == shown["answer"] == "It is red."
    assert (stage.folder / "painted").read_text() == "red\n"


def test_a_stream_is_resumed_after_the_last_event_and_none_comes_twice(stage: Stage) -> None:
    with scripted("Hello.") as model, served(stage, model) as server:
        turn = server.begin("Hi")
        told = server.events(turn)
        again = [server.events(turn, event["id"]) for event in told[:-1]]
        over = server.http.get(f"/v1/turns/{turn}/events", headers={"last-event-id": told[-1]["id"]})

    assert again == [told[place + 1 :] for place in range(len(told) - 1)]
    assert over.status_code == 204


def forget_events(stage: Stage) -> None:
    """As if they were too old: events are not kept for ever."""
    store = sqlite3.connect(stage.folder / ".toolwire" / "store.db")
    store.execute("DELETE FROM events")
    store.commit()
    store.close()


def test_events_that_are_gone_are_said_to_be_with_the_state_of_the_turn(stage: Stage) -> None:
    with scripted("Hello.") as model:
        with served(stage, model) as server:
            turn = server.begin("Hi")
            told = server.events(turn)
            server.stop()
        forget_events(stage)
        with served(stage, model) as server:
            [gone] = server.events(turn, told[0]["id"])
            [new] = server.events(turn)

    assert gone == new
    assert (gone["event"], gone["missed"], gone["state"], gone["answer"]) == ("turn_state", True, "ended", "Hello.")


def test_the_same_idempotency_key_gives_the_same_turn(stage: Stage) -> None:
    body = {"question": "Hi"}
    with scripted("Hello.", "Another.") as model, served(stage, model) as server:
        first = server.post("/v1/turns", body, **{"idempotency-key": "k1"})
        server.events(first.json()["id"])
        again = server.post("/v1/turns", body, **{"idempotency-key": "k1"})
        other = server.post("/v1/turns", {"question": "Bye"}, **{"idempotency-key": "k1"})
        listed = server.get("/v1/turns")["data"]

    assert (first.status_code, again.status_code, again.json()["id"]) == (202, 202, first.json()["id"])
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")
    assert len(listed) == len(model.requests) == 1


def test_a_server_that_dies_over_half_a_request_has_begun_nothing_and_the_whole_one_begins_one_turn(
    stage: Stage,
) -> None:
    """C1. Its client repeats the request, as often as it likes, under the same key."""
    body, key = {"question": "Hi"}, {"idempotency-key": "k1"}
    with scripted("Hello.") as model:
        with served(stage, model) as server:
            half_sent(server, json.dumps(body).encode(), key)
            server.process.kill()
            server.process.communicate(timeout=LIMIT_S)
        with served(stage, model) as server:
            before = server.get("/v1/turns")["data"]
            begun = {server.post("/v1/turns", body, **key).json()["id"] for _ in range(3)}
            told = server.events(*begun)

    assert (before, len(begun), names(told)[-1], len(model.requests)) == ([], 1, "turn_ended", 1)


def half_sent(server: Served, body: bytes, headers: dict[str, str]) -> None:
    """Send half of a request that begins a turn, and let the server come to its end."""
    url = server.http.base_url
    lines = {"host": url.netloc.decode(), **server.http.headers, **headers, "content-length": str(len(body))}
    head = "POST /v1/turns HTTP/1.1\r\n" + "".join(f"{name}: {text}\r\n" for name, text in lines.items())
    with socket.create_connection((url.host, url.port)) as sending:
        sending.sendall(head.encode() + b"\r\n" + body[: len(body) // 2])
        server.get("/v1/turns")


def test_control_without_a_key_each_request_that_is_repeated_begins_another_turn(stage: Stage) -> None:
    with scripted("Hello.", "Hello again.") as model, served(stage, model) as server:
        begun = [server.begin("Hi") for _ in range(2)]
        told = [names(server.events(turn))[-1] for turn in begun]

    assert (len(set(begun)), told, len(model.requests)) == (2, ["turn_ended"] * 2, 2)


def test_requests_at_the_same_moment_begin_and_end_one_turn(stage: Stage) -> None:
    with (
        scripted([("paint", {"colour": "red"})]) as model,
        served(stage, model) as server,
        ThreadPoolExecutor() as pool,
    ):
        model.gates[1] = threading.Event()
        key = {"idempotency-key": "k"}
        begun = [pool.submit(server.post, "/v1/turns", {"question": "Hi"}, **key) for _ in range(4)]
        [turn] = {each.result().json()["id"] for each in begun}
        model.wait_for_request(server.process)
        ended = [pool.submit(server.post, f"/v1/turns/{turn}/cancel") for _ in range(4)]
        states = [(each.result().status_code, each.result().json()["state"]) for each in ended]
        told = server.events(turn)

    assert states == [(200, "ended")] * 4
    assert names(told).count("turn_ended") == 1
    assert len(model.requests) == 1


@pytest.mark.parametrize("text", ["\\u0000", "\\r\\ndata: {}", "\\u2028"])
def test_any_text_of_a_question_and_its_thread_comes_back_as_one_event(stage: Stage, text: str) -> None:
    with scripted("Hello.") as model, served(stage, model) as server:
        body = f'{{"question": "Hi {text}", "thread": "a{text}"}}'.encode()
        begun = server.http.post("/v1/turns", content=body)
        assert begun.status_code == 202, begun.text
        told = server.events(begun.json()["id"])
        listed = server.http.get("/v1/turns")

    assert names(told)[0] == "turn_started"
    assert told[0]["question"].startswith("Hi ")
    assert told[-1]["answer"] == "Hello."
    assert listed.json()["data"][0]["state"] == "ended"


def test_a_running_turn_is_canceled_once_and_for_all(stage: Stage) -> None:
    with scripted([("paint", {"colour": "red"})]) as model, served(stage, model) as server:
        model.gates[1] = gate = threading.Event()
        turn = server.begin()
        model.wait_for_request(server.process)
        running = server.get(f"/v1/turns/{turn}")
        answers = [server.post(f"/v1/turns/{turn}/cancel") for _ in range(2)]
        gate.set()
        told = server.events(turn)
        resumed = server.post(f"/v1/turns/{turn}/resume")

    assert running["state"] == "running"
    assert [(each.status_code, each.json()["state"]) for each in answers] == [(200, "ended")] * 2
    assert answers[0].json()["reason"] == told[-1]["reason"] == "canceled"
    assert names(told)[-1] == "turn_ended"
    assert (resumed.status_code, resumed.json()["error"]["code"]) == (409, "turn_not_free")
    assert not (stage.folder / "painted").exists()


def test_a_waiting_turn_that_is_canceled_cannot_be_approved_any_more(stage: Stage) -> None:
    with scripted([("paint", {"colour": "red"})]) as model, served(stage, model) as server:
        turn = server.begin()
        server.events(turn)
        [asked] = server.get("/v1/approvals")["data"]
        canceled = server.post(f"/v1/turns/{turn}/cancel")
        late = server.post(f"/v1/approvals/{asked['id']}", {"granted": True})

    assert (canceled.json()["state"], late.status_code) == ("ended", 409)
    assert not (stage.folder / "painted").exists()


def test_a_client_that_goes_away_stops_nothing(stage: Stage) -> None:
    with scripted("Hello.") as model, served(stage, model) as server:
        model.gates[1] = gate = threading.Event()
        turn = server.begin()
        model.wait_for_request(server.process)
        with server.http.stream("GET", f"/v1/turns/{turn}/events") as answer:
            next(answer.iter_lines())
        gate.set()
        told = server.events(turn)

    assert told[-1]["answer"] == "Hello."


def test_a_turn_that_runs_when_the_server_stops_goes_on_with_the_next_one(stage: Stage) -> None:
    with scripted("never sent", "Hello.") as model:
        with served(stage, model) as server:
            model.gates[1] = threading.Event()
            turn = server.begin()
            model.wait_for_request(server.process)
            server.stop()
            assert server.process.returncode == Exit.DONE
        with served(stage, model) as server:
            told = server.events(turn)

    assert told[-1]["answer"] == "Hello."


def test_a_watcher_of_a_server_that_stops_gets_an_end_and_comes_back_to_the_next_one(stage: Stage) -> None:
    with scripted("never sent", "Hello.") as model:
        with served(stage, model) as server:
            model.gates[1] = threading.Event()
            turn = server.begin()
            model.wait_for_request(server.process)
            with server.http.stream("GET", f"/v1/turns/{turn}/events") as answer:
                pieces = answer.iter_bytes()
                first = next(pieces)
                server.process.send_signal(signal.SIGTERM)
                told = first + b"".join(pieces)
            _, err = server.process.communicate(timeout=LIMIT_S)
        with served(stage, model) as server:
            then = server.events(turn, "2.2")

    assert b"id: 2.2\nevent: model_asked\n" in told
    assert b"Traceback" not in err
    assert b"ERROR" not in err
    assert (then[0]["event"], then[-1]["answer"]) == ("turn_started", "Hello.")


def test_a_turn_whose_server_was_killed_goes_on_with_toolwire_run(stage: Stage) -> None:
    with scripted("never sent", "Hello.") as model, served(stage, model) as server:
        model.gates[1] = threading.Event()
        turn = server.begin()
        model.wait_for_request(server.process)
        server.process.kill()
        server.process.communicate(timeout=LIMIT_S)
        ran = stage.run("run", "--once", "--json")

    assert (ran.json["turn_id"], ran.json["answer"]) == (turn, "Hello.")


def test_why_a_turn_cannot_go_on_is_told_and_resuming_tries_again_at_once(stage: Stage) -> None:
    with scripted(400, "Hello.") as model, served(stage, model) as server:
        turn = server.begin()
        with server.http.stream("GET", f"/v1/turns/{turn}/events") as answer:
            failed = next(line for line in answer.iter_lines() if '"turn_failed"' in line)
        shown = server.get(f"/v1/turns/{turn}")
        assert server.post(f"/v1/turns/{turn}/resume").status_code == 202
        told = server.events(turn)

    assert "as the script says" in json.loads(failed.removeprefix("data: "))["error"]
    assert (shown["state"], "as the script says" in shown["error"]) == ("waiting", True)
    assert told[-1]["answer"] == "Hello."


def test_a_turn_that_was_interrupted_at_the_terminal_goes_on_when_it_is_resumed_over_http(stage: Stage) -> None:
    with scripted("never sent", "Hello.") as model, served(stage, model) as server:
        model.gates[1] = threading.Event()
        terminal = stage.start("ask", "Hi")
        model.wait_for_request(terminal)
        [row] = server.get("/v1/turns")["data"]
        held = server.post(f"/v1/turns/{row['id']}/cancel")
        terminal.send_signal(signal.SIGINT)
        terminal.communicate(timeout=LIMIT_S)
        before = server.get(f"/v1/turns/{row['id']}")
        resumed = server.post(f"/v1/turns/{row['id']}/resume")
        told = server.events(row["id"])

    assert (row["state"], held.status_code, before["state"]) == ("running", 409, "interrupted")
    assert (resumed.status_code, told[-1]["answer"]) == (202, "Hello.")


def test_a_turn_has_only_the_tools_that_the_request_names(stage: Stage) -> None:
    with scripted("Done.", "Done.") as model, served(stage, model) as server:
        server.events(server.begin(tools=["paint"]))
        server.events(server.begin())

    few, all_tools = ([tool["function"]["name"] for tool in sent["tools"]] for sent in model.requests)
    assert few == ["paint"]
    assert {"paint"} < set(all_tools)


WRONG: list[tuple[bytes, int, str]] = [
    (b"{", 400, "not JSON"),
    (b'{"question": "\\ud800"}', 400, "not JSON"),
    (b"[]", 400, "must be an object"),
    (b"{}", 400, "question"),
    (b'{"question": " "}', 400, "question"),
    (b'{"question": 5}', 400, "question"),
    (b'{"question": "Hi", "tread": "a"}', 400, "did you mean thread?"),
    (b'{"question": "Hi", "grant": "*"}', 400, "there is no field 'grant'"),
    (b'{"question": "Hi", "tools": []}', 400, "tools"),
    (b'{"question": "Hi", "tools": ["pant"]}', 400, "did you mean paint"),
    (b'{"question": "' + b"a" * 3_000_000 + b'"}', 413, "at most"),
]


def test_a_request_that_is_wrong_is_told_what_and_begins_nothing(stage: Stage) -> None:
    with scripted() as model, served(stage, model) as server:
        answers = [server.http.post("/v1/turns", content=body) for body, _, _ in WRONG]
        listed = server.get("/v1/turns")["data"]

    for answer, (_, status, told) in zip(answers, WRONG, strict=True):
        assert (answer.status_code, told in answer.json()["error"]["message"]) == (status, True), answer.text
    assert (listed, model.requests) == ([], [])


def test_turns_that_are_not_there_and_wrong_questions_about_them_are_told(stage: Stage) -> None:
    with scripted("Hello.") as model, served(stage, model) as server:
        turn = server.begin()
        server.events(turn)
        unknown = [
            server.http.get("/v1/turns/none").status_code,
            server.http.get("/v1/turns/none/events").status_code,
            server.post("/v1/turns/none/resume").status_code,
            server.post("/v1/turns/none/cancel").status_code,
        ]
        bad = [
            server.http.get("/v1/turns?limit=0").status_code,
            server.http.get("/v1/turns?after=x").status_code,
            server.http.get(f"/v1/turns/{turn}/events", headers={"last-event-id": "one"}).status_code,
        ]

    assert (unknown, bad) == ([404] * 4, [400] * 3)


def test_T62_turns_of_another_project_are_not_found(stage: Stage) -> None:
    with scripted("Hello.") as model:
        with served(stage, model) as server:
            turn = server.begin()
            server.events(turn)
        with served(stage, model, "--project", "tenant-b") as server:
            found = [
                server.http.get(f"/v1/turns/{turn}").status_code,
                server.http.get(f"/v1/turns/{turn}/events").status_code,
                server.post(f"/v1/turns/{turn}/cancel").status_code,
                server.post(f"/v1/turns/{turn}/resume").status_code,
            ]
            listed = server.get("/v1/turns")["data"]

    assert (found, listed) == ([404] * 4, [])


def test_T60_without_a_token_no_turn_is_begun_or_shown(stage: Stage) -> None:
    with scripted() as model, served(stage, model) as server:
        bare = {"authorization": "Bearer wrong-token"}
        told = [
            server.http.post("/v1/turns", json={"question": "Hi"}, headers=bare).status_code,
            *(server.http.get(f"/v1/turns{path}", headers=bare).status_code for path in ("", "/a", "/a/events")),
            *(server.http.post(f"/v1/turns/a/{verb}", headers=bare).status_code for verb in ("resume", "cancel")),
        ]

    assert (told, model.requests) == ([401] * 6, [])


def test_agents_are_off_unless_they_are_switched_on(stage: Stage) -> None:
    stage.settings("")
    process = stage.start("serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--token-env", "ANN", ANN=TOKEN)
    headers = {"authorization": f"Bearer {TOKEN}"}
    url = address(first_line(process))
    told = httpx2.post(f"{url}/v1/turns", json={"question": "Hi"}, headers=headers, trust_env=False, verify=NO_TLS)

    assert told.status_code == 404


@pytest.mark.parametrize(
    ("settings", "flags", "told"),
    [
        ("[serve]\nagents = true\n", (), "need a token"),
        ('[store]\nkind = "memory"\n', ("--agents", "--token-env", "ANN"), "a store that lasts"),
        ('[tools]\ngroups = ["nonsense"]\n', ("--agents", "--token-env", "ANN"), "nonsense"),
        ('[tools]\nmodules = ["not_there:x"]\n', ("--agents", "--token-env", "ANN"), "not_there"),
    ],
)
def test_agents_that_could_not_be_guarded_kept_or_made_are_refused(
    stage: Stage, settings: str, flags: tuple[str, ...], told: str
) -> None:
    stage.settings(settings)
    ran = stage.run("serve", "--upstream", "http://127.0.0.1:9", "--port", "0", *flags, ANN=TOKEN)

    assert (ran.code, told in ran.err) == (Exit.USAGE, True), ran.err


def test_turns_are_read_backwards_page_by_page_and_each_once(stage: Stage) -> None:
    with scripted(*["Hello."] * 6) as model, served(stage, model) as server:
        begun = [server.begin(f"{number}") for number in range(5)]
        first = server.get("/v1/turns?limit=2")
        begun_later = server.begin("later")
        second = server.get(f"/v1/turns?limit=2&before={first['next']}")
        third = server.get(f"/v1/turns?limit=2&before={second['next']}")
        whole = server.get("/v1/turns?limit=6")
        wrong = [server.http.get(f"/v1/turns?{query}") for query in ("before=x", "before=-1", "before=1&after=0")]
        nothing = server.get("/v1/turns?before=0")

    pages = [[row["id"] for row in page["data"]] for page in (first, second, third)]
    assert pages == [begun[4:2:-1], begun[2:0:-1], begun[:1]]
    assert (third["next"], nothing) == (None, {"data": [], "next": None})
    assert ([row["id"] for row in whole["data"]], whole["next"]) == ([begun_later, *reversed(begun)], None)
    assert [answer.status_code for answer in wrong] == [400, 400, 400]


def test_a_turn_that_was_just_begun_is_queued_and_waits_for_nothing(stage: Stage) -> None:
    """Four turns run at the same time; the fifth has only been begun."""
    with scripted(*["Hello."] * 5) as model, served(stage, model) as server:
        for number in range(1, 5):
            model.gates[number] = threading.Event()
        running = [server.begin(f"{number}") for number in range(4)]
        for _ in running:
            model.wait_for_request(server.process)
        fifth = server.begin("5")
        shown = server.get(f"/v1/turns/{fifth}")
        [row] = [each for each in server.get("/v1/turns")["data"] if each["id"] == fifth]
        for gate in model.gates.values():
            gate.set()
        told = server.events(fifth)

    assert (shown["state"], shown["waits"], shown["error"]) == ("queued", [], None)
    assert row["state"] == "queued"
    assert told[-1]["answer"] == "Hello."


def test_a_request_chooses_among_the_models_that_the_settings_name(stage: Stage) -> None:
    large = '[profiles.large]\nprovider = "openai-compatible"\nmodel = "grand"\nurl = "{url}"\n'
    with scripted(*["Hello."] * 4) as model, served(stage, model, after=large.format(url=model.url)) as server:
        for chosen in ("large", "openai-compatible:grand", "openai-compatible:scripted", "small"):
            server.events(server.begin(model=chosen))
        asked = [request["model"] for request in model.requests]
        shown = {row["question"]: row["model"] for row in server.get("/v1/turns")["data"]}
        wrong = server.post("/v1/turns", {"question": "Hi", "model": "larg"})
        other = server.post("/v1/turns", {"question": "Hi", "model": "openai:gpt-9"})
        count = len(server.get("/v1/turns")["data"])

    assert asked == ["grand", "grand", "scripted", "scripted"]
    assert shown["Paint"].startswith("openai-compatible:")
    assert (wrong.status_code, other.status_code, count) == (400, 400, 4)
    assert "no model 'larg'; did you mean large?" in wrong.json()["error"]["message"]
    assert "no model 'openai:gpt-9'; there are" in other.json()["error"]["message"]


AGENTS = """
[profiles.decorator]
provider = "openai-compatible"
model = "painting"
url = "{url}"
[agents.decorator]
permissions = ["file_read", "brushes"]
[agents.small]
permissions = ["file_read"]
"""
NO_BRUSHES = SETTINGS.replace(', "brushes"', "")


def test_a_request_chooses_among_the_agents_of_the_project(stage: Stage) -> None:
    red = [("paint", {"colour": "red"})]
    script = scripted(red, "I may not.", red, "Done.", "It is 4.")
    with script as model, served(stage, model, settings=NO_BRUSHES + AGENTS) as server:
        refused = server.begin()
        server.events(refused)
        allowed = server.begin(agent="decorator")
        waiting = server.events(allowed)
        [asked] = server.get("/v1/approvals")["data"]
        server.post(f"/v1/approvals/{asked['id']}", {"granted": True, "digest": asked["digest"]})
        server.events(allowed, waiting[-1]["id"])
        with_model = server.begin("What is 2 + 2?", agent="decorator", model="small")
        server.events(with_model)
        turns = {turn["id"]: turn for turn in server.get("/v1/turns")["data"]}
        painted = server.get(f"/v1/turns/{allowed}")
        unknown = server.post("/v1/turns", {"question": "Paint", "agent": "decorater"})

    assert [turns[each]["agent"] for each in (refused, allowed, with_model)] == ["cli", "decorator", "decorator"]
    assert turns[refused]["answer"] == "I may not."
    assert (painted["agent"], painted["answer"], painted["reason"]) == ("decorator", "Done.", "answered")
    assert (stage.folder / "painted").read_text() == "red\n"
    assert [sent["model"] for sent in model.requests] == ["scripted", "scripted", "painting", "painting", "scripted"]
    assert unknown.status_code == 400
    assert "this project has no agent 'decorater'; did you mean decorator?" in unknown.json()["error"]["message"]


def test_agents_share_the_budget_of_a_day(stage: Stage) -> None:
    with scripted("One.") as model, served(
        stage, model, settings=SETTINGS + AGENTS, after="[budget]\ntokens = 1\n"
    ) as server:  # fmt: skip
        server.events(server.begin("What is 1?"))
        other = server.post("/v1/turns", {"question": "And 2?", "agent": "decorator"})

    assert (other.status_code, other.json()["error"]["code"]) == (429, "budget_spent")


def test_an_idempotency_key_is_for_one_agent(stage: Stage) -> None:
    with scripted("One.", "Two.") as model, served(stage, model, settings=SETTINGS + AGENTS) as server:
        first = server.post("/v1/turns", {"question": "Who?", "agent": "small"}, **{"idempotency-key": "k"})
        again = server.post("/v1/turns", {"question": "Who?", "agent": "small"}, **{"idempotency-key": "k"})
        other = server.post("/v1/turns", {"question": "Who?", "agent": "decorator"}, **{"idempotency-key": "k"})

    assert (first.status_code, again.json()["id"]) == (202, first.json()["id"])
    assert (other.status_code, other.json()["error"]["code"]) == (409, "idempotency_conflict")


def test_a_turn_goes_on_with_the_model_that_the_request_chose(stage: Stage) -> None:
    large = '[profiles.large]\nprovider = "openai-compatible"\nmodel = "grand"\nurl = "{url}"\n'
    with (
        scripted([("paint", {"colour": "red"})], "Painted.") as model,
        served(stage, model, after=large.format(url=model.url)) as server,
    ):
        turn = server.begin(model="large")
        before = server.events(turn)
        [asked] = server.get("/v1/approvals")["data"]
        server.post(f"/v1/approvals/{asked['id']}", {"granted": True, "digest": asked["digest"]})
        told = server.events(turn, before[-1]["id"])

    assert told[-1]["answer"] == "Painted."
    assert [request["model"] for request in model.requests] == ["grand", "grand"]


def test_a_key_is_for_one_request_only_whatever_differs(stage: Stage) -> None:
    others: list[dict[str, Any]] = [
        {"tools": ["paint"]},
        {"tools": None, "thread": "t"},
        {"system": "Be short."},
        {"model": "small"},
    ]
    with scripted(*["Hello."] * 5) as model, served(stage, model) as server:

        def begin(key: str, **more: Any) -> httpx2.Response:
            return server.post("/v1/turns", {"question": "Hi", **more}, **{"idempotency-key": key})

        plain, again = begin("k"), begin("k")
        differing = [begin("k", **other) for other in others]
        pairs = [(begin(f"k{at}", **other), begin(f"k{at}")) for at, other in enumerate(others)]

    assert (plain.status_code, again.json()["id"]) == (202, plain.json()["id"])
    for differs in differing:
        assert (differs.status_code, differs.json()["error"]["code"]) == (409, "idempotency_conflict")
        assert "take a new key" in differs.json()["error"]["message"]
    assert [(first.status_code, less.status_code) for first, less in pairs] == [(202, 409)] * len(others)


TEAM = SETTINGS.replace('groups = ["read_only"]', 'groups = ["read_only", "teamwork"]').replace(
    '"brushes"]', '"brushes", "session"]\nconfirmed = ["task"]'
)
DELEGATES = [("task", {"prompt": "Paint it red", "agent": "general"})]


def test_canceling_a_turn_cancels_the_sub_agent_that_it_waits_for(stage: Stage) -> None:
    with (
        scripted(DELEGATES, [("paint", {"colour": "red"})]) as model,
        served(stage, model, settings=TEAM) as server,
    ):
        parent = server.begin("Have it painted")
        server.events(parent)
        waiting = server.get(f"/v1/turns/{parent}")
        [asked] = server.get("/v1/approvals")["data"]
        child = asked["turn_id"]
        canceled = server.post(f"/v1/turns/{parent}/cancel")
        after = server.get(f"/v1/turns/{child}")
        late = server.post(f"/v1/approvals/{asked['id']}", {"granted": True, "digest": asked["digest"]})
        told = server.events(child)

    assert (waiting["state"], asked["tool"]) == ("waiting", "paint")
    assert {"turn": child} in waiting["waits"]
    assert child != parent
    assert (canceled.json()["state"], canceled.json()["reason"]) == ("ended", "canceled")
    assert (after["state"], after["reason"]) == ("ended", "canceled")
    assert late.status_code == 409
    assert names(told)[-1] == "turn_ended"
    assert not (stage.folder / "painted").exists()


def test_canceling_a_turn_stops_the_sub_agent_that_runs_for_it(stage: Stage) -> None:
    """The approval has come, and the turn of the sub-agent runs again while its parent waits for it."""
    with (
        scripted(DELEGATES, [("paint", {"colour": "red"})], [("paint", {"colour": "blue"})]) as model,
        served(stage, model, settings=TEAM) as server,
    ):
        model.gates[3] = gate = threading.Event()
        parent = server.begin("Have it painted")
        server.events(parent)
        [asked] = server.get("/v1/approvals")["data"]
        server.post(f"/v1/approvals/{asked['id']}", {"granted": True, "digest": asked["digest"]})
        for _ in range(3):
            model.wait_for_request(server.process)
        canceled = server.post(f"/v1/turns/{parent}/cancel")
        gate.set()
        states = {row["id"]: (row["state"], row["reason"]) for row in server.get("/v1/turns")["data"]}

    assert canceled.status_code == 200
    assert states == {parent: ("ended", "canceled"), asked["turn_id"]: ("ended", "canceled")}
    assert (stage.folder / "painted").read_text() == "red\n"
    assert len(model.requests) == 3


SHED = '[services.shed]\nsocket = "shed.sock"\ntools = ["paint"]\n'


def started_worker(stage: Stage) -> Any:
    worker = stage.start("worker", "shed")
    assert " for callers at" in first_line(worker)
    return worker


def test_an_approved_call_of_a_turn_over_http_runs_in_a_worker_that_was_away(stage: Stage) -> None:
    """While no worker is there, the approval is not spent: the turn says why it cannot go on, and is tried again."""
    with scripted([("paint", {"colour": "red"})], "It is red.") as model:
        stage.settings(SETTINGS.format(url=model.url) + SHED)
        worker = started_worker(stage)
        with served(stage, model, after=SHED) as server:
            turn = server.begin()
            before = server.events(turn)
            worker.send_signal(signal.SIGTERM)
            worker.communicate(timeout=LIMIT_S)
            [asked] = server.get("/v1/approvals")["data"]
            server.post(f"/v1/approvals/{asked['id']}", {"granted": True, "digest": asked["digest"]})
            with server.http.stream(
                "GET", f"/v1/turns/{turn}/events", headers={"last-event-id": before[-1]["id"]}
            ) as answer:
                failed = next(line for line in answer.iter_lines() if '"turn_failed"' in line)
            away = server.get(f"/v1/turns/{turn}")
            started_worker(stage)
            server.post(f"/v1/turns/{turn}/resume")
            told = server.events(turn, before[-1]["id"])

    assert "start it with: toolwire worker shed" in failed
    assert (away["state"], "toolwire worker shed" in away["error"]) == ("waiting", True)
    assert told[-1]["answer"] == "It is red."
    assert (stage.folder / "painted").read_text() == "red\n"


@pytest.mark.feature("F030")
def test_a_turn_begun_over_http_ends_with_a_result_of_the_schema_that_was_asked_for(stage: Stage) -> None:
    schema = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
    with scripted([("submit_result", {"result": {"price": 3.5}})]) as model, served(stage, model) as server:
        wrong = [
            server.post("/v1/turns", {"question": "The price?", "result_schema": given}).status_code
            for given in ("text", {"type": "odd"})
        ]
        turn = server.begin("The price?", result_schema=schema)
        told = server.events(turn)
        shown = server.get(f"/v1/turns/{turn}")

    assert wrong == [400, 400]
    assert (shown["value"], shown["reason"], told[-1]["value"]) == ({"price": 3.5}, "delivered", {"price": 3.5})


ORCHESTRATION = SETTINGS.replace('groups = ["read_only"]', 'groups = ["orchestration"]').replace(
    '"brushes"]', '"brushes", "session"]'
)


@pytest.mark.feature("F175")
def test_a_turn_waits_for_the_expert_that_it_asks_and_both_run_as_turns_of_the_server(stage: Stage) -> None:
    asks = [("ask_expert", {"expert_profile": "general", "question": "How many?"})]
    with scripted(asks, "Three.", "They are three.") as model, served(stage, model, settings=ORCHESTRATION) as server:
        parent = server.begin("Count them")
        for _ in range(3):
            model.wait_for_request(server.process)
        ended = _until_ended(server, parent)
        turns = server.get("/v1/turns")["data"]

    answers = {row["question"]: (row["state"], row["answer"]) for row in turns}
    assert answers == {"Count them": ("ended", "They are three."), "How many?": ("ended", "Three.")}
    assert ended["answer"] == "They are three."


def _until_ended(server: Served, turn: str) -> dict[str, Any]:
    while (shown := server.get(f"/v1/turns/{turn}"))["state"] != "ended":
        server.events(turn)
    return dict(shown)
