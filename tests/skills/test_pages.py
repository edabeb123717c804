"""The tool `skill`: what a model knows beforehand, and what it gets when it asks."""

from pathlib import Path

import pytest

from tests.skills.making import all_trusted, never, write
from toolwire.agent import Agent
from toolwire.execute.skill_folders import SkillCopies
from toolwire.protocol.outcomes import Code
from toolwire.testing import ScriptedModel
from toolwire.toolbox.skills.catalog import scan
from toolwire.toolbox.skills.pages import skill_tool


@pytest.fixture
def agent(skills: Path, shelf: SkillCopies) -> Agent:
    write(skills / "tidy" / "SKILL.md", "---\ndescription: How to\n  tidy up.\n---\nFirst read [more](ref/more.md).")
    write(skills / "tidy" / "ref" / "more.md", "Then put it away.")
    write(skills / "other" / "SKILL.md", "---\ndescription: Something else.\n---\nDo it.")
    return Agent(ScriptedModel([]), [skill_tool(all_trusted(skills).pages, shelf)])


@pytest.mark.feature("F254")
async def test_a_line_about_each_skill_is_known_and_its_instructions_come_when_asked_for(agent: Agent) -> None:
    [tool] = agent.toolbox
    assert tool.description.endswith("- other: Something else.\n- tidy: How to tidy up.")
    assert "First read" not in tool.description

    result = await agent.call("skill", {"name": "tidy"})

    assert result.structured == {
        "skill": "tidy", "text": "First read [more](ref/more.md).", "files": ["ref/more.md"],
    }  # fmt: skip


async def test_further_files_of_a_skill_can_be_read_and_nothing_else(agent: Agent) -> None:
    assert (await agent.call("skill", {"name": "tidy", "file": "ref/more.md"})).structured[
        "text"
    ] == "Then put it away."
    for file in ("../other/SKILL.md", "/etc/passwd", "ref/mor.md", "ref"):
        error = (await agent.call("skill", {"name": "tidy", "file": file})).error
        assert (error and error.code) == Code.NOT_FOUND


async def test_a_skill_that_does_not_exist_is_answered_with_those_that_do(agent: Agent) -> None:
    result = await agent.call("skill", {"name": "tydi"})
    assert not result.ok
    assert "tidy" in result.text


def test_instructions_of_a_skill_that_is_not_trusted_are_not_given_out(skills: Path, agent: Agent) -> None:
    assert len(agent.toolbox) == 1
    assert scan(skills, never).pages == ()
