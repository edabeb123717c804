"""Who owns a turn: an owner that is stopped, forked or killed, and what the next one may take for not begun."""

import asyncio
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from toolwire import Agent, Answer, Code, Effect, SqliteStore, tool
from toolwire.errors import Fenced
from toolwire.protocol.calls import ToolResult
from toolwire.protocol.chat import ResultsMessage
from toolwire.protocol.events import CallStarted, Event
from toolwire.protocol.tools import Tool
from toolwire.record.contract import Store
from toolwire.record.liveness import LEASE_S
from toolwire.testing import ScriptedModel, call

BOUND_S = 30
OWNER = Path(__file__).with_name("owner.py")


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


def later() -> float:
    """What the monotonic clock says when a lease that is renewed no more has run out."""
    return time.monotonic() + LEASE_S + 1


def launching(ledger: Path) -> Tool:
    @tool(effect=Effect.UNSAFE)
    def launch(what: str) -> str:
        """Launch."""
        with ledger.open("a") as file:
            file.write(f"{what}\n")
        return f"launched {what}"

    return launch


@asynccontextmanager
async def owner(home: Path, ledger: Path, way: str, *url: str) -> AsyncIterator[Process]:
    """A process that owns a turn and has come to where it was sent."""
    words = [sys.executable, str(OWNER), str(home), str(ledger), way, *url]
    process = await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(BOUND_S):
        assert await process.stdout.readline() in (b"in the tool\n", b"before the tool\n")
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
            assert process.stdin is not None
            process.stdin.close()
            await process.stdout.read()  # until all who share it have ended
            await process.wait()


def results_of(answer: Answer) -> list[ToolResult]:
    return [one for said in answer.turn.messages if isinstance(said, ResultsMessage) for one in said.results]


async def test_A8_a_stopped_owner_loses_its_turn_and_is_fenced_when_it_wakes(tmp_path: Path) -> None:
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    async with owner(home, ledger, "in_tool") as process:
        process.send_signal(signal.SIGSTOP)
        async with await SqliteStore.at(home) as store:
            [turn] = await store.turns()
            with pytest.raises(Fenced, match="living process"):
                await store.resume(turn.id)
        async with await SqliteStore.at(home, monotonic=later) as store:
            assert [turn.id for turn in await store.turns(state="interrupted")] == [turn.id]
            answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
            process.send_signal(signal.SIGCONT)
            out, _ = await process.communicate(b"go on\n")
            [card] = await store.calls(turn_id=turn.id)
    [result] = results_of(answer)
    assert (result.error and result.error.code, out) == (Code.OUTCOME_UNKNOWN, b"fenced\n")
    assert (card.result, lines(ledger)) == (result, ["one"])


async def test_A8_a_child_that_a_tool_forked_keeps_no_turn_of_a_dead_owner(tmp_path: Path) -> None:
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    async with owner(home, ledger, "forks") as process:
        process.kill()
        await process.wait()
        async with await SqliteStore.at(home) as store:
            [turn] = await store.turns(state="interrupted")
            answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
    assert (answer.text, lines(ledger)) == ("done", ["one"])


@pytest.mark.parametrize(("way", "launched"), [("before", ["one"]), ("before_both", ["one", "two"])])
async def test_A8_a_call_that_had_provably_not_begun_is_run(tmp_path: Path, way: str, launched: list[str]) -> None:
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    async with owner(home, ledger, way) as process:
        await process.wait()
    async with await SqliteStore.at(home) as store:
        [turn] = await store.turns(state="interrupted")
        answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
    assert [result.text for result in results_of(answer)] == [f"launched {what}" for what in launched]
    assert sorted(lines(ledger)) == launched
    async with await SqliteStore.at(home):
        assert len(list((home / "owners").iterdir())) == 1


async def test_A8_a_single_call_that_had_provably_not_begun_is_run(tmp_path: Path) -> None:
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    async with owner(home, ledger, "call") as process:
        await process.wait()
    async with await SqliteStore.at(home) as store:
        [turn] = await store.turns(state="interrupted")
        result = await Agent(ScriptedModel(), [launching(ledger)], store=store).resume_call(turn.id)
    assert (result.text, lines(ledger)) == ("launched one", ["one"])


async def test_A8_a_call_that_had_begun_stays_so_through_all_who_take_its_turn_over(tmp_path: Path) -> None:
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    async with owner(home, ledger, "in_tool") as process:
        process.kill()
    for _ in range(2):
        async with owner(home, ledger, "takes") as process:
            await process.wait()
    async with await SqliteStore.at(home) as store:
        [turn] = await store.turns(state="interrupted")
        answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
    [result] = results_of(answer)
    assert (result.error and result.error.code, lines(ledger)) == (Code.OUTCOME_UNKNOWN, ["one"])


def lost(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    os.truncate(path, 128)


def of_another_start(path: Path) -> None:
    """What the machine said before it was started again; a power cut may have lost the notes."""
    with path.open("r+b") as file:
        file.write(b"0" * 36)


@pytest.mark.parametrize("harm", [lost, cut, of_another_start])
async def test_A8_control_without_trustworthy_notes_the_outcome_is_unknown(
    tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    async with owner(home, ledger, "before") as process:
        await process.wait()
    [notes] = (home / "owners").iterdir()
    harm(notes)
    async with await SqliteStore.at(home) as store:
        [turn] = await store.turns(state="interrupted")
        answer = await Agent(ScriptedModel("done"), [launching(ledger)], store=store).resume(turn.id)
    [result] = results_of(answer)
    assert (result.error and result.error.code, lines(ledger)) == (Code.OUTCOME_UNKNOWN, [])


async def test_A8_a_turn_that_is_left_before_its_call_began_runs_it_when_it_goes_on(
    store: Store, tmp_path: Path
) -> None:
    def leave(event: Event) -> None:
        if isinstance(event, CallStarted):
            raise RuntimeError("the watcher is broken")

    ledger = tmp_path / "ledger"
    agent = Agent(ScriptedModel(call("launch", what="one"), "done"), [launching(ledger)], store=store)
    with pytest.raises(RuntimeError):
        await agent.ask("go", on_event=leave)
    [turn] = await store.turns(state="interrupted")
    answer = await agent.resume(turn.id)
    assert ([result.text for result in results_of(answer)], lines(ledger)) == (["launched one"], ["one"])


@pytest.mark.parametrize("taken", [False, True])
async def test_A8_a_process_that_slept_through_its_lease_asks_before_it_begins_a_call(
    tmp_path: Path, taken: bool
) -> None:
    """It was stopped between writing a call down and beginning it, so another may have taken the turn over."""
    home, ledger = tmp_path / "home", tmp_path / "ledger"
    asleep_s = 0.0

    def clock() -> float:
        return time.monotonic() + asleep_s

    async def take_over() -> None:
        async with await SqliteStore.at(home, monotonic=clock) as other:
            [turn] = await other.turns()
            await other.resume(turn.id)

    async with await SqliteStore.at(home, monotonic=clock) as mine:
        agent = Agent(ScriptedModel(call("launch", what="one"), "done"), [launching(ledger)], store=mine)
        loop, gone_on = asyncio.get_running_loop(), asyncio.Event()

        def sleep(event: Event) -> None:
            nonlocal asleep_s
            if isinstance(event, CallStarted):
                asleep_s = LEASE_S + 1
                if taken:
                    with ThreadPoolExecutor(1) as thread:
                        thread.submit(asyncio.run, take_over()).result()
                loop.call_soon(gone_on.set)

        task = asyncio.create_task(agent.ask("go", on_event=sleep))
        await asyncio.wait_for(gone_on.wait(), BOUND_S)
        await asyncio.wait((task,), timeout=BOUND_S)
        if taken:
            assert isinstance(task.exception(), Fenced)
        else:
            assert task.result().text == "done"  # nobody has taken it over, so it went on
    assert lines(ledger) == ([] if taken else ["one"])
