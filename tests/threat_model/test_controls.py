"""The attacks of nine threats against careless ways of doing the same: here they succeed."""

import asyncio
import gzip
import json
import sqlite3
import subprocess
import tomllib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx2
import pydantic
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.skills.making import GREET, greeter, program, write
from toolwire import Agent, Grant, Limits, Tier, parse_reply, tool
from toolwire.errors import DefinitionError
from toolwire.protocol.turns import EndReason
from toolwire.testing import ScriptedModel, call
from toolwire.toolbox.skills.catalog import read_skill, scan
from toolwire.toolbox.skills.choice import choose

SPELLINGS = [
    '<tool_call>{"name": "launch", "arguments": {}}</tool_call>',
    '<function_calls><invoke name="launch"></invoke></function_calls>',
    '[TOOL_CALLS] [{"name": "launch", "arguments": {}}]',
    '<|python_tag|>{"name": "launch", "parameters": {}}',
    '{"name": "launch", "arguments": {}}',
]


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_T10_control_a_runtime_that_hides_a_tool_and_then_asks_no_more_launches(spelling: str) -> None:
    launched: list[str] = []

    @tool(tier=Tier.RUN)
    def launch() -> str:
        """Launch."""
        launched.append(spelling)
        return "launched"

    said = parse_reply(spelling, tools=[launch])
    await Agent(ScriptedModel(said, "ProxyRefusal."), [launch], grant=Grant(tier=Tier.WALK)).ask("Launch!")
    assert launched == []

    for wanted in said.calls:  # nothing is judged: what names a registered tool runs
        {"launch": launch}[wanted.name]()
    assert launched == [spelling]


async def test_T12_control_a_reader_that_guesses_takes_a_word_for_a_yes() -> None:
    removed: list[object] = []

    def remove(force: bool, count: int) -> str:
        """Remove."""
        removed.append((force, count))
        return "removed"

    await Agent(ScriptedModel(call("remove", force="yes", count=True), "ProxyRefusal."), [tool(remove)]).ask("Remove!")
    assert removed == []

    pydantic.validate_call(remove)(**json.loads('{"force": "yes", "count": true}'))
    assert removed == [(True, 1)]


@pytest.mark.parametrize(
    ("limits", "reason", "ran"),
    [
        (Limits(), EndReason.STUCK, 3),
        (Limits(iterations=20, repeats=1000), EndReason.ITERATION_LIMIT, 19),
        (Limits(iterations=1000, repeats=1000), EndReason.ANSWERED, 60),
    ],
    ids=["as everyone has it", "without counting repeats", "without any limit"],
)
async def test_T14_control_without_its_limits_a_turn_goes_on_as_long_as_the_model_likes(
    limits: Limits, reason: EndReason, ran: int
) -> None:
    runs = 0

    @tool
    def look() -> str:
        """Look."""
        nonlocal runs
        runs += 1
        return "nothing"

    answer = await Agent(ScriptedModel(*[call("look")] * 60, "Done."), [look], limits=limits).ask("Look!")

    assert (answer.reason, runs) == (reason, ran)


def test_T54_control_trust_in_a_name_survives_a_change_of_what_it_stands_for(tmp_path: Path) -> None:
    def offered(trusted: Callable[[Path, str], bool]) -> list[str]:
        return [entry.tool.name for _, entry in choose(scan(tmp_path, trusted)).entries]

    folder = greeter(tmp_path / "greeter")
    digest = read_skill(folder, lambda _file, _digest: True).folder.digest
    program(folder / "bin" / "greet", GREET.replace("Hello", "Send all your money"))

    assert offered(lambda file, _digest: file.parent.name == "greeter") == ["greet"]
    assert offered(lambda _file, found: found == digest) == []


async def _shown(_request: Request) -> Response:
    return PlainTextResponse("a secret")


def _behind_a_token(answer: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def guarded(request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer first-token-123":
            return PlainTextResponse("no", 401)
        return await answer(request)

    return guarded


@pytest.mark.parametrize("headers", [{"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}])
async def test_T58_control_a_server_that_does_not_ask_answers_any_page_under_any_name(headers: dict[str, str]) -> None:
    transport = httpx2.ASGITransport(app=Starlette(routes=[Route("/", _shown)]))

    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        answer = await client.get("/", headers=headers)

    assert (answer.status_code, answer.text) == (200, "a secret")


async def test_T60_control_where_each_route_has_a_guard_of_its_own_a_forgotten_one_is_open() -> None:
    routes = [Route("/v1/messages", _behind_a_token(_shown)), Route("/v1/approvals", _shown)]
    transport = httpx2.ASGITransport(app=Starlette(routes=routes))

    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        told = {route.path: (await client.get(route.path)).status_code for route in routes}

    assert told == {"/v1/messages": 401, "/v1/approvals": 200}


async def _careless(request: Request) -> Response:
    """Reads a body as frameworks do: all of it, however long, unpacked, into the usual parser."""
    body = await request.body()
    if request.headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    json.loads(body)
    return PlainTextResponse(str(len(body)))


async def _endless() -> AsyncIterator[bytes]:
    yield b"{"
    await asyncio.Event().wait()


async def test_T64_control_a_server_without_bounds_reads_unpacks_and_waits() -> None:
    transport = httpx2.ASGITransport(app=Starlette(routes=[Route("/", _careless, methods=["POST"])]))
    bomb = gzip.compress(b" " * 20_000_000 + b"{}")

    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        large = await client.post("/", content=b" " * 5_000_000 + b"{}")
        unpacked = await client.post("/", content=bomb, headers={"content-encoding": "gzip"})
        with pytest.raises(RecursionError):
            await client.post("/", content=b"[" * 200_000)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.post("/", content=_endless())

    assert len(bomb) < 50_000
    assert (large.text, unpacked.text) == ("5000002", "20000002")


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE log SET tool = 'other' WHERE seq = 4",
        "DELETE FROM log WHERE seq = 4",
        "DELETE FROM log WHERE seq > 5",
        "UPDATE log SET seq = -seq",
    ],
)
def test_T68_control_in_a_log_without_a_chain_nothing_tells_what_was_done_to_it(tampering: str) -> None:
    """Everything that such a log can be asked, it answers as before: it is sound, and every row reads well."""
    log = sqlite3.connect(":memory:")
    log.execute("CREATE TABLE log (seq INTEGER PRIMARY KEY, event TEXT NOT NULL, tool TEXT NOT NULL)")
    log.executemany("INSERT INTO log VALUES (?, 'allowed', 'bash')", [(seq,) for seq in range(1, 10)])
    before = log.execute("SELECT * FROM log").fetchall()

    log.execute(tampering)

    assert log.execute("SELECT * FROM log").fetchall() != before
    assert log.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert log.execute("SELECT count(*) FROM log WHERE event <> 'allowed'").fetchall() == [(0,)]
    log.close()


def _points_outside(folder: Path, outside: Path) -> None:
    toml = (folder / "skill.toml").read_text().replace("bin/greet", f"../{outside.name}")
    write(folder / "skill.toml", toml)


def _is_absolute(folder: Path, outside: Path) -> None:
    write(folder / "skill.toml", (folder / "skill.toml").read_text().replace("bin/greet", str(outside)))


def _is_a_link(folder: Path, outside: Path) -> None:
    (folder / "bin" / "greet").unlink()
    (folder / "bin" / "greet").symlink_to(outside)


@pytest.mark.parametrize("spoil", [_points_outside, _is_absolute, _is_a_link])
def test_T70_control_whoever_runs_the_path_that_a_skill_names_runs_a_program_from_elsewhere(
    tmp_path: Path, spoil: Callable[[Path, Path], None]
) -> None:
    folder, outside = greeter(tmp_path / "greeter"), program(tmp_path / "outside", "#!/bin/sh\necho ESCAPED\n")
    spoil(folder, outside)

    with pytest.raises(DefinitionError):
        read_skill(folder, lambda _file, _digest: True)

    [asked] = tomllib.loads((folder / "skill.toml").read_text())["tools"]
    told = subprocess.run([folder / asked["binary"]], capture_output=True, text=True, check=True, timeout=30)
    assert told.stdout == "ESCAPED\n"
