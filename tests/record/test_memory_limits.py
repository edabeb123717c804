"""The memory store keeps the newest of what has ended, and everything that is still needed."""

import gc
import tracemalloc

import pytest
from msgspec.structs import replace

from tests.record.samples import a_call, a_card, a_turn, success
from toolwire import Agent, Grant, MemoryStore, tool
from toolwire.errors import NotFound, Suspended
from toolwire.protocol.approvals import Approval, Scope
from toolwire.protocol.budgets import Budget
from toolwire.protocol.chat import Reply, UserMessage
from toolwire.protocol.tools import Tier
from toolwire.protocol.turns import Ending, EndReason, Limits
from toolwire.record.contract import TurnStats
from toolwire.testing import FrozenClock, ScriptedModel, call


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers.

    Args:
        a: The first.
        b: The second.
    """
    return a + b


@tool
def page(letter: str) -> str:
    """A long page.

    Args:
        letter: What it is full of.
    """
    return letter * 50_000


@tool(requires_confirmation=True)
def send(text: str) -> str:
    """Send a text.

    Args:
        text: The text.
    """
    return f"sent {text}"


def an_agent(store: MemoryStore, *script: object, **more: object) -> Agent:
    return Agent(ScriptedModel(*script), [add, page, send], store=store, **more)  # type: ignore[arg-type]


async def test_an_agent_without_a_store_does_not_grow_with_its_calls() -> None:
    """We chose it: 10,000 calls and 64 MiB stay. What is traced begins after the limit was reached."""
    store = MemoryStore(max_calls=200)
    agent = an_agent(store)
    for number in range(400):
        await agent.call("add", {"a": number, "b": 1})
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(2_000):
            await agent.call("add", {"a": number, "b": 2})
        gc.collect()
        grown, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert grown < 1_500_000  # 200 calls and their 800 rows were replaced; 2,000 are some four million bytes
    assert len(await agent.store.calls(limit=10_000)) == 200
    assert len(await agent.store.turns(limit=10_000)) == 200
    assert len(await agent.store.audit_log(limit=10_000)) == 800
    await agent.close()


async def test_metrics_and_budgets_count_calls_that_were_dropped() -> None:
    clock = FrozenClock(1_700_000_000.0)
    store = MemoryStore(max_calls=3, clock=clock)
    agent = an_agent(store, budget=Budget(calls=1_000))
    agent.runtime.clock = agent.runtime.monotonic = clock
    for number in range(50):
        assert (await agent.call("add", {"a": number, "b": 1})).ok

    [metrics], loop = await agent.store.metrics()

    assert (metrics.calls, metrics.success, loop.turns) == (50, 50, 50)
    assert (await agent.store.spent("agent", clock())).calls == 50


async def test_long_results_are_dropped_by_their_bytes_and_their_bodies_with_them() -> None:
    agent = an_agent(MemoryStore(max_bytes=200_000), limits=Limits(result_chars=1_000))
    results = [await agent.call("page", {"letter": chr(ord("a") + number)}) for number in range(10)]
    handles = [result.handle or "" for result in results]

    assert (await agent.store.fetch(handles[-1], length=3)) == b"jjj"
    with pytest.raises(NotFound):
        await agent.store.fetch(handles[0])
    assert 1 <= len(await agent.store.turns()) <= 4


async def test_one_result_above_the_limit_is_kept_until_the_next() -> None:
    agent = an_agent(MemoryStore(max_bytes=1_000), limits=Limits(result_chars=1_000))

    result = await agent.call("page", {"letter": "x"})

    assert len(await agent.store.fetch(result.handle or "")) == 50_000


async def test_a_thread_keeps_its_conversation_whatever_runs_beside_it() -> None:
    agent = an_agent(
        MemoryStore(max_calls=2), call("add", a=1, b=2), "It is 3.", "You asked for a sum.", limits=Limits()
    )
    await agent.ask("What is 1 + 2?", thread="chat")
    for number in range(20):
        await agent.call("add", {"a": number, "b": 1})

    await agent.ask("What did I ask?", thread="chat")

    model = agent.model
    assert isinstance(model, ScriptedModel)
    said = [type(message).__name__ for message in model.requests[-1].messages]
    assert said == ["UserMessage", "Reply", "ResultsMessage", "Reply", "UserMessage"]
    assert model.requests[-1].messages[0] == UserMessage("What is 1 + 2?")


async def test_a_body_that_a_thread_names_can_be_read_whatever_runs_beside_it() -> None:
    agent = an_agent(MemoryStore(max_calls=1), call("page", letter="q"), "Long.", limits=Limits(result_chars=500))
    await agent.ask("Read it.", thread="chat")
    [card] = await agent.store.calls()
    await agent.call("add", {"a": 1, "b": 1})
    await agent.call("add", {"a": 1, "b": 2})

    assert card.result is not None
    assert len(await agent.store.fetch(card.result.handle or "")) == 50_000


async def test_threads_spoken_in_least_recently_go_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    agent = an_agent(MemoryStore(max_bytes=30_000), *("x" * 10_000 for _ in range(6)))
    for name in ("a", "b", "c", "d"):
        await agent.ask("Speak.", thread=name)

    assert await agent.store.thread("a") == ()
    assert len(await agent.store.thread("d")) == 2
    assert "dropped" in caplog.text
    assert "SqliteStore" in caplog.text


async def test_open_turns_are_never_dropped() -> None:
    store = MemoryStore(max_calls=1, max_bytes=1)
    turn = a_turn("open")
    await store.begin(turn)
    await store.append_reply(turn, Reply(calls=(a_call("first"),)), [a_card(a_call("first"), turn)], [])
    await store.close(a_card(a_call("first"), turn), success(a_call("first")), [])
    for number in range(5):
        other = a_turn(f"turn-{number}")
        await store.begin(other)
        await store.end(replace(other, ending=Ending(EndReason.ANSWERED, "yes")), TurnStats())

    assert len((await store.turn("open")).events) == 2
    assert [card.call.id for card in await store.calls(turn_id="open")] == ["first"]
    assert [one.id for one in await store.turns(limit=9)] == ["turn-4", "open"]


async def test_a_pending_approval_is_never_dropped_and_its_call_runs_after_the_answer() -> None:
    store = MemoryStore(max_calls=1, max_bytes=1)
    grant = Grant(tier=Tier.RUN, permissions=frozenset({"write"}))
    agent = an_agent(store, call("send", text="hi"), "Sent.", grant=grant, suspends=True)
    with pytest.raises(Suspended) as stopped:
        await agent.ask("Send hi.")
    for number in range(5):
        await agent.call("add", {"a": number, "b": 1})

    await agent.store.answer(stopped.value.approvals[0], Approval(True, by="ann"))
    answer = await agent.resume(stopped.value.turn_id)

    assert answer.text == "Sent."


async def test_an_approval_of_a_pattern_counts_after_its_turn_was_dropped() -> None:
    store = MemoryStore(max_calls=1, max_bytes=1)
    grant = Grant(tier=Tier.RUN, permissions=frozenset({"write"}))
    agent = an_agent(store, grant=grant, suspends=True)
    with pytest.raises(Suspended) as stopped:
        await agent.call("send", {"text": "hi"})
    pattern = Approval(True, by="ann", scope=Scope.PATTERN, pattern="text is h*")
    await agent.store.answer(stopped.value.approvals[0], pattern)
    await agent.resume_call(stopped.value.turn_id)
    for number in range(5):
        await agent.call("add", {"a": number, "b": 1})

    assert (await agent.call("send", {"text": "ho"})).text == "sent ho"
    assert len(await agent.store.active_patterns()) == 1


async def test_numbers_and_digests_of_audit_rows_stay_when_earlier_rows_were_dropped() -> None:
    agent = an_agent(MemoryStore(max_calls=5))
    for number in range(10):
        await agent.call("add", {"a": number, "b": 1})
    first = await agent.store.audit_chain()
    for number in range(3):
        await agent.call("add", {"a": number, "b": 2})

    later = await agent.store.audit_chain([first.last])

    assert (later.broken_at, later.rows + later.dropped, later.last) == (None, later.last, later.last)
    assert later.dropped > 0
    assert later.heads[first.last] == first.head
    assert [row.seq for row in await agent.store.audit_log(limit=2)] == [later.last - 1, later.last]


async def test_without_limits_everything_stays() -> None:
    agent = an_agent(MemoryStore(max_calls=None, max_bytes=None))
    for number in range(30):
        await agent.call("add", {"a": number, "b": 1})

    assert len(await agent.store.calls(limit=100)) == 30


async def test_calls_of_a_turn_that_was_never_begun_are_dropped_too() -> None:
    store = MemoryStore(max_calls=2)
    for number in range(5):
        one = a_call(f"call-{number}")
        await store.open(a_card(one), [])
        await store.close(a_card(one), success(one), [])

    assert [card.call.id for card in await store.calls(turn_id="turn-1")] == ["call-3", "call-4"]
