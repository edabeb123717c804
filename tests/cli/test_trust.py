"""`toolwire trust`, and commands in a project that has it not: code of a cloned repository never runs unasked."""

import asyncio
import marshal
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import MAGIC_NUMBER, cache_from_source
from pathlib import Path

import pytest

from tests.cli.stage import Stage, Terminal
from toolwire import SqliteStore
from toolwire.cli.entry.exits import Exit

EVIL = """
from pathlib import Path
Path("ran").touch()
from toolwire import tool

@tool
def shout(words: str) -> str:
    \"\"\"Shout.\"\"\"
    return words.upper()
"""


@pytest.fixture
def cloned(stage: Stage) -> Stage:
    """A project with tools of its own, which is not trusted yet."""
    stage.environ["TOOLWIRE_TRUST"] = ""
    stage.settings('[tools]\nmodules = ["evil:shout"]\n')
    stage.module("evil", EVIL)
    return stage


def has_run(stage: Stage) -> bool:
    return (stage.folder / "ran").exists()


@pytest.mark.parametrize(
    "words",
    [["ask", "hi"], ["chat"], ["call", "echo", "message=1"], ["preflight", "echo"], ["explain", "echo"], ["tools"],
     ["status"], ["logs"], ["metrics"]],
)  # fmt: skip
def test_without_trust_nothing_runs_and_the_way_to_give_it_is_told(cloned: Stage, words: list[str]) -> None:
    ran = cloned.run(*words)
    assert (ran.code, f"toolwire trust {cloned.folder}" in ran.err) == (Exit.USAGE, True)
    assert "tools.modules = ['evil:shout']" in ran.err
    assert not has_run(cloned)


def test_what_a_file_asks_for_last_is_shown_however_much_stands_before_it(cloned: Stage) -> None:
    roots = [f"folder-{number}" for number in range(500)]
    listed = ",\n".join(map(repr, [*roots, "/etc"]))
    cloned.settings(f"[grant]\nroots = [{listed}]\n")
    told = cloned.run("call", "echo", "message=1")
    assert "characters are not shown" in told.err
    assert "'/etc']" in told.err


def test_a_trusted_project_works_until_its_file_changes(cloned: Stage) -> None:
    told = cloned.run("trust")
    assert (told.code, "tools.modules" in told.out) == (Exit.DONE, True)
    assert not has_run(cloned)
    assert cloned.run("call", "shout", "words=hi").out == "HI\n"
    with (cloned.folder / "toolwire.toml").open("a") as file:
        file.write('[grant]\nconfirmed = ["*"]\n')
    assert cloned.run("call", "shout", "words=hi").code == Exit.USAGE
    assert cloned.run("trust", str(cloned.folder)).code == Exit.DONE
    assert cloned.run("call", "shout", "words=hi").code == Exit.DONE
    assert cloned.run("trust", "--forget").code == Exit.DONE
    assert cloned.run("call", "shout", "words=hi").code == Exit.USAGE


def test_a_module_that_changed_since_it_was_trusted_is_not_run(cloned: Stage) -> None:
    """A tool with a right to write could otherwise have its own code run at the next start."""
    assert cloned.run("trust").code == Exit.DONE
    assert cloned.run("call", "shout", "words=hi").out == "HI\n"
    module = cloned.folder / "evil.py"
    module.write_text(module.read_text() + "Path('planted').touch()\n")
    told = cloned.run("call", "shout", "words=hi")
    assert (told.code, "toolwire trust" in told.err) == (Exit.USAGE, True)
    assert not (cloned.folder / "planted").exists()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda cloned: cloned.module("evil", EVIL + "# more"), "evil.py"),
        (lambda cloned: cloned.settings('[tools]\nmodules = ["evil:shout"]\n# more\n'), "toolwire.toml"),
    ],
)
def test_what_has_changed_since_it_was_trusted_is_named(
    cloned: Stage, change: Callable[[Stage], object], named: str
) -> None:
    before = cloned.run("call", "echo", "message=1").err
    assert cloned.run("trust").code == Exit.DONE
    assert cloned.run("call", "echo", "message=1").code == Exit.DONE
    change(cloned)

    told = cloned.run("call", "echo", "message=1")

    assert told.code == Exit.USAGE
    assert f"toolwire.toml must be trusted again, since {named} changed." in " ".join(told.err.split())
    assert "trusted again" not in before
    assert "tools.modules = ['evil:shout']" in told.err


@pytest.mark.threat("T23")
def test_T23_nothing_compiled_is_taken_for_a_trusted_module(cloned: Stage) -> None:
    """Python prefers what is compiled, and a tool with a right to write could have planted it."""
    assert cloned.run("trust").code == Exit.DONE
    planted = compile("import os\nos.open('ran-planted', os.O_CREAT)\n" + EVIL, "evil.py", "exec")
    unchecked = b"".join([MAGIC_NUMBER, (1).to_bytes(4, "little"), bytes(8), marshal.dumps(planted)])
    (cloned.folder / "__pycache__").mkdir(exist_ok=True)
    Path(cache_from_source(str(cloned.folder / "evil.py"))).write_bytes(unchecked)
    for suffix in (*EXTENSION_SUFFIXES, ".pyc"):
        (cloned.folder / f"evil{suffix}").write_bytes(unchecked)
    assert cloned.run("call", "shout", "words=hi").out == "HI\n"
    assert not (cloned.folder / "ran-planted").exists()


@pytest.mark.threat("T23")
@pytest.mark.parametrize("planted", ["spoken.py", "voices/loud.py", "voices/__init__.py"])
def test_T23_trust_is_for_what_a_trusted_module_imports_too(cloned: Stage, planted: str) -> None:
    (cloned.folder / "voices").mkdir()
    (cloned.folder / "voices" / "loud.py").write_text("def up(words): return words.upper()\n")
    imports = "from voices.loud import up\ntry:\n    import spoken\nexcept ImportError:\n    pass\n"
    cloned.module("evil", imports + EVIL)
    assert cloned.run("trust").code == Exit.DONE
    assert cloned.run("call", "shout", "words=hi").out == "HI\n"
    (cloned.folder / planted).write_text("import os\nos.open('ran-planted', os.O_CREAT)\nup = str.upper\n")
    told = cloned.run("call", "shout", "words=hi")
    assert (told.code, "toolwire trust" in told.err) == (Exit.USAGE, True)
    assert not (cloned.folder / "ran-planted").exists()


@pytest.mark.threat("T23")
def test_T23_a_module_is_looked_for_only_where_trust_looked(cloned: Stage) -> None:
    cloned.settings('[tools]\nmodules = ["evil:shout"]\n[store]\nhome = "var/state"\n')
    assert cloned.run("trust").code == Exit.DONE
    (cloned.folder / "var").mkdir(exist_ok=True)
    (cloned.folder / "evil.py").rename(cloned.folder / "var" / "evil.py")
    assert cloned.run("call", "shout", "words=hi").code == Exit.USAGE
    assert not has_run(cloned)


@pytest.mark.parametrize("name", ["tree_sitter", "html", "tomllib", "platformdirs"])
def test_T23_a_file_beside_trusted_tools_is_never_taken_for_a_module_of_ours(cloned: Stage, name: str) -> None:
    """Tools may write to the project; what toolwire imports later must not be found there."""
    cloned.run("trust")
    (cloned.folder / f"{name}.py").write_text("import os\nos.open('ran-planted', os.O_CREAT)\n")
    cloned.settings('[tools]\nmodules = ["evil:shout"]\ngroups = ["shell"]\n')
    cloned.run("trust")

    assert cloned.run("explain", "bash", "command=ls").code == Exit.DONE
    assert cloned.run("call", "shout", "words=hi").out == "HI\n"
    assert not (cloned.folder / "ran-planted").exists()


@pytest.mark.parametrize(("answer", "code"), [("y", Exit.DONE), ("n", Exit.USAGE), ("", Exit.USAGE)])
def test_at_a_terminal_the_person_is_asked_once(cloned: Stage, answer: str, code: Exit) -> None:
    with Terminal(cloned, "call", "shout", "words=hi") as terminal:
        assert "evil:shout" in terminal.wait_for("until it changes? [y/N]")
        assert not has_run(cloned)
        terminal.type(f"{answer}\n")
        assert terminal.end() == code
    assert has_run(cloned) == (code == Exit.DONE)
    assert cloned.run("call", "shout", "words=hi").code == code


def test_ctrl_d_is_no_trust_and_what_follows_begins_a_line(cloned: Stage) -> None:
    with Terminal(cloned, "call", "shout", "words=hi") as terminal:
        terminal.wait_for("until it changes? [y/N]: ")
        terminal.type("\x04")
        assert terminal.end() == Exit.USAGE
    assert "\nError: " in terminal.seen.replace("\r", "")
    assert not has_run(cloned)


def test_T65_what_was_typed_before_trust_was_asked_for_is_no_answer(cloned: Stage) -> None:
    with Terminal(cloned, "call", "shout", "words=hi", typed="y\ny\n") as terminal:
        terminal.wait_for("until it changes? [y/N]")
        terminal.type("what?\n")
        terminal.wait_for("Answer y or n.")
        terminal.wait_for("until it changes? [y/N]")
        terminal.type("n\n")
        assert terminal.end() == Exit.USAGE
    assert not has_run(cloned)


def test_the_doctor_tells_of_a_file_that_is_not_trusted(cloned: Stage) -> None:
    ran = cloned.run("doctor", "--json")
    [found] = [finding for finding in ran.json["findings"] if finding["what"] == "settings"]
    assert (found["state"], "toolwire trust" in found["said"]) == ("broken", True)
    assert not has_run(cloned)


def test_a_project_that_asks_for_nothing_needs_no_trust(stage: Stage) -> None:
    stage.environ["TOOLWIRE_TRUST"] = ""
    assert stage.run("trust").code == Exit.USAGE
    stage.settings("[loop]\niterations = 5\n")
    assert "nothing that needs trust" in stage.run("trust").out
    assert stage.run("call", "echo", "message=1").code == Exit.DONE


def test_a_module_of_the_users_own_file_is_not_taken_from_the_project(
    stage: Stage, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A repository could otherwise run code by holding a file of that name."""
    stage.environ["TOOLWIRE_TRUST"] = ""
    stage.module("evil", EVIL)
    config: Path = tmp_path_factory.mktemp("config")
    (config / "toolwire").mkdir()
    (config / "toolwire" / "toolwire.toml").write_text('[tools]\nmodules = ["evil:shout"]\n')
    assert "cannot be imported" in stage.run("tools", XDG_CONFIG_HOME=str(config)).err
    assert not has_run(stage)
    (config / "toolwire" / "evil.py").write_text(EVIL.replace("upper", "lower"))
    ran = stage.run("call", "shout", "words=Hi", XDG_CONFIG_HOME=str(config))
    assert ran.out == "hi\n"


CHANGING = '[tools]\ngroups = ["shell"]\n[grant]\ntier = "run"\npermissions = ["shell"]\nautonomy = "full"\n'


@pytest.mark.threat("T23")
@pytest.mark.parametrize(("settings", "words"), [('[store]\nhome = "state"\n', []), ("", ["--root", ".."])])
def test_T23_a_record_that_tools_could_change_is_refused(stage: Stage, settings: str, words: list[str]) -> None:
    """Who can write the record can write an approval into it."""
    inner = stage.folder / "inner"
    inner.mkdir()
    (inner / "toolwire.toml").write_text(settings + CHANGING)
    told = replace(stage, folder=inner).run("call", "bash", "command=ls", *words, TOOLWIRE_TRUST=str(stage.folder))
    assert (told.code, "set store.home to a folder outside" in told.err) == (Exit.USAGE, True)
    (inner / "toolwire.toml").write_text(CHANGING)
    fine = replace(stage, folder=inner).run("call", "bash", "command=ls", TOOLWIRE_TRUST=str(stage.folder))
    assert fine.code == Exit.DONE


@pytest.mark.threat("T23")
def test_T23_a_record_that_came_with_a_project_is_not_taken_for_the_users_own(stage: Stage, tmp_path: Path) -> None:
    """It could hold an approval that was not given here, or a turn with any grant."""
    folder = tmp_path / "project"
    folder.mkdir()
    own, stranger = (
        replace(stage, folder=folder, environ={"TOOLWIRE_TRUST": "", "HOME": str(tmp_path / name)})
        for name in ("user", "stranger")
    )
    for _ in range(2):
        assert stranger.run("call", "echo", "message=hi").code == Exit.DONE

    told = own.run("call", "echo", "message=hi")
    assert (told.code, f"toolwire trust {folder}/.toolwire" in told.err) == (Exit.USAGE, True)
    assert own.run("ask", "--resume").code == Exit.USAGE
    for words in (["approvals", "--patterns"], ["logs"], ["status"], ["metrics"], ["audit", "verify"]):
        assert own.run(*words).code == Exit.DONE  # looking changes nothing

    assert own.run("trust", ".toolwire").code == Exit.DONE
    assert own.run("call", "echo", "message=hi").code == Exit.DONE
    assert own.run("trust", ".toolwire", "--forget").code == Exit.DONE
    assert own.run("call", "echo", "message=hi").code == Exit.USAGE


def test_a_record_that_the_user_names_counts_as_their_own(stage: Stage) -> None:
    """A program of the user's may have made it."""
    asyncio.run(made_at(stage.folder / "mine"))
    with closing(sqlite3.connect(stage.folder / "mine" / "store.db")) as store, store:
        store.execute(
            "INSERT INTO spending (project, agent, day, calls, tokens, cost_usd) VALUES ('default', 'mine', 1, 1, 1, 1)"
        )
    assert stage.run("call", "echo", "message=hi", "--home", "mine", TOOLWIRE_TRUST="").code == Exit.DONE
    assert "echo" in stage.run("logs", "--home", "mine", TOOLWIRE_TRUST="").out


def blank(folder: Path, *more: str) -> None:
    """A record as a process leaves it that dies while it makes one, or as an attacker fakes one."""
    asyncio.run(made_at(folder / ".toolwire"))
    with closing(sqlite3.connect(folder / ".toolwire" / "store.db")) as store, store:
        for statement in more:
            store.execute(statement)


async def made_at(home: Path) -> None:
    async with await SqliteStore.at(home):
        pass


def test_a_record_whose_maker_died_before_it_held_anything_is_the_users_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(stage.folder / ".local" / "state"))
    blank(stage.folder)
    for _ in range(2):
        assert stage.run("call", "echo", "message=hi", TOOLWIRE_TRUST="").code == Exit.DONE


@pytest.mark.threat("T23")
@pytest.mark.parametrize(
    "more",
    [
        "CREATE TRIGGER sly AFTER INSERT ON turns BEGIN DELETE FROM approvals; END",
        "INSERT INTO spending (project, agent, day, calls, tokens, cost_usd) VALUES ('default', 'cli', 1, 1, 1, 1.0)",
    ],
)
def test_T23_a_record_that_only_looks_empty_is_not_taken_for_the_users_own(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, more: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(stage.folder / ".local" / "state"))
    blank(stage.folder, more)
    assert stage.run("call", "echo", "message=hi", TOOLWIRE_TRUST="").code == Exit.USAGE


@pytest.mark.threat("T23")
def test_T23_a_record_put_in_the_place_of_the_users_own_is_noticed(stage: Stage, tmp_path: Path) -> None:
    one, other = (replace(stage, folder=tmp_path / name) for name in ("one", "other"))
    for project in (one, other):
        project.folder.mkdir()
        assert project.run("call", "echo", "message=hi", TOOLWIRE_TRUST="").code == Exit.DONE
    shutil.rmtree(one.folder / ".toolwire")
    shutil.copytree(other.folder / ".toolwire", one.folder / ".toolwire")
    assert one.run("call", "echo", "message=hi", TOOLWIRE_TRUST="").code == Exit.USAGE
    assert other.run("call", "echo", "message=hi", TOOLWIRE_TRUST="").code == Exit.DONE
