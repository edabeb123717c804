"""Questions that several wait for go to a server together."""

import asyncio
from collections.abc import Mapping, Sequence

from toolwire.record.reader import BatchedReads


class Asked(BatchedReads[str, str]):
    """Remembers what was asked for together."""

    def __init__(self, pause_s: float) -> None:
        super().__init__(self._answer, pause_s=pause_s)
        self.together: list[list[str]] = []

    async def _answer(self, keys: Sequence[str]) -> Mapping[str, str]:
        self.together.append(list(keys))
        return {key: key.upper() for key in keys}


async def test_a_question_follows_one_for_a_single_key_at_once() -> None:
    asked = Asked(pause_s=600.0)

    async with asyncio.timeout(5):
        assert [await asked.get(key) for key in ("a", "b", "c")] == ["A", "B", "C"]

    assert asked.together == [["a"], ["b"], ["c"]]


async def test_a_question_waits_for_more_behind_one_for_several_keys() -> None:
    asked = Asked(pause_s=0.5)
    await asyncio.gather(asked.get("a"), asked.get("b"))

    third = asyncio.create_task(asked.get("c"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    fourth = asyncio.create_task(asked.get("d"))

    assert [await third, await fourth] == ["C", "D"]
    assert asked.together == [["a", "b"], ["c", "d"]]
