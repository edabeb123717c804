"""The tool that runs several tools in the order of what they need from each other, as one call."""

import json
from typing import Annotated, Any

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.disclose.offer import visible_tools
from toolwire.errors import ToolFailure
from toolwire.models.workflow import workflow_limits
from toolwire.plan.workflow_reading import BadWorkflow, read_workflow
from toolwire.plan.workflows import MOST_STEPS
from toolwire.protocol.calls import Text, ToolOutput
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.agents.delegation import LONGEST_S, SubAgents
from toolwire.toolbox.agents.workers import Delegation, new_thread

_PART_OF_TIME = 0.9  # the caller must still be there to hear that time is up
_EXAMPLE = {
    "steps": [
        {"id": "dice", "tool": "random", "input": {"min": 1, "max": 6}},
        {"id": "sum", "tool": "calculator", "input": {"expression": "${dice.numbers[0]} + 5"}},
    ]
}


_OUTPUT = {
    "type": "object",
    "properties": {
        "results": {"type": "object", "description": "What each step gave, by its id."},
        "executionOrder": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The ids of the steps, in the order in which they ended.",
        },
        "errors": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "Why steps failed, by their ids.",
        },
        "skipped": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Steps that did not run: their condition, or a step before them.",
        },
    },
    "required": ["results", "executionOrder", "errors", "skipped"],
}


def workflow_tool(sub_agents: SubAgents) -> Tool:
    """Runs a workflow as a turn of its own, under what the caller may do. Made again, the call goes on with that."""

    @tool(
        name="workflow",
        tier=Tier.CRAWL,
        effect=Effect.IDEMPOTENT,
        category="session",
        timeout_s=600.0,
        max_timeout_s=LONGEST_S,
        output_schema=_OUTPUT,
        examples=(_EXAMPLE,),
    )
    async def workflow(
        context: Context,
        steps: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_STEPS)],
        parallel: Annotated[int, Field(ge=1, le=100)] = 5,
    ) -> ToolOutput:
        """Run several tools as one workflow. Steps that do not need each other run at the same time.

        Each step has an id, a tool and its input. "${step.field[0]}" in an input stands for what an earlier step gave.
        A step may have: dependencies (ids), when (a condition such as "${a.count} > 3"), forEach (a list; the input
        uses ${item} and ${index}), retry (attempts), timeout (seconds), continueOnError.

        Args:
            steps: The steps.
            parallel: How many run at the same time.
        """
        profile = sub_agents.workflow
        if profile is None:
            raise ToolFailure("no workflow can be run here", code=Code.UNAVAILABLE)
        asked = {"steps": steps, "parallel": parallel}
        try:
            usable = visible_tools(profile.make(context.grant).toolbox, context.grant)
            read = read_workflow(asked, [one.name for one in usable])
        except BadWorkflow as wrong:
            raise ToolFailure(f"nothing was run: {wrong}", code=Code.INVALID_PARAMS) from None
        question = json.dumps(asked, ensure_ascii=False)
        delegation = Delegation(
            profile, question, new_thread(context), context, limits=lambda usual: workflow_limits(read, usual)
        )
        answer = await sub_agents.run(delegation, context.timeout_s * _PART_OF_TIME)
        return _output(answer.text)

    return workflow


def _output(text: str) -> ToolOutput:
    try:
        report = json.loads(text)
    except ValueError:
        raise ToolFailure(f"the workflow did not come to its end: {text}") from None
    errors: dict[str, str] = report["errors"]
    missing = "; ".join(f"step {one!r} failed: {why}" for one, why in errors.items())
    if errors and not report["results"]:
        raise ToolFailure(missing)
    return ToolOutput((Text(text),), report, missing=missing)
