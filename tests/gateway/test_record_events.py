"""Changes of records as server-sent events: each once, in order, and only what a caller may read."""

import asyncio
import json
import select
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
import pytest

from tests.gateway.stand import BOUND_S, open_stand
from toolwire.breadcrumbs.rules.callers import Role
from toolwire.breadcrumbs.sealing import KeyFile, Sealer
from toolwire.breadcrumbs.service import RecordKeeper, RecordRules, RecordService
from toolwire.gateway.app import make_app
from toolwire.gateway.record_access import RecordAccess
from toolwire.gateway.server import server_of
from toolwire.gateway.settings import Access, ConnectionLimits, TransferLimits, Upstream
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore

ROLES = {"ANN": Role.WRITER, "BEN": Role.WRITER, "EVE": Role.READER}
EVENTS = "/v1/records/events"
QUIET = TransferLimits(keep_alive_s=0.05)


@dataclass
class Served:
    """A gateway on loopback, and the records behind it."""

    url: str
    records: RecordService

    def client(self, name: str) -> httpx2.AsyncClient:
        headers = {"authorization": f"Bearer token-of-{name}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=BOUND_S, trust_env=False)

    async def create(self, name: str = "ANN", **fields: Any) -> dict[str, Any]:
        async with self.client(name) as client:
            answer = await client.post("/v1/records", json={"schema_name": "note.v1", **fields})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def patch(self, record: dict[str, Any], name: str = "ANN", **fields: Any) -> dict[str, Any]:
        async with self.client(name) as client:
            headers = {"if-match": str(record["version"])}
            answer = await client.patch(f"/v1/records/{record['id']}", json=fields, headers=headers)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    @asynccontextmanager
    async def follow(
        self, name: str, query: str = "all=true", last: str = "", path: str = EVENTS
    ) -> AsyncIterator[AsyncIterator[Any]]:
        """The events of a stream, each as (id, name, data); those of a comment have no data."""
        headers = {"last-event-id": last} if last else {}
        async with self.client(name) as client, client.stream("GET", f"{path}?{query}", headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield read_events(answer)


async def read_events(answer: httpx2.Response) -> AsyncIterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif fields:
            if "data" in fields:
                yield fields["id"], fields["event"], json.loads(fields["data"])
            elif "id" in fields:
                yield fields["id"], "", None
            fields = {}


@asynccontextmanager
async def serving(
    store: RecordKeeper, folder: Path, bounds: TransferLimits | None = None, places: ConnectionLimits | None = None
) -> AsyncIterator[Served]:
    rules = RecordRules(sealer=Sealer(KeyFile(folder / "keys" / "records.key"), "acme"))
    service = RecordService(store, "acme", rules=rules)

    @asynccontextmanager
    async def open_service() -> AsyncIterator[RecordService]:
        yield service

    access = Access(tokens=tuple(f"token-of-{name}" for name in ROLES), callers=tuple(ROLES))
    records = RecordAccess(open_service, ROLES)
    app = make_app(Upstream("http://127.0.0.1:9"), access=access, records=records, bounds=bounds or TransferLimits())
    async with asyncio.timeout(BOUND_S), open_stand() as stand:
        yield Served(await stand.serve(server_of(app, places or ConnectionLimits())), service)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(MemoryStore(), tmp_path) as found:
        yield found


@pytest.mark.feature("F204")
async def test_each_change_of_a_record_is_one_event_and_a_stream_resumes_where_it_broke_off(served: Served) -> None:
    """R-19: a created record is not told as updated, too."""
    async with served.follow("BEN", "schema_name=note.*") as events:
        made = await served.create(title="first", context={"n": 1})
        await served.create(schema_name="other.v1")
        changed = await served.patch(made, context={"n": 2})
        async with served.client("ANN") as client:
            await client.delete(f"/v1/records/{made['id']}")
        seen = [await anext(events) for _ in range(3)]

    assert [name for _, name, _ in seen] == ["record.created", "record.updated", "record.deleted"]
    assert seen[0][2] == {"event": "created", "at": seen[0][2]["at"], "record": made}
    assert seen[0][2]["at"] >= made["created_at"]
    assert seen[1][2]["record"] == changed
    numbers = [int(number) for number, _, _ in seen]
    assert numbers == sorted(set(numbers))

    async with served.follow("BEN", "schema_name=note.*", last=seen[0][0], path="/breadcrumbs/events") as events:
        assert [await anext(events), await anext(events)] == seen[1:]
    async with served.follow("BEN", f"schema_name=note.*&after={seen[1][0]}&kind=deleted") as events:
        assert await anext(events) == seen[2]


async def test_a_stream_has_what_its_selector_says_and_passes_over_the_rest(tmp_path: Path) -> None:
    selector = {"all_tags": ["door"], "context_match": [{"path": "colours[0].name", "op": "in", "value": ["red"]}]}
    async with (
        serving(MemoryStore(), tmp_path, QUIET) as served,
        served.follow("BEN", str(httpx2.QueryParams({"selector": json.dumps(selector)}))) as events,
    ):
        await served.create(tags=["door"], context={"colours": [{"name": "blue"}]})
        passed_over = await anext(events)
        fitting = await served.create(tags=["door"], context={"colours": [{"name": "red"}]})
        number, kind, told = await anext(events)

    assert passed_over[1:] == ("", None), "the id moves on without an event"
    assert (kind, told["record"]["id"]) == ("record.created", fitting["id"])
    assert int(number) > int(passed_over[0])


async def test_a_subscription_is_followed_by_its_id(served: Served) -> None:
    context = {"selector": {"any_tags": ["urgent"]}, "kinds": ["created"]}
    kept = await served.create(schema_name="subscription.v1", title="fires", context=context)

    async with served.follow("BEN", f"subscription={kept['id']}") as events:
        made = await served.create(tags=["urgent"])
        await served.patch(made, title="again")
        second = await served.create(tags=["urgent"])
        told = [(await anext(events))[2]["record"]["id"] for _ in range(2)]

    assert told == [made["id"], second["id"]]


async def test_a_client_whose_place_in_the_feed_is_gone_is_told_so_first(tmp_path: Path) -> None:
    now = [1_800_000_000.0]
    async with serving(MemoryStore(clock=lambda: now[0]), tmp_path) as served:
        await served.create(title="old")
        await served.create(title="forgotten")
        now[0] += 30 * 86_400
        kept = await served.create(title="kept")
        async with served.follow("BEN", last="1") as events:
            missed, told = await anext(events), await anext(events)
        async with served.follow("BEN", last="999") as events:
            foreign = await anext(events)
            made = await served.create(title="next")
            assert (await anext(events))[2]["record"] == made
        async with served.follow("BEN", "all=true&after=0") as events:
            first = await anext(events)

    assert missed == ("1", "record.missed", {"event": "missed", "after": 1, "oldest": 3})
    assert told[2]["record"]["id"] == first[2]["record"]["id"] == kept["id"]
    assert foreign == ("3", "record.missed", {"event": "missed", "after": 999, "oldest": 3})


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("", "say which records"),
        ("all=true&selector={}", "one of these ways at a time"),
        ("selector={}", "all"),
        ("selector=no", "must be a JSON object"),
        ('selector={"any_tag":["a"]}', "did you mean any_tags"),
        ("all=false", "stands alone"),
        ("all=true&kind=changed", "kinds is a list of"),
        ("all=true&after=-1", "after is a number"),
    ],
)
async def test_a_stream_that_cannot_be_meant_is_refused(served: Served, query: str, sentence: str) -> None:
    async with served.client("ANN") as client:
        answer = await client.get(f"{EVENTS}?{query}")
        wrong = await client.post("/v1/records", json={"schema_name": "subscription.v1", "context": {"selector": {}}})
        address = {"selector": {"all": True}, "url": "ftp://example.org"}
        odd = await client.post("/v1/records", json={"schema_name": "subscription.v1", "context": address})

    assert (answer.status_code, sentence in answer.text) == (400, True), answer.text
    assert (wrong.status_code, "an empty selector is refused" in wrong.text) == (400, True)
    assert (odd.status_code, "http:// or https://" in odd.text) == (400, True)


async def test_T241_a_subscriber_hears_of_no_record_that_it_may_not_read(served: Served) -> None:
    """Neither when it follows nor when it comes again; a subscription of another caller gives no more rights."""
    mine = await served.create("ANN", schema_name="subscription.v1", context={"selector": {"all": True}})
    async with served.follow("BEN", f"subscription={mine['id']}") as ben, served.follow("EVE") as eve:
        hidden = await served.create("ANN", visibility="private", title="hidden")
        shown = await served.create("ANN", title="for the project")
        await served.patch(shown, visibility="private", title="hidden now")
        public = await served.create("ANN", visibility="public", title="public")
        secret = await served.create("ANN", sensitivity="secret", title="key", context={"password": "xyzzy"})
        once = await served.create("ANN", title="once", context={"read": "once"}, ttl={"type": "usage", "uses": 1})
        to_ben = [(await anext(ben))[2]["record"] for _ in range(4)]
        to_eve = [(await anext(eve))[2]["record"]]
    async with served.follow("BEN", last="0") as again:
        replayed = [(await anext(again))[2]["record"]["id"] for _ in range(5)]

    assert [one["id"] for one in to_ben] == [shown["id"], public["id"], secret["id"], once["id"]]
    assert [one["id"] for one in to_eve] == [public["id"]]
    assert to_ben[2]["context"] == {}, "a secret is announced, never shown"
    assert "context" not in to_ben[3], "hearing of it is no use of it"
    assert hidden["id"] not in replayed


async def test_T292_an_event_of_a_record_that_was_open_once_does_not_show_what_is_hidden_by_now(served: Served) -> None:
    """The change stays, and says neither the title nor the content of what the caller may not read any more."""
    private = await served.create("ANN", visibility="public", title="xyzzy", tags=["xyzzy"], context={"a": "xyzzy"})
    personal = await served.create("ANN", context={"ssn": "xyzzy"})
    await served.patch(private, visibility="private")
    await served.patch(personal, sensitivity="pii")
    marked = await served.create("ANN", context={"ssn": "xyzzy"}, sensitivity="pii")
    async with served.follow("BEN", last="0") as events:
        to_ben = [(await anext(events))[2]["record"] for _ in range(4)]
    async with served.follow("EVE", last="0") as events:
        to_eve = [(await anext(events))[2]["record"]]
    spying = json.dumps({"context_match": [{"path": "ssn", "op": "eq", "value": "xyzzy"}]})
    async with served.follow("BEN", f"selector={quote(spying)}", last="0") as events:
        plain = await served.create("ANN", context={"ssn": "xyzzy"})
        assert (await anext(events))[2]["record"]["id"] == plain["id"], "conditions do not look into what is hidden"

    ids = [private["id"], personal["id"], personal["id"], marked["id"]]
    assert ([one["id"] for one in to_ben], to_eve[0]["id"]) == (ids, private["id"])
    assert "xyzzy" not in json.dumps([*to_ben, *to_eve])
    async with served.follow("ANN", last="0") as events:
        assert (await anext(events))[2]["record"] == private, "its author still reads it"


async def test_T241_control_those_who_may_read_a_record_hear_of_it(served: Served) -> None:
    async with served.follow("ANN") as events:
        hidden = await served.create("ANN", visibility="private", title="hidden")
        assert (await anext(events))[2]["record"] == hidden


async def test_what_another_process_changes_arrives_too(tmp_path: Path) -> None:
    """Each process opens the store on its own; this one has to look."""
    async with (
        await SqliteStore.at(tmp_path / "store") as here,
        await SqliteStore.at(tmp_path / "store") as there,
        serving(here, tmp_path) as served,
        served.follow("BEN") as events,
    ):
        async with serving(there, tmp_path) as other:
            made = await other.create(title="from there")
        assert (await anext(events))[2]["record"] == made


async def test_T242_a_client_that_never_reads_is_cut_off_and_nothing_is_held_for_it(tmp_path: Path) -> None:
    places = ConnectionLimits(write_s=0.2)
    async with serving(MemoryStore(), tmp_path, places=places) as served:
        silent = await asyncio.to_thread(connected, served.url)
        with silent:
            poll = select.poll()
            poll.register(silent, select.POLLHUP | select.POLLERR)
            made = await served.create(context={"text": "x" * 500_000})
            while not poll.poll(10):
                made = await served.patch(made, context={"text": "y" * 500_000})
        async with served.follow("BEN", "all=true&after=0") as events:
            assert (await anext(events))[1] == "record.created"


async def test_T242_control_with_a_long_bound_it_stays_connected(tmp_path: Path) -> None:
    async with serving(MemoryStore(), tmp_path, places=ConnectionLimits(write_s=BOUND_S)) as served:
        silent = await asyncio.to_thread(connected, served.url)
        with silent:
            poll = select.poll()
            poll.register(silent, select.POLLHUP | select.POLLERR)
            made = await served.create(context={"text": "x" * 500_000})
            for _ in range(10):
                made = await served.patch(made, context={"text": "y" * 500_000})
            assert not poll.poll(300)


async def test_a_client_that_reads_gets_everything_under_the_same_limits(tmp_path: Path) -> None:
    async with serving(MemoryStore(), tmp_path, places=ConnectionLimits(write_s=0.2)) as served:
        for letter in "abcd":
            await served.create(title=letter, context={"text": letter * 500_000})
        async with served.follow("BEN", "all=true&after=0") as events:
            assert [(await anext(events))[2]["record"]["title"] for _ in range(4)] == ["a", "b", "c", "d"]


def connected(url: str) -> socket.socket:
    """A client that takes as little as possible."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((urlsplit(url).hostname, urlsplit(url).port))
    head = "GET /v1/records/events?all=true HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer token-of-BEN\r\n\r\n"
    sock.sendall(head.encode())
    return sock
