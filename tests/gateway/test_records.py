"""Records over HTTP: who may see and change which, versions and keys."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.record_gateway import NOTE, RECORDS, Gateway, gateway_for, told
from toolwire.breadcrumbs.new_records import NewRecord
from toolwire.breadcrumbs.rules.callers import RUNTIME, Caller, Role
from toolwire.errors import NotFound
from toolwire.protocol.breadcrumbs import RecordQuery

_EVERYTHING = RecordQuery()


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Gateway]:
    async with gateway_for(tmp_path) as found:
        yield found


@pytest.mark.feature("F184", "F192")
async def test_a_record_is_created_read_patched_and_deleted_and_every_version_is_kept(gateway: Gateway) -> None:
    ann = gateway["ANN"]
    made = await ann.post(RECORDS, json=NOTE)
    place = made.headers["location"]
    assert (made.status_code, made.headers["etag"], place) == (201, '"1"', f"{RECORDS}/{made.json()['id']}")

    patched = await ann.patch(
        place, json={"context": {"colour": None, "size": {"width": 2}}, "title": "Gate"}, headers={"if-match": '"1"'}
    )
    assert (patched.status_code, patched.headers["etag"], patched.json()["version"]) == (200, '"2"', 2)
    again = await ann.patch(place, json={"context": {"size": {"height": 3}}}, headers={"if-match": "2"})
    assert again.json()["context"] == {"size": {"width": 2, "height": 3}}
    assert (await ann.get(place)).json() == again.json()

    history = (await ann.get(f"{place}/history?limit=2")).json()
    older = (await ann.get(f"{place}/history?limit=2&before={history['next']}")).json()
    versions = [(one["version"], one["title"], one["context"]) for one in history["data"] + older["data"]]
    assert versions == [
        (3, "Gate", {"size": {"width": 2, "height": 3}}),
        (2, "Gate", {"size": {"width": 2}}),
        (1, "Door", {"colour": "red"}),
    ]
    assert older["next"] is None

    assert told(await ann.delete(place, headers={"if-match": '"2"'})) == (412, "version_conflict")
    assert (await ann.delete(place, headers={"if-match": '"3"'})).status_code == 204
    assert told(await ann.get(place)) == (404, "record_not_found")
    assert told(await ann.get(f"{place}/history")) == (404, "record_not_found")
    log = await gateway.store.audit_log(project="acme")
    assert [(row.event, row.agent, row.detail["version"]) for row in log] == [
        ("record_created", "ANN", 1),
        ("record_updated", "ANN", 2),
        ("record_updated", "ANN", 3),
        ("record_deleted", "ANN", 3),
    ]


@pytest.mark.feature("F203")
async def test_the_view_of_a_record_is_said_in_the_address(gateway: Gateway) -> None:
    ann, made = gateway["ANN"], await gateway.created(llm_hints={"include": ["colour"]})
    raw = await ann.get(f"{RECORDS}/{made['id']}")
    llm = await ann.get(f"{RECORDS}/{made['id']}?view=llm")

    assert raw.json() == made
    assert (await ann.get(f"{RECORDS}/{made['id']}?view=raw")).json() == made
    assert (await ann.get(f"{RECORDS}/{made['id']}/full")).json() == made
    assert (await ann.get(f"/breadcrumbs/{made['id']}")).json() == made
    assert llm.json()["context"] == {"colour": "red"}
    assert "llm_hints" not in llm.json()
    assert llm.headers["etag"] == raw.headers["etag"] == '"1"'
    assert told(await ann.get(f"{RECORDS}/{made['id']}?view=short")) == (400, "bad_record")


async def test_a_repeated_idempotency_key_replays_the_first_answer(gateway: Gateway) -> None:
    """R-22: the first answer comes again, whatever happened to the record since."""
    ann, key = gateway["ANN"], {"idempotency-key": "order-7"}
    first = await ann.post(RECORDS, json=NOTE, headers=key)
    await ann.patch(first.headers["location"], json={"title": "Other"}, headers={"if-match": "1"})
    again = await ann.post(RECORDS, json=NOTE, headers=key)

    assert (again.status_code, again.content, again.headers["etag"]) == (201, first.content, first.headers["etag"])
    assert told(await ann.post(RECORDS, json={**NOTE, "title": "Else"}, headers=key)) == (409, "record_conflict")
    other = await gateway["BEN"].post(RECORDS, json=NOTE, headers=key)
    assert (other.status_code, other.json()["id"] != first.json()["id"]) == (201, True)
    assert len((await ann.get(RECORDS)).json()["data"]) == 2
    assert told(await ann.post(RECORDS, json=NOTE, headers={"idempotency-key": "k" * 201})) == (400, "bad_record")


async def test_a_patch_names_the_version_that_it_changes(gateway: Gateway) -> None:
    ann, made = gateway["ANN"], await gateway.created()
    place = f"{RECORDS}/{made['id']}"
    assert told(await ann.patch(place, json={"title": "A"})) == (428, "version_required")
    for garbage in ("*", 'W/"1"', "one", '"', '""', "-1", "0", "1.0", "1, 2", "9" * 40):
        assert told(await ann.patch(place, json={"title": "A"}, headers={"if-match": garbage})) == (400, "bad_record")
    assert told(await ann.patch(place, json={"title": "A"}, headers={"if-match": "7"})) == (412, "version_conflict")
    assert (await ann.get(place)).json() == made


async def test_of_patches_for_one_version_at_the_same_time_one_is_made(gateway: Gateway) -> None:
    made = await gateway.created(context={"count": 0})
    place = f"{RECORDS}/{made['id']}"
    bodies = [{"context": {f"by_{number}": True}} for number in range(6)]
    answers = await asyncio.gather(
        *(gateway["ANN"].patch(place, json=body, headers={"if-match": "1"}) for body in bodies)
    )
    assert sorted(answer.status_code for answer in answers) == [200] + [412] * 5
    assert len((await gateway["ANN"].get(place)).json()["context"]) == 2


async def test_records_are_listed_by_tags_schema_text_author_and_time(gateway: Gateway) -> None:
    for number in range(3):
        await gateway.created(title=f"Door {number}", tags=["house", f"n:{number}"])
    task = await gateway.created("BEN", schema_name="task.v1", title="Paint the fence", tags=["garden"])

    async def titles(query: str) -> list[str]:
        answer = await gateway["ANN"].get(f"{RECORDS}?{query}")
        assert answer.status_code == 200, answer.text
        return [one["title"] for one in answer.json()["data"]]

    assert await titles("") == ["Paint the fence", "Door 2", "Door 1", "Door 0"]
    assert await titles("schema_name=task.v1") == ["Paint the fence"]
    assert await titles("tag=house&tag=n:1") == ["Door 1"]
    assert await titles("any_tag=garden&any_tag=n:0") == ["Paint the fence", "Door 0"]
    assert await titles("text=fence+paint") == ["Paint the fence"]
    assert await titles("author=BEN") == ["Paint the fence"]
    assert await titles(f"since={task['created_at']!r}") == ["Paint the fence"]
    assert await titles("until=2020-01-01T00:00:00Z") == []
    first = (await gateway["ANN"].get(f"{RECORDS}?limit=3")).json()
    rest = (await gateway["ANN"].get(f"{RECORDS}?limit=3&before={first['next']}")).json()
    assert [one["title"] for one in first["data"] + rest["data"]] == await titles("")
    assert (len(first["data"]), rest["next"], "context" in first["data"][0]) == (3, None, False)
    [whole] = (await gateway["ANN"].get(f"{RECORDS}?schema_name=task.v1&include_context=true")).json()["data"]
    assert whole == task


async def test_what_toolwire_keeps_for_itself_is_listed_where_it_is_asked_for(gateway: Gateway) -> None:
    note = await gateway.created()
    state = await gateway.service.create(NewRecord("schedule.state.v1", tags=("house",)), RUNTIME)

    async def ids(query: str) -> list[str]:
        return [one["id"] for one in (await gateway["ANN"].get(f"{RECORDS}?{query}")).json()["data"]]

    assert await ids("") == await ids("tag=house") == [note["id"]]
    assert await ids("internal=true") == [state.id, note["id"]]
    assert await ids("schema_name=schedule.state.v1") == [state.id]


async def test_records_are_found_by_what_they_say(gateway: Gateway) -> None:
    await gateway.created()
    fence = await gateway.created(title="Paint the fence")
    found = await gateway["ANN"].post(f"{RECORDS}/search", json={"text": "fence", "nn": 3})
    assert [one["id"] for one in found.json()["data"]] == [fence["id"]]
    assert set(found.json()["data"][0]) == {*fence, "score", "method"}
    for query in ("q=fence", "q=fence&include_context=true"):
        assert (await gateway["ANN"].get(f"/breadcrumbs/search?{query}")).json() == found.json()
    [brief] = (await gateway["ANN"].get(f"{RECORDS}/search?q=fence&include_context=false")).json()["data"]
    assert {*found.json()["data"][0]} - {*brief} == {"context", "llm_hints"}
    assert (await gateway["ANN"].post(f"{RECORDS}/search", json={"text": "fence\0", "nn": 3})).json() == found.json()
    for wrong in (
        {},
        {"text": ""},
        {"text": 1},
        {"text": "a", "nn": 0},
        {"text": "a", "nn": True},
        {"text": "a", "k": 1},
    ):
        assert told(await gateway["ANN"].post(f"{RECORDS}/search", json=wrong)) == (400, "bad_record")


BAD_RECORDS: dict[str, Any] = {
    "no object": [],
    "no schema": {"title": "A"},
    "a schema that is null": {**NOTE, "schema_name": None},
    "a schema that is a number": {**NOTE, "schema_name": 1},
    "a misspelled field": {**NOTE, "titel": "A"},
    "a field of the store": {**NOTE, "created_by": "BEN"},
    "a name in capitals": {**NOTE, "schema_name": "Note.v1"},
    "a name with space": {**NOTE, "schema_name": "tool.config.v1 "},
    "a long name": {**NOTE, "schema_name": "n" * 129},
    "a context that is a list": {**NOTE, "context": [1]},
    "a context that is text": {**NOTE, "context": "red"},
    "hints that are a list": {**NOTE, "llm_hints": []},
    "1,000 tags": {**NOTE, "tags": [f"t{number}" for number in range(1_000)]},
    "an empty tag": {**NOTE, "tags": [""]},
    "tags that are text": {**NOTE, "tags": "house"},
    "a tag that is a number": {**NOTE, "tags": [1]},
    "a title with NUL": {**NOTE, "title": "a\0b"},
    "a tag with NUL": {**NOTE, "tags": ["a\0b"]},
    "a context with NUL": {**NOTE, "context": {"a": ["b\0"]}},
    "a name in a context with NUL": {**NOTE, "context": {"a\0": 1}},
    "half a character": b'{"schema_name": "note.v1", "context": {"a": "\\ud800"}}',
    "a long title": {**NOTE, "title": "t" * 501},
    "an unknown visibility": {**NOTE, "visibility": "everyone"},
    "an unknown sensitivity": {**NOTE, "sensitivity": "low"},
    "a lifetime in the past": {**NOTE, "ttl": "2020-01-01T00:00:00Z"},
    "a lifetime that is a number": {**NOTE, "ttl": 3},
    "a context of a megabyte": {**NOTE, "context": {"a": "b" * (1 << 20)}},
    "65 levels": b'{"schema_name": "note.v1", "context": ' + b'{"a":' * 65 + b"1" + b"}" * 65 + b"}",
    "1,000 levels": b'{"schema_name": "note.v1", "context": ' + b'{"a":' * 1_000 + b"1" + b"}" * 1_000 + b"}",
    "a key twice": b'{"schema_name": "note.v1", "schema_name": "note.v2"}',
    "a key twice in the context": b'{"schema_name": "note.v1", "context": {"a": 1, "a": 2}}',
    "a number of 100 digits": b'{"schema_name": "note.v1", "context": {"a": ' + b"9" * 100 + b"}}",
    "a number that is not finite": b'{"schema_name": "note.v1", "context": {"a": 1e999}}',
    "text that is no JSON": b"schema_name: note.v1",
    "bytes that are no text": b"\xff\xfe",
    "nothing": b"",
}


@pytest.mark.parametrize("body", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
async def test_a_wrong_record_is_refused_with_a_sentence_and_nothing_is_kept(gateway: Gateway, body: Any) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await gateway["ADA"].post(RECORDS, content=content)
    assert told(answer) == (400, "bad_record"), answer.text
    assert 0 < len(answer.json()["error"]["message"]) < 500
    assert (await gateway["ADA"].get(RECORDS)).json() == {"data": [], "next": None}
    assert await gateway.store.last_change(project="acme") == 0


BAD_PATCHES: dict[str, Any] = {
    "no object": [1],
    "another schema": {"schema_name": "tool.config.v1"},
    "another version": {"version": 7},
    "another author": {"created_by": "BEN"},
    "a context that is a list": {"context": [1]},
    "a title that is a number": {"title": 1},
    "it becomes secret": {"sensitivity": "secret"},
    "deep JSON": b'{"context": ' + b'{"a":' * 1_000 + b"1" + b"}" * 1_000 + b"}",
    "1,000 tags": {"tags": [f"t{number}" for number in range(1_000)]},
}


@pytest.mark.parametrize("body", BAD_PATCHES.values(), ids=BAD_PATCHES.keys())
async def test_a_wrong_patch_is_refused_and_the_record_stays_as_it_was(gateway: Gateway, body: Any) -> None:
    made = await gateway.created()
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await gateway["ANN"].patch(f"{RECORDS}/{made['id']}", content=content, headers={"if-match": "1"})
    assert told(answer) in ((400, "bad_record"), (403, "not_permitted")), answer.text
    assert (await gateway["ANN"].get(f"{RECORDS}/{made['id']}")).json() == made


async def test_an_oversized_body_is_refused_before_it_is_read(gateway: Gateway) -> None:
    answer = await gateway["ANN"].post(RECORDS, content=b" " * 3_000_000)
    assert told(answer) == (413, "body_too_large")


async def test_null_in_a_patch_gives_a_field_its_default(gateway: Gateway) -> None:
    made = await gateway.created(visibility="public", llm_hints={"include": ["a"]}, ttl="1h")
    gone = {"title": None, "tags": None, "context": None, "llm_hints": None, "visibility": None, "ttl": None}
    answer = await gateway["ANN"].patch(f"{RECORDS}/{made['id']}", json=gone, headers={"if-match": "1"})
    shown = answer.json()
    assert {name: shown[name] for name in gone} == {
        "title": "", "tags": [], "context": {}, "llm_hints": None, "visibility": "project", "ttl": None,
    }  # fmt: skip
    assert (shown["expires_at"], made["expires_at"] > made["created_at"]) == (None, True)


async def test_a_record_that_ends_with_its_use_is_not_found_afterwards(gateway: Gateway) -> None:
    made = await gateway.created(ttl={"type": "usage", "uses": 2})
    for path in ("", "/full"):  # shows nothing, so it is no use
        assert (await gateway["ANN"].head(f"{RECORDS}/{made['id']}{path}")).status_code == 200
    place = f"{RECORDS}/{made['id']}"
    assert [(await gateway["ANN"].get(place)).status_code for _ in range(3)] == [200, 200, 404]
    patch = await gateway["ANN"].patch(place, json={"title": "A"}, headers={"if-match": "1"})
    assert told(patch) == (404, "record_not_found")
    assert told(await gateway["ANN"].delete(place)) == (404, "record_not_found")


async def test_a_list_that_is_asked_wrongly_is_refused_with_a_sentence(gateway: Gateway) -> None:
    for query in (
        "limit=0", "limit=201", "limit=x", "before=-1", "before=99999999999999999999", "since=yesterday",
        "since=2026-01-01T00:00:00", "until=1e999", "tags=a", "schema=note.v1", "schema_name=a+b", "tag=",
        "include_context=maybe",
        "text=" + "a" * 2_001, "text=%00", "author=" + "a" * 201, "limit=51&include_context=true",
        "&".join(f"tag=t{number}" for number in range(21)),
    ):  # fmt: skip
        assert (await gateway["ANN"].get(f"{RECORDS}?{query}")).status_code == 400, query


async def test_T230_a_caller_sees_no_record_that_is_not_meant_for_it(gateway: Gateway) -> None:
    """What may not be seen is not found, on every way to it: by id, list, text, search, history, patch and delete."""
    hidden = await gateway.created(visibility="private", title="Diary of a gardener")
    shared = await gateway.created(visibility="project", title="Plan of a gardener")
    public = await gateway.created(visibility="public", title="Poster of a gardener")
    seen = {
        "ANN": {hidden["id"], shared["id"], public["id"]},
        "BEN": {shared["id"], public["id"]},
        "EVE": {public["id"]},
    }
    seen["ADA"] = seen["BEN"]
    for name, ids in seen.items():
        client = gateway[name]
        for one in (hidden, shared, public):
            place = f"{RECORDS}/{one['id']}"
            expected = 200 if one["id"] in ids else 404
            for path in (place, f"{place}?view=llm", f"{place}/full", f"{place}/history", f"/breadcrumbs/{one['id']}"):
                assert (await client.get(path)).status_code == expected, (name, path)
        for query in ("", "text=gardener", "tag=house", "author=ANN"):
            assert {one["id"] for one in (await client.get(f"{RECORDS}?{query}")).json()["data"]} == ids, (name, query)
        found = (await client.post(f"{RECORDS}/search", json={"text": "gardener", "nn": 9})).json()["data"]
        assert {one["id"] for one in found} == ids
    place = f"{RECORDS}/{hidden['id']}"
    for name in ("BEN", "EVE", "ADA"):
        assert told(await gateway[name].patch(place, json={"title": "A"}, headers={"if-match": "1"}))[0] == 404
        assert told(await gateway[name].delete(place))[0] == 404
    for path in (RECORDS, place, f"{place}/history"):
        assert told(await gateway["STRANGER"].get(path)) == (403, "records_off")


async def test_T230_control_its_author_reads_a_private_record(gateway: Gateway) -> None:
    hidden = await gateway.created(visibility="private")
    assert (await gateway["ANN"].get(f"{RECORDS}/{hidden['id']}")).json() == hidden


async def test_a_reader_changes_nothing(gateway: Gateway) -> None:
    public = await gateway.created(visibility="public")
    place = f"{RECORDS}/{public['id']}"
    assert told(await gateway["EVE"].post(RECORDS, json=NOTE)) == (403, "not_permitted")
    assert told(await gateway["EVE"].patch(place, json={"title": "A"}, headers={"if-match": "1"}))[0] == 403
    assert told(await gateway["EVE"].delete(place)) == (403, "not_permitted")
    refused = [row for row in await gateway.store.audit_log(project="acme") if row.event == "record_refused"]
    assert [(row.agent, row.status) for row in refused] == [("EVE", "denied")] * 3


async def test_an_earlier_private_version_stays_private(gateway: Gateway) -> None:
    made = await gateway.created(visibility="private", context={"draft": "raw thoughts"})
    place = f"{RECORDS}/{made['id']}"
    await gateway["ANN"].patch(
        place, json={"visibility": "project", "context": {"draft": None}}, headers={"if-match": "1"}
    )
    assert [one["version"] for one in (await gateway["BEN"].get(f"{place}/history")).json()["data"]] == [2]
    assert [one["version"] for one in (await gateway["ANN"].get(f"{place}/history")).json()["data"]] == [2, 1]


async def test_a_private_version_ends_no_page_of_the_history(gateway: Gateway) -> None:
    made = await gateway.created()
    place = f"{RECORDS}/{made['id']}"
    for version, visibility in enumerate(("project", "private", "private", "project", "project"), 1):
        await gateway["ANN"].patch(place, json={"visibility": visibility}, headers={"if-match": str(version)})
    seen, page = [], (await gateway["BEN"].get(f"{place}/history?limit=2")).json()
    while page["next"] is not None:
        seen += [one["version"] for one in page["data"]]
        page = (await gateway["BEN"].get(f"{place}/history?limit=2&before={page['next']}")).json()
    assert [*seen, *(one["version"] for one in page["data"])] == [6, 5, 2, 1]


async def test_another_writer_changes_the_content_and_not_who_may_see_it(gateway: Gateway) -> None:
    made = await gateway.created()
    place = f"{RECORDS}/{made['id']}"
    for field, value in (("visibility", "public"), ("sensitivity", "pii")):
        refused = await gateway["BEN"].patch(place, json={field: value}, headers={"if-match": "1"})
        assert told(refused) == (403, "not_permitted")
    changed = await gateway["BEN"].patch(place, json={"title": "Gate"}, headers={"if-match": "1"})
    assert (changed.json()["created_by"], changed.json()["updated_by"]) == ("ANN", "BEN")


async def test_T231_models_are_shown_no_personal_data(gateway: Gateway) -> None:
    made = await gateway.created(sensitivity="pii", title="Address of Zoe", context={"street": "Elm"})
    model = Caller("helper", Role.MODEL)
    assert [row.value.id for row in await gateway.service.listed(_EVERYTHING, model)] == []
    assert await gateway.service.search("Elm", model) == []
    with pytest.raises(NotFound):
        await gateway.service.read(made["id"], model)
    assert (await gateway.service.changes(0, model))[0] == []
    assert told(await gateway["ANN"].get(f"{RECORDS}/{made['id']}?view=llm")) == (403, "not_permitted")
    assert (await gateway["BEN"].get(f"{RECORDS}?text=Elm")).json()["data"] == []


async def test_T231_control_a_person_reads_personal_data(gateway: Gateway) -> None:
    made = await gateway.created(sensitivity="pii", context={"street": "Elm"})
    assert (await gateway["BEN"].get(f"{RECORDS}/{made['id']}")).json()["context"] == {"street": "Elm"}


async def test_T294_a_record_whose_uses_are_counted_is_shown_by_no_way_that_does_not_count(gateway: Gateway) -> None:
    made = await gateway.created(title="Once", context={"word": "xyzzy"}, ttl={"type": "usage", "uses": 1})
    place, ben = f"{RECORDS}/{made['id']}", gateway["BEN"]
    answers = [
        await ben.get(f"{RECORDS}?include_context=true"),
        await ben.get(f"{RECORDS}/search?q=once"),
        await ben.get(f"{place}/history"),
        await ben.patch(place, json={"title": "Twice"}, headers={"if-match": "1"}),
    ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert all(made["id"] in answer.text and "xyzzy" not in answer.text for answer in answers)
    for ttl in (None, {"type": "usage", "uses": 9}):
        assert told(await ben.patch(place, json={"ttl": ttl}, headers={"if-match": "2"})) == (403, "not_permitted")
    assert (await ben.get(place)).json()["context"] == {"word": "xyzzy"}
    assert told(await ben.get(place)) == (404, "record_not_found")


async def test_T306_what_is_used_up_by_reading_is_not_found_by_the_words_it_holds(gateway: Gateway) -> None:
    """Whoever is told that a record has a word has read that word."""
    once = await gateway.created(title="Once", context={"word": "xyzzy"}, ttl={"type": "usage", "uses": 1})
    often = await gateway.created(title="Often", context={"word": "xyzzy"})
    for way in ("?text=xyzzy", "/search?q=xyzzy"):
        found = {one["id"] for one in (await gateway["BEN"].get(f"{RECORDS}{way}")).json()["data"]}
        assert (once["id"] in found, often["id"] in found) == (False, True)


async def test_T306_control_it_is_found_by_its_title_and_its_tags(gateway: Gateway) -> None:
    made = await gateway.created(title="Once", tags=["door"], context={}, ttl={"type": "usage", "uses": 1})
    for word in ("once", "door"):
        listed = (await gateway["BEN"].get(f"{RECORDS}?text={word}")).json()["data"]
        assert [one["id"] for one in listed] == [made["id"]]


async def test_T294_control_its_author_sees_what_it_wrote_and_may_change_how_often_it_is_used(gateway: Gateway) -> None:
    made = await gateway.created(context={"word": "xyzzy"}, ttl={"type": "usage", "uses": 1})
    place, ann = f"{RECORDS}/{made['id']}", gateway["ANN"]
    assert "xyzzy" in (await ann.get(f"{RECORDS}?include_context=true")).text
    longer = await ann.patch(place, json={"ttl": None}, headers={"if-match": "1"})
    assert (longer.json()["uses_left"], longer.json()["context"]) == (None, {"word": "xyzzy"})
    assert "xyzzy" in (await gateway["BEN"].get(f"{RECORDS}?include_context=true")).text


HOOK = {"selector": {"any_tags": ["a"]}, "url": "https://hooks.example/services/T1/xyzzy?key=xyzzy"}


async def test_T309_the_address_of_a_webhook_is_for_its_author(gateway: Gateway) -> None:
    """Its path is often all that is needed to send to it. A model could send there, too."""
    made = await gateway.created(schema_name="subscription.v1", title="Hook", visibility="public", context=HOOK)
    place, model = f"{RECORDS}/{made['id']}", Caller("cli", Role.MODEL)
    for name in ("BEN", "EVE"):
        client = gateway[name]
        answers = [
            await client.get(place),
            await client.get(f"{place}?view=llm"),
            await client.get(f"{place}/history"),
            await client.get(f"{RECORDS}?include_context=true"),
            await client.get(f"{RECORDS}/search?q=hook"),
        ]
        assert all("https://hooks.example/…" in answer.text and "xyzzy" not in answer.text for answer in answers)
    changed = await gateway["BEN"].patch(place, json={"title": "Mine"}, headers={"if-match": "1"})
    assert (changed.status_code, "xyzzy" in changed.text) == (200, False)
    raw = await gateway.service.read(made["id"], RUNTIME)
    assert "xyzzy" not in json.dumps(await gateway.service.llm_view(raw, model))
    seen, _ = await gateway.service.changes(0, Caller("BEN", Role.WRITER))
    assert {one.value.record.context["url"] for one in seen} == {"https://hooks.example/…"}


async def test_T309_control_its_author_and_admins_see_it(gateway: Gateway) -> None:
    made = await gateway.created(schema_name="subscription.v1", context=HOOK)
    for name in ("ANN", "ADA"):
        assert (await gateway[name].get(f"{RECORDS}/{made['id']}")).json()["context"] == HOOK
