"""Names that are longer than an index of some database takes: what models invent is shortened, the rest is refused."""

import random
import string

import pytest

from toolwire.define.toolbox import Toolbox
from toolwire.errors import StoreError
from toolwire.hub.runtime import Runtime
from toolwire.plan.resources import LockClaim
from toolwire.protocol.calls import ToolCall
from toolwire.protocol.records import LONGEST_NAME
from toolwire.record.contract import Store

from .samples import a_call, a_card, a_turn

LETTERS = random.Random(7).choices(string.ascii_letters, k=6_000)
LONG = "".join(LETTERS)


async def test_a_name_that_a_model_invents_may_be_of_any_length(store: Store) -> None:
    """The call is refused as that of an unknown tool, and found under its name."""
    turn, call = a_turn(), ToolCall(LONG, {}, id="call-1")
    await store.begin(turn)

    result = await Runtime(Toolbox.of(), store).execute(call, turn)

    assert not result.ok
    [card] = await store.calls(tool=LONG)
    [row] = await store.audit_log(tool=LONG)
    assert (card.call.name, card.result) == (LONG, result)
    assert row.event == "denied"
    assert row.tool.startswith(LONG[:LONGEST_NAME])
    assert len(row.tool.encode()) < LONGEST_NAME + 100
    assert (await store.calls(tool=LONG[:-1]), await store.audit_log(tool=LONG[:-1])) == ([], [])
    assert (await store.audit_chain()).broken_at is None


@pytest.mark.parametrize("what", ["id", "project", "agent", "thread", "model"])
async def test_a_turn_with_a_name_that_is_too_long_is_refused(store: Store, what: str) -> None:
    fits, beyond = LONG[:LONGEST_NAME], LONG[: LONGEST_NAME + 1]
    named = {"id": "turn-1"} | {what: beyond}
    with pytest.raises(StoreError, match=r"has 801 bytes, and a store keeps at most 800; choose a shorter one"):
        await store.begin(a_turn(named.pop("id"), **named))

    named = {"id": "turn-1"} | {what: fits}
    await store.begin(a_turn(named.pop("id"), **named))
    [kept] = await store.turns()
    assert getattr(kept, what) == fits


async def test_names_that_fit_fit_together(store: Store) -> None:
    name, bytes_of = LONG[:LONGEST_NAME], "é" * (LONGEST_NAME // 2)
    turn = a_turn(name, project=LONG[-LONGEST_NAME:], thread=bytes_of)
    card = a_card(a_call(LONG[1000 : 1000 + LONGEST_NAME]), turn)
    await store.begin(turn)

    assert (await store.open(card, [])).call.id == card.call.id
    assert (await store.claim(card, [])).attempt == 1
    with pytest.raises(StoreError, match=r"the call id .* has 801 bytes"):
        await store.open(a_card(a_call(LONG[: LONGEST_NAME + 1]), turn), [])


async def test_a_lock_may_have_a_long_name(store: Store) -> None:
    claims = [LockClaim(LONG, writes=True)]

    assert await store.queue_locks(claims, "one", project="default")
    assert not await store.queue_locks(claims, "two", project="default")
    assert await store.queue_locks([LockClaim(LONG[:-1], writes=True)], "three", project="default")
