"""What a day may cost, at the terminal: refused with what is used up, and shown on request."""

from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import scripted
from toolwire.cli.entry.exits import Exit

SUM = [("calculator", {"expression": "1+1"})]


def test_a_day_without_calls_left_is_shown_and_refused(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[budget]\ncalls = 2\nwall_s = 3600\n")
    with scripted(SUM, [*SUM, ("calculator", {"expression": "2+2"})], "Two.", "Never.") as model:
        answer = inside("ask", "What is 1+1?", *model.flags, "--json").json
        spent = inside("ask", "And again?", *model.flags)
    refused = answer["calls"][-1]["result"]
    assert [call["result"]["ok"] for call in answer["calls"]] == [True, True, False]
    assert refused["text"].startswith("agent 'cli' has used up its budget of today: 2 calls of 2 calls")
    assert spent.code != Exit.DONE
    assert "raise budget.calls, or go on then" in spent.err
    budget = inside("status", "--json").json["budget"]
    assert budget["calls"] == {"used": 2, "allowed": 2}
    assert 0 < budget["wall_s"]["used"] < 3600
    assert "UTC" in budget["renews_at"]
    assert "2 calls of 2 calls, " in inside("status").out


@pytest.mark.parametrize(("section", "reason"), [("wall_s = 0.000001", "deadline"), ("tokens = 15", "token_budget")])
def test_a_turn_that_uses_up_the_day_says_so(inside: Inside, section: str, reason: str) -> None:
    Path("toolwire.toml").write_text(f"[budget]\n{section}\n")
    with scripted(SUM, "Never.") as model:
        answer = inside("ask", "What is 1+1?", *model.flags, "--json").json
        again = inside("ask", "And 2+2?", *model.flags)
    assert answer["reason"] == reason
    assert "has used up its budget of today" in answer["answer"]
    assert f"raise budget.{section.partition(' ')[0]}" in again.err


def test_explain_tells_what_is_left_of_the_day(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[budget]\ncalls = 1\n")
    left = inside("explain", "calculator", "expression=1", "--json").json["rungs"][-1]
    inside("call", "calculator", "expression=1")
    told = inside("explain", "calculator", "expression=1")
    assert (left["rule"], left["verdict"]) == ("budget", "passed")
    assert "0 calls of 1 calls; renews at " in left["sentence"]
    assert "✗ budget" in told.out
    assert "1 calls of 1 calls" in told.out
    assert "It will not run today." in told.out
    refused = inside("call", "calculator", "expression=1")
    assert refused.code != Exit.DONE
    assert "1 calls of 1 calls" in refused.err


def test_a_turn_makes_as_many_calls_as_the_settings_say(inside: Inside) -> None:
    Path("toolwire.toml").write_text("[loop]\ncalls = 1\n")
    with scripted([*SUM, *SUM], "Two.") as model:
        answer = inside("ask", "What is 1+1?", *model.flags, "--json").json
    assert [call["result"]["ok"] for call in answer["calls"]] == [True, False]
    assert "used its 1 calls" in answer["calls"][1]["result"]["text"]
