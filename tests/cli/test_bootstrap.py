"""`toolwire records bootstrap`: what a project is made of is loaded from files, as often as one likes."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside
from toolwire.breadcrumbs.bootstrap import read_entries
from toolwire.cli.entry.exits import Exit

TYPE = {
    "schema_name": "schema.def.v1",
    "title": "Notes",
    "context": {"defines_schema": "note.v1", "json_schema": {"type": "object", "required": ["text"]}},
}
AGENTS = """
records:
  - schema_name: agent.def.v1
    title: Maker
    context:
      name: maker
      system_prompt: You make tools.
  - schema_name: schedule.definition.v1
    title: Morning
    context:
      interval: {type: daily, time: "09:00"}
      timezone: Europe/Berlin
"""
NOTE = 'schema_name = "note.v1"\ntitle = "Welcome"\ntags = ["start"]\n[context]\ntext = "Hello"\nold = 1\n'


@pytest.fixture
def files(tmp_path: Path) -> Path:
    folder = tmp_path / "definitions"
    (folder / "more").mkdir(parents=True)
    (folder / "more" / "type.json").write_text(json.dumps(TYPE), encoding="utf-8")
    (folder / "agents.yaml").write_text(AGENTS, encoding="utf-8")
    (folder / "a_note.toml").write_text(NOTE, encoding="utf-8")
    (folder / "README.md").write_text("Not a record.", encoding="utf-8")
    return folder


def outcomes(loaded: list[dict[str, Any]]) -> dict[str, str]:
    return {one["title"]: one["outcome"] for one in loaded}


def test_what_was_deleted_is_loaded_again(inside: Inside, files: Path) -> None:
    assert files.is_dir()
    inside("records", "bootstrap", "definitions", "--json")
    for _ in range(2):
        [note] = inside("records", "list", "--schema", "note.v1", "--json").json
        inside("records", "delete", note["id"])
        again = inside("records", "bootstrap", "definitions", "--json")
        assert (again.code, outcomes(again.json)["Welcome"]) == (Exit.DONE, "created")


def test_the_file_that_the_page_shows_can_be_loaded() -> None:
    page = (Path(__file__).parents[2] / "docs" / "schedules.md").read_bytes()
    shown = page.partition(b"```yaml\n")[2].partition(b"```")[0]
    assert [entry.new.title for entry in read_entries({"page.yaml": shown})] == ["Tool maker", "Morning report"]


@pytest.mark.feature("F236")
def test_definitions_are_loaded_once_and_updated_where_they_changed(inside: Inside, files: Path) -> None:
    """The note comes first by name and is held to a type that comes last: types are loaded before all others."""
    first = inside("records", "bootstrap", "definitions", "--json")
    again = inside("records", "bootstrap", "definitions", "--json")
    assert (first.code, again.code) == (Exit.DONE, Exit.DONE), first.out
    assert outcomes(first.json) == dict.fromkeys(("Notes", "Welcome", "Maker", "Morning"), "created")
    assert outcomes(again.json) == dict.fromkeys(("Notes", "Welcome", "Maker", "Morning"), "unchanged")
    assert [one["title"] for one in inside("schedule", "list", "--json").json] == ["Morning"]

    (files / "a_note.toml").write_text(NOTE.replace("old = 1", "new = [2]").replace("start", "home"), encoding="utf-8")
    dry = inside("records", "bootstrap", "definitions", "--dry-run", "--json").json
    changed = inside("records", "bootstrap", "definitions", "--json").json
    assert outcomes(dry) == outcomes(changed)
    assert outcomes(changed)["Welcome"] == "updated"
    [note] = inside("records", "list", "--schema", "note.v1", "--json").json
    shown = inside("records", "show", note["id"], "--json").json
    assert (shown["context"], shown["tags"], shown["version"]) == (
        {"text": "Hello", "new": [2]}, ["home", "bootstrap:Welcome"], 2,
    )  # fmt: skip
    assert len(inside("records", "list", "--limit", "100", "--json").json) == 4


def test_a_run_that_was_cut_off_is_finished_by_the_next_one(inside: Inside, files: Path) -> None:
    assert inside("records", "bootstrap", "definitions/more").code == Exit.DONE
    assert inside("records", "bootstrap", "definitions/agents.yaml").code == Exit.DONE
    assert sorted(outcomes(inside("records", "bootstrap", "definitions", "--json").json).values()) == [
        "created", "unchanged", "unchanged", "unchanged",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("broken.json", '{\n"schema_name": "x.v1",,\n}', "broken.json is not valid JSON: "),
        ("broken.yaml", "records:\n  - a: [1\n", "broken.yaml is not valid YAML"),
        ("empty.json", "{}", "empty.json, line 1: a file has a record"),
        ("wrong.yaml", "records:\n  - schema_name: x.v1\n    title: a\n  - schema_name: y\n    titel: b\n", "line 4: "),
        ("nameless.json", '\n\n{"schema_name": "x.v1"}', "nameless.json, line 3: a record needs an id or a title"),
        ("twice.yaml", AGENTS, "line 3: the same record stands in"),
    ],
)
def test_where_a_file_is_wrong_nothing_is_loaded_and_its_line_is_told(
    inside: Inside, files: Path, name: str, content: str, says: str
) -> None:
    (files / name).write_text(content, encoding="utf-8")
    ran = inside("records", "bootstrap", "definitions")
    assert (ran.code, says in ran.err) == (Exit.USAGE, True), ran.err
    assert inside("records", "list", "--json").json == []


def test_a_record_that_is_refused_is_named_and_the_others_are_loaded(inside: Inside, files: Path) -> None:
    (files / "a_note.toml").write_text(NOTE.replace("text = ", "txt = "), encoding="utf-8")
    ran = inside("records", "bootstrap", "definitions", "--json")
    assert ran.code == Exit.FAILED
    [failed] = [one for one in ran.json if one["outcome"] == "failed"]
    assert failed["error"].startswith("definitions/a_note.toml, line 1: context does not fit note.v1")
    assert len(inside("records", "list", "--json").json) == 3


def test_entries_are_known_again_by_their_id_or_by_what_they_define() -> None:
    named = {"schema_name": "note.v1", "id": "greeting", "title": "Hello", "context": {"a": None, "b": 1}}
    entries = read_entries({"a.json": json.dumps(named).encode(), "b.json": json.dumps(TYPE).encode()})
    assert [(entry.identity, entry.new.schema_name) for entry in entries] == [
        ("note.v1", "schema.def.v1"), ("greeting", "note.v1"),
    ]  # fmt: skip
    assert entries[1].new.context == {"b": 1}
