"""`toolwire metrics --formats`: how tools are told to each model, and how it goes, after real turns."""

from pathlib import Path

import pytest

from tests.cli.conftest import Inside
from tests.cli.stage import scripted

LEAKED = '<tool_call>\n{"name": "calculator", "arguments": {"expression": "23*19"}}\n</tool_call>'
INVENTED = [("calculater_pro", {"expression": "23*19"})]


@pytest.mark.feature("F227", "F228")
def test_leaked_calls_and_invented_names_are_shown_with_the_model_that_made_them(inside: Inside) -> None:
    with scripted(LEAKED, INVENTED, "It is 437.") as model:
        inside("ask", "What is 23*19?", *model.flags)

    (counted,) = inside("metrics", "--formats", "--json").json["formats"]
    shown = inside("metrics", "--formats").out

    assert (counted["model"], counted["offered"]) == ("openai-compatible:scripted", "openai")
    assert (counted["replies"], counted["calls"], counted["clean"]) == (3, 2, 1)
    assert (counted["mismatched"], counted["unknown_names"]) == (1, {"calculater_pro": 1})
    assert "called tools that were not offered: calculater_pro (1)" in shown


@pytest.mark.feature("F229")
def test_the_coach_says_what_it_would_need_to_know(inside: Inside) -> None:
    with scripted("Good morning.") as model:
        inside("ask", "Hello", *model.flags)

    assert "Format: openai (default) for " in inside("metrics", "--formats").out


@pytest.mark.feature("F085")
def test_what_the_format_costs_in_tokens_is_shown_beside_how_it_goes(inside: Inside) -> None:
    with scripted("Good morning.") as model:
        inside("ask", "Hello", *model.flags)

    (cost,) = inside("metrics", "--formats", "--json").json["costs"]
    words = inside("metrics", "--formats").out.split()

    assert cost["format"] == "openai"
    assert all(cost[what] > 5 for what in ("per_tool", "per_call", "per_result"))
    assert words[words.index("on") - 1 :][:11] == "tokens on top a request a tool a call a result".split()


def test_before_anything_was_asked_there_is_nothing_to_show(inside: Inside) -> None:
    ran = inside("metrics", "--formats")

    assert (ran.code, ran.out) == (0, "No model behind an API has been asked with tools yet.\n")


@pytest.mark.feature("F083")
def test_a_profile_has_its_model_told_about_tools_in_the_prompt(inside: Inside, tmp_path: Path) -> None:
    with scripted(LEAKED, "It is 437.") as model:
        url = model.flags[model.flags.index("--base-url") + 1]
        (tmp_path / "toolwire.toml").write_text(
            f'[profiles.small]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{url}"\n'
            '[profiles.small.tools]\ndefinition_format = "hermes"\n'
        )
        ran = inside("ask", "What is 23*19?", "--profile", "small")
        asked = model.requests[0]

    assert ran.out == "It is 437.\n"
    assert "tools" not in asked
    assert "<tools>" in asked["messages"][0]["content"]


def test_what_a_strict_profile_cannot_tell_its_model_is_told_to_the_user(inside: Inside, tmp_path: Path) -> None:
    with scripted([("calculator", {"expression": "23*19"})], "It is 437.") as model:
        (tmp_path / "toolwire.toml").write_text(
            f'[profiles.exact]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{model.url}"\n'
            '[profiles.exact.tools]\ndefinition_format = "openai_strict"\n'
        )
        ran = inside("ask", "What is 23*19?", "--profile", "exact")
        asked = model.requests[0]

    assert ran.out == "It is 437.\n"
    assert all(tool["function"]["strict"] for tool in asked["tools"])
    assert "not told to the model: " in ran.err
    assert " was left out" in ran.err
