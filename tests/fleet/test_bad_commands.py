"""Whatever comes at a worker's subject: nothing runs that the store does not ask for, and nothing stops the worker."""

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from tests.fleet.conftest import Fleet
from tests.fleet.test_calls import command
from toolwire.fleet import worker
from toolwire.fleet.worker import ToolWorker
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.outcomes import Code
from toolwire.protocol.records import CallCard
from toolwire.testing import call
from toolwire.wire.utp.messages import ToolCommand, decode_command
from toolwire.wire.utp.violations import Refusal, Violation, ViolationCode

Break = Callable[[BusMessage], BusMessage]


def says(**fields: Any) -> Break:
    """The command with other fields, in its payload and, where they stand there, in its headers."""

    def change(message: BusMessage) -> BusMessage:
        payload = {name: value for name, value in {**json.loads(message.data), **fields}.items() if value is not None}
        names = {"turn_epoch": "CG-Turn-Epoch", "agent_turn_id": "CG-Turn-Id", "tool_call_id": "CG-Tool-Call-Id"}
        headers = dict(message.headers) | {names[name]: str(value) for name, value in fields.items() if name in names}
        return replace(message, data=json.dumps(payload).encode(), headers=headers)

    return change


def data(raw: bytes) -> Break:
    return lambda message: replace(message, data=raw, headers={})


STRANGE = {
    "unknown card": says(tool_call_card_id="no-such-card"),
    "digest differs": says(arguments_digest="0" * 64),
    "another turn": says(agent_turn_id="another-turn"),
    "another call": says(tool_call_id="another-call"),
    "another tool": says(tool_name="rm"),
    "stale epoch": says(turn_epoch=0),
    "later epoch": says(turn_epoch=99),
    "not json": data(b"\xff\xfe"),
    "no object": data(b"[]"),
    "deep": data(b"[" * 5_000),
    "large": data(b'{"x": "' + b"y" * 70_000 + b'"}'),
    "empty": data(b""),
    "nobody's": data(b"{}"),
}


@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.feature("F188")
async def test_a_command_that_does_not_fit_its_card_runs_nothing_and_the_right_one_does(
    fleet: Fleet, name: str
) -> None:
    store, note = await fleet.store(), fleet.tool()
    await fleet.worker([note])
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    right = await command(fleet, store, turn_id)
    await fleet.bus.publish(STRANGE[name](right))
    other = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="tea")))
    await fleet.bus.publish(await command(fleet, store, other))
    await fleet.result(store, other)

    assert fleet.noted == ["tea"]
    await fleet.bus.publish(right)
    await fleet.result(store, turn_id)
    assert fleet.noted == ["tea", "milk"]


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
@pytest.mark.parametrize("name", ["digest differs", "another tool"])
async def test_control_without_a_look_at_its_card_a_command_that_does_not_fit_it_runs(fleet: Fleet, name: str) -> None:
    store, note = await fleet.store(), fleet.tool()
    with patch.object(worker, "call_card_violations", lambda *_: ()):
        await fleet.worker([note])
        turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
        await fleet.bus.publish(STRANGE[name](await command(fleet, store, turn_id)))
        await fleet.result(store, turn_id)

    assert fleet.noted == ["milk"]


@pytest.mark.parametrize("wrong", [says(tool_call_card_id=None), says(arguments={"words": "evil"})], ids=["no", "in"])
@pytest.mark.feature("F018")
async def test_a_command_that_breaks_a_rule_is_a_result_that_says_so(fleet: Fleet, wrong: Break) -> None:
    store, note = await fleet.store(), fleet.tool()
    await fleet.worker([note])
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    await fleet.bus.publish(wrong(await command(fleet, store, turn_id)))

    result = (await fleet.result(store, turn_id)).result
    assert result is not None
    assert result.error is not None
    assert (result.error.code, fleet.noted) == (Code.INVALID_PARAMS, [])
    assert "command_refused" in await fleet.events(store, turn_id)


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_a_call_that_a_worker_began_and_died_over_is_not_said_to_be_unstarted_by_a_broken_command(
    fleet: Fleet,
) -> None:
    store, note = await fleet.store(), fleet.tool()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    message = await command(fleet, store, turn_id)
    await store.claim(await fleet.card(store, turn_id), [], owner="a worker that died", until=1.0)
    await fleet.worker([note])
    await fleet.bus.publish(says(tool_call_card_id=None)(message))

    result = (await fleet.result(store, turn_id)).result
    assert result is not None
    assert result.error is not None
    assert (result.error.code, fleet.noted) == (Code.OUTCOME_UNKNOWN, [])


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_control_a_worker_that_only_drops_what_breaks_a_rule_leaves_a_call_of_which_nothing_is_heard(
    fleet: Fleet,
) -> None:
    async def drop(*_: Any) -> None:
        return

    store, note = await fleet.store(), fleet.tool()
    with patch.object(ToolWorker, "_refuse_message", drop):
        await fleet.worker([note], at_once=1)
        turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
        await fleet.bus.publish(says(tool_call_card_id=None)(await command(fleet, store, turn_id)))
        other = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="tea")))
        await fleet.bus.publish(await command(fleet, store, other))
        await fleet.result(store, other)

    assert (await fleet.card(store, turn_id)).result is None
    assert await fleet.events(store, turn_id) == ["allowed", "dispatched"]


NEWER = says(since_next_year={"how": "fast"})


async def test_a_command_with_fields_of_a_newer_version_runs(fleet: Fleet) -> None:
    """C43: processes of several versions work together, so that one after the other can be replaced."""
    store, note = await fleet.store(), fleet.tool()
    await fleet.worker([note])
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    await fleet.bus.publish(NEWER(await command(fleet, store, turn_id)))

    card = await fleet.result(store, turn_id)
    assert (card.result is not None and card.result.ok, fleet.noted) == (True, ["milk"])


@pytest.mark.parametrize("fleet", ["embedded"], indirect=True)
async def test_control_a_worker_that_knows_all_fields_or_none_ends_calls_of_newer_processes(fleet: Fleet) -> None:
    def strictly(message: BusMessage) -> ToolCommand | Refusal:
        read = decode_command(message)
        if isinstance(read, ToolCommand) and read.extra:
            known = {"project_id": fleet.project, **json.loads(message.data)}
            return Refusal((Violation(ViolationCode.INVALID_FIELD, "there is no such field"),), known)
        return read

    store, note = await fleet.store(), fleet.tool()
    with patch.object(worker, "decode_command", strictly):
        await fleet.worker([note])
        turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
        await fleet.bus.publish(NEWER(await command(fleet, store, turn_id)))
        result = (await fleet.result(store, turn_id)).result

    assert result is not None
    assert (result.ok, fleet.noted) == (False, [])


async def test_a_command_that_breaks_a_rule_ends_no_call_that_was_not_sent_to_workers(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    local = CallCard("card-1", "turn-1", 1, ToolCall("note", {}, "call-1"), "0" * 64, project=fleet.project)
    await store.open(local, [])  # it waits for approval, or runs where its turn does
    await fleet.worker([note])
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    right = await command(fleet, store, turn_id)
    names = says(agent_turn_id="turn-1", tool_call_id="call-1", turn_epoch=1, tool_call_card_id=None)
    await fleet.bus.publish(names(right))
    await fleet.bus.publish(right)
    await fleet.result(store, turn_id)

    [kept] = await store.calls(turn_id="turn-1", project=fleet.project)
    assert (kept.attempt, kept.result, fleet.noted) == (0, None, ["milk"])


@pytest.mark.feature("F128")
async def test_T62_a_card_of_another_project_is_not_found_over_the_bus(fleet: Fleet) -> None:
    store, note = await fleet.store(), fleet.tool()
    turn_id = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="milk")))
    message = await command(fleet, store, turn_id)
    mine, theirs = fleet.project, f"{fleet.project}-rival"
    stolen = replace(
        message,
        subject=message.subject.replace(f".{mine}.", f".{theirs}."),
        data=message.data.replace(f'"{mine}"'.encode(), f'"{theirs}"'.encode()),
        headers={**message.headers, "CG-Project-Id": theirs},
    )
    fleet.project = theirs
    await fleet.worker([note])
    other = await fleet.sent(fleet.agent(store, [fleet.far(note)], call("note", words="tea")))
    await fleet.bus.publish(stolen)
    await fleet.bus.publish(await command(fleet, store, other))
    await fleet.result(store, other)

    assert fleet.noted == ["tea"]
    [card] = await store.calls(turn_id=turn_id, project=mine)
    assert (card.attempt, card.result) == (0, None)
