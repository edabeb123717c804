"""The public surface is pinned: growing it is a choice."""

import subprocess
import sys

import pytest

import toolwire

NAMES = """
Agent Answer Approval Code Context Delivery Effect Grant Image Limits MemoryStore Problem Reply Resource Runtime
SqliteStore Status StreamParser Text Tier Tool ToolCall ToolFailure ToolResult Toolbox ToolwireError Turn Usage
__version__ open_model parse_reply run_sync tool
""".split()


@pytest.mark.feature("F268")
def test_the_public_names_are_these() -> None:
    assert sorted(toolwire.__all__) == sorted(NAMES)


def test_every_public_name_resolves() -> None:
    for name in NAMES:
        assert getattr(toolwire, name) is not None


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = "{'pydantic', 'httpx2', 'jsonschema_rs', 'rich', 'typer', 'asyncio', 'sqlite3'}"
    program = f"import sys, toolwire; print(sorted({heavy} & set(sys.modules)))"
    seen = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert seen.stdout.strip() == "[]"
