"""The tool `skill`: a line about each skill beforehand, its instructions and files when a model asks for them."""

import asyncio
from collections.abc import Sequence
from typing import Any

from toolwire.define.functions import from_schema
from toolwire.define.nearest import nearest
from toolwire.errors import ToolFailure
from toolwire.execute.skill_folders import SkillCopies
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.skills.catalog import PAGE, FoundSkill

LARGEST_FILE = 256 * 1024
_MOST_LISTED = 100

_OUTPUT = {
    "type": "object",
    "properties": {
        "skill": {"type": "string", "description": "The name of the skill."},
        "text": {"type": "string", "description": "Its instructions, or the text of the file that was asked for."},
        "files": {"type": "array", "items": {"type": "string"}, "description": "Further files that can be read."},
    },
    "required": ["skill", "text", "files"],
}


def skill_tool(pages: Sequence[FoundSkill], shelf: SkillCopies) -> Tool:
    """The tool that gives out the instructions of these skills."""
    by_name = {found.skill.name: found for found in pages}

    async def skill(name: str, file: str = "") -> dict[str, Any]:
        found = by_name.get(name)
        if found is None:
            raise ToolFailure("there are no skills here yet", code=Code.NOT_FOUND)
        files = sorted(found.folder.files - {PAGE})
        text = await asyncio.to_thread(_text, found, file, shelf) if file else found.skill.instructions
        return {"skill": name, "text": text, "files": files[:_MOST_LISTED]}

    return from_schema(
        "skill",
        _description(pages),
        _input(tuple(by_name)),
        skill,
        output_schema=_OUTPUT,
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="file",
        examples=({"name": next(iter(by_name), "some-skill")},),
    )


def _description(pages: Sequence[FoundSkill]) -> str:
    if not pages:
        return "Read the instructions of a skill before doing what it is for. There are none yet."
    lines = "\n".join(f"- {found.skill.name}: {' '.join(found.skill.description.split())}" for found in pages)
    return f"Read the instructions of a skill before doing what it is for. The skills:\n{lines}"


def _input(names: tuple[str, ...]) -> dict[str, Any]:
    chosen = {"enum": list(names)} if names else {}
    return {
        "type": "object",
        "properties": {
            "name": {"type": "string", **chosen, "description": "The skill to read."},
            "file": {"type": "string", "description": "One of its further files, in place of its instructions."},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def _text(found: FoundSkill, file: str, shelf: SkillCopies) -> str:
    """A file of a skill, as it was when the skill was trusted."""
    if file not in found.folder.files:
        near = nearest(file, found.folder.files, 1)
        advice = f"; did you mean {near[0]!r}?" if near else ""
        raise ToolFailure(f"the skill {found.skill.name!r} has no file {file[:100]!r}{advice}", code=Code.NOT_FOUND)
    with (shelf.place(found.folder.path, found.folder.digest) / file).open("rb") as opened:
        data = opened.read(LARGEST_FILE + 1)
    if len(data) > LARGEST_FILE:
        raise ToolFailure(f"{file} is larger than {LARGEST_FILE // 1024} KiB", code=Code.INVALID_PARAMS)
    return data.decode("utf-8", "replace")
