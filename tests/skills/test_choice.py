"""Which tools of skills are offered, and why others are not."""

from pathlib import Path

import pytest

from tests.skills.making import GREET, all_trusted, always, greeter, never, one_tool, program, write
from toolwire.errors import DefinitionError
from toolwire.record.memory import MemoryStore
from toolwire.toolbox import standard
from toolwire.toolbox.registry import BUILT_IN, DESKTOP, ToolDependencies, tools_of
from toolwire.toolbox.skills.catalog import scan
from toolwire.toolbox.skills.choice import choose
from toolwire.toolbox.skills.watch import SkillsFolder


def offered(skills: Path, *pins: str) -> list[tuple[str, str]]:
    return [(entry.tool.name, entry.tool.version) for _, entry in choose(all_trusted(skills), (), pins).entries]


def withheld(skills: Path, *pins: str) -> dict[str, str]:
    return {each.tool.version: each.reason for each in choose(all_trusted(skills), (), pins).withheld}


@pytest.mark.feature("F060")
def test_a_built_in_tool_wins_by_name(skills: Path) -> None:
    one_tool(skills / "mine", "true", name="read")

    chosen = choose(all_trusted(skills), taken=["read"])

    assert chosen.entries == ()
    assert [(each.tool.name, each.reason) for each in chosen.withheld] == [("read", "a built-in tool has this name")]


@pytest.mark.threat("T54")
@pytest.mark.parametrize("name", ["bash", "WRITE", "json-transform"])
def test_T54_no_skill_takes_the_name_of_a_built_in_tool_that_is_not_offered(skills: Path, name: str) -> None:
    """A rule or a grant that says `bash` means ours."""
    one_tool(skills / "mine", "true", name=name)

    chosen = choose(all_trusted(skills))

    assert (chosen.entries, [each.reason for each in chosen.withheld]) == ((), ["a built-in tool has this name"])


def test_the_names_of_built_in_tools_are_known() -> None:
    offered = {tool.name for tool in (*tools_of(["all"], ToolDependencies(store=MemoryStore())), *standard())}
    assert offered | {*DESKTOP} == BUILT_IN


@pytest.mark.threat("T54")
def test_a_skill_that_is_not_trusted_is_not_offered(skills: Path) -> None:
    greeter(skills / "greeter")

    chosen = choose(scan(skills, never))

    assert chosen.entries == ()
    [told] = chosen.withheld
    assert told.reason == f"not trusted; look at it, then: toolwire trust {skills / 'greeter'}"


@pytest.mark.contrast("T54")
@pytest.mark.feature("F066")
def test_of_two_versions_the_newest_is_used_unless_another_is_pinned(skills: Path) -> None:
    greeter(skills / "greeter-old" / "", "1.2")
    for folder in ("old", "new"):
        version = {"old": "1.9", "new": "1.10"}[folder]
        greeter(skills / folder, version)
        toml = skills / folder / "skill.toml"
        toml.write_text(f'name = "greeter"\n{toml.read_text()}')
    toml = skills / "greeter-old" / "skill.toml"
    toml.write_text(f'name = "greeter"\n{toml.read_text()}')

    assert offered(skills) == [("greet", "1.10")]
    assert offered(skills, "greet@1.9") == [("greet", "1.9")]
    assert withheld(skills, "greet@1.9")["1.10"] == "version 1.9 is used; tools.versions can pin greet@1.10"
    assert offered(skills, "greet@1.9", "greet@1.10") == [("greet", "1.9"), ("greet@1.10", "1.10")]


@pytest.mark.parametrize(
    ("pin", "says"),
    [
        ("greet@7", "the versions there are: 1"),
        ("grete@1", "no skill has a tool 'grete'"),
        ("greet", "pins no version"),
    ],
)
def test_a_pin_that_means_nothing_is_refused(skills: Path, pin: str, says: str) -> None:
    greeter(skills / "greeter")
    with pytest.raises(DefinitionError, match=says):
        offered(skills, pin)


@pytest.mark.threat("T54")
def test_two_skills_with_a_tool_of_one_name_do_not_shadow_each_other_silently(skills: Path) -> None:
    """T54: which one is offered does not depend on versions, and the other says why it is not."""
    greeter(skills / "a", "1")
    greeter(skills / "b", "99")

    assert offered(skills) == [("greet", "1")]
    assert withheld(skills) == {"99": "the skill a has a tool of this name"}


def test_an_untrusted_skill_takes_no_name_from_a_trusted_one(skills: Path) -> None:
    greeter(skills / "a", "1")
    greeter(skills / "b", "2")
    only_b = scan(skills, lambda file, _digest: file.parent.name == "b")
    assert [entry.tool.version for _, entry in choose(only_b).entries] == ["2"]


def test_a_watched_folder_shows_each_change_the_next_time_it_is_asked(skills: Path) -> None:
    greeter(skills / "greeter")
    trusted = {"digest": ""}
    watched = SkillsFolder(skills, lambda _file, digest: digest == trusted["digest"])
    [found] = watched.now().found
    assert not found.trusted

    trusted["digest"] = found.folder.digest
    assert [each.trusted for each in watched.now().found] == [True]

    program(skills / "greeter" / "bin" / "greet", GREET.replace("Hello", "Hallo"))
    assert [each.trusted for each in watched.now().found] == [False]

    greeter(skills / "second")
    assert [each.skill.name for each in watched.now().found] == ["greeter", "second"]


def test_a_folder_in_which_nothing_changed_is_not_read_again(skills: Path) -> None:
    greeter(skills / "greeter")
    watched = SkillsFolder(skills, always)
    [before], [after] = watched.now().found, watched.now().found
    assert before.folder is after.folder


def test_a_watched_folder_may_come_and_go(tmp_path: Path) -> None:
    watched = SkillsFolder(tmp_path / "skills", always)
    assert watched.now().found == ()
    write(tmp_path / "skills" / "a" / "SKILL.md", "---\ndescription: Something.\n---\nDo it.")
    assert [page.skill.name for page in watched.now().pages] == ["a"]
