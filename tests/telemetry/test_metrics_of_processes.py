"""Metrics as Prometheus reads them: from the gateway, from a worker and from a runner."""

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.stage import LIMIT_S, Stage, scripted
from tests.gateway.test_serve import address, first_line
from tests.no_tls import NO_TLS
from tests.telemetry.collector import collecting
from toolwire.cli.entry.exits import Exit

from .test_traces_across_processes import ALONE, PARENT, SETTINGS, TOOLS

TOKEN = "a-long-token"
BEARER = {"authorization": f"Bearer {TOKEN}"}
PROFILE = 'profile = "small"\n[profiles.small]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{url}"\n'


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    stage.module("brushwork", TOOLS)
    stage.settings(ALONE)
    yield stage
    stage.close()


def read(url: str, **headers: str) -> str:
    answer = httpx2.get(url, headers=headers, timeout=LIMIT_S, trust_env=False, verify=NO_TLS)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return answer.text


def told_at(line: bytes) -> str:
    found = re.search(rb"Metrics: (\S+)", line)
    assert found, line
    return found[1].decode()


def stop(process: Any) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=LIMIT_S)


def test_the_gateway_gives_metrics_and_continues_traces(stage: Stage) -> None:
    """A turn of its agent, a request that it passes on, and one for a path that does not exist."""
    with collecting() as collector, scripted([("paint", {"colour": "red"})], "Hello.") as model:
        stage.settings(PROFILE.format(url=model.url) + ALONE + f'[telemetry]\nendpoint = "{collector.url}"\n')
        server = stage.start(
            "serve", "--upstream", model.url, "--port", "0", "--token-env", "ANN", "--agents", ANN=TOKEN
        )
        url = address(first_line(server))
        with httpx2.Client(base_url=url, headers=BEARER, timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as http:
            begun = http.post("/v1/turns", json={"question": "Paint"}, headers={"traceparent": PARENT}).json()["id"]
            http.get(f"/v1/turns/{begun}/events").read()  # until it waits for approval
            body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
            assert http.post("/v1/chat/completions", json=body, headers={"traceparent": PARENT}).status_code == 200
            http.get("/v1/nothing/here")
        text = read(f"{url}/metrics")
        stop(server)

    assert 'toolwire_turns_suspended_total{project=""} 1.0' in text
    assert 'toolwire_store_turns{state="waiting"} 1.0' in text
    assert "toolwire_store_approvals_pending 1.0" in text
    assert 'toolwire_gateway_requests_total{method="POST",route="/v1/chat/completions",status="200"} 1.0' in text
    assert 'route="/v1/turns/{id}/events"' in text
    assert 'route="other",status="404"' in text
    assert 'toolwire_store_write_seconds_count{operation="append_reply"} 1.0' in text
    assert re.search(r"toolwire_store_commit_seconds_count [1-9]", text)
    assert re.search(r'toolwire_store_commit_changes_bucket\{le="1.0"\} [1-9]', text)
    assert begun not in text
    names = {span.name: span for span in collector.spans}
    asked, posted = names["POST /v1/chat/completions"], names["POST /v1/turns"]
    assert (asked.parent_id, posted.parent_id) == (PARENT.split("-")[2],) * 2
    assert (asked.attributes["gen_ai.request.model"], asked.attributes["http.response.status_code"]) == (
        "scripted",
        200,
    )
    [chat] = [span for span in collector.of("chat") if span.name == "chat scripted"]
    assert chat.trace_id == posted.trace_id


def test_the_upstream_gets_the_span_of_the_request_as_its_parent(stage: Stage) -> None:
    with collecting() as collector, scripted("Hello.") as model:
        server = stage.start("serve", "--upstream", model.url, "--port", "0", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url)
        url = address(first_line(server))
        body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
        given = {"traceparent": PARENT, "tracestate": "vendor=1"}
        httpx2.post(
            f"{url}/v1/chat/completions", json=body, headers=given, timeout=LIMIT_S, trust_env=False, verify=NO_TLS
        )
        stop(server)

    [sent] = model.headers
    [span] = collector.spans
    assert sent["traceparent"] == f"{PARENT[:36]}{span.span_id}-01"
    assert sent["tracestate"] == "vendor=1"


@pytest.mark.parametrize(("setting", "shown", "status"), [("", "", 404), ("true", "", 401), ("true", TOKEN, 200)])
def test_an_exposed_gateway_gives_metrics_only_if_set_and_to_those_with_a_token(
    stage: Stage, setting: str, shown: str, status: int
) -> None:
    stage.environ |= {"TOOLWIRE_SERVE__METRICS": setting} if setting else {}
    server = stage.start(
        "serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--host", "0.0.0.0", "--token-env", "ANN", ANN=TOKEN
    )
    url = address(first_line(server))
    bearer = shown or (TOKEN if status == 404 else "")
    given = {"authorization": f"Bearer {bearer}"} if bearer else {}
    answer = httpx2.get(f"{url}/metrics", headers=given, timeout=LIMIT_S, trust_env=False, verify=NO_TLS)
    stop(server)

    assert answer.status_code == status


def test_a_worker_and_a_runner_give_metrics_at_a_port(stage: Stage) -> None:
    stage.settings(SETTINGS)
    worker = stage.start("worker", "shed", "--metrics-port", "0")
    assert worker.stdout is not None
    at_worker = told_at(worker.stdout.readline())
    assert stage.run("call", "measure", "room=hall").code == Exit.DONE
    assert stage.run("call", "paint", "colour=red").code == Exit.WAITING
    runner = stage.start("run", TOOLWIRE_TELEMETRY__METRICS_PORT="0")
    assert runner.stderr is not None
    at_runner = told_at(runner.stderr.readline())
    by_worker, by_runner = read(at_worker), read(at_runner)
    stop(worker)
    runner.send_signal(signal.SIGINT)
    runner.communicate(timeout=LIMIT_S)

    assert 'toolwire_worker_calls_total{status="success",tool="measure"} 1.0' in by_worker
    assert 'toolwire_worker_call_seconds_count{tool="measure"} 1.0' in by_worker
    assert "toolwire_worker_calls_in_flight 0.0" in by_worker
    assert 'toolwire_store_turns{state="waiting"} 1.0' in by_runner
    assert "toolwire_store_approvals_pending 1.0" in by_runner
    assert "_created" not in by_runner


def test_T214_a_page_cannot_read_metrics_by_a_name_that_it_has_point_here(stage: Stage) -> None:
    stage.settings(SETTINGS)
    worker = stage.start("worker", "shed", "--metrics-port", "0")
    assert worker.stdout is not None
    url = told_at(worker.stdout.readline())
    port = httpx2.URL(url).port
    for host in (f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1"):
        answer = httpx2.get(url, headers={"host": host}, timeout=LIMIT_S, trust_env=False)
        assert (answer.status_code, "toolwire_" in answer.text) == (421, False), host
    stop(worker)


def test_T214_control_the_machine_itself_reads_them_by_any_of_its_names(stage: Stage) -> None:
    stage.settings(SETTINGS)
    worker = stage.start("worker", "shed", "--metrics-port", "0")
    assert worker.stdout is not None
    url = told_at(worker.stdout.readline())
    for host in (f"localhost:{httpx2.URL(url).port}", "LOCALHOST", "127.0.0.1", "[::1]:80", "192.0.2.7"):
        assert "toolwire_" in read(url, host=host), host
    stop(worker)


def test_a_port_that_is_taken_is_told(stage: Stage) -> None:
    with scripted() as taken:
        port = re.search(r":(\d+)/", taken.url)
        assert port is not None
        ran = stage.run("run", "--metrics-port", port[1])
    assert (ran.code, "--metrics-port" in ran.err) == (Exit.USAGE, True), ran.err
