"""The page about skills shows a skill that works."""

import re
from pathlib import Path

from tests.skills.making import program, trusted, write
from toolwire.define.skill_conformance import report_skill_tool
from toolwire.define.skill_pages import skill_from_page
from toolwire.define.skills import TOOL_KEYS
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.skill_folders import SkillCopies
from toolwire.toolbox.skills.trials import SkillTrial

PAGE = (Path(__file__).parents[2] / "docs" / "skills.md").read_text(encoding="utf-8")


def shown(language: str) -> str:
    [block] = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return str(block)


async def test_the_skill_of_the_page_conforms_and_passes_its_tests(skills: Path, shelf: SkillCopies) -> None:
    write(skills / "greeter" / "skill.toml", shown("toml"))
    program(skills / "greeter" / "bin" / "greet", shown("python"))
    found = trusted(skills / "greeter")
    [entry] = found.skill.tools

    assert report_skill_tool(entry) == []
    assert await SkillTrial(found, entry, local_sandbox(), shelf).findings() == []


def test_the_instructions_of_the_page_can_be_read() -> None:
    assert skill_from_page(shown("markdown").encode(), "SKILL.md", "x").name == "tidy-commits"


def test_the_page_explains_every_key() -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE.partition("| key of a tool |")[2].partition("A program that")[0]))
    assert set(TOOL_KEYS) - {"metadata"} <= named
