"""Help that a person can use: examples that work, lines that fit, and words that a shell completes."""

import functools
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.help_page import contexts
from tests.cli.painter import GRANTED, TOOLS
from tests.cli.stage import LIMIT_S, Stage, Terminal
from toolwire.cli.entry.exits import Exit
from toolwire.cli.entry.program import COMMANDS, command_at
from toolwire.cli.help.layout import EXAMPLES, help_page
from toolwire.cli.help.stored_pages import write_page

TYPED = [line for lines in EXAMPLES.values() for line in lines if not line.startswith("eval")]


@pytest.mark.parametrize("line", TYPED)
def test_every_example_is_understood(line: str) -> None:
    words = shlex.split(line.partition("toolwire ")[2].partition(" < ")[0])
    command = command_at(COMMANDS[words[0]][0], words[0])
    assert "--help" in words or command.make_context(words[0], words[1:]).params is not None


def test_every_command_that_people_type_has_examples(stage: Stage) -> None:
    for name in ("ask", "chat", "call", "approve", "tools list", "trust"):
        assert "\nExamples:\n  " in stage.run(*name.split(), "--help").out, name
    assert "\nExamples:\n  " in stage.run("--help").out


@pytest.mark.parametrize("columns", [44, 80, 120])
def test_help_fits_the_terminal(stage: Stage, columns: int) -> None:
    with Terminal(stage, "ask", "--help", columns=columns, NO_COLOR="1") as terminal:
        assert terminal.end() == Exit.DONE
    page = terminal.seen.replace("\r\n", "\n").partition("\nExamples:")[0]
    longest = max(map(len, page.splitlines()))
    assert columns - 24 < longest < columns
    assert "<str>" not in page


def test_help_of_a_command_loads_no_more_than_help_itself(stage: Stage) -> None:
    """We chose it: what a command needs is loaded when it runs, not when it is explained."""
    usual = loaded(stage, "--help")
    assert "typer" in usual
    for path in ("ask", "call", "chat", "serve", "tools", "tools show", "audit", "store prune"):
        assert loaded(stage, *path.split(), "--help") == usual, path


def test_a_call_loads_no_tool_that_is_not_called(stage: Stage) -> None:
    """We chose it: what the other tools of a group need takes longer to load than most calls to run."""
    (stage.folder / "a.txt").write_text("found")
    ran = loaded(stage, "call", "read", "path=a.txt", "--tools", "coding,shell")
    assert "toolwire.toolbox.files.reading" in ran
    unused = {"files.patching", "files.images", "shell.bash"}
    assert ran.isdisjoint(f"toolwire.toolbox.{name}" for name in unused)


def test_a_command_that_reaches_no_host_loads_nothing_that_speaks_http(stage: Stage) -> None:
    flags = ("--tools", "shell", "--tier", "run", "--allow", "shell", "-y")
    ran = loaded(stage, "call", "bash", "command=echo found", *flags)
    assert "toolwire.execute.sandbox.bubblewrap" in ran
    assert ran.isdisjoint({"h11", "idna", "httpx2", "toolwire.execute.egress.proxy"})


def loaded(stage: Stage, *words: str) -> set[str]:
    ran = stage.run(*words, PYTHONVERBOSE="1")
    assert (ran.code, "Usage: toolwire" in ran.out or "found" in ran.out) == (Exit.DONE, True)
    return {line.split("'")[1] for line in ran.err.splitlines() if line.startswith("import '")}


@pytest.mark.parametrize("columns", [44, 80, 110])
def test_help_is_the_same_whether_its_command_was_loaded_or_not(columns: int) -> None:
    for context in contexts():
        context.terminal_width = columns
        whole = context.get_help()
        kept = help_page(
            context, context.command_path, lambda wide: write_page(wide.command_path, wide.make_formatter())
        )
        assert kept == whole


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_each_shell(stage: Stage, shell: str) -> None:
    ran = stage.run("completion", shell)
    assert (ran.code, f"_TOOLWIRE_COMPLETE=complete_{shell}" in ran.out) == (Exit.DONE, True)


def test_another_shell_is_told_which_there_are(stage: Stage) -> None:
    ran = stage.run("completion", "tcsh")
    assert (ran.code, "there is one for bash, zsh, fish" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("toolwire app", {"approvals", "approve"}),
        ("toolwire ask --mo", {"--model"}),
        ("toolwire tools ", {"list", "show", "validate"}),
        ("toolwire call --tier ", {"crawl", "walk", "run"}),
    ],
)
def test_bash_completes_what_is_typed(stage: Stage, typed: str, offered: set[str]) -> None:
    """A real bash with the printed script, and what it is told."""
    assert completed_in_bash(stage, typed) == offered
    assert completed(stage, typed) == offered


@functools.cache
def bash_script(command: str) -> str:
    """What the command prints to complete its words, which is the same in every folder."""
    return subprocess.run([command, "completion", "bash"], capture_output=True, text=True, check=True).stdout


def completed_in_bash(stage: Stage, typed: str) -> set[str]:
    """What a real bash offers for the last of these words."""
    words = " ".join(shlex.quote(word) for word in typed.split(" "))
    script = f"""
        eval {shlex.quote(bash_script(stage.command()[0]))}
        COMP_WORDS=({words}); COMP_CWORD={typed.count(" ")}
        _toolwire_completion {stage.command()[0]}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=stage.folder,
        env=stage._environ({}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert ran.stderr == ""
    return set(ran.stdout.split())


def completed(stage: Stage, typed: str) -> set[str]:
    """What the command tells the script of a shell, which asks it in this way, for the last of these words."""
    cursor = str(typed.count(" "))
    ran = stage.run(_TOOLWIRE_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=cursor)
    assert ran.err == ""
    return set(ran.out.split())


def test_completion_offers_ids_on_record(stage: Stage) -> None:
    stage.module("brushwork", TOOLS)
    stage.settings(GRANTED)
    assert stage.run("call", "paint", "colour=red").code == Exit.WAITING
    [asked] = stage.run("approvals", "--json").json
    turn, approval = asked["turn_id"], asked["id"]
    assert completed(stage, "toolwire approve ") == {approval}
    assert completed(stage, f"toolwire approve {approval[:5]}") == {approval}
    assert completed(stage, "toolwire approve zz") == set()
    assert completed(stage, "toolwire call --resume ") == {turn}
    assert completed(stage, "toolwire ask --resume ") == set()
    for command in ("approvals --turn ", "logs --turn ", "explain --turn ", "run --cancel "):
        assert completed(stage, f"toolwire {command}") == {turn}, command
    assert completed(stage, "toolwire explain --call ") == {asked["call_id"]}
    assert completed(stage, "toolwire approve --home elsewhere ") == set()
    assert completed(stage, "toolwire approve --project other ") == set()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("toolwire ask --tools sh", {"shell"}),
        ("toolwire call --tools coding,sh", {"coding,shell"}),
        ("toolwire call --allow file", {"file_read", "file_write"}),
        ("toolwire tools show calc", {"calculator"}),
        ("toolwire call --tools git git_st", {"git_status"}),
        ("toolwire ask --profile s", {"small"}),
    ],
)
def test_completion_offers_names_of_groups_permissions_tools_and_profiles(
    stage: Stage, typed: str, offered: set[str]
) -> None:
    stage.settings('[profiles.small]\nprovider = "ollama"\nmodel = "x"\n')
    assert completed(stage, typed) == offered


@pytest.mark.parametrize("settings", ["[xyzzy]\na = 1\n", "not toml", '[tools]\nmodules = ["gone:tool"]\n'])
def test_completion_says_nothing_where_settings_are_wrong(stage: Stage, settings: str) -> None:
    stage.settings(settings)
    for typed in ("toolwire approve ", "toolwire logs --turn ", "toolwire ask --profile ", "toolwire tools show "):
        assert completed(stage, typed) == set()


def test_completion_makes_no_store_and_trusts_nothing(stage: Stage) -> None:
    assert completed(stage, "toolwire logs --turn ") == set()
    assert not (stage.folder / ".toolwire").exists()
    stage.environ["TOOLWIRE_TRUST"] = ""
    stage.module("brushwork", "open('imported', 'w')")
    stage.settings(GRANTED)
    assert completed(stage, "toolwire tools show pa") == set()
    assert not (stage.folder / "imported").exists()


def test_the_documentation_comes_with_the_package(inside: Inside) -> None:
    assert "settings " in inside("docs").out
    assert inside("docs", "settings").out.startswith("# Settings\n")
    assert inside("docs", "docs/settings.md").out == inside("docs", "settings").out
    wrong = inside("docs", "setings")
    assert (wrong.code, "did you mean settings?" in wrong.err) == (Exit.NOT_FOUND, True)


def test_an_error_points_to_documentation_that_is_there(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[xyzzy]\na = 1\n")
    told = inside("status").err
    assert "`toolwire docs settings` has all keys" in told
    Path("toolwire.toml").unlink()
    assert inside("docs", "settings").code == Exit.DONE
