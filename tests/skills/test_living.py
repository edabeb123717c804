"""Skills come, change and go while an agent lives, and copies that nobody needs go too."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.skills.making import GREET, always, greeter, program, write
from toolwire import Agent, tool
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.skill_folders import UNUSED_S, SkillCopies
from toolwire.protocol.tools import Grant, Tier
from toolwire.testing import Line, ScriptedModel, call
from toolwire.toolbox.skills.active import ActiveSkills
from toolwire.toolbox.skills.catalog import Trusted
from toolwire.toolbox.skills.watch import SkillsFolder

PAGE = "---\ndescription: How to brew.\n---\nBoil the water first.\n"


@tool
def kettle() -> str:
    """Boil water."""
    return "boiled"


@pytest.fixture
def living(skills: Path, shelf: SkillCopies) -> Callable[..., ActiveSkills]:
    def made(trusted: Trusted = always) -> ActiveSkills:
        return ActiveSkills(SkillsFolder(skills, trusted), local_sandbox, shelf=shelf)

    return made


def agent_with(living: ActiveSkills, *lines: Line) -> Agent:
    return Agent(ScriptedModel(*lines), [kettle], news=living.news, grant=Grant(Tier.RUN, confirmed=frozenset({"*"})))


async def test_an_agent_has_skills_that_came_after_it_was_made(
    skills: Path, living: Callable[..., ActiveSkills]
) -> None:
    agent = agent_with(living(), "Nothing to do.", call("greet", name="Ada"), "Done.")
    await agent.ask("Anything?")
    assert list(agent.toolbox.names) == ["kettle"]
    greeter(skills / "greeter")
    answer = await agent.ask("Greet Ada.")
    assert "Hello, Ada!" in str(answer.turn.messages)
    assert list(agent.toolbox.names) == ["kettle", "greet"]


async def test_a_changed_skill_is_gone_until_it_is_trusted_again(
    skills: Path, living: Callable[..., ActiveSkills]
) -> None:
    greeter(skills / "greeter")
    trusted: set[str] = set()
    watched = living(lambda _file, digest: digest in trusted)
    trusted.add(watched.now().found[0].folder.digest)
    agent = agent_with(watched)
    assert (await agent.call("greet", {"name": "Ada"})).ok
    program(skills / "greeter" / "bin" / "greet", GREET.replace("Hello", "Hallo"))
    assert (await agent.call("greet", {"name": "Ada"})).error is not None
    trusted.add(watched.now().found[0].folder.digest)
    assert "Hallo" in (await agent.call("greet", {"name": "Ada"})).text


async def test_instructions_are_read_as_they_are_now(skills: Path, living: Callable[..., ActiveSkills]) -> None:
    agent = agent_with(living())
    write(skills / "brew" / "SKILL.md", PAGE)
    assert "Boil the water first." in (await agent.call("skill", {"name": "brew"})).text
    write(skills / "brew" / "SKILL.md", PAGE.replace("first", "twice"))
    assert "Boil the water twice." in (await agent.call("skill", {"name": "brew"})).text


def test_nothing_is_news_where_nothing_changed(skills: Path, living: Callable[..., ActiveSkills]) -> None:
    greeter(skills / "greeter")
    watched = living()
    toolbox = agent_with(watched).toolbox
    fresh = watched.news(toolbox)
    assert fresh is not None
    assert fresh.get("kettle") is kettle
    assert watched.news(fresh) is None


def test_a_copy_that_nobody_needs_goes_when_a_new_one_comes(skills: Path, tmp_path: Path) -> None:
    base = tmp_path / "copies"
    folders = [greeter(skills / name, version) for name, version in (("a", "1"), ("b", "2"), ("c", "3"), ("d", "4"))]
    old, pinned, used, new = ActiveSkills(SkillsFolder(skills, always), local_sandbox).now().found
    digests = [each.folder.digest for each in (old, pinned, used, new)]
    shelf = SkillCopies(base, held=[pinned.folder.digest])
    for folder, digest in zip(folders[:3], digests[:3], strict=True):
        shelf.place(folder, digest)
    long_ago = time.time() - UNUSED_S - 60
    for digest in digests[:3]:
        os.utime(base / digest, (long_ago, long_ago))
    shelf.place(used.folder.path, used.folder.digest)
    assert {path.name for path in base.iterdir()} == set(digests[:3]), "using a copy sweeps nothing"
    shelf.place(new.folder.path, new.folder.digest)
    assert {path.name for path in base.iterdir()} == set(digests[1:])
    assert shelf.place(old.folder.path, old.folder.digest) == base / digests[0], "and is made again when it is needed"
