"""Changes of records reach the addresses of subscriptions: at least once, signed, and no one else's."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.egress.network import Answering, Heard, Server, connector, saying, serving
from toolwire.assemble.project import open_project
from toolwire.assemble.record_upkeep import RecordUpkeep
from toolwire.assemble.stores import store_of
from toolwire.breadcrumbs.hygiene import expire_once
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.breadcrumbs.rules.deliveries import COOL_DOWN_S, DEAD_LETTER, DELIVERY, PAUSES_S
from toolwire.breadcrumbs.sealing import KeyFile, Sealer
from toolwire.breadcrumbs.service import RecordRules, RecordService
from toolwire.breadcrumbs.webhooks import MOST_FAILING, MOST_PARTS, MOST_SEARCHING, Webhooks, redeliver
from toolwire.errors import InvalidRecord, NotFound, NotPermitted
from toolwire.execute.egress.places import read_url
from toolwire.execute.egress.web import Web
from toolwire.execute.webhook import PostOutcome, is_signed, post_signed
from toolwire.protocol.breadcrumbs import ChangeKind, Record, RecordQuery, Sensitivity, Visibility
from toolwire.record.memory import MemoryStore
from toolwire.record.sqlite import SqliteStore
from toolwire.settings import Untrusted

ANN, BEN = Caller("ANN", Role.WRITER), Caller("BEN", Role.WRITER)
BOUND_S = 20
NOW = 1_800_000_000.0


@dataclass
class Office:
    """The records of a project and what delivers their changes, with a clock that a test moves."""

    store: Any
    folder: Path
    roles: dict[str, Role] = field(default_factory=lambda: {"ANN": Role.WRITER, "BEN": Role.WRITER})
    now: float = NOW

    def __post_init__(self) -> None:
        sealer = Sealer(KeyFile(self.folder / "keys" / "records.key"), "acme")
        self.records = RecordService(self.store, "acme", clock=lambda: self.now, rules=RecordRules(sealer=sealer))
        self.web = Web(connector({"hooks.example": ["127.0.0.1"]}))
        self.hooks = Webhooks(
            self.records, self.store, self.post, self.caller_of, clock=lambda: self.now, chance=lambda: 0.5
        )

    def caller_of(self, name: str) -> Caller | None:
        return Caller(name, self.roles[name]) if name in self.roles else None

    async def post(self, url: str, delivery: str, body: bytes, keys: Sequence[bytes]) -> PostOutcome:
        return await post_signed(self.web, read_url(url), delivery, body, keys, self.now)

    async def subscribe(self, server: Server, selector: Any, caller: Caller = ANN, **more: Any) -> Record:
        context = {"selector": selector, "url": f"http://hooks.example:{server.port}/hook?t=1", **more}
        return await self.records.create(NewRecord("subscription.v1", "mine", context=context), caller)

    async def write(self, caller: Caller = BEN, schema_name: str = "note.v1", **fields: Any) -> Record:
        return await self.records.create(NewRecord(schema_name, **fields), caller)

    async def work(self) -> None:
        """Everything that is due now."""
        async with asyncio.timeout(BOUND_S):
            while await self.hooks.step():
                pass

    async def of_type(self, schema_name: str, caller: Caller = RUNTIME) -> list[Record]:
        return [row.value for row in await self.records.listed(RecordQuery(schema_name=schema_name), caller)]


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(MemoryStore(clock=lambda: NOW), tmp_path)


def told(server: Server) -> list[dict[str, Any]]:
    return [json.loads(heard.body) for heard in server.heard]


def in_turn(*statuses: str) -> Answering:
    left = list(statuses)

    async def answering(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await saying(b"", status=left.pop(0) if len(left) > 1 else left[0])(heard, writer)

    return answering


async def test_a_change_is_delivered_once_and_signed_with_the_key_of_its_subscription(office: Office) -> None:
    async with serving(saying(b"")) as server:
        await office.write(tags=("door",), title="before it was subscribed")
        subscription = await office.subscribe(server, {"any_tags": ["door"]}, kinds=["created", "updated"])
        made = await office.write(tags=("door",), context={"n": 1})
        await office.write(tags=("window",))
        await office.records.patch(made.id, {"context": {"n": 2}}, 1, BEN)
        await office.records.delete(made.id, BEN)
        await office.work()
        await office.work()

    first, second = told(server)
    assert [first["event"], second["event"]] == ["created", "updated"]
    assert [first["record"]["context"], second["record"]["context"]] == [{"n": 1}, {"n": 2}]
    assert first["subscription"] == subscription.id
    heard = server.heard[0]
    assert heard.line == "POST /hook?t=1 HTTP/1.1"
    assert heard.headers["x-toolwire-delivery"] == first["delivery"] != second["delivery"]
    (key,) = await office.records.signing_keys(subscription.id, ANN)
    assert is_signed(key.encode(), heard.headers["x-toolwire-timestamp"], heard.body, signed(heard), office.now)
    with pytest.raises(NotPermitted):
        await office.records.signing_keys(subscription.id, BEN)


def signed(heard: Heard) -> str:
    return heard.headers["x-toolwire-signature"]


async def test_T243_a_forged_changed_or_repeated_message_is_not_taken_for_ours(office: Office) -> None:
    """What a receiver checks: the key is its own, so another receiver's messages do not fit either."""
    async with serving(saying(b"")) as server:
        mine = await office.subscribe(server, {"all": True})
        other = await office.subscribe(server, {"any_tags": ["never"]})
        await office.write(title="real")
        await office.work()

    heard = next(one for one in server.heard if json.loads(one.body)["record"]["title"] == "real")
    key, foreign = [(await office.records.signing_keys(one.id, ANN))[0].encode() for one in (mine, other)]
    timestamp = heard.headers["x-toolwire-timestamp"]
    assert key != foreign
    assert not is_signed(foreign, timestamp, heard.body, signed(heard), office.now)
    assert not is_signed(key, timestamp, heard.body + b" ", signed(heard), office.now)
    assert not is_signed(key, str(int(timestamp) + 1), heard.body, signed(heard), office.now)
    assert not is_signed(key, timestamp, heard.body, signed(heard), office.now + 301)
    assert not is_signed(key, timestamp, heard.body, "v1=" + "0" * 64, office.now)
    assert not is_signed(key, "²", heard.body, "", office.now)


async def test_T243_control_a_message_of_ours_is_known_also_while_keys_are_rotated(office: Office) -> None:
    async with serving(saying(b"")) as server:
        mine = await office.subscribe(server, {"any_tags": ["a"]})
        (old,) = await office.records.signing_keys(mine.id, ANN)
        keys = office.folder / "keys" / "records.key"
        KeyFile(office.folder / "new" / "records.key").newest()
        keys.write_bytes((office.folder / "new" / "records.key").read_bytes() + keys.read_bytes())
        await office.write(tags=("a",))
        await office.work()

    heard = server.heard[0]
    new, *_ = await office.records.signing_keys(mine.id, ANN)
    for key in (old, new):
        assert is_signed(key.encode(), heard.headers["x-toolwire-timestamp"], heard.body, signed(heard), office.now)
    assert new != old


async def test_a_receiver_that_fails_is_tried_again_with_growing_pauses_until_it_answers(office: Office) -> None:
    async with serving(in_turn("500 Oops", "302 Found", "204 No Content")) as server:
        await office.subscribe(server, {"any_tags": ["a"]})
        await office.write(tags=("a",), title="first")
        await office.work()
        await office.write(tags=("a",), title="while it fails")
        await office.work()
        assert len(server.heard) == 1, "what comes meanwhile waits, too"
        waiting = {one.context["attempts"]: one for one in await office.of_type(DELIVERY, ANN)}
        assert waiting[1].context["error"] == "it answered with status 500"
        assert waiting[1].context["next_at"] == office.now + PAUSES_S[0]
        assert await office.of_type(DELIVERY, BEN) == []
        office.now += PAUSES_S[0]
        await office.work()
        assert len(server.heard) == 2, "a redirect is not followed: it is a failure"
        office.now += max(PAUSES_S[1], COOL_DOWN_S)
        await office.work()

    titles = [one["record"]["title"] for one in told(server)]
    assert titles == ["first", "first", "while it fails", "first"] or titles == [
        "first",
        "first",
        "first",
        "while it fails",
    ]
    assert len({one["delivery"] for one in told(server)}) == 2
    assert await office.of_type(DELIVERY) == await office.of_type(DEAD_LETTER) == []
    assert sorted(PAUSES_S) == list(PAUSES_S)


async def test_a_receiver_that_fails_again_is_left_alone_for_a_while_whatever_waits_for_it(office: Office) -> None:
    """Each attempt may take ten seconds, in which others would wait."""
    async with serving(saying(b"", status="503 Away")) as away, serving(in_turn("503 Away", "204 Ok")) as back:
        for server in (away, back):
            await office.subscribe(server, {"any_tags": ["a"]})
        for _ in range(20):
            await office.write(tags=("a",))
        await office.work()
        assert (len(away.heard), len(back.heard)) == (1, 1)
        office.now += COOL_DOWN_S
        await office.work()
        assert (len(away.heard), len(back.heard)) == (2, 21)
        assert len(await office.of_type(DELIVERY)) == 20
        office.now += COOL_DOWN_S
        await office.work()
        assert len(away.heard) == 3


async def test_what_never_arrives_becomes_a_dead_letter_that_its_owner_finds(office: Office) -> None:
    async with serving(saying(b"", status="503 Away")) as server:
        subscription = await office.subscribe(server, {"all": True})
        made = await office.write(title="lost")
        await office.work()
        for pause_s in PAUSES_S:
            office.now += pause_s * 1.3
            await office.work()

    letters = await office.of_type(DEAD_LETTER, ANN)
    assert [one.context["record"] for one in letters] == [made.id]
    assert {one.context["attempts"] for one in letters} == {len(PAUSES_S) + 1}
    assert {one.context["error"] for one in letters} == {"it answered with status 503"}
    assert all(one.tags == (f"subscription:{subscription.id}",) and one.expires_at for one in letters)
    assert await office.of_type(DEAD_LETTER, BEN) == await office.of_type(DELIVERY) == []
    assert {one["record"]["schema_name"] for one in told(server)} == {"note.v1"}, "no letters about letters"


async def test_T244_a_webhook_hears_nothing_that_its_owner_may_not_read_and_no_protected_content(
    office: Office,
) -> None:
    async with serving(saying(b"")) as server:
        await office.subscribe(server, {"schema_name": "note.v1"})
        spying = {"context_match": [{"path": "ssn", "op": "eq", "value": "123"}]}
        await office.subscribe(server, {"schema_name": "person.v1", **spying})
        await office.write(BEN, title="hidden", visibility=Visibility.PRIVATE)
        pii = await office.write(BEN, title="Ada 123", context={"ssn": "123"}, sensitivity=Sensitivity.PII)
        secret = await office.write(BEN, title="key", context={"password": "xyzzy"}, sensitivity=Sensitivity.SECRET)
        await office.write(BEN, "person.v1", context={"ssn": "123"}, sensitivity=Sensitivity.PII)
        once = await office.write(BEN, title="once", context={"word": "xyzzy"}, ttl={"type": "usage", "uses": 1})
        await office.work()
        office.roles.pop("ANN")
        await office.write(BEN, title="after its token was taken away")
        await office.work()

    assert [one["record"] for one in told(server)] == [
        {"id": pii.id, "schema_name": "note.v1", "version": 1, "sensitivity": "pii"},
        {"id": secret.id, "schema_name": "note.v1", "version": 1, "sensitivity": "secret"},
        {"id": once.id, "schema_name": "note.v1", "version": 1, "sensitivity": "normal"},
    ]
    assert b"xyzzy" not in b"".join(one.body for one in server.heard)


async def test_T244_control_what_its_owner_may_read_arrives_whole(office: Office) -> None:
    async with serving(saying(b"")) as server:
        await office.subscribe(server, {"schema_name": "note.v1"})
        await office.write(ANN, title="mine", context={"word": "xyzzy"}, visibility=Visibility.PRIVATE)
        await office.work()

    assert [one["record"]["context"] for one in told(server)] == [{"word": "xyzzy"}]


async def test_T291_no_one_else_sends_what_the_author_of_a_subscription_may_read_to_another_address(
    office: Office,
) -> None:
    office.roles["OPS"] = Role.ADMIN
    async with serving(saying(b"")) as server, serving(saying(b"")) as other:
        mine = await office.subscribe(server, {"schema_name": "diary.v1"})
        for caller in (BEN, Caller("OPS", Role.ADMIN)):
            for change in ({"url": f"http://hooks.example:{other.port}/"}, {"selector": {"all": True}}, {"url": None}):
                with pytest.raises(NotPermitted):
                    await office.records.patch(mine.id, {"context": change}, 1, caller)
        await office.write(ANN, "diary.v1", visibility=Visibility.PRIVATE, context={"day": "secret"})
        await office.work()

    assert [one["record"]["context"] for one in told(server)] == [{"day": "secret"}]
    assert other.heard == []


async def test_T291_control_its_author_changes_a_subscription_and_others_may_tag_and_delete_it(office: Office) -> None:
    async with serving(saying(b"")) as server:
        mine = await office.subscribe(server, {"schema_name": "note.v1"})
        tagged = await office.records.patch(mine.id, {"tags": ["seen"]}, 1, BEN)
        await office.records.patch(mine.id, {"context": {"selector": {"schema_name": "task.v1"}}}, tagged.version, ANN)
        await office.write(BEN, "task.v1", title="heard")
        await office.write(BEN, title="not wanted any more")
        await office.work()
        await office.records.delete(mine.id, BEN)
        await office.write(BEN, "task.v1", title="after it was deleted")
        await office.work()

    assert [one["record"]["title"] for one in told(server)] == ["heard"]


async def test_T292_what_has_become_private_or_personal_is_not_delivered_later(office: Office) -> None:
    """The change is of a version that everyone could read; the record is not for them any more."""
    async with serving(in_turn("500 Oops", "200 OK")) as server:
        await office.subscribe(server, {"schema_name": "note.v1"}, kinds=["created"])
        tried = [await office.write(BEN, title=title, context={"ssn": "xyzzy"}) for title in ("hidden", "personal")]
        await office.work()
        late = [await office.write(BEN, title=title, context={"ssn": "xyzzy"}) for title in ("hidden", "personal")]
        for hidden, personal in (tried, late):
            await office.records.patch(hidden.id, {"visibility": "private"}, 1, BEN)
            await office.records.patch(personal.id, {"sensitivity": "pii"}, 1, BEN)
        office.now += PAUSES_S[0] * 1.3 + COOL_DOWN_S
        await office.work()

    first, *later = told(server)
    assert first["record"]["context"] == {"ssn": "xyzzy"}, "what was sent while it was open"
    assert sorted(later, key=lambda one: one["change"])
    assert {one["record"]["id"] for one in later} == {
        tried[1].id,
        late[1].id,
    }
    assert all("context" not in one["record"] and "title" not in one["record"] for one in later)
    assert await office.of_type(DELIVERY) == await office.of_type(DEAD_LETTER) == []


async def test_T292_control_what_is_still_open_is_delivered_late_as_it_was(office: Office) -> None:
    async with serving(in_turn("500 Oops", "200 OK")) as server:
        await office.subscribe(server, {"schema_name": "note.v1"}, kinds=["created"])
        made = await office.write(BEN, context={"n": 1})
        await office.work()
        await office.records.patch(made.id, {"context": {"n": 2}}, 1, BEN)
        office.now += PAUSES_S[0] * 1.3 + COOL_DOWN_S
        await office.work()

    assert [one["record"]["context"] for one in told(server)] == [{"n": 1}, {"n": 1}]


async def test_T297_receivers_of_one_author_that_all_fail_hold_up_no_other_author(office: Office) -> None:
    """Each attempt may take seconds: of hundreds, only a few are made before the others come to their turn."""
    async with serving(saying(b"", status="503 Busy")) as tarpit, serving(saying(b"")) as server:
        for _ in range(40):
            await office.subscribe(tarpit, {"schema_name": "note.v1"}, BEN)
        await office.subscribe(server, {"schema_name": "note.v1"}, ANN)
        for number in range(3):
            await office.write(BEN, context={"n": number})
        await office.hooks.step()
        assert (len(server.heard), len(tarpit.heard) <= 2 * MOST_FAILING) == (3, True)
        office.now += COOL_DOWN_S * 2
        tarpit.heard.clear()
        await office.hooks.step()
        assert 0 < len(tarpit.heard) <= 2 * MOST_FAILING


async def test_T297_control_what_was_put_off_arrives_when_its_receiver_is_back(office: Office) -> None:
    async with serving(in_turn(*["503 Busy"] * MOST_FAILING, "200 OK")) as server:
        hooks = [await office.subscribe(server, {"schema_name": "note.v1"}, BEN) for _ in range(MOST_FAILING + 4)]
        await office.write(BEN)
        for _ in range(6):
            await office.work()
            office.now += COOL_DOWN_S * 2

    arrived = {one["subscription"] for one in told(server)}
    assert arrived == {one.id for one in hooks}
    assert await office.of_type(DELIVERY) == await office.of_type(DEAD_LETTER) == []


async def test_one_process_delivers_and_another_takes_over_where_it_died(tmp_path: Path) -> None:
    """What was sent when it died, and not noted, is sent again under the same id."""
    async with (
        await SqliteStore.at(tmp_path / "store") as survivor,
        serving(in_turn("500 Oops", "204 No Content")) as server,
    ):
        async with await SqliteStore.at(tmp_path / "store") as store:
            office, other = Office(store, tmp_path), Office(survivor, tmp_path)
            await office.subscribe(server, {"any_tags": ["a"]})
            await office.write(tags=("a",), title="fails at first")
            await office.work()
            await other.work()
            assert len(server.heard) == 1, "the other one does not hold the lock"
        other.now += PAUSES_S[0]
        await other.write(tags=("a",), title="afterwards")
        await other.work()
        other.now += COOL_DOWN_S
        await other.work()
        await other.hooks.release()

    titles = [one["record"]["title"] for one in told(server)]
    assert sorted(titles) == ["afterwards", "fails at first", "fails at first"]
    assert len({one["delivery"] for one in told(server)}) == 2


async def test_a_dead_letter_is_delivered_after_all_when_its_owner_asks(office: Office) -> None:
    async with serving(in_turn("410 Gone", *(["410 Gone"] * len(PAUSES_S)), "204 No Content")) as server:
        await office.subscribe(server, {"any_tags": ["a"]})
        await office.write(tags=("a",), title="late")
        await office.work()
        for pause_s in PAUSES_S:
            office.now += pause_s * 1.3
            await office.work()
        (letter,) = await office.of_type(DEAD_LETTER, ANN)
        with pytest.raises(NotFound):
            await redeliver(office.records, letter.id, BEN)
        await redeliver(office.records, letter.id, ANN)
        await office.work()

    assert len(server.heard) == len(PAUSES_S) + 2
    assert len({one["delivery"] for one in told(server)}) == 1
    assert await office.of_type(DEAD_LETTER) == await office.of_type(DELIVERY) == []


@asynccontextmanager
async def upkeep_for(folder: Path, hosts: str = "[]") -> AsyncIterator[tuple[RecordUpkeep, RecordService]]:
    (folder / "toolwire.toml").write_text(
        f'[records]\nwriters = ["ANN"]\nkey_file = "{folder}/keys/records.key"\nwebhook_hosts = {hosts}\n',
        encoding="utf-8",
    )

    def trusts(_: Untrusted) -> bool:
        return True

    project = open_project(cwd=folder, trusts=trusts, environ={"HOME": str(folder)})
    async with store_of(project) as store:
        upkeep = RecordUpkeep(project, store, "root")
        yield upkeep, upkeep.records


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.0.0.7"])
async def test_T245_a_webhook_reaches_no_private_address(tmp_path: Path, host: str) -> None:
    """Whatever the address is called. The owner finds out why."""
    async with serving(saying(b"")) as server, upkeep_for(tmp_path) as (upkeep, records):
        context = {"selector": {"schema_name": "note.v1"}, "url": f"http://{host}:{server.port}/"}
        await records.create(NewRecord("subscription.v1", context=context), ANN)
        await records.create(NewRecord("note.v1"), ANN)
        async with asyncio.timeout(BOUND_S):
            await upkeep.run_once()
        (letter,) = await records.listed(RecordQuery(schema_name=DEAD_LETTER), ANN)
        with pytest.raises(InvalidRecord, match="four decimal numbers"):
            await records.create(NewRecord("subscription.v1", context={**context, "url": "http://0x7f.1/"}), ANN)

    assert server.connections == 0
    assert "public" in letter.value.context["error"] or "not allowed" in letter.value.context["error"], letter.value


async def test_T245_control_a_host_that_the_operator_named_is_reached_and_no_redirect_beyond_it(tmp_path: Path) -> None:
    async with serving(saying(b"")) as inner:
        redirect = saying(b"", f"location: http://127.0.0.1:{inner.port}/", status="307 Temporary Redirect")
        async with serving(redirect) as server, upkeep_for(tmp_path, f'["127.0.0.1:{server.port}"]') as (up, records):
            context = {"selector": {"schema_name": "note.v1"}, "url": f"http://127.0.0.1:{server.port}/"}
            await records.create(NewRecord("subscription.v1", context=context), ANN)
            await records.create(NewRecord("note.v1"), ANN)
            async with asyncio.timeout(BOUND_S):
                await up.run_once()

    assert (server.connections, inner.connections) == (1, 0)


async def test_hygiene_drops_what_has_expired_in_batches_and_each_is_one_change(tmp_path: Path) -> None:
    now = [NOW]
    office = Office(MemoryStore(clock=lambda: now[0]), tmp_path)
    lasting = await office.write(ttl={"type": "duration", "duration": "1h"})
    short = [await office.write(ttl={"type": "duration", "seconds": 5}) for _ in range(5)]
    used = await office.write(ttl={"type": "usage", "uses": 1})
    await office.records.read(used.id, BEN)
    now[0] += 6

    assert await expire_once(office.store, "acme", batch=2) in (5, 6), "the last use may have dropped its record"
    assert await expire_once(office.store, "acme", batch=2) == 0
    changes, _ = await office.records.changes(0, BEN)
    gone = sorted(one.value.record.id for one in changes if one.value.kind is ChangeKind.EXPIRED)
    assert gone == sorted(one.id for one in [*short, used])
    assert await office.of_type("note.v1") == [lasting]


async def test_T240_an_author_has_so_many_webhooks_with_regular_expressions_and_no_more(office: Office) -> None:
    searching = {"schema_name": "note.v1", "context_match": [{"path": "text", "op": "matches", "value": "a"}]}
    async with serving(saying(b"")) as server:
        for _ in range(MOST_SEARCHING + 2):
            await office.subscribe(server, searching)
        await office.subscribe(server, searching, BEN)
        await office.write(context={"text": "a"})
        await office.work()

    assert len(server.heard) == MOST_SEARCHING + 1


async def test_T300_an_author_asks_for_so_many_parts_of_texts_and_no_more(office: Office) -> None:
    async with serving(saying(b"")) as server:
        for number in range(MOST_PARTS // 250 + 2):
            texts = ["a", *(f"{number}-{part}" for part in range(249))]
            asked = [{"path": "text", "op": "contains_any", "value": texts}]
            await office.subscribe(server, {"schema_name": "note.v1", "context_match": asked})
        await office.write(context={"text": "a"})
        await office.work()

    assert len(server.heard) == MOST_PARTS // 250


def after_the_first(work: Any) -> Answering:
    """Answers well. Something is done before the first answer, while the second message is about to be sent."""
    left = [work]

    async def answering(heard: Heard, writer: asyncio.StreamWriter) -> None:
        if left:
            await left.pop()()
        await saying(b"")(heard, writer)

    return answering


async def test_T304_what_was_hidden_and_deleted_while_a_receiver_was_slow_is_not_told(office: Office) -> None:
    made: list[Record] = []

    async def hide() -> None:
        for one, hidden in zip(made[1:], ({"visibility": "private"}, {"sensitivity": "pii"}), strict=True):
            await office.records.patch(one.id, hidden, 1, BEN)
            await office.records.delete(one.id, BEN)

    async with serving(after_the_first(hide)) as server:
        await office.subscribe(server, {"schema_name": "note.v1"}, kinds=["created"])
        made += [await office.write(title=f"note {number}", context={"said": number}) for number in range(3)]
        await office.work()

    first, *others = (one["record"] for one in told(server))
    assert first["context"] == {"said": 0}
    assert all(set(one) == {"id", "schema_name", "version", "sensitivity"} for one in others)
    assert made[1].id not in {one["id"] for one in others}


@pytest.mark.parametrize("change", ["deleted", "paused", "moved"])
async def test_T304_a_subscription_counts_as_it_is_at_the_attempt(office: Office, change: str) -> None:
    """A page of changes is read before, and a slow receiver takes minutes for it."""
    hooks: list[Record] = []

    async def alter() -> None:
        if change == "deleted":
            await office.records.delete(hooks[0].id, ANN)
        else:
            to = {"is_active": False} if change == "paused" else {"url": f"http://hooks.example:{other.port}/new"}
            await office.records.patch(hooks[0].id, {"context": to}, 1, ANN)

    async with serving(after_the_first(alter)) as server, serving(saying(b"")) as other:
        hooks.append(await office.subscribe(server, {"schema_name": "note.v1"}))
        for number in range(3):
            await office.write(context={"n": number})
        await office.hooks.step()

    assert len(server.heard) == 1
    assert [one["record"]["context"]["n"] for one in told(other)] == ([1, 2] if change == "moved" else [])


async def test_T304_control_what_stays_as_it_was_is_told(office: Office) -> None:
    async def nothing() -> None:
        return None

    async with serving(after_the_first(nothing)) as server:
        await office.subscribe(server, {"schema_name": "note.v1"})
        for number in range(3):
            await office.write(context={"n": number})
        await office.hooks.step()

    assert [one["record"]["context"]["n"] for one in told(server)] == [0, 1, 2]


async def test_T309_a_receiver_is_not_told_the_address_of_another_one(office: Office) -> None:
    async with serving(saying(b"")) as server:
        await office.subscribe(server, {"schema_name": "subscription.v1"}, BEN)
        probe = [{"path": "url", "op": "contains", "value": "t=1"}]
        await office.subscribe(server, {"schema_name": "subscription.v1", "context_match": probe}, BEN)
        server_of_ann = await office.subscribe(server, {"any_tags": ["never"]}, ANN)
        await office.work()

    about = [one["record"]["context"]["url"] for one in told(server) if one["record"]["id"] == server_of_ann.id]
    assert about == ["http://hooks.example/…"]
