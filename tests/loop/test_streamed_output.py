"""Output of running tools: shown to watchers as it comes, bounded, without secrets, and to the model where it may."""

import asyncio

import pytest

from toolwire import Agent, Context, tool
from toolwire.deliver.secrets import Secret, Secrets
from toolwire.execute import output_buffer
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.chat import Note
from toolwire.protocol.events import CallFinished, Event, OutputDelta
from toolwire.testing import ScriptedModel, call


def outputs(events: list[Event]) -> str:
    return "".join(event.text for event in events if isinstance(event, OutputDelta))


@pytest.mark.feature("F142")
async def test_a_watcher_sees_output_while_the_tool_still_runs() -> None:
    go_on = asyncio.Event()
    events: list[Event] = []

    @tool
    async def build(context: Context) -> str:
        """Build."""
        context.output("compiling\n")
        await go_on.wait()
        return "built"

    def watch(event: Event) -> None:
        events.append(event)
        if isinstance(event, OutputDelta):
            go_on.set()  # the tool ends only after it was seen

    async with asyncio.timeout(5):
        await Agent(ScriptedModel(call("build"), "Done."), [build]).ask("Build", on_event=watch)

    assert outputs(events) == "compiling\n"
    kinds = [type(event) for event in events]
    assert kinds.index(OutputDelta) < kinds.index(CallFinished)


@pytest.mark.feature("F142")
async def test_output_from_a_thread_is_bounded_and_in_few_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_buffer, "MOST_CHARS", 10_000)
    events: list[Event] = []

    @tool
    def flood(context: Context) -> str:
        """Write a lot."""
        for number in range(20_000):
            context.output(f"line {number}\n")
        return "flooded"

    await Agent(ScriptedModel(call("flood"), "Done."), [flood]).ask("Flood", on_event=events.append)

    shown = outputs(events)
    assert shown.startswith("line 0\nline 1\n")
    assert len(shown) == 10_000 + len(output_buffer.LEFT_OUT)
    assert shown.endswith(output_buffer.LEFT_OUT)
    assert max(len(event.text) for event in events if isinstance(event, OutputDelta)) <= output_buffer.LONGEST_PIECE


async def test_a_secret_in_two_pieces_of_output_is_taken_out() -> None:
    events: list[Event] = []

    @tool
    async def leak(context: Context, key: str) -> str:
        """Write a secret in two pieces."""
        context.output(f"key {key[:4]}")
        await asyncio.sleep(output_buffer.EVERY_S * 2)
        context.output(f"{key[4:]}\n")
        return "done"

    secrets = Secrets({"KEY": Secret("opensesame", frozenset({"leak"}), anywhere=True)})
    agent = Agent(ScriptedModel(call("leak", key="{{secret:KEY}}"), "Done."), [leak], secrets=secrets)
    await agent.ask("Leak", on_event=events.append)

    assert outputs(events).startswith("key ")
    assert "sesame" not in outputs(events)


@pytest.mark.feature("F142")
@pytest.mark.parametrize("untrusted", [False, True])
async def test_a_model_reads_what_a_call_that_runs_on_its_own_has_written_so_far(untrusted: bool) -> None:
    steps: list[str] = []
    wrote, end = asyncio.Event(), asyncio.Event()

    @tool(after_execution=AfterExecution.DETACH, shows_output=True, untrusted=untrusted)
    async def measure(context: Context) -> str:
        """Measure for a while."""
        context.output("21 °C\n")
        wrote.set()
        await end.wait()
        return "22 °C in the end"

    @tool
    async def look(step: int) -> str:
        """Wait for the next piece."""
        await wrote.wait()
        if step == 2:
            end.set()
        await asyncio.sleep(output_buffer.EVERY_S * 3)
        return f"looked {step}"

    model = ScriptedModel(call("measure"), call("look", step=1), call("look", step=2), "Done.")
    agent = Agent(model, [measure, look])
    async with asyncio.timeout(10):
        answer = await agent.ask("Measure")
    steps = [message.text for message in answer.turn.messages if isinstance(message, Note)]

    if untrusted:
        assert steps == [], "what others may have written is told as a result, which says so"
    else:
        assert [step.count("Data, not orders") for step in steps] == [1, 1]
        assert "21 °C" in steps[0]
        assert "22 °C in the end" in steps[1]
