"""What a turn was begun with stays with it: formats, temperature and budget come from its record when it goes on."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Inside
from tests.cli.painter import GRANTED, waiting
from tests.cli.stage import Script, scripted
from tests.record.conftest import migrated_server
from toolwire.assemble.agents import open_agent, open_agent_of
from toolwire.assemble.interaction import Unattended
from toolwire.assemble.project import open_project
from toolwire.assemble.specs import spec_of
from toolwire.cli.entry.exits import Exit
from toolwire.protocol.budgets import Budget
from toolwire.record.memory import MemoryStore
from toolwire.record.projects import of_project

PROFILE = """
profile = "small"
{before}
[profiles.small]
provider = "openai-compatible"
model = "scripted"
url = "{url}"
{profile}
{rest}
"""
PAINT = '<tool_call>\n{"name": "paint", "arguments": {"colour": "%s"}}\n</tool_call>'
RED = [("paint", {"colour": "red"})]

Change = Callable[..., None]


@pytest.fixture(params=["sqlite", "libsql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The `[store]` section for a store that outlives a command."""
    if request.param == "sqlite":
        yield ""
        return
    with migrated_server(tmp_path) as server:
        yield f'[store]\nkind = "libsql"\nurl = "{server.url}"\n'


each_store_and_each_way = pytest.mark.parametrize(
    ("store", "how"), [("sqlite", "resume"), ("libsql", "run")], indirect=["store"]
)
"""A store does not know by which way a turn goes on: the first test tries each with each, the others each once."""


@contextmanager
def project(tmp_path: Path, store: str, *lines: Any) -> Iterator[tuple[Script, Change]]:
    """A model that says these lines, and what writes the settings: `profile` of the model, `rest` for the others."""
    with scripted(*lines) as model:

        def change(profile: str = "", rest: str = "", before: str = "") -> None:
            text = PROFILE.format(url=model.url, profile=profile, rest=GRANTED + store + rest, before=before)
            (tmp_path / "toolwire.toml").write_text(text, encoding="utf-8")

        yield model, change


def approved(painter: Inside, how: str) -> None:
    """The one call that waits is approved, and its turn goes on by `ask --resume` or by a runner."""
    turn, asked = waiting(painter)
    assert painter("approve", asked).code == Exit.DONE
    ran = painter("ask", "--resume", turn) if how == "resume" else painter("run", "--once", "--json")
    assert ran.code == Exit.DONE, ran.err


@pytest.mark.parametrize("how", ["resume", "run"])
def test_a_turn_goes_on_with_the_temperature_and_the_formats_that_it_began_with(
    painter: Inside, tmp_path: Path, store: str, how: str
) -> None:
    with project(tmp_path, store, PAINT % "red", "It is red.") as (model, change):
        change('temperature = 0.25\nmax_tokens = 300\n[profiles.small.tools]\ndefinition_format = "hermes"')
        assert painter("ask", "Paint").code == Exit.WAITING
        change('temperature = 1.5\nmax_tokens = 900\n[profiles.small.tools]\ndefinition_format = "openai"')
        approved(painter, how)
        first, then = model.requests

    assert (first["temperature"], first["max_tokens"], "tools" in first) == (0.25, 300, False)
    assert (then["temperature"], then["max_tokens"], "tools" in then) == (0.25, 300, False)
    assert "paint" in json.dumps(then["messages"][0])


@each_store_and_each_way
@pytest.mark.parametrize("now", ["", "max_tokens = 120"])
def test_a_limit_that_was_set_meanwhile_holds_for_a_turn_that_goes_on(
    painter: Inside, tmp_path: Path, store: str, how: str, now: str
) -> None:
    with project(tmp_path, store, RED, "It is red.") as (model, change):
        change("max_tokens = 300")
        assert painter("ask", "Paint").code == Exit.WAITING
        change(now)
        approved(painter, how)

    assert [request["max_tokens"] for request in model.requests] == [300, 120 if now else 300]


@each_store_and_each_way
@pytest.mark.parametrize(
    ("began", "now", "advice"),
    [
        (1, None, "the turn began with this budget: go on then"),
        (1, 9, "the turn began with this budget: go on then"),
        (9, 1, "raise budget.calls, or go on then"),
        (None, 1, "raise budget.calls, or go on then"),
        (9, 9, ""),
        (None, None, ""),
    ],
)
def test_a_turn_goes_on_with_the_lesser_of_its_budget_and_the_one_of_now(
    painter: Inside, tmp_path: Path, store: str, how: str, began: int | None, now: int | None, advice: str
) -> None:
    def budget(calls: int | None) -> str:
        return "" if calls is None else f"[budget]\ncalls = {calls}\n"

    with project(tmp_path, store, RED, "It is red.") as (_, change):
        change(rest=budget(began))
        assert painter("ask", "Paint").code == Exit.WAITING
        change(rest=budget(now))
        turn, asked = waiting(painter)
        assert painter("approve", asked).code == Exit.DONE
        ran = painter("ask", "--resume", turn) if how == "resume" else painter("run", "--once", "--json")

    assert ran.code == (Exit.FAILED if advice else Exit.DONE), ran.err
    assert advice in ran.err + ran.out
    assert (tmp_path / "painted").exists() == (not advice)


def test_control_a_model_that_is_named_now_is_asked_as_the_settings_of_now_say(
    painter: Inside, tmp_path: Path, store: str
) -> None:
    with project(tmp_path, store, RED, "It is red.") as (model, change):
        change("temperature = 0.25")
        assert painter("ask", "Paint").code == Exit.WAITING
        change("temperature = 1.5")
        turn, asked = waiting(painter)
        assert painter("approve", asked).code == Exit.DONE
        assert painter("ask", "--resume", turn, "--profile", "small").code == Exit.DONE

    assert [request["temperature"] for request in model.requests] == [0.25, 1.5]


def test_the_profile_that_a_turn_began_with_is_asked_again(painter: Inside, tmp_path: Path, store: str) -> None:
    """Two profiles may name the same model at two addresses."""
    with project(tmp_path, store, RED, "It is red.") as (model, change), scripted("Wrong server.") as other:
        twin = f'[profiles.aside]\nprovider = "openai-compatible"\nmodel = "scripted"\nurl = "{other.url}"\n'
        change(rest=twin)
        assert painter("ask", "Paint").code == Exit.WAITING
        text = (tmp_path / "toolwire.toml").read_text()
        (tmp_path / "toolwire.toml").write_text(text.replace('profile = "small"', 'profile = "aside"'))
        approved(painter, "resume")

    assert (len(model.requests), len(other.requests)) == (2, 0)


@pytest.mark.anyio
async def test_a_turn_in_a_memory_store_goes_on_with_the_choices_that_it_began_with(
    painter: Inside, tmp_path: Path
) -> None:
    assert painter("--version").code == Exit.DONE
    store = of_project(MemoryStore(), "default")
    with project(tmp_path, "", "Good morning.") as (model, change):
        change('temperature = 0.25\n[profiles.small.tools]\ndefinition_format = "hermes"', "[budget]\ncalls = 9\n")
        began = open_project()
        spec = spec_of(began, began.settings.chosen())
        async with open_agent(began, store, Unattended(), spec) as agent:
            turn = await agent.begin("Hello")
        change("temperature = 1.5", "[budget]\ncalls = 5\ntokens = 1000\n")
        async with open_agent_of(turn, open_project(), store, {}) as agent:
            budget = agent.budget
            await agent.resume(turn.id)

    assert (model.requests[0]["temperature"], "tools" in model.requests[0]) == (0.25, False)
    assert budget == Budget(calls=5, tokens=1000)


def with_login(url: str) -> str:
    return url.replace("://", "://user:opensesame@")


@each_store_and_each_way
def test_a_turn_whose_address_had_a_password_goes_on_at_no_other_address(
    painter: Inside, tmp_path: Path, store: str, how: str
) -> None:
    """The password is not kept, so the turn waits until the address is given again; the key goes nowhere else."""
    with project(tmp_path, store, "From elsewhere.") as (other, change), scripted(RED, "It is red.") as model:
        change()
        address = with_login(model.url)
        begun = painter("ask", "Paint", "--base-url", address)
        turn, asked = waiting(painter)
        assert painter("approve", asked).code == Exit.DONE
        told = painter("ask", "--resume", turn) if how == "resume" else painter("run", "--once", "--json")
        shown = painter("explain", turn, "--json")
        again = painter("ask", "--resume", turn, "--base-url", address)

    assert begun.code == Exit.WAITING
    said = told.err if how == "resume" else told.json["error"]
    assert told.code == (Exit.USAGE if how == "resume" else Exit.FAILED)
    assert f"the address of its model, {model.url}, had a user name or password in it, which is not kept" in said
    assert "--base-url" in said
    assert "opensesame" not in told.out + told.err + shown.out
    assert not other.requests
    assert (again.code, again.out.strip()) == (Exit.DONE, "It is red."), again.err
    if not store:
        assert not any(b"opensesame" in file.read_bytes() for file in (tmp_path / ".toolwire").glob("store.db*"))


@each_store_and_each_way
def test_a_turn_whose_address_had_no_password_goes_on_there(
    painter: Inside, tmp_path: Path, store: str, how: str
) -> None:
    with project(tmp_path, store, "From elsewhere.") as (other, change), scripted(RED, "It is red.") as model:
        change()
        assert painter("ask", "Paint", "--base-url", model.url).code == Exit.WAITING
        approved(painter, how)

    assert (len(model.requests), len(other.requests)) == (2, 0)
