"""Rulings at their edges, with the sentence that each of them says."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.decide.test_rule_spellings import ALLOW, ASK, BASH, DENY, OFFLINE, ONLINE, WRITE
from toolwire import Grant, Tier
from toolwire.decide.policy import Ruling, ruling
from toolwire.protocol.policy import Autonomy, Rule

NO_NETWORK = replace(OFFLINE, permissions=frozenset({"shell"}))
READONLY = replace(OFFLINE, autonomy=Autonomy.READONLY)
ASKING = replace(ONLINE, autonomy=Autonomy.SUPERVISED)


def ruled(text: str, grant: Grant = OFFLINE, *rules: str, **tool: Any) -> Ruling:
    return ruling(replace(BASH, **tool), {"command": text}, replace(grant, rules=tuple(map(Rule.parse, rules))))


@pytest.mark.parametrize(
    ("text", "missing"),
    [("rsync a b", ""), ("rsync x:a", "rsync"), ("rsync x:a b", "rsync"), ("curl --version", ""), ("curl", "curl")],
)
def test_a_command_that_needs_the_network_is_named_where_there_is_none(text: str, missing: str) -> None:
    found = ruled(text, NO_NETWORK)
    assert found.verdict is (DENY if missing else ALLOW)
    assert not missing or found.sentence == f"{missing!r} needs network, which this turn does not have."


@pytest.mark.parametrize(("sandbox", "verdict"), [("required", ALLOW), ("none", DENY)])
def test_in_a_box_what_talks_to_loopback_needs_no_network(sandbox: str, verdict: object) -> None:
    assert ruled("curl http://localhost:8000/", NO_NETWORK, sandbox=sandbox).verdict is verdict


def test_a_turn_that_may_only_look_tries_what_can_be_tried() -> None:
    assert ruled("make", READONLY) == Ruling(DENY, "'bash' changes things, and this turn may only look.")
    tried = Ruling(DENY, "'bash' wanted to change things, and this turn may only look.", tries=True)
    assert ruled("make", READONLY, trial_box=True) == tried
    assert ruled("ls", READONLY, reading_box=True).verdict is ALLOW
    asked = ruled("make", replace(ASKING, permissions=frozenset({"shell"})), trial_box=True)
    assert (asked.verdict, asked.tries) == (ASK, True)
    assert ruled("make", ASKING).tries is False
    assert ruled("make", ASKING, trial_box=True, requires_confirmation=True).tries is False
    assert ruling(replace(WRITE, trial_box=True), {"path": "a"}, ASKING).tries is False
    reading = ruling(WRITE, {"path": "a"}, READONLY)
    assert reading == Ruling(DENY, "'write' changes things, and this turn may only look.")


def test_untrusted_content_and_doubt_are_said() -> None:
    wary = replace(OFFLINE, wary=True)
    assert ruling(BASH, {"command": "make"}, wary, tainted=True) == Ruling(
        ASK, "This turn has read untrusted content, and 'bash' has side effects.", wary=True
    )
    doubted = ruled("eval $x", OFFLINE, "deny bash where command is rm*")
    assert doubted.verdict is ASK
    assert doubted.sentence.startswith("It cannot be told whether a rule means it: ")
    assert doubted.sentence.endswith(f" ({doubted.rule}).")


@pytest.mark.parametrize(
    ("pattern", "text", "verdict"),
    [
        ("python3 run.py*", "python3 run.py -v", ASK),
        ("python3 run.py", "python3 run.py -v", ALLOW),
        ("python3", "python3 run.py -v", ASK),
        ("git status*", "git status -s", ALLOW),
    ],
)
def test_a_rule_for_a_command_that_runs_others_names_what_it_runs(pattern: str, text: str, verdict: object) -> None:
    assert ruled(text, ASKING, f"allow bash where command is {pattern}").verdict is verdict


def test_a_command_of_a_tool_without_a_shell_is_a_text_like_any() -> None:
    note = replace(BASH, name="note", needs=frozenset())
    grant = Grant(Tier.RUN, autonomy=Autonomy.FULL, rules=(Rule.parse("deny write"),))
    assert ruling(note, {"command": "mkfs x"}, grant).verdict is ALLOW
    assert ruling(BASH, {"command": "mkfs x"}, grant) == Ruling(
        DENY, "'mkfs x' would ruin the machine; it is never run."
    )
