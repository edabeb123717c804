"""Tools of skills with their programs behind them."""

from collections.abc import Mapping
from typing import Any

from jsonschema_rs import ValidationError
from msgspec.structs import replace

from toolwire.decide.address_rules import AddressRules
from toolwire.define.faults import sentences
from toolwire.define.schemas import compile_schema
from toolwire.execute.skill_folders import SkillCopies
from toolwire.execute.skills import Faults, SkillRunner, outcome
from toolwire.protocol.calls import ToolOutput
from toolwire.protocol.context import Context
from toolwire.protocol.operations import ExecOps
from toolwire.protocol.skills import SkillTool
from toolwire.protocol.tools import InProcess, JsonObject, Tool
from toolwire.toolbox.skills.catalog import FoundSkill
from toolwire.toolbox.skills.choice import SkillChoice


def runnable_tools(chosen: SkillChoice, ops: ExecOps, shelf: SkillCopies) -> tuple[Tool, ...]:
    """The offered tools, ready to run."""
    return tuple(runnable(found, entry, ops, shelf) for found, entry in chosen.entries)


def runnable(found: FoundSkill, entry: SkillTool, ops: ExecOps, shelf: SkillCopies) -> Tool:
    """The tool with its program behind it."""
    runner = SkillRunner(ops, shelf, found.folder.path, found.folder.digest)
    faults = output_faults(entry.tool.output_schema, entry.tool.name)

    async def run(arguments: Mapping[str, Any], context: Context) -> ToolOutput:
        rules = AddressRules.of(context.grant)
        refusal = rules.refusal_unseen if rules.rules else None
        return outcome(entry.tool.name, await runner.run(entry.program, arguments, context, refusal), faults)

    async def call(**arguments: Any) -> ToolOutput:
        return await run(arguments, Context(timeout_s=entry.tool.timeout_s))

    return replace(entry.tool, target=InProcess(call, run, is_async=True))


def output_faults(schema: JsonObject | None, name: str) -> Faults | None:
    """What looks for faults in an output of a tool; None for a tool that promises nothing."""
    if schema is None:
        return None
    compiled = compile_schema(schema, f"output_schema of tool {name!r}")

    def faults(value: Any) -> tuple[str, ...]:
        try:
            compiled.validate(value)
        except ValidationError as first:  # all of them could be as many as a hostile output has items
            return sentences([first], schema)
        return ()

    return faults
