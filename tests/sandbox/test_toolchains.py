"""Toolchains in the user's home can be used in a box, read-only, and nothing that holds keys comes with them."""

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.stage import Stage
from tests.sandbox.conftest import ENGINES, needs
from toolwire.cli.entry.exits import Exit
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.sandbox.workspace import MOST_LENT
from toolwire.execute.toolchains import ToolchainExec, Toolchains, find_toolchains, is_too_wide, pythons_behind
from toolwire.protocol.operations import Command, Ran, shell

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def home() -> Iterator[Path]:
    """A home that boxes cannot see by themselves: not where they have a folder of their own."""
    folder = Path(tempfile.mkdtemp(prefix="home-", dir="/srv" if os.access("/srv", os.W_OK) else "/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def python_in(prefix: Path) -> Path:
    """This Python as another manager would have installed it: its program copied, its library beside it."""
    (prefix / "bin").mkdir(parents=True)
    (prefix / "lib").mkdir()
    program = prefix / "bin" / f"python{VERSION}"
    shutil.copy2(os.path.realpath(sys._base_executable), program)  # type: ignore[attr-defined]
    shutil.copytree(
        sysconfig.get_path("stdlib"), prefix / "lib" / f"python{VERSION}", symlinks=True,
        ignore=shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__", "idlelib", "tkinter"),
    )  # fmt: skip
    return program


def program_in(path: Path, says: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)


async def run(home: Path, text: str, *, engine: str = "bubblewrap", found: Toolchains | None = None) -> Ran:
    chains = found or find_toolchains(home, "")
    ops = ToolchainExec(local_sandbox(floor=engine, default=engine), home, lambda: chains)
    (home / "project").mkdir(exist_ok=True)
    async with asyncio.timeout(60):
        return await ops.run(Command(shell(text), workspace=str(home / "project")))


@pytest.mark.parametrize(
    ("engine", "where"),
    [
        ("bubblewrap", ".pyenv/versions/3.99.1"),
        ("bubblewrap", ".local/share/uv/python/cpython-3.99"),
        *((engine, "own/python") for engine in ENGINES if engine != "none"),
    ],
)
async def test_a_virtual_environment_works_whose_python_lies_in_the_home(home: Path, engine: str, where: str) -> None:
    needs(engine)
    program = python_in(home / where)
    subprocess.run([program, "-m", "venv", "--without-pip", home / "project" / ".venv"], check=True)  # noqa: ASYNC221
    (home / "project" / ".venv" / "lib" / f"python{VERSION}" / "site-packages" / "mine.py").write_text("x = 42\n")

    ran = await run(home, ".venv/bin/python -c 'import mine; print(mine.x)'", engine=engine)
    plain = await local_sandbox(floor=engine, default=engine).run(
        Command(shell(".venv/bin/python -c 'print(1)'"), workspace=str(home / "project"))
    )

    assert (ran.stdout.text, ran.stderr.text) == ("42\n", "")
    assert plain.exit_code != 0  # without the loan


KNOWN = {
    ".cargo/bin/cargo": "cargo", ".nvm/versions/node/v22.1.0/bin/node22": "node22", ".volta/bin/volta": "volta",
    "go/bin/gopls": "gopls", ".bun/bin/bun": "bun", ".deno/bin/deno": "deno",
    ".sdkman/candidates/java/current/bin/javac99": "javac99", ".rbenv/shims/ruby99": "ruby99",
    "sdk/go1.22.1/bin/go99": "go99", "sdk/gotip/bin/go99": "go99",
}  # fmt: skip


@pytest.mark.parametrize("path", KNOWN)
async def test_programs_of_known_toolchains_are_on_the_path_and_cannot_be_changed(home: Path, path: str) -> None:
    program_in(home / path, "from the toolchain")

    ran = await run(home, f"{KNOWN[path]}; echo evil > {home / path}")

    assert ran.stdout.text == "from the toolchain\n"
    assert "Read-only file system" in ran.stderr.text or "Permission denied" in ran.stderr.text
    assert "evil" not in (home / path).read_text()


PRIVATE = """
.cargo/credentials.toml .npmrc .config/gh/hosts.yml .ssh/id_rsa .nvm/.npmrc notes.md
sdk/own/source sdk/gold/source sdk/notes
""".split()


@pytest.mark.parametrize("engine", [each for each in ENGINES if each != "none"])
async def test_nothing_else_of_the_home_can_be_read(home: Path, engine: str) -> None:
    needs(engine)
    program_in(home / ".cargo/bin/cargo", "cargo")
    program_in(home / "sdk/go1.22.1/bin/go99", "go")
    for name in PRIVATE:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("private")

    ran = await run(home, f"cargo; grep -rs private {home}; ls -A {home}; ls -A {home}/.cargo", engine=engine)

    assert ran.stdout.text.startswith("cargo\n")
    assert "private" not in ran.stdout.text
    assert engine == "firejail" or ".ssh" not in ran.stdout.text  # it hides what is in them, not the names


def test_a_folder_that_holds_keys_is_lent_without_them(home: Path) -> None:
    for name in ("tools/bin/x", "tools/credentials.toml", "tools/.config/x", "tools/lib/x"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("")

    found = find_toolchains(home, "", [str(home / "tools")])

    assert found.folders == (str(home / "tools/bin"), str(home / "tools/lib"))
    assert is_too_wide(home, home)
    assert is_too_wide(home.parent, home)
    assert find_toolchains(home, "", [str(home)]).folders == ()


def test_no_more_is_lent_than_a_box_takes_and_what_was_named_comes_first(home: Path) -> None:
    for number in range(MOST_LENT + 3):
        (home / f"own{number}").mkdir()
    (home / ".pyenv").mkdir()

    found = find_toolchains(home, "", [str(home / f"own{number}") for number in range(MOST_LENT + 3)])

    assert len(found.folders) == MOST_LENT
    assert find_toolchains(home, "", [str(home / "own0")]).folders == (str(home / "own0"), str(home / ".pyenv"))


def test_the_order_of_the_users_own_path_counts(home: Path) -> None:
    program_in(home / ".nvm/versions/node/v1.0.0/bin/node", "old")
    program_in(home / ".nvm/versions/node/v2.0.0/bin/node", "new")

    chosen = f"{home}/.nvm/versions/node/v1.0.0/bin"
    assert find_toolchains(home, f"{chosen}:/usr/bin:{home}/bin").programs[0] == chosen
    assert find_toolchains(home, "").programs[1].endswith("v2.0.0/bin")


ELSEWHERE = {
    "keys": "{home}/.ssh/bin/python", "home": "{home}/bin/python", "workspace": "{home}/project/fake/bin/python",
    "through the workspace": "/proc/self/cwd/fake/bin/python", "system": "/usr/bin/python3",
    "through a link": "{home}/way/fake/bin/python",
}  # fmt: skip


@pytest.mark.parametrize("target", ELSEWHERE)
def test_a_planted_link_lends_nothing_but_a_python(home: Path, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A project may bring any `.venv`, and a command may turn its links."""
    for prefix in (home, home / ".ssh", home / "project" / "fake"):
        (prefix / "lib" / "python3.11").mkdir(parents=True)
        (prefix / "lib" / "python3.11" / "os.py").write_text("")
    (home / "way").symlink_to(home / "project")
    monkeypatch.chdir(home / "project")
    environment = home / "project" / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (environment / "bin" / "python").symlink_to(ELSEWHERE[target].format(home=home))

    assert pythons_behind(home / "project", home) == ()


GIVEN = ["--tools", "shell", "--tier", "run", "--allow", "shell", "--root", ".", "--json", "-y"]


@pytest.fixture
def desk(home: Path) -> Iterator[Stage]:
    """The command line, in a project of a home."""
    (home / "project").mkdir()
    stage = Stage(home / "project", {"HOME": str(home)})
    yield stage
    stage.close()


def test_the_command_line_lends_what_it_recognises_and_what_the_settings_name(desk: Stage, home: Path) -> None:
    program_in(home / ".bun/bin/bun", "bun")
    program_in(home / "arm/bin/arm-gcc", "arm")

    def said(settings: str) -> str:
        desk.settings(settings)
        return str(desk.run("call", "bash", "command=bun; arm-gcc; true", *GIVEN).json["structured"]["stdout"])

    assert said("") == "bun\n"
    assert said('[tools]\nreadable = ["~/arm"]\n') == "bun\narm\n"
    assert said("[tools]\ntoolchains = false\n") == ""


def test_a_project_lends_no_folder_of_the_user_without_trust(desk: Stage, home: Path) -> None:
    (home / "private").mkdir()
    desk.environ["TOOLWIRE_TRUST"] = ""
    desk.settings('[tools]\nreadable = ["~/private"]\n')

    ran = desk.run("call", "bash", "command=ls ~/private", *GIVEN)

    assert (ran.code, "tools.readable" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(("named", "why"), [("~/", "holds all of your home"), ("/", "holds all"), ("~/gone", "is not")])
def test_what_cannot_be_lent_is_told(desk: Stage, named: str, why: str) -> None:
    desk.settings(f'[tools]\nreadable = ["{named}"]\n')

    ran = desk.run("call", "bash", "command=ls", *GIVEN)

    assert (ran.code, why in ran.err) == (Exit.USAGE, True)
