"""Services without access to the store: cards over HTTP, and reports that close their calls; nothing forged does."""

import json
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import httpx2
import pytest
from msgspec.structs import replace
from starlette.types import ASGIApp

from tests.fleet.conftest import Fleet
from toolwire.define.service_rows import read_row
from toolwire.errors import StoreUnavailable
from toolwire.fleet import reports
from toolwire.fleet.parcels import command_of, read_parcel
from toolwire.fleet.relay import Relay
from toolwire.fleet.reports import CARD_PAUSES_S, REFUSED, ReportReceiver
from toolwire.gateway.app import make_app
from toolwire.gateway.cards import CardAccess
from toolwire.gateway.settings import Access, ServiceToken, Upstream
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.records import CallCard
from toolwire.protocol.subjects import Subject
from toolwire.protocol.tools import Effect, Tool
from toolwire.record.contract import Store
from toolwire.record.sqlite import SqliteStore
from toolwire.testing import call, says
from toolwire.wire.utp.messages import ToolCallback, callback_of, encode_callback

TOKEN, OTHER = "token-of-the-search-service", "token-of-another-service"
ROW: dict[str, Any] = {
    "tool_name": "search",
    "description": "Searches.",
    "target_subject": "cg.v1r4.{project_id}.{channel_id}.cmd.tool.search",
    "parameters": {"type": "object", "properties": {"query": {"type": "string"}, "tenant": {"type": "string"}}},
    "options": {"args": {"fixed": {"tenant": "t-{project_id}"}}, "untrusted": True, "tier": "walk"},
}


@dataclass
class Shop:
    """A fleet whose tool is a service that has HTTP and the bus, and nothing else."""

    fleet: Fleet
    store: SqliteStore
    tool: Tool
    app: ASGIApp
    received: list[BusMessage] = field(default_factory=list)

    @property
    def project(self) -> str:
        return self.fleet.project

    async def http(
        self, method: str, card_id: str, body: Any = None, *, token: str = TOKEN, project: str = "", **headers: str
    ) -> httpx2.Response:
        url = f"http://localhost/v1/projects/{project or self.project}/cards/{card_id}"
        content = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app)) as client:
            own = {"authorization": f"Bearer {token}", **headers}
            return await client.request(method, url, content=content, headers=own)

    async def sent(self) -> tuple[str, CallCard]:
        agent = self.fleet.agent(self.store, [self.tool], call("search", query="tents"))
        turn_id = await self.fleet.sent(agent)
        return turn_id, await self.fleet.card(self.store, turn_id)

    def result(self, card: CallCard, card_id: str = "result-1", **content: Any) -> dict[str, Any]:
        metadata = {"agent_turn_id": card.turn_id, "tool_call_id": card.call.id, "role": "tool"}
        said = content or {"status": "success", "result": {"hits": 3}}
        return {
            "card_id": card_id,
            "project_id": self.project,
            "type": "tool.result",
            "content": said,
            "metadata": metadata,
        }

    async def callback(self, card: CallCard, card_id: str = "result-1") -> ToolCallback:
        dispatch, kept = await self.store.dispatched(card.record_id, project=self.project)
        command = command_of(read_parcel(dispatch), dispatch, kept)
        return callback_of(command, card_id=card_id, status=Status.SUCCESS)

    async def report(
        self, callback: ToolCallback, change: Callable[[BusMessage], BusMessage] = lambda one: one
    ) -> None:
        message = encode_callback(callback)
        assert isinstance(message, BusMessage)
        await self.fleet.bus.publish(change(message))

    async def refusals(self) -> list[tuple[str, str]]:
        rows = await self.store.audit_log(project=self.project, limit=100)
        return [(row.code, row.turn_id) for row in rows if row.event == REFUSED]


@pytest.fixture
async def shop(fleet: Fleet) -> Shop:
    store = await fleet.store()

    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store]:
        yield store

    registered = read_row(ROW, "the row", project=fleet.project)
    await store.register_tools([registered.row])
    tokens = (
        ServiceToken("search", fleet.project, frozenset({"search"}), TOKEN),
        ServiceToken("mail", fleet.project, frozenset({"mail"}), OTHER),
        ServiceToken("abroad", "another-project", frozenset({"search"}), "token-of-another-project"),
    )
    app = make_app(Upstream.at("http://127.0.0.1:9"), access=Access(services=tokens), cards=CardAccess(open_store))
    receiver = ReportReceiver(
        store, fleet.bus, durable=f"reports-{fleet.project}", project=fleet.project, card_pauses_s=(0.01,)
    )
    fleet.spawn(receiver.run())
    await receiver.ready.wait()
    return Shop(fleet, store, registered.tool, app)


@pytest.mark.feature("F189")
async def test_a_service_reads_the_card_writes_its_result_and_the_turn_goes_on(shop: Shop) -> None:
    turn_id, card = await shop.sent()
    shop.fleet.runner(shop.store, [shop.tool], says("Three hits."))

    read = await shop.http("GET", card.record_id)
    assert read.json()["content"]["arguments"] == {"query": "tents", "tenant": f"t-{shop.project}"}
    assert read.json()["metadata"]["tool_args_fixed_applied"] == ["tenant"]
    written = await shop.http("PUT", "result-1", shop.result(card))
    again = await shop.http("PUT", "result-1", shop.result(card))
    other = await shop.http("PUT", "result-1", shop.result(card, status="failed"))
    assert [one.status_code for one in (read, written, again, other)] == [200, 201, 200, 409]
    assert (await shop.http("GET", "result-1")).json() == shop.result(card)
    await shop.report(await shop.callback(card))

    ended = await shop.fleet.result(shop.store, turn_id)
    assert ended.result is not None
    assert (ended.result.ok, ended.result.structured, ended.result.untrusted) == (True, {"hits": 3}, True)
    assert await shop.fleet.answer() == "Three hits."
    assert "tenant" not in str(ended.call.arguments)
    assert await shop.refusals() == []


@pytest.mark.feature("F163")
@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("stale epoch", "stale_epoch"), ("later epoch", "changed_field"), ("another agent", "changed_field"),
        ("another rule", "changed_field"), ("another channel", "changed_field"), ("unknown card", "unknown_card"),
        ("another call's card", "changed_field"), ("unknown call", "unknown_call"), ("inline result", "inline_content"),
        ("missing pointer", "missing_field"), ("headers differ", "conflicting_fields"), ("not json", "not_json"),
        ("oversized", "too_large"), ("wrong version", "conflicting_fields"), ("tampered card", "digest_mismatch"),
    ],
)  # fmt: skip
async def test_T176_a_forged_report_changes_nothing_is_audited_and_does_not_come_again(
    shop: Shop, name: str, code: str, tmp_path: Path
) -> None:
    turn_id, card = await shop.sent()
    _, second = await shop.sent()
    assert (await shop.http("PUT", "result-1", shop.result(card))).status_code == 201
    assert (await shop.http("PUT", "result-2", shop.result(second, "result-2"))).status_code == 201
    right = await shop.callback(card)

    if name == "tampered card":
        change = "UPDATE result_cards SET body = ? WHERE project = ? AND card_id = 'result-1'"
        body = json.dumps(shop.result(card, status="success", result="forged")).encode()
        with closing(sqlite3.connect(tmp_path / "home" / "store.db")) as damaged, damaged:
            damaged.execute(change, (body, shop.project))
    await shop.report(*FORGED[name](right))
    await shop.report(await shop.callback(second, "result-2"))  # what comes after it is received

    await shop.fleet.result(shop.store, second.turn_id)
    assert [found for found, _ in await shop.fleet.until(shop.refusals)] == [code]
    assert (await shop.fleet.card(shop.store, turn_id)).result is None
    if name != "tampered card":
        await shop.report(right)
        assert (await shop.fleet.result(shop.store, turn_id)).result is not None


def payload(**fields: Any) -> Callable[[BusMessage], BusMessage]:
    def change(message: BusMessage) -> BusMessage:
        said = {**json.loads(message.data), **fields}
        return BusMessage(
            message.subject, json.dumps({k: v for k, v in said.items() if v is not None}).encode(), message.headers
        )

    return change


def header(**fields: str) -> Callable[[BusMessage], BusMessage]:
    named = {name.replace("_", "-"): text for name, text in fields.items()}
    return lambda message: BusMessage(message.subject, message.data, {**message.headers, **named})


def parts(**more: Any) -> Callable[[ToolCallback], tuple[Any, ...]]:
    def change(one: ToolCallback) -> tuple[Any, ...]:
        return (ToolCallback(**{name: getattr(one, name) for name in ToolCallback.__struct_fields__} | more),)

    return change


FORGED: dict[str, Callable[[ToolCallback], tuple[Any, ...]]] = {
    "stale epoch": parts(turn_epoch=0),
    "later epoch": parts(turn_epoch=99),
    "another agent": parts(agent_id="somebody"),
    "another rule": lambda one: (one, payload(after_execution="terminate")),
    "another channel": lambda one: parts(subject=Subject.report(one.subject.project, "private"))(one),
    "unknown card": parts(tool_result_card_id="no-such-card"),
    "another call's card": parts(tool_result_card_id="result-2"),
    "unknown call": parts(tool_call_id="no-such-call"),
    "inline result": lambda one: (one, payload(Result={"hits": 99})),
    "missing pointer": lambda one: (one, payload(tool_result_card_id=None)),
    "headers differ": lambda one: (one, header(CG_Turn_Id="another-turn")),
    "not json": lambda one: (one, lambda message: BusMessage(message.subject, b"\xff", message.headers)),
    "oversized": lambda one: (one, payload(padding="x" * 70_000)),
    "wrong version": lambda one: (one, header(CG_Version="v1r3")),
    "tampered card": lambda one: (one,),
}


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
@pytest.mark.parametrize(
    ("name", "check"),
    [
        ("another agent", "callback_violations"), ("another channel", "callback_violations"),
        ("another call's card", "result_card_violations"),
    ],
)  # fmt: skip
async def test_T176_control_without_its_check_a_forged_report_ends_the_call(shop: Shop, name: str, check: str) -> None:
    turn_id, card = await shop.sent()
    _, second = await shop.sent()
    await shop.http("PUT", "result-1", shop.result(card))
    await shop.http("PUT", "result-2", shop.result(second, "result-2", status="success", result={"hits": 99}))
    with patch.object(reports, check, lambda *_: ()):
        await shop.report(*FORGED[name](await shop.callback(card)))
        result = (await shop.fleet.result(shop.store, turn_id)).result

    assert result is not None
    assert result.structured == {"hits": 99 if name == "another call's card" else 3}
    assert await shop.refusals() == []


async def test_T176_control_a_report_that_comes_twice_closes_its_call_once(shop: Shop) -> None:
    turn_id, card = await shop.sent()
    await shop.http("PUT", "result-1", shop.result(card))
    callback = await shop.callback(card)
    await shop.report(callback)
    await shop.report(callback)
    await shop.fleet.result(shop.store, turn_id)
    _, second = await shop.sent()
    await shop.http("PUT", "result-2", shop.result(second, "result-2"))
    await shop.report(await shop.callback(second, "result-2"))
    await shop.fleet.result(shop.store, second.turn_id)

    events = await shop.fleet.events(shop.store, turn_id)
    assert (events.count("finished"), await shop.refusals()) == (1, [])


async def test_T177_a_service_sees_the_cards_of_its_own_project_and_tools_alone(shop: Shop) -> None:
    _, card = await shop.sent()
    result = shop.result(card)
    abroad = "token-of-another-project"
    asked = [
        ("GET", card.record_id, None, OTHER, "", 404),
        ("GET", card.record_id, None, abroad, "", 404),
        ("GET", card.record_id, None, abroad, "another-project", 404),
        ("GET", card.record_id, None, TOKEN, "another-project", 404),
        ("GET", card.record_id, None, "of-nobody", "", 401),
        ("GET", "no-such-card", None, TOKEN, "", 404),
        ("PUT", "result-1", result, OTHER, "", 404),
        ("PUT", "result-1", result, abroad, "another-project", 400),
        ("PUT", "result-1", {**result, "project_id": "another-project"}, abroad, "another-project", 404),
        ("PUT", "result-2", result, TOKEN, "", 400),
        ("PUT", "result-1", {**result, "type": "tool.call"}, TOKEN, "", 400),
        ("PUT", "result-1", {**result, "metadata": {"agent_turn_id": card.turn_id}}, TOKEN, "", 400),
        ("PUT", "result-1", {**result, "metadata": {"agent_turn_id": "x", "tool_call_id": "y"}}, TOKEN, "", 404),
        ("PUT", "result-1", b"\xff", TOKEN, "", 400),
        ("PUT", "result-1", b" " * (4 * 1024 * 1024 + 1), TOKEN, "", 413),
    ]  # fmt: skip
    for method, card_id, body, token, project, status in asked:
        answer = await shop.http(method, card_id, body, token=token, project=project)
        assert (answer.status_code, "tents" in answer.text) == (status, False), (method, card_id, token, answer.text)
    said = {(await shop.http("GET", one, token=OTHER)).text for one in (card.record_id, "no-such-card")}
    assert len(said) == 1, "what is there must look like what is not"
    wrong = await shop.http("PUT", "result-1", result, **{"x-card-digest": "0" * 64})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "digest_mismatch")


async def test_T177_control_the_service_itself_is_let_in(shop: Shop) -> None:
    _, card = await shop.sent()
    assert (await shop.http("GET", card.record_id)).status_code == 200
    assert (await shop.http("PUT", "result-1", shop.result(card))).status_code == 201


@pytest.mark.feature("F162")
@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
@pytest.mark.parametrize(
    ("content", "status", "ok"),
    [
        ({"status": "failed", "error": {"code": "upstream_unavailable", "message": "away"}}, Status.FAILED, False),
        ({"status": "success", "error": {"code": "internal_error", "message": "x"}}, Status.FAILED, False),
        ({"status": "splendid"}, Status.FAILED, False),
        ({"status": "timeout"}, Status.TIMEOUT, False),
        ({"status": "success", "result": "x" * 500_000}, Status.SUCCESS, True),
    ],
)
async def test_what_a_card_says_is_how_the_call_ended(shop: Shop, content: Any, status: Status, ok: bool) -> None:
    turn_id, card = await shop.sent()
    await shop.http("PUT", "result-1", shop.result(card, **content))
    await shop.report(await shop.callback(card))

    ended = await shop.fleet.result(shop.store, turn_id)
    assert ended.result is not None
    assert (ended.result.status, ended.result.ok) == (status, ok)
    assert len(ended.result.text) < 100_000


@pytest.mark.parametrize("is_dropped", [False, True])
async def test_a_result_that_comes_after_its_call_has_ended_is_audited_once_and_changes_nothing(
    shop: Shop, is_dropped: bool
) -> None:
    turn_id, card = await shop.sent()
    callback = await shop.callback(card)
    await shop.store.close(card, ToolResult.failed(card.call, Code.TIMEOUT, "It took too long."), [], ran=False)
    if is_dropped:
        await shop.store.take_due(time.time() + 1_000_000, lambda _: 1.0)
    written = await shop.http("PUT", "result-1", shop.result(card))
    await shop.report(callback)
    await shop.report(callback)
    _, second = await shop.sent()
    await shop.http("PUT", "result-2", shop.result(second, "result-2"))
    await shop.report(await shop.callback(second, "result-2"))
    await shop.fleet.result(shop.store, second.turn_id)

    ended = (await shop.fleet.card(shop.store, turn_id)).result
    assert (written.status_code, ended is not None and ended.status) == (201, Status.TIMEOUT)
    assert (await shop.fleet.events(shop.store, turn_id)).count("late_result") == 1
    assert await shop.refusals() == []


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_call_whose_card_was_read_is_held_for_the_service_and_its_outcome_unknown_after_that(
    shop: Shop, tmp_path: Path
) -> None:
    turn_id, card = await shop.sent()
    relay = Relay(shop.store, shop.fleet.bus, clock=lambda: time.time() + 7_000)
    assert [(await shop.http("GET", card.record_id)).status_code for _ in range(2)] == [200, 200]
    held = await shop.fleet.card(shop.store, turn_id)
    assert (held.owner, held.attempt, held.until is not None) == ("service search", 1, True)
    token = await shop.http("GET", f"claim:{card.record_id}:1")
    forged = await shop.http("PUT", f"claim:{card.record_id}:2", shop.result(card, f"claim:{card.record_id}:2"))
    assert (token.status_code, forged.status_code) == (404, 400)

    await relay.send_due()
    assert (await shop.fleet.card(shop.store, turn_id)).result is None
    with closing(sqlite3.connect(tmp_path / "home" / "store.db")) as later, later:
        later.execute("UPDATE starts SET until = 1.0 WHERE turn_id = ?", (turn_id,))
        later.execute("UPDATE dispatches SET due = 1.0 WHERE turn_id = ?", (turn_id,))
    await relay.send_due()
    ended = (await shop.fleet.card(shop.store, turn_id)).result
    assert ended is not None
    assert ended.error is not None
    assert ended.error.code is Code.OUTCOME_UNKNOWN


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_card_that_is_read_again_after_its_claim_was_over_is_given_only_where_that_does_no_harm(
    shop: Shop, tmp_path: Path, repeatable: bool
) -> None:
    if repeatable:
        shop.tool = replace(shop.tool, effect=Effect.IDEMPOTENT)
    turn_id, card = await shop.sent()
    assert (await shop.http("GET", card.record_id)).status_code == 200
    with closing(sqlite3.connect(tmp_path / "home" / "store.db")) as later, later:
        later.execute("UPDATE starts SET until = 1.0 WHERE turn_id = ?", (turn_id,))

    again = await shop.http("GET", card.record_id)
    result = (await shop.fleet.card(shop.store, turn_id)).result
    code = result.error.code if result is not None and result.error is not None else None
    assert (again.status_code, code) == ((200, None) if repeatable else (404, Code.OUTCOME_UNKNOWN))


class Arrived:
    """A report that is handed to a receiver."""

    attempt = 1

    def __init__(self, message: BusMessage) -> None:
        self.message = message
        self.settled: list[str] = []

    async def ack(self) -> None:
        self.settled.append("ack")

    async def nak(self, delay_s: float = 0.0) -> None:
        self.settled.append("nak")

    async def progress(self) -> None:
        self.settled.append("progress")


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_report_that_comes_again_after_the_store_was_away_closes_the_call_it_holds(shop: Shop) -> None:
    turn_id, card = await shop.sent()
    await shop.http("PUT", "result-1", shop.result(card))
    message = encode_callback(await shop.callback(card))
    assert isinstance(message, BusMessage)
    away = [StoreUnavailable("the store is away")]

    async def find_tool(_project: str, _card: CallCard) -> Tool:
        if away:
            raise away.pop()
        return shop.tool

    receiver = ReportReceiver(shop.store, shop.fleet.bus, durable="again", project=shop.project, find_tool=find_tool)
    report = Arrived(message)
    await receiver.handle(report)
    await receiver.handle(report)
    ended = (await shop.fleet.card(shop.store, turn_id)).result
    assert (report.settled, ended is not None and ended.ok) == (["nak", "ack"], True)
    assert await shop.refusals() == []


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_report_that_is_quicker_than_its_card_is_looked_at_again(shop: Shop) -> None:
    """C35: a store may answer from a copy that lags behind, and a service may report before its card is kept."""
    turn_id, card = await shop.sent()
    message = encode_callback(await shop.callback(card))
    assert isinstance(message, BusMessage)
    receiver = ReportReceiver(shop.store, shop.fleet.bus, durable="quick", project=shop.project)
    report = Arrived(message)
    await receiver.handle(report)
    before = await shop.refusals()
    await shop.http("PUT", "result-1", shop.result(card))
    report.attempt += 1
    await receiver.handle(report)

    ended = (await shop.fleet.card(shop.store, turn_id)).result
    assert (report.settled, before, ended is not None and ended.ok) == (["nak", "ack"], [], True)


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_control_a_receiver_that_does_not_look_again_loses_a_report_that_is_quicker_than_its_card(
    shop: Shop,
) -> None:
    turn_id, card = await shop.sent()
    message = encode_callback(await shop.callback(card))
    assert isinstance(message, BusMessage)
    receiver = ReportReceiver(
        shop.store, shop.fleet.bus, durable="hasty", project=shop.project, card_pauses_s=()
    )  # fmt: skip
    report = Arrived(message)
    await receiver.handle(report)
    await shop.http("PUT", "result-1", shop.result(card))

    assert (report.settled, await shop.refusals()) == (["ack"], [("unknown_card", turn_id)])
    assert (await shop.fleet.card(shop.store, turn_id)).result is None


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_report_whose_card_never_comes_is_refused_in_the_end(shop: Shop) -> None:
    turn_id, card = await shop.sent()
    message = encode_callback(await shop.callback(card))
    assert isinstance(message, BusMessage)
    receiver = ReportReceiver(shop.store, shop.fleet.bus, durable="never", project=shop.project)
    report = Arrived(message)
    for report.attempt in range(1, len(CARD_PAUSES_S) + 2):
        await receiver.handle(report)

    assert report.settled == [*["nak"] * len(CARD_PAUSES_S), "ack"]
    assert await shop.refusals() == [("unknown_card", turn_id)]


@pytest.mark.parametrize("is_sent_again", [False, True])
async def test_the_result_of_a_call_whose_turn_was_resumed_meanwhile_is_kept_as_a_late_one(
    shop: Shop, is_sent_again: bool
) -> None:
    """Its report is of an older epoch, and refused; that the service has done it stays known, and where its card is."""
    turn_id, card = await shop.sent()
    callback = await shop.callback(card)
    dispatch, _ = await shop.store.dispatched(card.record_id, project=shop.project)
    now = (await shop.store.resume(turn_id, project=shop.project)).opening.epoch
    if is_sent_again:
        await shop.store.dispatch(replace(dispatch, epoch=now), [])
    await shop.http("PUT", "result-1", shop.result(card))
    await shop.report(callback)

    assert await shop.fleet.until(shop.refusals) == [("stale_epoch", turn_id)]
    rows = await shop.store.audit_log(turn_id=turn_id, project=shop.project)
    [late] = [row for row in rows if row.event == "late_result"]
    assert (late.call_id, late.status, late.detail["card"]) == (card.call.id, Status.SUCCESS, "result-1")
    assert (await shop.fleet.card(shop.store, turn_id)).result is None
    assert (await shop.http("GET", "result-1")).json() == shop.result(card)


class Around:
    """A store with something that happens before one of its operations."""

    def __init__(self, store: Store, name: str, before: Callable[..., Awaitable[None]]) -> None:
        self._store = store
        self._name = name
        self._before = before

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name != self._name:
            return method

        async def after(*args: Any, **more: Any) -> Any:
            await self._before(*args)
            return await method(*args, **more)

        return after


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_report_whose_call_ends_while_it_is_received_is_audited_as_late(shop: Shop) -> None:
    turn_id, card = await shop.sent()
    await shop.http("PUT", "result-1", shop.result(card))
    message = encode_callback(await shop.callback(card))
    assert isinstance(message, BusMessage)

    async def end(*_: Any) -> None:
        await shop.store.close(card, ToolResult.failed(card.call, Code.TIMEOUT, "It took too long."), [], ran=False)

    store = cast("Store", Around(shop.store, "claim", end))
    receiver = ReportReceiver(store, shop.fleet.bus, durable="late", project=shop.project)
    await receiver.handle(Arrived(message))

    assert (await shop.fleet.events(shop.store, turn_id)).count("late_result") == 1


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_report_is_received_although_the_process_died_that_gave_its_service_the_card(shop: Shop) -> None:
    turn_id, card = await shop.sent()
    deaths = [StoreUnavailable("the process died")]

    async def die(*_: Any) -> None:
        if deaths:
            raise deaths.pop()

    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store]:
        yield cast("Store", Around(shop.store, "keep_card", die))

    token = ServiceToken("search", shop.project, frozenset({"search"}), TOKEN)
    access = Access(services=(token,))
    shop.app = make_app(Upstream.at("http://127.0.0.1:9"), access=access, cards=CardAccess(open_store))
    read = [(await shop.http("GET", card.record_id)).status_code for _ in range(2)]
    await shop.http("PUT", "result-1", shop.result(card))
    await shop.report(await shop.callback(card))

    ended = await shop.fleet.result(shop.store, turn_id)
    assert (read, ended.result is not None and ended.result.ok) == ([503, 200], True)
    assert await shop.refusals() == []


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_call_that_has_ended_or_was_canceled_is_not_given_to_the_service(shop: Shop) -> None:
    _, card = await shop.sent()
    await shop.store.close(card, ToolResult.failed(card.call, Code.TIMEOUT, "It took too long."), [], ran=False)
    assert (await shop.http("GET", card.record_id)).status_code == 404


async def test_a_service_that_read_its_card_reports_under_its_own_claim(shop: Shop) -> None:
    turn_id, card = await shop.sent()
    await shop.http("GET", card.record_id)
    await shop.http("PUT", "result-1", shop.result(card))
    await shop.report(await shop.callback(card))

    ended = await shop.fleet.result(shop.store, turn_id)
    events = await shop.fleet.events(shop.store, turn_id)
    assert (ended.attempt, events.count("started"), events.count("finished")) == (1, 1, 1)
    assert await shop.refusals() == []


async def test_a_service_learns_from_its_card_that_the_call_was_canceled_and_its_report_ends_the_turn(
    shop: Shop,
) -> None:
    turn_id, card = await shop.sent()
    agent = shop.fleet.agent(shop.store, [shop.tool])
    assert (await shop.http("GET", card.record_id)).status_code == 200
    waits = await agent.cancel(turn_id)
    assert len(waits) == 1
    assert (await shop.http("GET", card.record_id)).status_code == 404
    assert (await shop.http("PUT", "result-1", shop.result(card, status="canceled"))).status_code == 201
    await shop.report(await shop.callback(card))

    ended = await shop.fleet.result(shop.store, turn_id)
    assert ended.result is not None
    assert ended.result.status is Status.CANCELED
    assert (await agent.cancel(turn_id), await shop.refusals()) == ((), [])
