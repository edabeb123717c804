"""Every built-in tool needs the permissions that its effects are named by, and nothing runs without them."""

import pytest

from toolwire import Grant, Tier, Toolbox, ToolCall
from toolwire.decide.ladder import Case, decide
from toolwire.disclose.offer import visible_tools
from toolwire.protocol.calls import Denied
from toolwire.protocol.tools import Tool
from toolwire.toolbox.registry import GROUPS, ToolDependencies, tools_of

PERMISSIONS = frozenset({"file_read", "file_write", "shell", "network", "git", "session", "device", "records"})
TOOLS = tools_of(GROUPS, ToolDependencies())
EVERYTHING = Grant(tier=Tier.RUN, permissions=PERMISSIONS)
EXPECTED = {
    *(("read", "file_read"), ("grep", "file_read"), ("write", "file_write"), ("apply_patch", "file_write")),
    *(("bash", "shell"), ("job_start", "shell"), ("git_commit", "git"), ("webfetch", "network")),
    *(("breadcrumb-create", "records"), ("breadcrumb-search", "records")),
    *(("gpio_write", "device"), ("camera_capture", "device"), ("safe_exec", "shell"), ("ping", "network")),
}


@pytest.mark.feature("F117")
@pytest.mark.parametrize(("name", "permission"), sorted(EXPECTED))
def test_a_tool_needs_the_permission_that_its_effect_is_named_by(name: str, permission: str) -> None:
    needs = {tool.name: tool.needs for tool in TOOLS}
    assert permission in needs[name]
    assert needs[name] <= PERMISSIONS


@pytest.mark.feature("F116", "F117")
@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.needs], ids=lambda tool: tool.name)
def test_without_a_permission_a_tool_is_neither_offered_nor_run(tool: Tool) -> None:
    assert tool in visible_tools(TOOLS, EVERYTHING)
    for missing in tool.needs:
        grant = Grant(tier=Tier.RUN, permissions=PERMISSIONS - {missing}, confirmed=frozenset({"*"}))
        assert tool not in visible_tools(TOOLS, grant)
        decision = decide(Case(ToolCall(tool.name, {}, id="c"), Toolbox.of(*TOOLS), grant))
        assert isinstance(decision, Denied)
        assert (decision.rule, missing in decision.message) == ("permissions", True)
