"""What a skill is: a folder with tools that are programs, or with instructions, or both."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.tools import Tool

MODULE_ENDINGS = (".py", ".js", ".mjs", ".cjs")
"""How the names of modules end that can be called in a box."""


class ArgumentPassing(StrEnum):
    """How a program gets its arguments: as one JSON object on its standard input, or as `--name=value` words."""

    JSON = "json"
    FLAGS = "flags"


class Program(Struct, frozen=True):
    """A program in the folder of a skill. `binaries` has its path for each platform; `""` stands for all others.

    It sees the workspace if it `reads` or `writes` files, the hosts of the grant if it has `network`, and nothing else.
    `engine` is a wish for a stronger sandbox. One that is a `module` exports a function `execute(input, context)`,
    which is called in its place.
    """

    binaries: Mapping[str, str]
    passing: ArgumentPassing = ArgumentPassing.JSON
    reads: bool = False
    writes: bool = False
    network: bool = False
    engine: str = ""
    module: bool = False

    def binary(self, platform: str) -> str:
        """Its path on this platform, relative to the folder; empty where it has none."""
        return self.binaries.get(platform, self.binaries.get("", ""))


class SkillExample(Struct, frozen=True):
    """A call and what it gives, with a sentence that says how to read the output."""

    explanation: str
    arguments: Mapping[str, Any]
    output: Any = None


class SkillTest(Struct, frozen=True):
    """A call whose outcome is known. Of `output` only what is given must be there; `files` is what it works on."""

    name: str
    arguments: Mapping[str, Any]
    output: Any = None
    stdout: str | None = None
    exit_code: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    writes: Mapping[str, str] = field(default_factory=dict)


class SkillTool(Struct, frozen=True):
    """One tool of a skill, as its author defined it. The tool has no target: nothing has been opened yet."""

    tool: Tool
    program: Program
    examples: tuple[SkillExample, ...] = ()
    tests: tuple[SkillTest, ...] = ()

    @property
    def metadata(self) -> dict[str, Any]:
        """What an orchestrator keeps beside the schema that models see, under the names it has there."""
        return {
            "binary": self.program.binaries.get("") or dict(self.program.binaries),
            "timeout_ms": round(self.tool.timeout_s * 1000),
            "sandbox": self.tool.sandbox,
            "permissions": sorted(self.tool.needs),
            "version": self.tool.version,
            "skill": self.tool.skill,
        }


class Skill(Struct, frozen=True):
    """A skill as it is defined. `instructions` is the text of its SKILL.md, which a model reads when it needs it."""

    name: str
    description: str = ""
    version: str = "1"
    tools: tuple[SkillTool, ...] = ()
    instructions: str = ""
