"""Which device gets a call: the same one for the same conversation, and none that is busy while others are idle."""

from collections import Counter

import pytest

from toolwire.edge.orchestrator.routing import choose, ranked

PIS = [f"pi-{number}" for number in range(20)]


def idle(_device: str) -> int:
    return 0


def four(_device: str) -> int:
    return 4


@pytest.mark.feature("F180")
def test_a_conversation_stays_with_its_device_and_all_devices_get_some() -> None:
    chosen = {key: choose(key, PIS, idle, four) for key in map(str, range(2_000))}
    shares = Counter(chosen.values())

    assert chosen == {key: choose(key, list(reversed(PIS)), idle, four) for key in chosen}
    assert len(shares) == len(PIS)
    assert max(shares.values()) < 3 * min(shares.values())


@pytest.mark.feature("F180")
def test_only_the_conversations_of_a_device_that_leaves_move() -> None:
    before = {key: choose(key, PIS, idle, four) for key in map(str, range(1_000))}
    after = {key: choose(key, PIS[1:], idle, four) for key in before}

    moved = {key for key in before if before[key] != after[key]}
    assert moved == {key for key, device in before.items() if device == PIS[0]}


@pytest.mark.feature("F178", "F180")
def test_a_device_with_more_than_its_part_is_passed_over() -> None:
    first, second, *_ = ranked("garden", PIS)
    loads = {first: 4}

    assert choose("garden", PIS, lambda one: loads.get(one, 0), four) == second
    loads = dict.fromkeys(PIS, 9) | {PIS[7]: 8}
    assert choose("garden", PIS, loads.__getitem__, four) == PIS[7], "all are full: the one with the most room"


def test_many_calls_at_once_are_spread_though_they_have_one_key() -> None:
    loads: Counter[str] = Counter()
    for _ in range(40):
        loads[choose("garden", PIS[:4], loads.__getitem__, lambda _: 64)] += 1

    assert max(loads.values()) <= 14
    assert set(loads) == set(PIS[:4])


def test_without_devices_none_is_chosen() -> None:
    assert choose("garden", [], idle, four) == ""
