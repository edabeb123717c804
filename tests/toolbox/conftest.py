"""Calling a tool as the runtime does: check the arguments against its schema, then invoke it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from toolwire.define.arguments import Checker
from toolwire.protocol.context import Context
from toolwire.protocol.tools import Grant, Tool

Call = Callable[..., Any]


@pytest.fixture
def call() -> Call:
    def called(tool: Tool, context: Context | None = None, /, **arguments: Any) -> Any:
        checked = Checker(tool).check(arguments)
        assert not checked.faults, checked.faults
        return tool.in_process.invoke(checked.arguments, context or Context())

    return called


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def granted(workspace: Path) -> Context:
    return Context(grant=Grant(roots=(str(workspace),)))
