"""A rule about a path means the file, for one call as for a whole turn."""

from pathlib import Path

import pytest

from toolwire.cli.entry.exits import Exit

from .conftest import Inside
from .stage import scripted

SETTINGS = """
[tools]
groups = ["coding", "other_names", "shell"]
[grant]
tier = "run"
permissions = ["file_read", "file_write", "shell"]
"""
RULE = 'rules = ["deny read where path is secrets/*"]\n'
MARK = "TOP-SECRET-MARK"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "k").write_text(f"{MARK}\n", encoding="utf-8")
    (tmp_path / "README.md").write_text("ordinary words\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("secrets/k")
    (tmp_path / "fine").symlink_to("README.md")
    return tmp_path


WAYS = [
    ("read", {"path": "link"}),
    ("read_file", {"path": "secrets/k"}),
    ("grep", {"pattern": "TOP"}),
    ("search_code", {"query": "SECRET"}),
    ("bash", {"command": "cat secrets/k"}),
    ("bash", {"command": "cat link"}),
]


@pytest.mark.parametrize(("tool", "arguments"), WAYS)
def test_T91_a_single_call_does_not_show_what_may_not_be_read(
    inside: Inside, project: Path, tool: str, arguments: dict[str, str]
) -> None:
    words = [f"{name}={value}" for name, value in arguments.items()]
    (project / "toolwire.toml").write_text(SETTINGS, encoding="utf-8")
    assert MARK in inside("call", tool, *words).out, "the control: without the rule it is shown"
    (project / "toolwire.toml").write_text(SETTINGS + RULE, encoding="utf-8")
    ran = inside("call", tool, *words)
    assert MARK not in ran.out + ran.err
    assert inside("call", "read", "path=fine").code == Exit.DONE


def test_T91_a_turn_does_not_read_what_may_not_be_read(inside: Inside, project: Path) -> None:
    (project / "toolwire.toml").write_text(SETTINGS + RULE, encoding="utf-8")
    with scripted(WAYS, [("bash", {"command": "cat README.md"})], "done") as script:
        assert inside("ask", *script.flags, "Read it").code == Exit.DONE
        seen = str(script.requests)
    assert MARK not in seen
    assert "ordinary words" in seen


def test_T137_a_single_call_shows_no_denied_file_by_a_folder_that_git_is_given(inside: Inside, project: Path) -> None:
    command = "command=git -C secrets config -f k -l"
    (project / "secrets" / "k").write_text(f"[a]\nmark = {MARK}\n", encoding="utf-8")
    (project / "toolwire.toml").write_text(SETTINGS, encoding="utf-8")
    assert MARK in inside("call", "bash", command).out, "the control: without the rule it is shown"
    (project / "toolwire.toml").write_text(SETTINGS + RULE, encoding="utf-8")
    ran = inside("call", "bash", command)
    assert MARK not in ran.out + ran.err


@pytest.mark.parametrize("rule", ["deny bash where command is touch", "deny bash", "ask bash where command is touch"])
def test_T143_what_bash_may_not_run_is_not_run_as_a_job(inside: Inside, project: Path, rule: str) -> None:
    """At full autonomy, where nothing but the rule stands in the way."""
    full = f'{SETTINGS}autonomy = "full"\n'
    (project / "toolwire.toml").write_text(f'{full}rules = ["{rule}"]\n', encoding="utf-8")
    for tool in ("bash", "job_start"):
        assert inside("call", tool, "command=touch made").code == (Exit.WAITING if "ask" in rule else Exit.FAILED)
    assert not (project / "made").exists()


@pytest.mark.parametrize(
    "rule", ["deny job_start", "deny job_start where command is touch", "deny bash where command is rm"]
)
def test_T143_control_a_rule_about_jobs_or_another_command_leaves_bash_alone(
    inside: Inside, project: Path, rule: str
) -> None:
    full = f'{SETTINGS}autonomy = "full"\n'
    (project / "toolwire.toml").write_text(f'{full}rules = ["{rule}"]\n', encoding="utf-8")
    assert inside("call", "bash", "command=touch made").code == Exit.DONE
    assert (project / "made").exists()
