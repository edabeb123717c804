"""Commands in a folder of a project: every settings file above counts, and a nearer one loosens nothing by itself."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.stage import MODEL, Script, Stage, scripted
from toolwire.cli.entry.exits import Exit

HELLO = '{"echo":"hello"}\n'
PROJECT = """
[grant]
rules = ["deny echo where message is secret*"]
[loop]
iterations = 2
"""


@pytest.fixture
def project(stage: Stage) -> Stage:
    """A project that the user trusts, and a folder in it where a command in a sandbox may have written."""
    stage.environ |= {"HOME": str(stage.folder.parent), "TOOLWIRE_TRUST": ""}
    stage.settings(PROJECT)
    assert stage.run("trust").code == Exit.DONE
    (stage.folder / "sub").mkdir()
    return stage


def within(project: Stage, text: str) -> Stage:
    sub = replace(project, folder=project.folder / "sub")
    sub.settings(text)
    return sub


@pytest.mark.parametrize(
    "text", ["", "[loop]\niterations = 1", "[grant]\nrules = []", '[grant]\nrules = ["deny timer"]']
)
@pytest.mark.parametrize("trusting", ["", "project"])
def test_T77_a_file_in_a_folder_of_the_project_drops_none_of_its_rules(
    project: Stage, text: str, trusting: str
) -> None:
    sub = within(project, text)
    sub.environ["TOOLWIRE_TRUST"] = str(project.folder) if trusting else ""
    denied = sub.run("call", "echo", "message=secret plan")
    assert (denied.code, "deny echo where message is secret*" in denied.err) == (Exit.FAILED, True)
    assert sub.run("call", "echo", "message=hello").out == HELLO


def test_T77_control_without_the_file_above_the_rule_is_not_there(project: Stage) -> None:
    sub = within(project, "")
    (project.folder / "toolwire.toml").unlink()
    assert sub.run("call", "echo", "message=secret plan").out == '{"echo":"secret plan"}\n'


def test_T77_a_file_that_would_loosen_is_named_with_the_way_to_trust_it(project: Stage) -> None:
    sub = within(project, '[grant]\ntier = "run"\nconfirmed = ["echo"]')
    for named in ("", str(project.folder)):
        told = sub.run("call", "echo", "message=hello", TOOLWIRE_TRUST=named)
        assert (told.code, f"toolwire trust {sub.folder}\n" in told.err) == (Exit.USAGE, True)
    trusted = sub.run("trust")
    assert (trusted.code, "grant.tier = 'run'" in trusted.out) == (Exit.DONE, True)
    assert sub.run("call", "echo", "message=hello").out == HELLO
    assert sub.run("call", "echo", "message=secret").code == Exit.FAILED  # rules add up, whoever is trusted


def test_each_file_is_trusted_for_itself_and_the_other_one_is_told(stage: Stage) -> None:
    stage.environ |= {"HOME": str(stage.folder.parent), "TOOLWIRE_TRUST": ""}
    stage.settings('[grant]\ntier = "run"')
    (stage.folder / "sub").mkdir()
    sub = within(stage, '[grant]\nconfirmed = ["echo"]')
    told = sub.run("trust")
    assert (told.code, f"toolwire trust {stage.folder}\n" in told.out) == (Exit.DONE, True)
    assert "grant.tier" not in told.out
    assert f"toolwire trust {stage.folder}\n" in sub.run("call", "echo", "message=hello").err
    assert stage.run("trust").code == Exit.DONE
    assert sub.run("call", "echo", "message=hello").out == HELLO


def test_the_status_says_of_each_setting_which_file_it_is_from(project: Stage) -> None:
    sub = within(project, '[loop]\nrepeats = 2\n[grant]\nrules = ["deny timer"]')
    shown = {each["key"]: each["origin"] for each in sub.run("status", "--json").json["settings"]}
    outer, near = project.folder / "toolwire.toml", sub.folder / "toolwire.toml"
    assert shown["loop.iterations"] == f"{outer}, line 5"
    assert shown["loop.repeats"] == f"{near}, line 2"
    assert shown["grant.rules"] == f"{outer}, line 3 and {near}, line 4"


def test_T77_a_file_in_a_folder_begins_no_record_of_its_own(project: Stage) -> None:
    """A budget of the day counts on the record, so a second record would begin it again."""
    project.settings(f"{PROJECT}[budget]\ncalls = 1\n")
    sub = within(project, "[loop]\niterations = 1")
    assert project.run("call", "echo", "message=one").code == Exit.DONE
    spent = sub.run("call", "echo", "message=two")
    assert (spent.code, "budget" in spent.err) == (Exit.FAILED, True)
    assert not (sub.folder / ".toolwire").exists()


EVIL = '[profiles.evil]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "URL"\n'
QUESTION = ["ask", "What is in README?"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'model = "{MODEL}"', QUESTION),
        (f'model = "{MODEL}"', ["chat"]),
        (f'model = "{MODEL}"', ["status"]),
        (EVIL, QUESTION),
        (f'profile = "evil"\n{EVIL}', QUESTION),
        ("[loop]\niterations = 1000", QUESTION),
        ("[orchestrator]\nmax_tool_iterations = 1000", QUESTION),
        ("[loop]\nresult_chars = 10000000", ["call", "echo", "message=1"]),
    ],
)
def test_T78_a_cloned_project_picks_no_model_and_no_costs_without_trust(
    stage: Stage, text: str, words: list[str]
) -> None:
    stage.environ["TOOLWIRE_TRUST"] = ""
    with scripted("It says hello.") as model:
        stage.settings(text.replace("URL", model.url))
        told = stage.run(*words, OPENAI_COMPATIBLE_API_KEY="mine")
        assert (told.code, f"toolwire trust {stage.folder}" in told.err) == (Exit.USAGE, True)
        assert model.requests == []


def test_T78_control_what_is_trusted_is_asked(stage: Stage, tmp_path: Path) -> None:
    with scripted("It says hello.") as model:
        stage.settings(_profile(model))
        stage.environ["TOOLWIRE_TRUST"] = ""
        assert stage.run("trust", str(tmp_path)).code == Exit.DONE
        assert stage.run("ask", "What is in README?").out == "It says hello.\n"
        assert len(model.requests) == 1


def test_T78_a_model_that_the_user_names_needs_no_trust(stage: Stage) -> None:
    stage.settings('model = "openrouter:evil/model"')
    with scripted("It says hello.") as model:
        ran = stage.run("ask", "What is in README?", *model.flags, TOOLWIRE_TRUST="")
        assert (ran.code, ran.out) == (Exit.DONE, "It says hello.\n")


def _profile(model: Script) -> str:
    return (
        'profile = "mine"\n[profiles.mine]\nprovider = "openai-compatible"\nmodel = "scripted"\n'
        f'url = "{model.url}"\n[loop]\niterations = 20\nresult_chars = 100000\n'
    )


ANOTHER_USER = 60_017
FOREIGN = '[grant]\nrules = ["deny echo"]\n[store]\nhome = "theirs"\n[loop]\niterations = 1'


@pytest.fixture
def shared(stage: Stage) -> Stage:
    """A project of this user in a folder in which another user has laid a settings file, as in /tmp."""
    stage.environ |= {"HOME": str(stage.folder / "home"), "TOOLWIRE_TRUST": ""}
    stage.settings(FOREIGN)
    os.chown(stage.folder / "toolwire.toml", ANOTHER_USER, ANOTHER_USER)
    own = replace(stage, folder=stage.folder / "mine")
    own.folder.mkdir()
    return own


@pytest.mark.parametrize("words", [["call", "echo", "message=hello"], ["status"], ["tools"], ["doctor"]])
def test_T114_a_file_of_another_user_above_a_project_is_not_read(shared: Stage, words: list[str]) -> None:
    above = shared.folder.parent
    (above / "toolwire.toml").write_text("this is [not TOML", encoding="utf-8")

    ran = shared.run(*words)

    assert ran.code == Exit.DONE, ran.err
    assert ran.err.count(f"{above}/toolwire.toml belongs to another user and was not read; ") == 1
    assert f"set TOOLWIRE_TRUST={above}\n" in ran.err


def test_T114_it_decides_neither_what_is_denied_nor_where_the_record_lies(shared: Stage) -> None:
    assert shared.run("call", "echo", "message=hello").out == HELLO
    assert (shared.folder / ".toolwire").is_dir()
    assert not (shared.folder.parent / "theirs").exists()
    assert not (shared.folder.parent / ".toolwire").exists()


@pytest.mark.parametrize("mine", ["file", "link"])
def test_T114_a_link_counts_only_where_it_and_its_file_are_the_users_own(shared: Stage, mine: str) -> None:
    above = shared.folder.parent
    (above / "toolwire.toml").rename(above / "other.toml")
    (above / "toolwire.toml").symlink_to("other.toml")
    os.chown(above / ("other.toml" if mine == "file" else "toolwire.toml"), os.geteuid(), -1, follow_symlinks=False)
    os.chown(above / ("toolwire.toml" if mine == "file" else "other.toml"), ANOTHER_USER, -1, follow_symlinks=False)
    assert shared.run("call", "echo", "message=hello").out == HELLO


def test_T114_control_a_file_of_ones_own_counts_and_so_does_one_whose_folder_is_named(shared: Stage) -> None:
    above = shared.folder.parent
    named = shared.run("call", "echo", "message=hello", TOOLWIRE_TRUST=str(above))
    assert (named.code, "deny echo" in named.err) == (Exit.FAILED, True)
    os.chown(above / "toolwire.toml", os.geteuid(), -1)
    own = shared.run("call", "echo", "message=hello")
    assert (own.code, "deny echo" in own.err) == (Exit.FAILED, True)
    assert "another user" not in own.err


def test_T114_a_file_of_another_user_cannot_be_trusted_by_command(shared: Stage) -> None:
    told = shared.run("trust", str(shared.folder.parent))
    assert (told.code, "there is no toolwire.toml of yours" in told.err) == (Exit.USAGE, True)
