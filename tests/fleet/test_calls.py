"""A call of a turn runs in a worker, once, and the turn goes on in another process."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fleet.conftest import Fleet
from toolwire import Context, tool
from toolwire.bus.in_process import InProcessBus
from toolwire.deliver.secrets import Secret, Secrets
from toolwire.fleet.parcels import command_message, read_parcel
from toolwire.fleet.progress import Progress, hear_progress, read_progress
from toolwire.fleet.relay import Relay
from toolwire.fleet.worker import ToolWorker
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.events import CallProgress
from toolwire.protocol.outcomes import Code
from toolwire.protocol.subjects import Subject
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.record.contract import Store
from toolwire.testing import call


def no_pause(_sent: int) -> float:
    return 0.0


async def code_of(fleet: Fleet, store: Any, turn_id: str) -> str:
    result = (await fleet.result(store, turn_id)).result
    assert result is not None
    return "" if result.error is None else str(result.error.code)


@pytest.mark.feature("F145", "F189", "F190", "F200")
async def test_a_turn_waits_for_a_worker_and_goes_on_in_another_process(fleet: Fleet) -> None:
    asking, going_on = await fleet.store(), await fleet.store()
    note = fleet.tool()
    await fleet.worker([note])
    turn_id = await fleet.sent(fleet.agent(asking, [fleet.far(note)], call("note", words="milk")))
    fleet.runner(going_on, [fleet.far(note)], "All noted.")
    await fleet.relay()

    answer = await fleet.answer()
    card = await fleet.card(asking, turn_id)

    assert (answer, fleet.noted) == ("All noted.", ["milk"])
    assert (card.result.text if card.result else "", card.attempt) == ("noted milk", 1)
    assert await fleet.events(asking, turn_id) == ["allowed", "dispatched", "started", "finished"]


async def test_a_turn_goes_on_once_all_results_of_its_step_are_there(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    step = [call("note", words=word) for word in ("milk", "tea", "bread")]
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], step))
    fleet.runner(await fleet.store(), [fleet.far(note)], "All noted.")
    relay = await fleet.relay()
    for _ in range(2):
        await fleet.worker([note], at_once=1)

    assert await fleet.answer() == "All noted."
    kept = await store.turn(turn_id, project=fleet.project)
    assert sorted(fleet.noted) == ["bread", "milk", "tea"]
    assert (kept.opening.epoch, relay is not None) == (2, True)


async def test_a_relay_in_the_same_process_sends_at_once_what_is_only_due_later(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    relay = await fleet.relay(store=store)
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk"), relay=relay))
    await fleet.worker([note])

    await fleet.result(store, turn_id)
    assert fleet.noted == ["milk"]


async def command(fleet: Fleet, store: Store, turn_id: str) -> BusMessage:
    """The command of a turn's only call, as the relay sends it."""
    [card] = await store.calls(turn_id=turn_id, project=fleet.project)
    dispatch, kept = await store.dispatched(card.record_id, project=fleet.project)
    message = command_message(read_parcel(dispatch), dispatch, kept)
    assert isinstance(message, BusMessage)
    return message


@pytest.mark.feature("F185", "F186", "F187")
async def test_a_command_that_comes_many_times_takes_effect_once(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    message = await command(fleet, store, turn_id)
    for _ in range(3):
        await fleet.worker([note])
    for _ in range(12):
        await fleet.bus.publish(message)

    await fleet.result(store, turn_id)
    await fleet.relay(pause=no_pause)
    assert (await fleet.card(store, turn_id)).attempt == 1
    assert fleet.noted == ["milk"]


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.PURE])
async def test_a_call_whose_worker_died_runs_again_only_where_that_does_no_harm(fleet: Fleet, effect: Effect) -> None:
    store, note = await fleet.store(), fleet.tool(effect)
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    dead = await fleet.open_store()
    await dead.claim(await fleet.card(store, turn_id), [])
    await dead.close_store()  # it claimed the call, and never came to close it
    await fleet.worker([note])
    await fleet.relay(pause=no_pause)

    card = await fleet.result(store, turn_id)
    unknown = effect is Effect.UNSAFE
    assert await code_of(fleet, store, turn_id) == (Code.OUTCOME_UNKNOWN if unknown else "")
    assert (card.attempt, fleet.noted) == ((1, []) if unknown else (2, ["milk"]))


@pytest.mark.parametrize("effect", [Effect.UNSAFE, Effect.PURE])
async def test_a_command_that_is_delivered_again_after_its_worker_died_does_no_harm(
    fleet: Fleet, effect: Effect
) -> None:
    store, note = await fleet.store(), fleet.tool(effect)
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    dead = await fleet.open_store()
    await dead.claim(await fleet.card(store, turn_id), [])
    await dead.close_store()  # it may have taken effect before it died
    await fleet.worker([note])
    await fleet.bus.publish(await command(fleet, store, turn_id))

    unknown = effect is Effect.UNSAFE
    assert await code_of(fleet, store, turn_id) == (Code.OUTCOME_UNKNOWN if unknown else "")
    assert fleet.noted == ([] if unknown else ["milk"])


async def test_a_call_that_no_worker_takes_in_time_says_so_and_costs_nothing(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    agent = fleet.agent(store, [fleet.far(note)], call("note", words="milk"), sends={"queue_s": 0.0})
    turn_id = await fleet.sent(agent)
    fleet.runner(await fleet.store(), [fleet.far(note)], "It did not work.")
    await fleet.relay()

    assert await fleet.answer() == "It did not work."
    assert await code_of(fleet, store, turn_id) == Code.UNAVAILABLE
    assert (await store.spent("agent", (await fleet.card(store, turn_id)).created_at, project=fleet.project)).calls == 0


async def test_a_worker_without_the_tool_or_with_another_version_says_so(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    await fleet.worker([replace(note, version="9")])
    await fleet.relay()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))

    assert await code_of(fleet, store, turn_id) == Code.NOT_FOUND
    assert fleet.noted == []


async def test_a_worker_that_stops_finishes_what_it_has_and_takes_no_more(fleet: Fleet) -> None:
    store = await fleet.store()
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool(tier=Tier.WALK)
    async def note(words: str) -> str:
        """Write words down."""
        begun.set()
        await go_on.wait()
        return words

    worker = await fleet.worker([note])
    await fleet.relay(pause=no_pause)
    first = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    await begun.wait()
    worker.stop()
    second = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="tea")))
    go_on.set()

    result = (await fleet.result(store, first)).result
    assert result is not None
    assert result.text == "milk"
    assert (await fleet.card(store, second)).attempt == 0
    await fleet.worker([note])
    assert (await fleet.result(store, second)).attempt == 1


class HastyBus(InProcessBus):
    """A bus that takes a command back before its worker says that it is at work."""

    def subscribe(self, pattern: str, **more: Any) -> Any:
        return super().subscribe(pattern, **{**more, "ack_wait_s": 0.01})


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_worker_that_stops_finishes_a_call_whose_command_the_broker_took_back(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolwire.fleet.worker")
    store, begun, may_end = await fleet.store(), asyncio.Event(), asyncio.Event()

    @tool(tier=Tier.WALK)
    async def note(words: str) -> str:
        """Write words down."""
        begun.set()
        await may_end.wait()
        return words

    async def taken_back() -> bool:
        return "a command is dropped" in caplog.text

    async with HastyBus() as fleet.bus:
        worker = ToolWorker(
            store, fleet.bus, [note], f"cg.v1r4.{fleet.project}.*.cmd.tool.notes", durable="hasty", renew_s=60
        )  # fmt: skip
        running = fleet.spawn(worker.run(drain_s=30))
        await worker.ready.wait()
        turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
        await fleet.bus.publish(await command(fleet, store, turn_id))
        await begun.wait()
        await fleet.until(taken_back)
        worker.stop()
        for _ in range(100):  # a worker that does not wait for it has ended by then
            await asyncio.sleep(0)
        may_end.set()

        assert await running == 0
        assert await code_of(fleet, store, turn_id) == ""


async def test_a_store_that_was_restored_shuts_out_what_ran_after_its_backup(fleet: Fleet) -> None:
    """C44: commands and claims of a time that the store has never seen."""
    store, note = await fleet.store(), fleet.tool()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    old = await command(fleet, store, turn_id)
    assert await store.fence_restored() == 1
    await fleet.worker([note])
    await fleet.bus.publish(old)
    await fleet.relay(pause=no_pause)

    card = await fleet.result(store, turn_id)
    assert (card.epoch > 1_000_000, card.attempt, fleet.noted) == (True, 1, ["milk"])
    fleet.runner(store, [fleet.far(note)], "All noted.").wake()
    assert await fleet.answer() == "All noted."


class Heard:
    """Hands on what workers say, as the link of a process does."""

    def __init__(self) -> None:
        self.reports: dict[tuple[str, str], Any] = {}

    def watch(self, turn_id: str, call_id: str, report: Any) -> None:
        self.reports[turn_id, call_id] = report

    def tell(self, progress: Progress) -> None:
        if report := self.reports.get((progress.turn_id, progress.call_id)):
            report(progress.message, progress.fraction)


async def test_what_a_tool_says_about_its_call_is_seen_while_it_runs_elsewhere(fleet: Fleet) -> None:
    store, heard, seen = await fleet.store(), Heard(), asyncio.Event()
    said: list[tuple[str, float | None]] = []

    @tool(tier=Tier.WALK)
    async def note(words: str, context: Context) -> str:
        """Write words down."""
        context.progress(f"writing {words}", 0.5)
        await seen.wait()
        return words

    def watch(event: Any) -> None:
        if isinstance(event, CallProgress):
            said.append((event.message, event.fraction))
            seen.set()

    fleet.spawn(hear_progress(fleet.bus, fleet.project, heard.tell))
    relay = await fleet.relay(store=store)
    await fleet.worker([note])
    sends = {"stays": True, "watches": heard}
    agent = fleet.agent(store, [fleet.far(note)], call("note", words="milk"), "Done.", relay=relay, sends=sends)
    answer = await agent.ask("Note it", on_event=watch)

    assert (answer.text, said) == ("Done.", [("writing milk", 0.5)])


@pytest.mark.parametrize("name", ["team/writer.2", "a.*.>", "w" * 100])
async def test_an_agent_whose_name_cannot_be_part_of_a_subject_is_woken_and_told(fleet: Fleet, name: str) -> None:
    store, heard, said = await fleet.store(), asyncio.Event(), []

    @tool(tier=Tier.WALK)
    async def note(words: str, context: Context) -> str:
        """Write words down."""
        context.progress(f"writing {words}")
        await heard.wait()
        return words

    def tell(progress: Progress) -> None:
        said.append(progress.message)
        heard.set()

    fleet.spawn(hear_progress(fleet.bus, fleet.project, tell))
    relay = await fleet.relay(store=store)
    await fleet.worker([note])
    fleet.runner(store, [fleet.far(note)], "Noted.")
    await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk"), relay=relay, name=name))
    assert (await fleet.answer(), said) == ("Noted.", ["writing milk"])


async def test_a_relay_goes_on_after_it_gave_up_a_call_of_an_agent_with_such_a_name(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    late = fleet.agent(
        store, [fleet.far(note)], call("note", words="milk"), sends={"queue_s": 0.0}, name="team/writer"
    )  # fmt: skip
    given_up = await fleet.sent(late)
    relay = Relay(store, fleet.bus, pause=no_pause)
    assert await relay.send_due() == 1
    assert await code_of(fleet, store, given_up) == Code.UNAVAILABLE
    await relay.send_due()


@pytest.mark.parametrize("data", [b"", b"[]", b'{"message": 1}', b"[" * 9_000, b'{"x": "' + b"y" * 9_000 + b'"}'])
def test_what_is_no_progress_is_not_heard(data: bytes) -> None:
    subject = str(Subject.stream("p", "public", "agent", "progress"))
    right = b'{"agent_turn_id": "t", "tool_call_id": "c", "message": "m", "fraction": 7}'

    assert read_progress(BusMessage(subject, data), "p") is None
    assert read_progress(BusMessage(subject, right), "other") is None
    assert read_progress(BusMessage(subject, right), "p") == Progress("t", "c", "m", None)


def sender(seen: list[str]) -> Tool:
    @tool(tier=Tier.WALK)
    async def note(words: str = "", key: str = "") -> str:
        """Write words down."""
        seen.append(f"{words} {key}")
        return f"{words} with {key}"

    return note


async def test_arguments_of_the_service_are_put_in_and_its_keys_are_seen_nowhere_else(fleet: Fleet) -> None:
    store = await fleet.store()
    seen: list[str] = []
    note = sender(seen)
    far = fleet.far(note, fixed={"words": "for {agent_id}"}, environment={"key": "NOTES_KEY"})
    await fleet.worker([note], environment={"NOTES_KEY": "hunter2-hunter2"})
    await fleet.relay()
    turn_id = await fleet.sent(fleet.agent(store, [far], call("note")))

    card = await fleet.result(store, turn_id)
    dispatched = await store.audit_log(turn_id=turn_id, project=fleet.project)
    assert seen == ["for agent hunter2-hunter2"]
    assert card.result is not None
    assert card.result.text.startswith("for agent with ")
    assert "hunter2" not in f"{card} {dispatched}"


async def test_a_worker_without_a_variable_that_an_argument_comes_from_says_which(fleet: Fleet) -> None:
    store, note = await fleet.store(), sender([])
    await fleet.worker([note])
    await fleet.relay()
    far = fleet.far(note, environment={"key": "NOTES_KEY"})
    turn_id = await fleet.sent(fleet.agent(store, [far], call("note", words="milk")))

    result = (await fleet.result(store, turn_id)).result
    assert result is not None
    assert "NOTES_KEY" in result.text


async def test_T62_secrets_are_put_in_place_by_the_worker_and_taken_out_of_results(fleet: Fleet) -> None:
    store = await fleet.store()
    seen: list[str] = []
    note = sender(seen)
    secrets = Secrets({"door": Secret("open-sesame-42", frozenset({"note"}), anywhere=True)})
    await fleet.worker([note], secrets=secrets)
    await fleet.relay()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="{{secret:door}}")))

    card = await fleet.result(store, turn_id)
    assert seen == ["open-sesame-42 "]
    assert "open-sesame" not in f"{card}"


async def test_T180_a_password_in_an_address_is_not_kept_on_its_way_to_a_worker(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    agent = fleet.agent(
        store, [fleet.far(note)], call("note", words="https://ann:hunter2hunter2@host/"), "ProxyRefusal."
    )
    answer = await agent.ask("Note it")

    [card] = await store.calls(turn_id=answer.turn_id, project=fleet.project)
    assert card.result is not None
    assert "password in its address would be kept" in card.result.text
    assert await store.take_due(4e9, no_pause) == []


async def test_T180_control_an_address_without_a_password_is_sent(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="https://host/")))

    assert len(await store.take_due(4e9, no_pause)) == 1
