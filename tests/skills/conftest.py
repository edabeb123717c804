"""A place for copies that boxes can reach, and a sandbox."""

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from tests.cli.conftest import inside, stage
from tests.skills.making import all_trusted
from toolwire.agent import Agent
from toolwire.execute.sandbox.engines import local_sandbox
from toolwire.execute.skill_folders import SkillCopies
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.tools import Grant, Tier
from toolwire.testing import ScriptedModel
from toolwire.toolbox.skills.choice import choose
from toolwire.toolbox.skills.running import runnable_tools

__all__ = ["inside", "stage"]

Call = Callable[..., Awaitable[ToolResult]]


@pytest.fixture
def shelf() -> Iterator[SkillCopies]:
    base = Path(tempfile.mkdtemp(dir="/opt" if os.geteuid() == 0 else Path.home()))
    base.chmod(0o755)
    yield SkillCopies(base)
    rmtree(base)


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """An empty folder for skills."""
    folder = tmp_path / "skills"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def call(shelf: SkillCopies, skills: Path, workspace: Path) -> Call:
    """Take one call to a tool of the (trusted) skills through its whole journey, in the real sandbox."""

    async def called(name: str, arguments: dict[str, Any] | None = None, **grant: Any) -> ToolResult:
        tools = runnable_tools(choose(all_trusted(skills)), local_sandbox(), shelf)
        everything = frozenset(need for tool in tools for need in tool.needs)
        granted = Grant(Tier.RUN, everything, (str(workspace),), confirmed=frozenset({"*"}), **grant)
        agent = Agent(ScriptedModel([]), tools, grant=granted)
        return await agent.call(name, arguments or {})

    return called
