"""`toolwire records`: records for people at a terminal, and the same ones over HTTP from `toolwire serve`."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.cli.stage import LIMIT_S, Stage
from tests.gateway.test_serve import address, first_line
from tests.no_tls import NO_TLS
from toolwire.cli.entry.exits import Exit

from .conftest import Inside

SECRET = "sk-9f8e7d6c5b4a"


@pytest.mark.feature("F184")
def test_a_record_is_created_changed_listed_found_and_deleted(inside: Inside) -> None:
    assert inside("records", "list", "--json").json == []
    assert inside("records", "show", "4b1e").code == Exit.NOT_FOUND
    made = inside(
        "records",
        "create",
        "note.v1",
        '{"colour": "red"}',
        "--title",
        "Door",
        "--tag",
        "house",
        "--ttl",
        "24h",
        "--json",
    ).json
    part = made["id"][-8:]
    other = inside("records", "create", "task.v1", "--title", "Paint the fence")
    edited = inside(
        "records", "edit", part, '{"context": {"colour": null, "size": 2}}', "--version", "1", "--json"
    ).json

    assert (edited["version"], edited["context"]) == (2, {"size": 2})
    assert (made["tags"], made["expires_at"] - made["created_at"]) == (["house"], 86_400)
    assert other.out.strip() in inside("records", "list").out
    assert [one["id"] for one in inside("records", "list", "--tag", "house", "--json").json] == [made["id"]]
    assert [one["title"] for one in inside("records", "search", "fence", "--json").json] == ["Paint the fence"]
    assert inside("records", "show", part, "--json").json == edited
    assert '"size": 2' in inside("records", "show", part).out
    assert inside("records", "show", part, "--view", "llm", "--json").json["context"] == {"size": 2}
    assert [one["version"] for one in inside("records", "history", part, "--json").json] == [2, 1]
    assert "colour" in inside("records", "history", part).out
    stale = inside("records", "edit", part, '{"title": "A"}', "--version", "1")
    assert (stale.code, "is at version 2, not 1" in stale.err) == (Exit.FAILED, True)
    assert inside("records", "delete", part, "--version", "1").code == Exit.FAILED
    assert inside("records", "delete", part, "--version", "2").code == Exit.DONE
    assert inside("records", "show", made["id"]).code == Exit.NOT_FOUND
    assert inside("records", "list", "--project", "other", "--json").json == []


def test_the_audit_log_says_which_record_was_changed_and_by_whom(inside: Inside) -> None:
    made = inside("records", "create", "note.v1", "--json").json
    inside("records", "edit", made["id"], '{"title": "A"}', "--version", "1")
    log = inside("logs").out
    assert f"note.v1 {made['id']} version 2 by {made['created_by']} (admin)" in log


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("create", "Note.v1"), "schema_name must be"),
        (("create", "note.v1", "[1]"), "CONTEXT must be a JSON object"),
        (("create", "note.v1", '{"a": 1, "a": 2}'), "CONTEXT is not JSON"),
        (("create", "note.v1", '{"a": "\udcff"}'), "CONTEXT is not UTF-8 text"),
        (("create", "note.v1", "--title", "a\udcff"), "title must be text"),
        (("create", "note.v1", "@missing.json"), "missing.json cannot be read"),
        (("create", "note.v1", "--ttl", "soon"), "a ttl written as text is"),
        (("create", "note.v1", "--visibility", "all"), "visibility must be one of private, project, public"),
        (("create", "tool.response.v1"), "tool.response.v1 is reserved"),
        (("list", "--since", "yesterday"), "since is a date"),
        (("show", "4b1e", "--view", "short"), "--view is raw or llm"),
        (("edit", "4b1e", '{"title": "A"}'), "--version"),
    ],
)
def test_what_is_asked_wrongly_is_refused_with_a_sentence(inside: Inside, words: tuple[str, ...], said: str) -> None:
    answer = inside("records", *words)
    assert answer.code in (Exit.USAGE, Exit.FAILED)
    assert said in answer.err
    assert inside("records", "list", "--json").json == []


def test_a_configuration_is_sealed_in_the_store_of_a_project(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"tools": ["openrouter"], "apiKey": SECRET}), encoding="utf-8")
    made = inside("records", "create", "tool.config.v1", "@config.json", "--json").json
    inside("records", "edit", made["id"], '{"title": "Keys"}', "--version", "1")

    assert (made["context"], made["sensitivity"]) == ({}, "secret")
    for words in (("show", made["id"]), ("history", made["id"]), ("list", "--json"), ("search", SECRET)):
        assert SECRET not in inside("records", *words).out
    kept = [file for file in (tmp_path / ".toolwire").rglob("*") if file.is_file()]
    assert any(file.name == "store.db" for file in kept)
    assert [file for file in kept if SECRET.encode() in file.read_bytes()] == []
    assert SECRET not in inside("logs", "--json").out


ROLES = '[records]\nreaders = ["EVE"]\nwriters = ["ANN"]\nadmins = ["ADA"]\n'
SERVE = '[serve]\nupstream = "http://127.0.0.1:9"\nport = 0\n'


def test_a_role_for_a_token_that_is_not_there_is_refused(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toolwire.toml").write_text(ROLES + SERVE, encoding="utf-8")
    monkeypatch.setenv("ANN", "token-of-ann")
    refused = inside("serve", "--token-env", "ANN")
    assert (refused.code, "records.readers names EVE" in refused.err) == (Exit.USAGE, True)


def test_serve_gives_the_tokens_of_the_settings_their_roles(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.settings(ROLES + SERVE)
    names = ("ANN", "EVE", "ADA", "ZED")
    flags = [word for name in names for word in ("--token-env", name)]
    process = stage.start(
        "serve", *flags, "--project", "acme",
        ANN="token-of-ANN", EVE="token-of-EVE", ADA="token-of-ADA", ZED="token-of-ZED",
    )  # fmt: skip
    note: dict[str, Any] = {"schema_name": "note.v1", "title": "Door", "visibility": "public"}
    agent = {**note, "schema_name": "agent.def.v1", "context": {"name": "porter", "system_prompt": "Open doors."}}
    try:
        url = address(first_line(process))
        with httpx2.Client(base_url=url, timeout=LIMIT_S, trust_env=False, verify=NO_TLS) as http:

            def statuses(name: str) -> tuple[int, int, int]:
                token = {"x-api-key": f"token-of-{name}"}
                written = [http.post("/v1/records", json=body, headers=token).status_code for body in (note, agent)]
                return written[0], written[1], http.get("/breadcrumbs", headers=token).status_code

            assert {name: statuses(name) for name in names} == {
                "ANN": (201, 403, 200), "EVE": (403, 403, 200), "ADA": (201, 201, 200), "ZED": (403, 403, 403),
            }  # fmt: skip
            listed = http.get("/v1/records", headers={"x-api-key": "token-of-EVE"}).json()["data"]
            assert [one["created_by"] for one in listed] == ["ADA", "ADA", "ANN"]
    finally:
        stage.close()
