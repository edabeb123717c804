"""Answering what calls wait for, over HTTP: who may, what they are shown, and what their word is bound to."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from toolwire import Agent, Grant, MemoryStore, Tier, tool
from toolwire.deliver.questions import visible_json
from toolwire.errors import StoreUnavailable, Suspended
from toolwire.gateway.app import make_app
from toolwire.gateway.approvals import ApprovalDesk
from toolwire.gateway.settings import Access, Upstream
from toolwire.protocol.approvals import ApprovalCard
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call

ANN = {"authorization": "Bearer anns-long-token"}
BOB = {"x-api-key": "bobs-long-token"}
ACCESS = Access(tokens=("anns-long-token", "bobs-long-token"), callers=("ANN", "BOB"))
CARD = ApprovalCard(
    "ask-1", "turn-1", "call-1", "bash", {"command": "ls"}, "d" * 64, "It runs.", "agent", 0.0, 9_000_000_000.0
)

Ask = Callable[..., Awaitable[httpx2.Response]]


def asking(store: Store | None, access: Access = ACCESS, people: frozenset[str] = frozenset()) -> Ask:
    """One request to a gateway that has this store."""

    @asynccontextmanager
    async def open_store() -> AsyncIterator[Store | None]:
        yield store

    app = make_app(Upstream.at("http://127.0.0.1:9"), access=access, desk=ApprovalDesk(open_store, people))

    async def ask(
        path: str = "", body: Any = None, headers: Mapping[str, str] = ANN, method: str = ""
    ) -> httpx2.Response:
        way = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=way, base_url="http://localhost") as client:
            content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            method = method or ("GET" if body is None else "POST")
            return await client.request(method, f"/v1/approvals{path}", content=content, headers=headers)

    return ask


@pytest.fixture
async def store() -> MemoryStore:
    store = MemoryStore()
    await store.request_approval(CARD, ())
    return store


def fault(got: httpx2.Response) -> tuple[int, str]:
    return got.status_code, got.json()["error"]["code"]


@pytest.mark.contrast("T60", "T65")
async def test_a_waiting_turn_goes_on_after_a_yes_over_http() -> None:
    opened: list[int] = []

    @tool(tier=Tier.RUN)
    def unlock(door: int) -> str:
        """Unlock a door."""
        opened.append(door)
        return "open"

    kept = MemoryStore()

    def agent(*script: Any) -> Agent:
        return Agent(ScriptedModel(*script), [unlock], store=kept, grant=Grant(tier=Tier.RUN), suspends=True)

    with pytest.raises(Suspended) as waits:
        await agent(call("unlock", door=7)).ask("Open 7")
    ask = asking(kept)
    [listed] = (await ask()).json()["data"]
    answered = await ask(f"/{listed['id']}", {"granted": True, "digest": listed["digest"]})
    await agent("Done.").resume(waits.value.turn_id)

    assert (listed["tool"], listed["state"], listed["turn_id"]) == ("unlock", "open", waits.value.turn_id)
    assert (answered.status_code, answered.json()["state"]) == (200, "granted")
    assert opened == [7]


async def test_a_no_is_kept_with_its_reason_and_the_next_word_is_a_conflict(store: MemoryStore) -> None:
    ask = asking(store)

    refused = (await ask("/ask-1", {"granted": False, "reason": "not today"})).json()
    late = await ask("/ask-1", {"granted": True})

    assert refused["state"] == "rejected"
    assert refused["answers"] == [
        {"granted": False, "by": "ANN", "reason": "not today", "scope": "once", "edited": False}
    ]
    assert fault(late) == (409, "already_decided")
    assert (await ask()).json()["data"] == []
    assert [one["id"] for one in (await ask("?state=all")).json()["data"]] == ["ask-1"]


async def test_other_arguments_and_a_wider_scope_reach_the_record(store: MemoryStore) -> None:
    body = {"granted": True, "arguments": {"command": "ls -l"}, "scope": "turn"}

    await asking(store)("/ask-1", body)

    word = (await store.approval("ask-1")).word
    assert (word.arguments, word.scope.value, word.by) == ({"command": "ls -l"}, "turn", "ANN")


@pytest.mark.contrast("T59")
async def test_T59_who_speaks_is_known_by_the_token_alone(store: MemoryStore) -> None:
    """Two voices are two tokens: nobody can be a second person by saying so."""
    await store.request_approval(replace(CARD, id="ask-2", call_id="call-2", quorum=2), ())
    ask = asking(store)

    claimed = await ask("/ask-2", {"granted": True, "by": "BOB"})
    await ask("/ask-2", {"granted": True})
    twice = await ask("/ask-2", {"granted": True}, ANN | {"x-forwarded-user": "BOB"})
    both = await ask("/ask-2", {"granted": True}, BOB)

    assert fault(claimed) == (400, "bad_answer")
    assert twice.json()["state"] == "open"
    assert both.json()["state"] == "granted"
    assert {answer["by"] for answer in both.json()["answers"]} == {"ANN", "BOB"}


@pytest.mark.parametrize("claim", ["by", "scopes", "tier", "permissions", "autonomy", "people", "policy", "under"])
async def test_T59_no_field_of_an_answer_gives_rights(store: MemoryStore, claim: str) -> None:
    assert fault(await asking(store)("/ask-1", {"granted": True, claim: "admin"})) == (400, "bad_answer")


@pytest.mark.parametrize("header", ["toolwire.caller", "x-caller", "x-role", "x-scopes", "x-forwarded-user", "cookie"])
async def test_T59_no_header_but_the_token_says_who_speaks(store: MemoryStore, header: str) -> None:
    people = frozenset({"ANN"})

    assert fault(await asking(store)("", headers={header: "ANN"})) == (401, "invalid_token")
    assert fault(await asking(store, people=people)("", headers=BOB | {header: "ANN"})) == (403, "not_asked")


@pytest.mark.parametrize(
    ("access", "headers", "told"),
    [
        (ACCESS, {}, (401, "invalid_token")),
        (ACCESS, {"authorization": "Bearer sk-a-providers-key"}, (401, "invalid_token")),
        (Access(), {}, (403, "approvals_off")),
        (Access(), {"authorization": "Bearer sk-a-providers-key"}, (403, "approvals_off")),
        (ACCESS, ANN | {"host": "evil.example"}, (403, "foreign_host")),
        (ACCESS, ANN | {"origin": "https://evil.example"}, (403, "foreign_origin")),
    ],
)
async def test_T60_without_a_token_of_the_gateway_nothing_is_shown_or_taken(
    store: MemoryStore, access: Access, headers: dict[str, str], told: tuple[int, str]
) -> None:
    ask = asking(store, access)

    for path, body in (("", None), ("/ask-1", None), ("/ask-1", {"granted": True})):
        assert fault(await ask(path, body, headers)) == told
    assert (await store.approval("ask-1")).answers == ()


async def test_only_the_people_whom_the_settings_name_are_asked(store: MemoryStore) -> None:
    ask = asking(store, people=frozenset({"BOB"}))

    assert fault(await ask("/ask-1", {"granted": True}, ANN)) == (403, "not_asked")
    assert (await ask("/ask-1", {"granted": True}, BOB)).json()["state"] == "granted"


async def test_T65_an_answer_to_something_else_than_was_shown_is_refused(store: MemoryStore) -> None:
    ask = asking(store)

    other = await ask("/ask-1", {"granted": True, "digest": "e" * 64})

    assert fault(other) == (409, "other_digest")
    assert (await store.approval("ask-1")).answers == ()


DISGUISES = {
    "reading direction": "rm \u202e fdp.exe",
    "look-alike letters": "b\u0430sh",
    "escape sequences": "ls\x1b[2K\r\x9b1A",
    "spaces that push the rest out of sight": "ls" + " " * 10_000 + "; rm -rf x",
    "lines": "ls\n\n\nrm",
    "invisible": "a\u200b\u2060\ufeff\U000e0041\x7fb",
    "half a surrogate": "a\ud800",
    "beyond the plane": "\U0001f600",
}


@pytest.mark.parametrize("case", DISGUISES)
async def test_T65_nothing_that_is_shown_can_look_like_something_else(case: str) -> None:
    arguments = {"command": DISGUISES[case]}
    kept = MemoryStore()
    await kept.request_approval(replace(CARD, arguments=arguments, reason=DISGUISES[case]), ())

    got = (await asking(kept)("/ask-1")).json()

    text = got["arguments"]["json"]
    assert text.isascii()
    assert text.isprintable()
    assert "   " not in text
    assert json.loads(text) == arguments
    assert got["arguments"]["length"] == len(text)
    assert got["reason"].isprintable()


async def test_T65_a_list_says_how_much_of_long_arguments_it_leaves_out(store: MemoryStore) -> None:
    await store.request_approval(replace(CARD, id="long", call_id="c", arguments={"text": "x" * 50_000}), ())
    ask = asking(store)

    short = (await ask("?limit=1")).json()["data"][0]["arguments"]
    whole = (await ask("/long")).json()["arguments"]

    assert (len(short["json"]), short["truncated"], whole["truncated"]) == (2_000, True, False)
    assert short["length"] == whole["length"] == len(whole["json"]) == len('{"text":""}') + 50_000
    assert short["sha256"] == whole["sha256"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"granted",
        b"[]",
        b"{}",
        b'{"granted": "yes"}',
        b'{"granted": 1}',
        b'{"granted": false, "granted": true}',
        b'{"granted": true, "arguments": []}',
        b'{"granted": true, "scope": "forever"}',
        b'{"granted": true, "scope": []}',
        b'{"granted": true, "reason": 5}',
        b'{"granted": true, "reason": "' + b"x" * 3_000 + b'"}',
        b'{"granted": false, "scope": "turn"}',
        b'{"granted": false, "arguments": {}}',
        b'{"granted": true, "state": "granted"}',
        b'{"granted": true, "arguments": ' + b"[" * 100_000,
        b"\xff",
    ],
)
async def test_what_is_no_answer_changes_nothing(store: MemoryStore, body: bytes) -> None:
    got = await asking(store)("/ask-1", body)

    assert fault(got) == (400, "bad_answer")
    assert (await store.approval("ask-1")).answers == ()


@pytest.mark.parametrize("query", ["?limit=0", "?limit=201", "?limit=x", "?limit=²", "?state=closed"])
async def test_a_filter_that_makes_no_sense_is_refused(store: MemoryStore, query: str) -> None:
    assert fault(await asking(store)(query)) == (400, "bad_answer")


async def test_one_turns_questions_are_listed_alone(store: MemoryStore) -> None:
    await store.request_approval(replace(CARD, id="ask-2", turn_id="turn-2"), ())

    listed = (await asking(store)("?turn=turn-2")).json()["data"]

    assert [one["id"] for one in listed] == ["ask-2"]


async def test_an_unknown_question_and_a_project_without_a_store_are_not_found(store: MemoryStore) -> None:
    assert fault(await asking(store)("/nothing")) == (404, "approval_not_found")
    assert fault(await asking(None)("/ask-1", {"granted": True})) == (404, "approval_not_found")
    assert (await asking(None)()).json() == {"data": []}


async def test_a_store_that_is_out_of_reach_is_said_to_be() -> None:
    class ConnectionLost(MemoryStore):
        async def approval(self, approval_id: str, *, project: str | None = None) -> ApprovalCard:
            raise StoreUnavailable("the disk is full")

    assert fault(await asking(ConnectionLost())("/ask-1")) == (503, "store_unavailable")


def test_a_number_of_any_length_can_be_shown() -> None:
    assert visible_json({"n": 10**5_000}).startswith('{"n":')


@pytest.mark.threat("T65")
@pytest.mark.parametrize("arguments", [{"path": "s*/x"}, {"path": "docs/*"}, {"url": "https://*.example/x"}])
async def test_T65_no_pattern_is_offered_for_a_call_that_brings_its_own_stars(
    store: MemoryStore, arguments: dict[str, str]
) -> None:
    await store.request_approval(replace(CARD, id="ask-2", call_id="c2", tool="write", arguments=arguments), ())
    assert (await asking(store)("/ask-2")).json()["pattern"] == ""


async def test_a_yes_for_a_pattern_is_offered_given_listed_and_taken_back(store: MemoryStore) -> None:
    await store.request_approval(replace(CARD, id="ask-2", call_id="c2", arguments={"command": "git commit -m x"}), ())
    ask = asking(store)
    assert [one["pattern"] for one in (await ask()).json()["data"]] == ["git commit", "ls"]

    said = {"granted": True, "scope": "pattern", "pattern": "git commit", "hours": 2}
    given = (await ask("/ask-2", said)).json()
    assert (given["state"], given["pattern"], given["stands_until"] > 0) == ("granted", "git commit", True)
    [standing] = (await ask("?state=standing")).json()["data"]
    assert (standing["id"], standing["answers"][0]["by"]) == ("ask-2", "ANN")

    taken = await ask("/ask-2", headers=BOB, method="DELETE")
    assert (taken.status_code, taken.json()["stands_until"]) == (200, 0)
    assert (await ask("?state=standing")).json()["data"] == []
    assert fault(await ask("/ask-2", method="DELETE")) == (409, "already_decided")
    assert [row.detail["by"] for row in await store.audit_log()] == ["ANN", "BOB"]


@pytest.mark.parametrize(
    "said",
    [
        {"scope": "pattern"},
        {"scope": "pattern", "pattern": "*"},
        {"scope": "pattern", "pattern": "rm"},
        {"scope": "pattern", "pattern": "ls", "hours": 0},
        {"scope": "pattern", "pattern": "ls", "hours": True},
        {"scope": "pattern", "pattern": "ls", "hours": 1e9},
        {"scope": "pattern", "pattern": "ls", "arguments": {"command": "ls"}},
        {"pattern": "ls"},
        {"scope": "pattern", "pattern": "l" * 501},
    ],
)
async def test_a_pattern_that_means_something_else_is_refused(store: MemoryStore, said: dict[str, Any]) -> None:
    assert fault(await asking(store)("/ask-1", {"granted": True, **said})) == (400, "bad_answer")
    assert (await store.approval("ask-1")).answers == ()
