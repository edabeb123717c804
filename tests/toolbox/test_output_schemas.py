"""What each tool gives fits the schema that it declares, when it is run through the whole journey."""

import base64
from pathlib import Path
from typing import Any

import pytest

from toolwire import MemoryStore, Toolbox
from toolwire.define.schemas import compile_schema
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.tools import Grant, Tier, Tool
from toolwire.protocol.turns import Turn
from toolwire.toolbox import coding, from_store, grep_text_tool, other_names, standard

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "read": [{"path": "a.txt"}, {"path": "a.txt", "offset": 2}],
    "read_file": [{"path": "a.txt"}],
    "list": [{}, {"include_hidden": True}],
    "list_dir": [{"path": "."}],
    "glob": [{"pattern": "*"}, {"pattern": "none"}],
    "grep": [{"pattern": "o"}, {"pattern": "none"}],
    "find": [{"pattern": "a"}],
    "stat": [{"path": "a.txt"}, {"path": "."}],
    "search_code": [{"query": "two"}],
    "codesearch": [{"query": "two"}],
    "image": [
        {"path": "p.png"},
        {"path": "p.png", "action": "metadata"},
        {"path": "p.png", "action": "resize", "width": 1},
    ],
    "write": [{"path": "w.txt", "content": "x"}],
    "write_file": [{"path": "w.txt", "content": "x", "mode": "append"}],
    "edit": [{"path": "a.txt", "old_text": "one", "new_text": "1"}],
    "edit_block": [{"path": "a.txt", "old_text": "two", "new_text": "2"}],
    "apply_patch": [{"patch": "*** Begin Patch\n*** Add File: new\n+x\n*** End Patch"}],
    "todowrite": [{"task": "x"}],
    "todoread": [{}],
    "more": [{"handle": "HANDLE"}, {"handle": "HANDLE", "limit": 100}],
    "grep_text": [{"text": "a\nb", "pattern": "b"}],
    "calculator": [{"expression": "1/3"}],
    "echo": [{"message": "x"}],
    "random": [{}],
    "timer": [{"seconds": 0}],
}


def tools(store: MemoryStore) -> Toolbox:
    every: tuple[Tool, ...] = (*coding(fetch=from_store(store)), *other_names(), grep_text_tool(), *standard()[:4])
    return Toolbox(*every)


def test_every_tool_is_tried_here() -> None:
    """`question` waits for a person and is tried elsewhere."""
    assert set(tools(MemoryStore()).names) - {"question"} == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_what_a_tool_gives_fits_its_output_schema(workspace: Path, name: str) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")
    (workspace / "p.png").write_bytes(PIXEL)
    store = MemoryStore()
    handle = await store.keep(b"long " * 100)
    permissions = frozenset({"file_read", "file_write"})
    grant = Grant(Tier.RUN, permissions, (str(workspace),), confirmed=frozenset({"*"}))
    runtime = Runtime(tools(store), store)
    tool = runtime.toolbox.get(name)
    assert tool is not None
    assert tool.output_schema is not None
    schema = compile_schema({**tool.output_schema, "additionalProperties": False}, name)
    for number, given in enumerate(ARGUMENTS[name]):
        arguments = {key: handle if value == "HANDLE" else value for key, value in given.items()}
        result = await runtime.execute(ToolCall(name, arguments, id=f"c{number}"), Turn("t", grant=grant))
        assert result.ok, result.text
        schema.validate(result.structured)
