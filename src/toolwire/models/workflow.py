"""A workflow in the place of a model: its replies are the calls of the steps that come next.

The question of its turn is the workflow as JSON, and what its steps gave is in the messages since. So a workflow is a
turn like any other: its calls are judged, recorded, leased and resumed, and no finished step runs again.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from toolwire.errors import ModelRefused
from toolwire.plan.workflow_reading import BadWorkflow, read_workflow
from toolwire.plan.workflows import CALLS_PER_ROUND, MOST_ATTEMPTS, CallOutcome, StepCall, Workflow, progress
from toolwire.protocol.calls import CallOptions, ToolCall, ToolResult
from toolwire.protocol.chat import Delta, Message, Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.tools import REPEATABLE, Tool
from toolwire.protocol.turns import WORKFLOW_MODEL, Limits

_RESULT_CHARS = 4_000_000
"""No language model reads the results, and steps need them whole."""


class WorkflowModel:
    """Answers with the calls of a workflow's next steps, and at its end with its report as JSON."""

    name = WORKFLOW_MODEL

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:  # noqa: ARG002
        """Raises ModelRefused where the question is not a workflow that can be run."""
        workflow = workflow_in(request.messages, {tool.name for tool in request.tools})
        now = progress(workflow, outcomes_in(request.messages, request.tools))
        if request.tools_off or not now.calls:
            return Reply(json.dumps(now.report(), ensure_ascii=False), model=self.name)
        if delay_s := max(call.delay_s for call in now.calls):
            await asyncio.sleep(delay_s)
        return Reply("", calls=tuple(map(_tool_call, now.calls)), finish_reason="tool_calls", model=self.name)

    async def close(self) -> None:
        """It holds nothing."""


def workflow_limits(workflow: Workflow, usual: Limits) -> Limits:
    """The limits of a turn that runs a workflow. Its steps are its own limit; time and money stay as they are."""
    rounds = workflow.most_rounds() + 1
    return replace(
        usual,
        iterations=max(rounds, usual.iterations),
        consecutive_failures=rounds,
        repeats=rounds * CALLS_PER_ROUND,
        parallel=workflow.parallel,
        calls_per_step=CALLS_PER_ROUND,
        result_chars=_RESULT_CHARS,
        envelope=False,
    )


def workflow_in(messages: Iterable[Message], tools: Iterable[str] | None = None) -> Workflow:
    """The workflow that the last question holds. Raises ModelRefused."""
    asked = [said.text for said in messages if isinstance(said, UserMessage)]
    try:
        return read_workflow(json.loads(asked[-1]), tools)
    except (IndexError, ValueError, RecursionError) as wrong:
        faults = str(wrong) if isinstance(wrong, BadWorkflow) else "it is not JSON"
        raise ModelRefused(f"the workflow cannot be run: {faults}") from None


def outcomes_in(messages: Iterable[Message], tools: Iterable[Tool]) -> Mapping[str, CallOutcome]:
    """What came of the calls since the last question, by the keys of the steps.

    A call that was interrupted has no outcome where it may be repeated: its step runs again.
    """
    repeatable = {tool.name for tool in tools if tool.effect in REPEATABLE}
    interrupted: Counter[str] = Counter()
    found: dict[str, CallOutcome] = {}
    calls: tuple[ToolCall, ...] = ()
    for said in messages:
        match said:
            case UserMessage():
                found, calls = {}, ()
            case Reply():
                calls = said.calls
            case ResultsMessage(results):
                for call, result in zip(calls, results, strict=False):
                    key = call.alias or call.name
                    if result.status is Status.CANCELED and call.name in repeatable:
                        interrupted[key] += 1
                        if interrupted[key] <= MOST_ATTEMPTS:
                            continue
                    found[key] = _outcome(result)
    return found


def _outcome(result: ToolResult) -> CallOutcome:
    if result.is_failure:
        return CallOutcome(error=(result.error.message if result.error else result.text) or "it failed")
    return CallOutcome(_plain(result.structured) if result.structured is not None else result.text)


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _tool_call(call: StepCall) -> ToolCall:
    options = None if call.timeout_s is None else CallOptions(timeout_s=call.timeout_s)
    return ToolCall(call.tool, call.arguments, alias=call.key, format="workflow", options=options)
