"""`toolwire release`: what a command made under a name that others obey, held back and given back."""

import json
import subprocess
from pathlib import Path

import pytest

from toolwire.cli.entry.exits import Exit

from .conftest import Inside

SETTINGS = """
[tools]
groups = ["coding", "shell"]
[grant]
tier = "run"
permissions = ["file_read", "file_write", "shell"]
autonomy = "full"
"""
MAKE = (
    "mkdir -p sub/.vscode .github/workflows && echo '{}' > sub/.vscode/tasks.json "
    "&& echo on: push > .github/workflows/ci.yml"
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "toolwire.toml").write_text(SETTINGS, encoding="utf-8")
    return tmp_path


def held(project: Path) -> list[str]:
    return sorted(str(path.relative_to(project)) for path in project.rglob("*.held-back-*"))


def test_what_a_command_made_is_told_listed_and_released(inside: Inside, project: Path) -> None:
    told = inside("call", "bash", f"command={MAKE}", "--json")
    lies_at = held(project)
    assert [name.partition(".held")[0] for name in lies_at] == [".github/workflows", "sub/.vscode"]
    for name in lies_at:
        assert f"toolwire release {name}" in json.dumps(json.loads(told.out)), told.out

    assert all(name in inside("release").out for name in lies_at)
    assert inside("release", lies_at[0]).out == "Released .github/workflows.\n"
    assert inside("release", "./sub/.vscode/").out == "Released sub/.vscode.\n"

    assert (project / ".github/workflows/ci.yml").read_text() == "on: push\n"
    assert (project / "sub/.vscode/tasks.json").read_text() == "{}\n"
    assert inside("release").out == "Nothing is held back in this folder.\n"
    again = inside("call", "bash", "command=cat sub/.vscode/tasks.json; echo x > own", "--json")
    assert (again.code, held(project)) == (Exit.DONE, []), "what was released is not held back again"


def test_nothing_else_is_renamed(inside: Inside, project: Path) -> None:
    (project / ".vscode.held-back-1a2b3c4d").mkdir()
    (project / ".vscode").mkdir()
    (project / "notes.held-back").touch()

    taken = inside("release", ".vscode")
    missing = inside("release", "notes.held-back")

    assert (taken.code, missing.code) == (Exit.FAILED, Exit.NOT_FOUND)
    assert "exists already" in taken.err
    assert held(project) == [".vscode.held-back-1a2b3c4d"]


def test_T23_a_command_cannot_release_what_it_made(inside: Inside, project: Path) -> None:
    inside("call", "bash", f"command={MAKE}")
    inside("call", "bash", "command=mv sub/.vscode.held-back-* sub/.vscode && touch x")

    assert not (project / "sub/.vscode").exists()


def test_what_was_held_back_in_git_or_among_packages_is_released_as_its_note_says(
    inside: Inside, project: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    make = (
        "mkdir .git/rebase-merge && echo 'exec x' > .git/rebase-merge/git-rebase-todo && git init -q node_modules/x "
        "&& git -C node_modules/x config core.pager x"
    )
    told = inside("call", "bash", f"command={make}", "--json")
    lies_at = held(project)
    assert [name.partition(".held")[0] for name in lies_at] == [".git/rebase-merge", "node_modules/x/.git"]
    assert all(f"toolwire release {name}" in json.dumps(json.loads(told.out)) for name in lies_at)

    assert inside("release").out == f"{lies_at[0]}  (was .git/rebase-merge)\n"
    assert inside("release", *lies_at).out == "Released .git/rebase-merge.\nReleased node_modules/x/.git.\n"
    assert inside("release", f"../{project.name}x/.vscode.held-back-1a2b3c4d").code == Exit.NOT_FOUND
    assert held(project) == []
