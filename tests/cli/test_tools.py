"""`toolwire tools`, `call`, `preflight`, `explain` and `parse`: tools without a model."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import Stage, scripted
from toolwire.cli.entry.exits import Exit

_SCHEMA = {"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]}
ECHO = {"type": "function", "function": {"name": "echo", "description": "Echo.", "parameters": _SCHEMA}}
NAMES = ["calculator", "echo", "random", "timer", "read"]


def test_the_catalogue_says_what_is_offered_and_why_the_rest_is_not(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[grant]\npermissions = []\n")
    listed = {tool["name"]: tool for tool in inside("tools", "list", "--json").json}
    assert list(listed) == NAMES
    assert listed["calculator"]["offered"] is True
    assert (listed["read"]["offered"], listed["read"]["why_not"]) == (False, "needs file_read")
    assert "no: needs file_read" in inside("tools").out
    granted = {tool["name"]: tool for tool in inside("tools", "--json", "--allow", "file_read").json}
    assert granted["read"]["offered"] is True


def test_the_compact_catalogue_has_one_line_for_each_offered_tool(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[grant]\npermissions = []\n")
    lines = inside("tools", "list", "--compact").out.splitlines()
    assert [line.partition("(")[0] for line in lines] == NAMES[:-1]


def test_one_tool_is_shown_in_full(inside: Inside) -> None:
    shown = inside("tools", "show", "calculator").out
    for words in ("expression", "string", "result", "at most 60 s", "example"):
        assert words in shown
    assert inside("tools", "show", "calculator", "--json").json["input_schema"]["required"] == ["expression"]


def test_conformance_is_reported_and_errors_fail(inside: Inside) -> None:
    assert inside("tools", "validate").code == Exit.DONE
    wrong = {"type": "function", "function": {"name": "a.b", "description": "", "parameters": {"type": "object"}}}
    Path("wrong.json").write_text(json.dumps([wrong]))
    ran = inside("tools", "validate", "wrong.json", "--json")
    assert ran.code == Exit.FAILED
    assert {"error"} <= {finding["level"] for finding in ran.json["a.b"]}
    assert "a.b" in inside("tools", "validate", "wrong.json").out
    assert inside("tools", "validate", "echo").out == "✓ echo\n"


def test_a_tool_of_a_group_that_is_not_chosen_can_be_excluded(inside: Inside) -> None:
    Path("toolwire.toml").write_text('[tools]\nexclude = ["bash", "echo"]\n')
    assert "echo" not in {each["name"] for each in inside("tools", "--json").json}
    shown = {each["name"] for each in inside("tools", "--json", "--tools", "shell").json}
    assert ("bash" in shown, "job_start" in shown) == (False, True)


def test_include_and_exclude_choose_the_tools(inside: Inside) -> None:
    Path("toolwire.toml").write_text('[tools]\nexclude = ["timer"]\ninclude = ["timer", "echo"]\n')
    assert [tool["name"] for tool in inside("tools", "--json").json] == ["echo"]
    Path("toolwire.toml").write_text('[tools]\nexclude = ["tmier"]\n')
    assert "did you mean timer" in inside("tools").err


@pytest.mark.parametrize(
    "words",
    [
        ["--args", '{"expression": "2+2"}'],
        ["expression=2+2"],
        ["--args", "@arguments.json"],
        ["--args=@arguments.json"],
    ],
)
def test_a_call_takes_its_arguments_in_several_ways(inside: Inside, words: list[str]) -> None:
    Path("arguments.json").write_text('{"expression": "2+2"}')
    ran = inside("call", "calculator", *words, "--json")
    assert (ran.code, ran.json["ok"], ran.json["structured"]["result"]) == (Exit.DONE, True, 4)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--root", "sorce"], "there is no such folder; did you mean source?"),
        (["--root", "nothing/like/it"], "there is no such folder"),
        (["--root", "file.txt"], "this is not a folder"),
        (["--root", "source", "--root", "nosuch"], "nosuch: there is no such folder"),
        (["--allow", "file_raed"], "--allow file_raed: no tool needs such a permission; did you mean file_read?"),
        (["--allow", "teleport"], "no tool needs such a permission; tools need: file_read"),
    ],
)
@pytest.mark.parametrize("command", ["call", "preflight", "explain"])
def test_a_folder_or_permission_that_does_not_exist_is_refused(
    inside: Inside, command: str, words: list[str], said: str
) -> None:
    Path("source").mkdir()
    Path("file.txt").touch()
    ran = inside(command, "echo", "message=hi", *words)
    assert (ran.code, said in ran.err) == (Exit.USAGE, True), ran
    assert not Path(".toolwire").exists()


def test_arguments_come_from_standard_input_too(stage: Stage) -> None:
    ran = stage.run("call", "echo", "--args", "-", stdin=b'{"message": "gr\xc3\xbc\xc3\x9fe"}')
    assert json.loads(ran.out) == {"echo": "grüße"}


def test_a_call_that_fails_prints_its_result_and_does_not_end_with_zero(inside: Inside) -> None:
    ran = inside("call", "calculator", "expression=1/0", "--json")
    assert ran.code == Exit.FAILED
    assert ran.json["error"]["message"]
    told = inside("call", "calculator", "expression=1/0")
    assert (told.code, told.out) == (Exit.FAILED, "")


@pytest.mark.parametrize("verb", [("call",), ("preflight",), ("explain",), ("tools", "show")])
def test_a_tool_that_is_not_there_comes_with_where_it_could_come_from(inside: Inside, verb: tuple[str, ...]) -> None:
    grouped = inside(*verb, "bash")
    assert "--tools shell" in " ".join(grouped.err.split())
    Path("toolwire.toml").write_text('[tools]\nexclude = ["timer"]\n')
    assert "timer is left out by tools.include or tools.exclude" in inside(*verb, "timer").err
    assert "group" not in inside(*verb, "nonsense").err


def test_huge_arguments_are_refused(inside: Inside) -> None:
    Path("huge.json").write_bytes(b'{"message": "' + b"a" * 9_000_000 + b'"}')
    ran = inside("call", "echo", "--args", "@huge.json")
    assert (ran.code, "is larger than 8,192 KiB" in ran.err) == (Exit.USAGE, True)
    Path("deep.json").write_bytes(b"[" * 100_000)
    assert inside("call", "echo", "--args", "@deep.json").code == Exit.USAGE


def test_a_file_is_read_only_beneath_the_roots(inside: Inside, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = tmp_path_factory.mktemp("other")
    (other / "notes.txt").write_text("hello\n")
    assert inside("call", "read", f"path={other}/notes.txt").code == Exit.FAILED
    ran = inside("call", "read", "path=notes.txt", "--root", str(other), "--json")
    assert ran.json["structured"]["text"] == "hello\n"


@pytest.mark.feature("F127")
def test_preflight_lists_every_issue_and_runs_nothing(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[grant]\npermissions = []\n")
    ran = inside("preflight", "read", "pth=x", "--json")
    assert ran.code == Exit.FAILED
    assert [issue["rule"] for issue in ran.json["issues"]] == ["permissions", "arguments"]
    assert "file_read" in inside("preflight", "read", "pth=x").out
    fine = inside("preflight", "calculator", "expression=1", "--json")
    assert (fine.code, fine.json) == (Exit.DONE, {"ok": True, "issues": []})
    assert not Path(".toolwire").exists()


def test_a_call_is_explained_rung_by_rung(inside: Inside) -> None:
    ran = inside("explain", "calculator", "expression=1", "--tier", "crawl", "--json")
    assert ran.json["decision"] == "allowed"
    assert [rung["verdict"] for rung in ran.json["rungs"]] == ["passed"] * 8
    told = inside("explain", "calculater", "expression=1").out
    assert "✗ exists" in told
    assert "It will not run: not_found." in told


def test_a_call_on_record_is_explained_from_the_record(inside: Inside) -> None:
    call_id = inside("call", "calculator", "expression=1/0", "--json").json["call_id"]
    told = inside("explain", "--call", call_id, "--json").json
    assert [row["event"] for row in told["audit"]] == ["allowed", "finished"]
    assert told["result"]["status"] == "failed"
    assert "allowed" in inside("explain", "--call", call_id).out


def test_a_provider_response_is_read(inside: Inside) -> None:
    function = {"name": "echo", "arguments": '{"message": "hi"}'}
    message = {"content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]}
    Path("reply.json").write_text(json.dumps({"choices": [{"message": message, "finish_reason": "tool_calls"}]}))
    said = inside("parse", "reply.json").json
    assert [(call["name"], call["arguments"], call["alias"]) for call in said["calls"]] == [
        ("echo", {"message": "hi"}, "c1")
    ]
    assert said["finish_reason"] == "tool_calls"


def test_an_explanation_shows_which_part_was_read_as_what(inside: Inside) -> None:
    Path("tools.json").write_text(json.dumps([ECHO]))
    Path("said.txt").write_text('Hm.\n<tool_call>{"name": "echo", "arguments": {"message": "hi"}}</tool_call>')
    shown = inside("parse", "said.txt", "--tools", "tools.json", "--explain").out
    assert [line.split()[1] for line in shown.splitlines()[1:3]] == ["text", "call"]
    assert 'echo(message="hi")' in shown


def test_text_with_bytes_that_are_no_text_is_read(stage: Stage) -> None:
    (stage.folder / "tools.json").write_text(json.dumps([ECHO]))
    call = b'<tool_call>{"name": "echo", "arguments": {"message": "hi"}}</tool_call>'
    ran = stage.run("parse", "-", "--tools", "tools.json", stdin=b"so \xff\xfe: " + call)
    assert [call["name"] for call in ran.json["calls"]] == ["echo"]
    assert ran.json["content"].startswith("so ")


def test_calls_are_checked_against_the_given_tools(inside: Inside) -> None:
    Path("tools.json").write_text(json.dumps({"tools": [ECHO]}))
    Path("said.txt").write_text('<tool_call>{"name": "nosuch", "arguments": {}}</tool_call>')
    assert "unknown_tool" in {p["code"] for p in inside("parse", "said.txt", "--tools", "tools.json").json["problems"]}
    Path("tools.json").write_text("[1]")
    assert inside("parse", "said.txt", "--tools", "tools.json").code == Exit.USAGE
    assert inside("parse", "said.txt", "--provider", "nosuch").code == Exit.USAGE


def test_what_a_tool_prints_does_not_spoil_the_json(stage: Stage) -> None:
    source = "from toolwire import tool\n@tool\ndef loud() -> str:\n    'Print.'\n    print('NOISE')\n    return 'done'"
    (stage.folder / "mine.py").write_text(source)
    (stage.folder / "toolwire.toml").write_text('[tools]\nmodules = ["mine:loud"]\n')
    ran = stage.run("call", "loud", "--json")
    assert ran.json["text"] == "done"
    assert "NOISE" in ran.err


def test_a_recording_on_a_full_disk_is_told_in_a_sentence(stage: Stage) -> None:
    with scripted("hello") as model:
        ran = stage.run("ask", "hi", "--record", "/dev/full", *model.flags)
    assert ran.code == Exit.MODEL
    assert "cannot be written" in ran.err
