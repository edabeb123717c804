"""A name in the settings that stands for nothing is refused: a restriction that a slip switches off is none."""

from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from toolwire.cli.entry.exits import Exit
from toolwire.toolbox import standard
from toolwire.toolbox.registry import BUILT_IN, PERMISSIONS, ToolDependencies, built_in_tool, tools_of

SLIPS = {
    '[grant]\nrules = ["deny bahs"]': ("'bahs'", "bash"),
    '[grant]\nrules = ["deny write, edti"]': ("'edti'", "edit"),
    '[grant]\nrules = ["deny Bash"]': ("'Bash'", "bash"),
    '[grant]\nrules = ["ask needs file_raed"]': ("'file_raed'", "file_read"),
    '[grant]\nrules = ["deny read where pth is secrets/*"]': ("'pth'", "path"),
    '[grant]\nrules = ["deny needs network where uri is http*"]': ("'uri'", "url"),
    '[grant]\nrules = ["allow bahs"]': ("'bahs'", "bash"),
    '[agents.clii]\nautonomy = "readonly"': ("'clii'", "cli"),
    '[agents.cli]\npermissions = ["file_raed"]': ("'file_raed'", "file_read"),
    '[grant]\npermissions = ["file_read", "shel"]': ("'shel'", "shell"),
    '[grant]\nconfirmed = ["wriet"]': ("'wriet'", "write"),
    '[tools]\nsecrets = ["KEY for webfecth at good.test"]': ("'webfecth'", "webfetch"),
}
COMMANDS = [
    ["ask", "hi"],
    ["chat"],
    ["call", "echo", "message=1"],
    ["preflight", "echo", "message=1"],
    ["explain", "echo", "message=1"],
    ["status"],
    ["tools"],
    ["tools", "validate"],
    ["tools", "validate", "echo"],
]


def said(ran: str) -> str:
    return " ".join(ran.split())


@pytest.mark.parametrize("text", SLIPS)
def test_T80_a_misspelled_name_is_refused_with_the_nearest_one(inside: Inside, tmp_path: Path, text: str) -> None:
    (tmp_path / "toolwire.toml").write_text(text, encoding="utf-8")
    wrong, right = SLIPS[text]
    told = inside("call", "echo", "message=1")
    assert (told.code, wrong in told.err, "did you mean " in told.err) == (Exit.USAGE, True, True)
    assert right in told.err.partition("did you mean ")[2]
    assert f"{tmp_path / 'toolwire.toml'}, line 2" in said(told.err)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_T80_every_command_that_uses_rules_refuses_one_that_means_nothing(
    inside: Inside, tmp_path: Path, words: list[str]
) -> None:
    (tmp_path / "toolwire.toml").write_text('[grant]\nrules = ["deny ehco"]', encoding="utf-8")
    told = inside(*words)
    assert (told.code, "did you mean echo?" in told.err) == (Exit.USAGE, True)


def test_T80_the_doctor_tells_of_a_rule_that_means_nothing(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[grant]\nrules = ["deny ehco"]', encoding="utf-8")
    told = inside("doctor", "--json")
    [finding] = [each for each in told.json["findings"] if each["what"] == "tools"]
    assert (told.code, finding["state"]) == (Exit.FAILED, "broken")
    assert "did you mean echo?" in finding["said"]


def test_T80_control_the_same_rule_spelled_right_denies(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "toolwire.toml").write_text('[grant]\nrules = ["deny echo"]', encoding="utf-8")
    denied = inside("call", "echo", "message=1")
    assert (denied.code, "deny echo" in denied.err) == (Exit.FAILED, True)


MODULE = '''
from toolwire import tool

@tool(needs=["paper"])
def fold(size: int) -> str:
    """Fold a sheet."""
    return "folded"
'''


def test_T80_names_of_tools_that_are_not_offered_here_are_known(inside: Inside, tmp_path: Path) -> None:
    (tmp_path / "folding_paper.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "toolwire.toml").write_text(
        """
[tools]
modules = ["folding_paper:fold"]
exclude = ["timer"]
secrets = ["KEY for fold", "KEY for webfetch at good.test"]
[grant]
permissions = ["file_read", "paper", "session"]
confirmed = ["fold", "git_commit", "timer", "skill"]
rules = ["deny bash where command is rm", "deny apply_patch, write where path is *.lock", "ask needs paper",
  "deny apply_patch where path is *.key", "deny timer", "deny fold where size is 3", "deny more", "deny write_file"]
[profiles.helper]
provider = "ollama"
model = "m"
[agents.helper]
tier = "crawl"
[agents.general]
permissions = ["paper"]
[agents.cli]
tier = "walk"
""",
        encoding="utf-8",
    )
    assert inside("call", "fold", "size=2").code == Exit.WAITING
    refused = inside("call", "fold", "size=3")
    assert (refused.code, "deny fold where size is 3" in refused.err) == (Exit.FAILED, True)


def test_the_lists_of_names_and_permissions_are_those_of_the_tools() -> None:
    every = {tool.name: tool for tool in (*tools_of(["all"], ToolDependencies()), *standard())}
    assert every.keys() | {"more", "skill"} == BUILT_IN
    assert frozenset().union(*(tool.needs for tool in every.values())) == PERMISSIONS
    assert {name for name in BUILT_IN if built_in_tool(name) is None} <= {tool.name for tool in standard()} | {
        "more",
        "skill",
    }


@pytest.mark.parametrize(
    ("line", "code"),
    [("KEY for webfetch", Exit.USAGE), ("KEY for echo, browser", Exit.USAGE), ("KEY for echo", Exit.DONE),
     ("KEY for webfetch, browser at good.test", Exit.DONE)],
)  # fmt: skip
def test_T81_a_secret_for_a_tool_that_talks_to_the_network_needs_a_host(
    inside: Inside, tmp_path: Path, line: str, code: Exit
) -> None:
    text = f'[tools]\ngroups = ["web", "browser"]\nsecrets = ["{line}"]'
    (tmp_path / "toolwire.toml").write_text(text, encoding="utf-8")
    told = inside("call", "echo", "message=1")
    assert (told.code, " at HOST" in said(told.err)) == (code, code == Exit.USAGE)
