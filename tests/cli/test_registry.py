"""`toolwire registry`: rows of tools are added, listed, shown and removed, in several versions and per project."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.stage import Stage
from toolwire.cli.entry.exits import Exit

from .conftest import Inside

YAML = """
tools:
  - tool_name: web_search
    version: "1.10"
    description: Searches the web.
    target_subject: cg.v1r4.{project_id}.{channel_id}.cmd.tool.search
    parameters:
      type: object
      required: [query, api_key]
      properties: {query: {type: string}, api_key: {type: string}, tenant: {type: string}}
    options:
      args: {fixed: {tenant: hidden-tenant}}
      envs: {api_key: SEARCH_KEY}
      effect: pure
"""


def a_row(version: str = "1.9", **more: Any) -> dict[str, Any]:
    subject = "cg.v1r4.{project_id}.{channel_id}.cmd.tool.search"
    said = {"tool_name": "web_search", "description": "Searches.", "target_subject": subject, "version": version}
    return said | {"parameters": {"type": "object", "properties": {"query": {"type": "string"}}}} | more


def write(folder: Path, name: str, *rows: dict[str, Any], **more: Any) -> str:
    (folder / name).write_text(json.dumps({"tools": rows, **more}), encoding="utf-8")
    return name


@pytest.mark.feature("F051")
def test_a_file_is_registered_listed_shown_and_removed(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "tools.yaml").write_text(YAML, encoding="utf-8")
    older = write(tmp_path, "older.json", a_row(), a_row("2.0-rc1"))

    added = inside("registry", "add", "tools.yaml", older)
    listed = inside("registry", "list", "--json").json
    newest = inside("registry", "show", "web_search", "--json").json
    pinned = inside("registry", "show", "web_search@1.9", "--json").json
    page = inside("registry", "show", "web_search")

    assert (added.code, added.err.count("registered.")) == (Exit.DONE, 3)
    assert [row["version"] for row in listed] == ["2.0-rc1", "1.10", "1.9"]
    assert (newest["version"], newest["options"]["envs"]) == ("1.10", {"api_key": "SEARCH_KEY"})
    assert (pinned["version"], pinned["project_id"], pinned["source"]) == ("1.9", "default", "store")
    assert "hidden-tenant" in page.out
    assert "web_search" in inside("registry", "list").out
    assert "web_search@1.9: unchanged." in inside("registry", "add", older).err

    several = inside("registry", "remove", "web_search")
    assert (several.code, "2.0-rc1, 1.10, 1.9" in several.err) == (Exit.FAILED, True)
    assert inside("registry", "remove", "web_search@1").code == Exit.NOT_FOUND
    assert [row["version"] for row in inside("registry", "remove", "web_search@1.10", "--json").json] == ["1.10"]
    assert inside("registry", "remove", "web_search", "--all").err.count("removed.") == 2
    assert inside("registry", "list", "--json").json == []
    assert inside("registry", "show", "web_search").code == Exit.NOT_FOUND
    events = [row["event"] for row in inside("logs", "--json").json]
    assert events.count("tool_registered") == events.count("tool_unregistered") == 3


def test_other_content_under_the_same_version_is_refused_unless_it_replaces(inside: Inside, tmp_path: Path) -> None:
    first = write(tmp_path, "first.json", a_row())
    other = write(tmp_path, "other.json", a_row("3"), a_row(description="Searches more."))
    inside("registry", "add", first)

    refused = inside("registry", "add", other)
    assert (refused.code, "web_search@1.9 is registered" in refused.err) == (Exit.FAILED, True)
    assert len(inside("registry", "list", "--json").json) == 1
    assert inside("registry", "add", "--replace", other).code == Exit.DONE
    assert inside("registry", "show", "web_search@1.9", "--json").json["description"] == "Searches more."


def test_projects_have_registries_of_their_own(inside: Inside, tmp_path: Path) -> None:
    file = write(tmp_path, "acme.json", a_row(), project_id="acme")

    refused = inside("registry", "add", file)
    assert (refused.code, "for project 'acme', not for 'default'" in refused.err) == (Exit.USAGE, True)
    assert inside("registry", "add", "--project", "acme", file).code == Exit.DONE
    assert inside("registry", "list", "--json").json == []
    assert len(inside("registry", "list", "--project", "acme", "--json").json) == 1


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("tools: [", "is not valid YAML"),
        ("tools: []", "list at least one tool"),
        (YAML.replace("cmd.tool.search", "cmd.sys.pmo.internal.x"), "target_subject"),
        (YAML.replace("version: ", "versoin: "), "did you mean version?"),
        ("x" * 1_100_000, "is larger than 1,024 KiB"),
        (YAML.replace("Searches the web.", "x" * 5_000), "at most 4000 are allowed"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_its_name(inside: Inside, tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "tools.yaml").write_text(content, encoding="utf-8")
    ran = inside("registry", "add", "tools.yaml")
    assert (ran.code, "tools.yaml" in ran.err, says in ran.err) == (Exit.USAGE, True, True), ran.err
    assert inside("registry", "add", "missing.yaml").code == Exit.USAGE


def test_files_of_the_settings_are_registered_beside_the_store(inside: Inside, tmp_path: Path) -> None:
    write(tmp_path, "mine.json", a_row("4"))
    write(tmp_path, "kept.json", a_row())
    (tmp_path / "toolwire.toml").write_text('[registry]\nfiles = ["mine.json"]\n', encoding="utf-8")
    inside("registry", "add", "kept.json")

    listed = inside("registry", "list", "--json").json
    assert [(row["version"], Path(row["source"]).name) for row in listed] == [("4", "mine.json"), ("1.9", "store")]


def test_T174_a_cloned_project_registers_tools_only_once_it_is_trusted(
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOOLWIRE_TRUST")
    write(tmp_path, "mine.json", a_row("4"))
    (tmp_path / "toolwire.toml").write_text('[registry]\nfiles = ["mine.json"]\n', encoding="utf-8")

    refused = inside("registry", "list")
    assert (refused.code, "registry.files" in refused.err) == (Exit.USAGE, True)
    inside("trust")
    assert len(inside("registry", "list", "--json").json) == 1
    write(tmp_path, "mine.json", a_row("4", target_subject="cg.v1r4.{project_id}.x.cmd.tool.evil"))
    changed = inside("registry", "list")
    assert (changed.code, "mine.json changed" in changed.err) == (Exit.USAGE, True)


def test_T174_control_a_file_of_a_trusted_folder_counts(inside: Inside, tmp_path: Path) -> None:
    write(tmp_path, "mine.json", a_row("4"))
    (tmp_path / "toolwire.toml").write_text('[registry]\nfiles = ["mine.json"]\n', encoding="utf-8")
    assert len(inside("registry", "list", "--json").json) == 1


def test_a_shell_completes_registered_tools_and_their_versions(stage: Stage) -> None:
    stage.run("registry", "add", write(stage.folder, "tools.json", a_row(), a_row("2")))
    stage.environ |= {"_TOOLWIRE_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    stage.environ["COMP_WORDS"] = "toolwire registry show web_search@"
    assert stage.run().out.split() == ["web_search@1.9", "web_search@2"]


def test_a_name_with_an_empty_version_removes_nothing(inside: Inside, tmp_path: Path) -> None:
    assert inside("registry", "add", write(tmp_path, "one.json", a_row())).code == Exit.DONE
    refused = inside("registry", "remove", "web_search@")

    assert refused.code == Exit.FAILED
    assert "names no version" in refused.err
    assert len(inside("registry", "list", "--json").json) == 1


@pytest.mark.parametrize("seconds", ["-1", "0", "nan"])
def test_a_test_of_a_service_takes_no_time_that_is_none(inside: Inside, seconds: str) -> None:
    subject = "cg.v1r4.test.public.cmd.tool.note"
    refused = inside("conformance", "--subject", subject, "--timeout", seconds, "--token-env", "TOKEN")

    assert refused.code == Exit.USAGE
    assert "--timeout" in refused.err


@pytest.mark.parametrize(
    ("services", "is_told"),
    [
        ('[bus_services.notes]\ntoken_env = "T"\ntools = ["note"]\n', True),
        ('[bus_services.notes]\ntoken_env = "T"\ntools = ["note"]\nproject = "acme"\n', False),
        ('[bus_services.notes]\ntoken_env = "T"\ntools = ["note", "web_search"]\n', False),
        ("", False),
    ],
    ids=["left-out", "of-another-project", "named", "no-services"],
)
def test_a_registered_tool_that_no_service_may_see_the_calls_of_is_told(
    inside: Inside, tmp_path: Path, services: str, is_told: bool
) -> None:
    assert inside("registry", "add", write(tmp_path, "tools.json", a_row())).code == Exit.DONE
    (tmp_path / "toolwire.toml").write_text(f'[bus]\nkind = "nats"\nurl = ["nats://127.0.0.1:1"]\n{services}')
    sentence = "no bus_services.NAME.tools names web_search: toolwire serve shows a service the cards"

    listed = inside("tools", "list", "--json")

    assert "web_search" in [tool["name"] for tool in listed.json]
    assert (sentence in listed.err) == is_told
    if is_told:
        findings = inside("doctor", "--json").json["findings"]
        assert [sentence in one["said"] for one in findings if one["what"] == "services"] == [True]
