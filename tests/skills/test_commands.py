"""Skills from the command line: found, trusted, listed, called, validated, pinned."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import Ran, Stage, Terminal, scripted
from tests.skills.making import GREET, greeter, one_tool, program, write
from toolwire.cli.entry.exits import Exit
from toolwire.errors import SettingsError
from toolwire.settings import load


@pytest.fixture
def strict(inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inside:
    """Commands in a folder that nobody has trusted, with skills in the folder `skills`."""
    monkeypatch.setenv("TOOLWIRE_TRUST", "")
    write(tmp_path / "toolwire.toml", '[tools]\nskills_path = "skills"\n')
    return inside


def why_not(ran: Ran) -> dict[str, str]:
    return {f"{row['name']}@{row['version']}": row["why_not"] for row in ran.json if row["skill"]}


@pytest.mark.feature("F056")
@pytest.mark.feature("F233")
def test_a_skill_is_offered_once_it_is_trusted_and_no_longer_when_it_changes(strict: Inside, tmp_path: Path) -> None:
    """T54, T70: what was trusted is a content, not a place."""
    folder = greeter(tmp_path / "skills" / "greeter")
    assert why_not(strict("tools", "--json")) == {
        "greet@1": f"not trusted; look at it, then: toolwire trust {folder}"
    }  # fmt: skip
    refused = strict("call", "greet", "name=Ada")
    assert refused.code == Exit.NOT_FOUND
    assert f"not trusted; look at it, then: toolwire trust {folder}" in refused.err

    told = strict("trust", str(folder))
    assert "greet 1: runs bin/greet, may use nothing but its arguments" in told.out
    assert why_not(strict("tools", "--json")) == {"greet@1": ""}
    assert strict("call", "greet", "name=Ada", "--json").json["structured"] == {"greeting": "Hello, Ada!"}

    program(folder / "bin" / "greet", GREET.replace("Hello", "Die"))
    assert "not trusted" in why_not(strict("tools", "--json"))["greet@1"]
    assert strict("call", "greet", "name=Ada").code == Exit.NOT_FOUND

    assert strict("trust", str(folder)).code == Exit.DONE
    assert strict("trust", "--forget", str(folder)).code == Exit.DONE
    assert "not trusted" in why_not(strict("tools", "--json"))["greet@1"]


TRUST = re.compile("toolwire trust .*")


def oddly_placed(folder: Path) -> Path:
    """A skill whose folder has another name than itself."""
    toml = greeter(folder) / "skill.toml"
    write(toml, f'name = "greeter"\n{toml.read_text()}')
    return folder


def test_T140_a_line_that_trusts_a_folder_runs_nothing_else_when_it_is_pasted(strict: Inside, tmp_path: Path) -> None:
    folder = oddly_placed(tmp_path / "skills" / "a; touch pasted $(id)")
    told = strict("call", "greet", "name=Ada").err, strict("tools", "validate", str(folder)).out
    for text in told:
        [line] = TRUST.findall(text)
        assert shlex.split(line) == ["toolwire", "trust", str(folder)]


def test_T140_control_the_pasted_line_trusts_the_folder(strict: Inside, tmp_path: Path) -> None:
    oddly_placed(tmp_path / "skills" / "a; touch pasted")
    [line] = TRUST.findall(strict("call", "greet", "name=Ada").err)
    assert strict(*shlex.split(line)[1:]).code == Exit.DONE
    assert strict("call", "greet", "name=Ada", "--json").json["structured"] == {"greeting": "Hello, Ada!"}


@pytest.mark.feature("F060")
def test_tools_list_says_that_a_built_in_tool_wins(inside: Inside, tmp_path: Path) -> None:
    write(tmp_path / "toolwire.toml", '[tools]\nskills_path = "skills"\n')
    one_tool(tmp_path / "skills" / "mine", "echo mine", name="echo")

    assert why_not(inside("tools", "--json")) == {"echo@1": "a built-in tool has this name"}
    assert "a built-in tool has this name" in " ".join(inside("tools").out.split())
    assert inside("call", "echo", "message=ours", "--json").json["structured"] == {"echo": "ours"}


@pytest.mark.feature("F066")
def test_a_version_is_pinned_in_settings_and_two_can_be_used_side_by_side(inside: Inside, tmp_path: Path) -> None:
    settings = tmp_path / "toolwire.toml"
    for version, word in (("1.2", "Hello"), ("2.0", "Hallo")):
        greeter(tmp_path / "skills" / f"greeter-{version}", version, GREET.replace("Hello", word))
        toml = tmp_path / "skills" / f"greeter-{version}" / "skill.toml"
        write(toml, f'name = "greeter"\n{toml.read_text()}')

    def greeting(name: str) -> str:
        return str(inside("call", name, "name=Ada", "--json").json["structured"]["greeting"])

    write(settings, '[tools]\nskills_path = "skills"\n')
    assert greeting("greet") == "Hallo, Ada!"
    write(settings, '[tools]\nskills_path = "skills"\nversions = ["greet@1.2"]\n')
    assert greeting("greet") == "Hello, Ada!"
    write(settings, '[tools]\nskills_path = "skills"\nversions = ["greet@1", "greet@2"]\n')
    assert (greeting("greet"), greeting("greet@2.0")) == ("Hello, Ada!", "Hallo, Ada!")
    write(settings, '[tools]\nskills_path = "skills"\nversions = ["greet@3"]\n')
    refused = inside("tools")
    assert (refused.code, "the versions there are: 1.2, 2.0" in refused.err) == (Exit.USAGE, True)


@pytest.mark.feature("F067")
def test_a_tool_for_another_platform_is_not_offered_here(inside: Inside, tmp_path: Path) -> None:
    write(tmp_path / "toolwire.toml", '[tools]\nskills_path = "skills"\n')
    one_tool(tmp_path / "skills" / "theirs", "true", 'platforms = ["windows"]')
    assert why_not(inside("tools", "--json")) == {"try-it@1": "runs on win32"}
    assert "runs on win32" in inside("call", "try-it").err


@pytest.mark.feature("F058")
def test_show_tells_what_is_said_beside_the_schema(inside: Inside, tmp_path: Path) -> None:
    write(tmp_path / "toolwire.toml", '[tools]\nskills_path = "skills"\n')
    one_tool(
        tmp_path / "skills" / "desk", "true", "timeout_ms = 7000", 'permissions = ["file_read"]', 'version = "2.0"'
    )

    assert inside("tools", "show", "try-it", "--json").json["metadata"] == {
        "binary": "run", "timeout_ms": 7000, "sandbox": "bubblewrap", "permissions": ["file_read"],
        "version": "2.0", "skill": "desk",
    }  # fmt: skip
    assert "run" in inside("tools", "show", "try-it").out


@pytest.mark.feature("F046")
def test_show_explains_how_to_read_the_output_of_an_example(inside: Inside, tmp_path: Path) -> None:
    write(tmp_path / "toolwire.toml", '[tools]\nskills_path = "skills"\n')
    greeter(tmp_path / "skills" / "greeter")

    shown = inside("tools", "show", "greet").out
    [explained] = inside("tools", "show", "greet", "--json").json["explained"]

    assert 'example  {"name":"Ada"} gives {"greeting":"Hello, Ada!"}\noutput.greeting is the text to show.' in shown
    assert explained["explanation"] == "output.greeting is the text to show."


def test_a_broken_skill_is_told_of_and_breaks_nothing(inside: Inside, tmp_path: Path) -> None:
    write(tmp_path / "toolwire.toml", '[tools]\nskills_path = "skills"\n')
    write(tmp_path / "skills" / "broken" / "skill.toml", "[[tools]]\nnam = 'a'\n")
    listed = inside("tools")
    assert (listed.code, "unknown key 'nam'; did you mean name?" in listed.err) == (Exit.DONE, True)
    checked = inside("tools", "validate")
    assert (checked.code, "did you mean name?" in checked.out) == (Exit.FAILED, True)


@pytest.mark.feature("F049")
@pytest.mark.feature("F050")
def test_validate_runs_the_tests_of_a_skill_and_answers_the_checklists(inside: Inside, tmp_path: Path) -> None:
    folder = greeter(tmp_path / "elsewhere")
    good = inside("tools", "validate", str(folder), "--checklist")
    assert (good.code, good.out.count("✗"), good.out.count("✓")) == (Exit.DONE, 0, 15)

    program(folder / "bin" / "greet", GREET.replace("Hello", "Hallo"))
    bad = inside("tools", "validate", str(folder), "--checklist", "--json")
    assert bad.code == Exit.FAILED
    [finding] = bad.json["greet@1"]["findings"]
    assert (finding["where"], finding["level"]) == ("tests[somebody]", "error")
    assert [each["state"] for each in bad.json["greet@1"]["validators"]].count("no") == 1


def test_validate_runs_nothing_of_a_skill_that_is_not_trusted(strict: Inside, tmp_path: Path) -> None:
    folder = greeter(tmp_path / "skills" / "greeter")
    checked = strict("tools", "validate", str(folder))
    assert "not run, since the skill is not trusted" in checked.out


@pytest.mark.feature("F254")
def test_the_instructions_of_a_skill_are_read_with_the_tool_skill(strict: Inside, tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "tidy"
    write(folder / "SKILL.md", "---\ndescription: How to tidy up.\n---\nPut it away.")
    assert strict("call", "skill", "name=tidy").code == Exit.NOT_FOUND
    assert "instructions: Put it away." in strict("trust", str(folder)).out
    assert strict("call", "skill", "name=tidy", "--json").json["structured"]["text"] == "Put it away."


@pytest.mark.feature("F233")
def test_settings_of_an_orchestrator_can_be_kept(tmp_path: Path) -> None:
    text = '[orchestrator.tools]\nskills_path = "~/skills"\nenable_sandboxing = true\nsandbox_engine = "podman"\n'
    write(tmp_path / "toolwire.toml", text)
    tools = load(tmp_path, {"HOME": "/home/ada"}).tools
    assert (tools.skills_path, tools.enable_sandboxing, tools.sandbox_engine) == ("/home/ada/skills", True, "podman")
    assert tools.engine == "podman"


@pytest.mark.feature("F233")
@pytest.mark.parametrize(
    "line", ["enable_sandboxing = false", 'sandbox_engine = "none"', 'sandbox_engine = "firejail"']
)
def test_a_project_cannot_weaken_the_sandbox_unasked(tmp_path: Path, line: str) -> None:
    write(tmp_path / "toolwire.toml", f"[tools]\n{line}\n")
    with pytest.raises(SettingsError, match="asks for what only you can allow"):
        load(tmp_path, {})
    write(tmp_path / "toolwire.toml", '[tools]\nsandbox_engine = "podman"\n')
    assert load(tmp_path, {}).tools.engine == "podman"


def test_without_sandboxing_the_operator_has_said_so(tmp_path: Path) -> None:
    assert load(tmp_path, {"TOOLWIRE_TOOLS__ENABLE_SANDBOXING": "no"}).tools.engine == "none"


def test_a_model_can_use_a_skill(stage: Stage) -> None:
    stage.settings('[tools]\nskills_path = "skills"\n')
    greeter(stage.folder / "skills" / "greeter")
    with scripted([("greet", {"name": "Ada"})], "She was greeted.") as script:
        ran = stage.run("ask", "Greet Ada", "--json", *script.flags)
    assert (ran.code, ran.json["answer"]) == (Exit.DONE, "She was greeted.")
    assert ran.json["calls"][0]["result"]["structured"] == {"greeting": "Hello, Ada!"}
    assert "greet" in [each["function"]["name"] for each in script.requests[0]["tools"]]


def test_a_skill_that_changes_during_a_chat_is_offered_no_longer_until_it_is_trusted_again(stage: Stage) -> None:
    stage.environ["TOOLWIRE_TRUST"] = ""
    stage.settings('[tools]\nskills_path = "skills"\n')
    folder = greeter(stage.folder / "skills" / "greeter")
    with scripted(*["Yes."] * 4) as script, Terminal(stage, "chat", *script.flags) as terminal:

        def offered() -> bool:
            terminal.type("Are you there?\n")
            terminal.wait_for("Yes.")
            terminal.wait_for("step")
            return "greet" in [each["function"]["name"] for each in script.requests[-1]["tools"]]

        assert not offered()
        stage.run("trust", str(folder))
        assert offered()
        program(folder / "bin" / "greet", GREET.replace("Hello", "Hallo"))
        assert not offered()
        stage.run("trust", str(folder))
        assert offered()
        terminal.type("/quit\n")
        assert terminal.end() == Exit.DONE
