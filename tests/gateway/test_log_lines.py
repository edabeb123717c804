"""The plain log: one request is one line, whatever a client writes into its request."""

import logging
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.cli.stage import LIMIT_S, Stage, scripted
from tests.gateway.test_serve import address, first_line
from toolwire.cli.entry.exits import Exit
from toolwire.cli.entry.streams import LineFormatter

FORGED = "GET /admin - 200 1 ms"
BREAKS = [
    "%0a",
    "%0d",
    "%0d%0a",
    "%0b",
    "%0c",
    "%1c",
    "%1d",
    "%1e",
    "%c2%85",
    "%e2%80%a8",
    "%e2%80%a9",
    "%1b%5b1E",
    "%00",
]
REQUEST = "{} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{}\r\n"


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def send(url: str, request: str) -> bytes:
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=LIMIT_S) as sock:
        sock.sendall(request.encode())
        return b"".join(iter(lambda: sock.recv(65_536), b""))


@pytest.mark.parametrize("as_json", [False, True], ids=["plain", "json"])
def test_T66_a_request_is_one_line_of_the_log(stage: Stage, as_json: bool) -> None:
    options = ["--json-logs"] if as_json else []
    process = stage.start("serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", *options)
    url = address(first_line(process))
    forged = FORGED.replace(" ", "%20")
    requests = [REQUEST.format(f"GET /x{each}{forged}", "") for each in BREAKS]
    for each in BREAKS:
        body = '{"model": "m' + "".join(f"\\u{ord(char):04x}" for char in unquote(each)) + FORGED + '"}'
        length = f"content-length: {len(body)}\r\n"
        requests.append(REQUEST.format("POST /v1/chat/completions", length) + body)
    requests.append(REQUEST.format("GET /x", f"x-request-id: a\tb{FORGED}\r\nuser-agent: a\t{FORGED}\r\n"))
    for request in requests:
        assert send(url, request)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT_S)

    lines = err.decode().splitlines()
    assert len(lines) == len(requests)
    assert not any(line.startswith("GET /admin") for line in lines)
    assert not set(err) & {*range(0x0A), *range(0x0B, 0x20), 0x7F}


def test_T66_control_a_path_as_it_is_would_be_two_lines() -> None:
    assert [len(f"GET {unquote(f'/x{each}{FORGED}')} - 404".splitlines()) > 1 for each in BREAKS[:-2]] == [True] * 11


def test_T66_what_is_logged_by_the_way_begins_one_line_at_the_margin() -> None:
    try:
        raise ValueError(f"bad\n{FORGED}\x85{FORGED}\x1b[2J")
    except ValueError:
        record = logging.LogRecord("any", logging.ERROR, "", 1, "request %s failed", (f"x\n{FORGED}",), sys.exc_info())

    text = LineFormatter().format(record)

    first, *rest = text.splitlines()
    assert first == "error: request x"
    assert all(line.startswith("  ") for line in rest)
    assert "\x1b" not in text
    assert len(LineFormatter(as_json=True).format(record).splitlines()) == 1


def test_T66_no_call_forges_a_line_of_the_trace_or_the_log(stage: Stage) -> None:
    name = "calc\n12-31 23:59:59  allowed   bash  by rule\x85x\u2028y"
    with scripted([(name, {"expression": f"1\n{FORGED}"})], "Done.") as model:
        asked = stage.run("ask", "?", *model.flags, "--trace")
    logged = stage.run("logs")

    assert asked.code == Exit.DONE
    assert "unknown_tool" in logged.out or "calc" in logged.out
    assert not any(line.lstrip().startswith(("12-31", "GET")) for line in (asked.err + logged.out).splitlines())
    assert len(logged.out.splitlines()) == len(stage.run("logs", "--json").json)
