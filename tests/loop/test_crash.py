"""A process dies in the middle of a call: what another one finds, and what it may do about it."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from toolwire import Agent, Code, Context, Effect, SqliteStore, tool
from toolwire.errors import Fenced
from toolwire.protocol.chat import ResultsMessage
from toolwire.testing import ScriptedModel, call

BOUND_S = 20
DOOMED = Path(__file__).with_name("doomed.py")


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


async def killed_in_the_tool(home: Path, ledger: Path, effect: str) -> str:
    """Run a turn in a real process, kill it while its second tool runs, and give back the turn's id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(DOOMED), str(home), str(ledger), effect, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        word = (await process.stdout.readline()).decode().strip()
        process.send_signal(signal.SIGKILL)
        await process.wait()
    assert word == "in the tool"
    store = await SqliteStore.at(home)
    [summary] = await store.turns()
    assert summary.state == "interrupted"
    await store.close_store()
    return summary.id


@pytest.mark.requirement("record.unknown")
@pytest.mark.requirement("record.resume")
@pytest.mark.feature("F264")
@pytest.mark.parametrize(
    ("effect", "runs", "code"),
    [
        ("pure", 2, None),
        ("idempotent", 2, None),
        ("unsafe", 1, Code.OUTCOME_UNKNOWN),
        ("transactional", 1, Code.OUTCOME_UNKNOWN),
    ],
)
async def test_a_call_that_a_dead_process_started_runs_again_only_if_its_effect_class_allows(
    tmp_path: Path, effect: str, runs: int, code: Code | None
) -> None:
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    turn_id = await killed_in_the_tool(home, ledger, effect)
    assert lines(ledger) == ["first", "second"]

    @tool
    def first() -> str:
        """Ran to its end before the crash."""
        raise AssertionError("must not run again")

    @tool(effect=Effect(effect))
    def second(context: Context) -> str:
        """Was running when the process died."""
        with ledger.open("a") as file:
            file.write("second\n")
        return f"attempt {context.attempt}"

    async with await SqliteStore.at(home) as store:
        agent = Agent(ScriptedModel("done"), [first, second], store=store)
        answer = await agent.resume(turn_id)

    messages = [message for message in answer.turn.messages if isinstance(message, ResultsMessage)]
    [before], [after] = messages[0].results, messages[1].results
    assert answer.text == "done"
    assert before.text == "first ran"
    assert lines(ledger).count("second") == runs
    assert (after.error.code if after.error else None) == code
    if code is None:
        assert after.text == "attempt 2"


@pytest.mark.requirement("record.fenced")
async def test_a_turn_that_a_living_process_runs_cannot_be_taken(tmp_path: Path) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "waited"

    async with await SqliteStore.at(tmp_path) as mine, await SqliteStore.at(tmp_path) as other:
        task = asyncio.create_task(Agent(ScriptedModel(call("wait"), "done"), [wait], store=mine).ask("go"))
        await asyncio.wait_for(began.wait(), BOUND_S)
        [summary] = await other.turns()
        with pytest.raises(Fenced):
            await Agent(ScriptedModel("stolen"), [wait], store=other).resume(summary.id)
        go_on.set()
        assert (await asyncio.wait_for(task, BOUND_S)).text == "done"


@pytest.mark.requirement("record.fenced")
async def test_a_process_that_lost_its_turn_stops_without_a_word(tmp_path: Path) -> None:
    """The epoch rose while the tool ran: the zombie's result changes nothing."""
    began, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        began.set()
        await go_on.wait()
        return "zombie"

    async with await SqliteStore.at(tmp_path) as mine, await SqliteStore.at(tmp_path) as other:
        task = asyncio.create_task(Agent(ScriptedModel(call("wait"), "done"), [wait], store=mine).ask("go"))
        await asyncio.wait_for(began.wait(), BOUND_S)
        [summary] = await other.turns()
        await mine.release((await mine.turn(summary.id)).opening)
        answer = await Agent(ScriptedModel("taken over"), [wait], store=other).resume(summary.id)
        go_on.set()
        with pytest.raises(Fenced):
            await asyncio.wait_for(task, BOUND_S)
        [card] = await other.calls(turn_id=summary.id)
    assert answer.text == "taken over"
    assert card.result is not None
    assert card.result.error is not None
    assert card.result.error.code is Code.OUTCOME_UNKNOWN
