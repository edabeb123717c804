"""What was approved is what runs: a file that the command names and that changes afterwards makes the approval void."""

from pathlib import Path

import pytest

from toolwire.cli.entry.exits import Exit

from .conftest import Inside
from .stage import scripted

SETTINGS = """
[tools]
groups = ["coding", "shell"]
[grant]
tier = "run"
permissions = ["file_read", "file_write", "shell"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolwire.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


COMMANDS = {
    "sh deploy.sh": "deploy.sh",
    "./deploy.sh": "deploy.sh",
    "cd sub && sh run.sh": "sub/run.sh",
    "sh < deploy.sh": "deploy.sh",
    "bash -c 'sh deploy.sh'": "deploy.sh",
    "python3 -m sub.tool": "sub/tool.py",
    "make all": "Makefile",
    "make -C sub": "sub/Makefile",
    "timeout 5 sh ./sub/../deploy.sh": "deploy.sh",
    "sh link.sh": "deploy.sh",
    "cp deploy.sh copy.sh && sh copy.sh": "deploy.sh",
}


def fill(project: Path, path: str, mark: str) -> None:
    file = project / path
    file.parent.mkdir(exist_ok=True)
    texts = {".py": f"open('{mark}', 'w')\n", "Makefile": f"all:\n\ttouch {mark}\n"}
    text = next((text for end, text in texts.items() if path.endswith(end)), f"#!/bin/sh\ntouch {mark}\n")
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


def ran(project: Path, mark: str) -> bool:
    return bool([*project.rglob(mark)])


@pytest.mark.parametrize(("command", "path"), COMMANDS.items())
def test_T95_a_script_that_changed_since_its_approval_does_not_run(
    inside: Inside, project: Path, command: str, path: str
) -> None:
    (project / "link.sh").symlink_to("deploy.sh")
    (project / "sub").mkdir()
    fill(project, path, "harmless")
    assert inside("call", "bash", f"command={command}").code == Exit.WAITING
    [asked] = inside("approvals", "--json").json
    assert f"{path} (sha256 " in asked["reason"]
    assert inside("approve", asked["id"]).code == Exit.DONE
    fill(project, path, "harmful")
    inside("call", "--resume")
    assert not ran(project, "harmful")
    assert not ran(project, "harmless")


@pytest.mark.parametrize("command", ["sh deploy.sh", "make all", "cd sub && sh run.sh"])
def test_T95_control_what_was_approved_and_did_not_change_runs(inside: Inside, project: Path, command: str) -> None:
    fill(project, COMMANDS[command], "harmless")
    inside("call", "bash", f"command={command}")
    [asked] = inside("approvals", "--json").json
    inside("approve", asked["id"])
    assert inside("call", "--resume").code == Exit.DONE
    assert ran(project, "harmless")


def test_T95_a_changed_script_is_asked_about_again(inside: Inside, project: Path) -> None:
    fill(project, "deploy.sh", "harmless")
    deploy = [("bash", {"command": "sh deploy.sh"})]
    with scripted(deploy, deploy, "done") as script:
        assert inside("ask", *script.flags, "Deploy").code == Exit.WAITING
        [first] = inside("approvals", "--json").json
        inside("approve", first["id"])
        fill(project, "deploy.sh", "harmful")
        assert inside("ask", *script.flags, "--resume").code == Exit.WAITING
        [second] = inside("approvals", "--json").json
        assert (second["id"], second["digest"]) != (first["id"], first["digest"])
        assert not ran(project, "harmful")
        inside("approve", second["id"])
        assert inside("ask", *script.flags, "--resume").code == Exit.DONE
    assert ran(project, "harmful"), "this content was approved"


def test_T95_a_file_that_a_program_obeys_and_that_is_new_makes_the_approval_void(inside: Inside, project: Path) -> None:
    fill(project, "Makefile", "harmless")
    inside("call", "bash", "command=make all")
    [asked] = inside("approvals", "--json").json
    inside("approve", asked["id"])
    (project / "GNUmakefile").write_text("all:\n\ttouch harmful\n", encoding="utf-8")
    inside("call", "--resume")
    assert not ran(project, "harmful")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python3 app", "Not covered: app (a folder), files that it loads or runs."),
        ("sh big.sh", "Not covered: big.sh (too large), files that it loads or runs."),
        ("npx something", "Not covered: files that it loads or runs."),
        ("sh $(echo x).sh", "files whose names are made when it runs"),
    ],
)
def test_the_question_says_what_an_approval_does_not_cover(
    inside: Inside, project: Path, command: str, said: str
) -> None:
    (project / "toolwire.toml").write_text(f'{SETTINGS}rules = ["ask bash"]\n', encoding="utf-8")
    (project / "app").mkdir()
    (project / "big.sh").write_bytes(b"#" * (5 * 1024 * 1024))
    inside("call", "bash", f"command={command}")
    [asked] = inside("approvals", "--json").json
    assert said in asked["reason"]


@pytest.mark.parametrize("command", ["git commit -m x", "mkdir -p a/b", "rm -rf app", "touch new"])
def test_a_command_that_runs_no_file_is_asked_about_as_before(inside: Inside, project: Path, command: str) -> None:
    (project / "toolwire.toml").write_text(f'{SETTINGS}rules = ["ask bash"]\n', encoding="utf-8")
    (project / "app").mkdir()
    inside("call", "bash", f"command={command}")
    [asked] = inside("approvals", "--json").json
    assert "cover" not in asked["reason"]


KEYS = [".env", "sub/.netrc", ".git-credentials", ".config/gh/hosts.yml"]


@pytest.mark.parametrize("command", ["echo x > made", "sh deploy.sh", "cat .env > made"])
def test_T116_the_question_names_the_keys_that_an_approved_command_can_read(
    inside: Inside, project: Path, command: str
) -> None:
    fill(project, "deploy.sh", "made")
    for name in (*KEYS, ".env.example", ".ssh/id_rsa"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text("TOKEN=sesame\n", encoding="utf-8")
    inside("call", "bash", f"command={command}")

    [asked] = inside("approvals", "--json").json

    told = asked["reason"].partition("The command can read the keys in ")[2].removesuffix(".").split(", ")
    assert sorted(told) == [".config/gh", ".env", ".git-credentials", "sub/.netrc"]


def test_T116_control_without_keys_the_question_says_nothing_of_them(inside: Inside, project: Path) -> None:
    (project / ".env.example").write_text("TOKEN=\n", encoding="utf-8")
    inside("call", "bash", "command=echo x > made")
    [asked] = inside("approvals", "--json").json
    assert "keys" not in asked["reason"]
