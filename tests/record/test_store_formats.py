"""What every store keeps about how formats have worked."""

import pytest
from msgspec.structs import replace

from toolwire.protocol.turns import Ending, EndReason
from toolwire.record.contract import Store, TurnStats
from toolwire.wire.formats.tally import FormatTally

from .conftest import OpenStore
from .samples import a_turn


async def end_a_turn(store: Store, name: str, *tallies: FormatTally) -> None:
    turn = a_turn(name)
    await store.begin(turn)
    await store.end(replace(turn, ending=Ending(EndReason.ANSWERED, "")), TurnStats(formats=tallies))


NATIVE = FormatTally("ollama:qwen3", "ollama", 2, 1, 3, 2, mismatched=1, confidence=2.5, came_as=(("native", 3),))
TOLD = FormatTally("ollama:qwen3", "hermes", 1, 1, 1, 1, unknown_names=(("lampp", 1),))
OTHER = FormatTally("anthropic:claude", "anthropic", 1)


@pytest.mark.feature("F227")
async def test_formats_add_up_over_turns(store: Store) -> None:
    await end_a_turn(store, "turn-1", NATIVE, OTHER)
    await end_a_turn(store, "turn-2", TOLD, NATIVE)
    await end_a_turn(store, "turn-3")

    assert await store.formats() == [OTHER, TOLD, NATIVE + NATIVE]


@pytest.mark.feature("F228")
async def test_formats_survive_the_process(open_sqlite: OpenStore) -> None:
    first = await open_sqlite()
    await end_a_turn(first, "turn-1", TOLD)
    await first.close_store()

    assert await (await open_sqlite()).formats() == [TOLD]
