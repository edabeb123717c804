"""Tiers, needs and platform decide what a turn may see; a question can only ever narrow it."""

import pytest

from toolwire.disclose.intent import propose_tier, unlock
from toolwire.disclose.offer import visible_tools
from toolwire.protocol.tools import Grant, Tier, Tool

LOOK = Tool("look", "look", tier=Tier.CRAWL)
WORK = Tool("work", "work", tier=Tier.WALK, needs=frozenset({"file_read"}))
CHANGE = Tool("change", "change", tier=Tier.RUN, needs=frozenset({"shell"}))
ON_PI = Tool("gpio", "gpio", tier=Tier.CRAWL, platforms=frozenset({"raspberrypi"}))


@pytest.mark.requirement("disclose.offer")
@pytest.mark.feature("F110", "F063")
@pytest.mark.parametrize(
    ("grant", "names"),
    [
        (Grant(tier=Tier.CRAWL), ["look", "gpio"]),
        (Grant(tier=Tier.WALK), ["look", "gpio"]),
        (Grant(tier=Tier.WALK, permissions=frozenset({"file_read"})), ["look", "work", "gpio"]),
        (Grant(tier=Tier.RUN, permissions=frozenset({"file_read", "shell"})), ["look", "work", "change", "gpio"]),
        (Grant(tier=Tier.RUN, permissions=frozenset({"shell"}), platform="linux"), ["look", "change"]),
        (Grant(tier=Tier.CRAWL, platform="raspberrypi"), ["look", "gpio"]),
    ],
)
def test_a_grant_sees_the_tools_it_covers_in_their_own_order(grant: Grant, names: list[str]) -> None:
    assert [tool.name for tool in visible_tools((LOOK, WORK, CHANGE, ON_PI), grant)] == names


@pytest.mark.feature("F111")
@pytest.mark.parametrize(
    ("question", "tier"),
    [
        ("Delete the old logs", Tier.RUN),
        ("please write a haiku to poem.txt", Tier.RUN),
        ("Show me the config", Tier.WALK),
        ("What is my address?", Tier.WALK),
        ("hello there", Tier.CRAWL),
        ("the prefix and the credit of this thread", Tier.CRAWL),
        ("do not delete anything, just read it", Tier.WALK),
        ("Don't run the tests", Tier.CRAWL),
        ("never, ever remove it", Tier.RUN),
        ("", Tier.CRAWL),
    ],
)
def test_a_question_proposes_a_tier_by_whole_words_with_negation_understood(question: str, tier: Tier) -> None:
    assert propose_tier(question).tier is tier


@pytest.mark.feature("F112")
def test_a_proposal_never_rises_above_the_grant_and_never_stays_for_the_next_question() -> None:
    grant = Grant(tier=Tier.WALK)
    assert unlock(grant, "delete everything").tier is Tier.WALK
    assert unlock(Grant(tier=Tier.RUN), "delete everything").tier is Tier.RUN
    assert unlock(Grant(tier=Tier.RUN), "hello").tier is Tier.CRAWL


def test_a_question_of_any_length_is_read_in_bounded_time() -> None:
    assert propose_tier("delete " + "x" * 10_000_000).tier is Tier.RUN
