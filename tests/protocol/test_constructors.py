"""What people write in Python when they make grants, limits, tools, agents and stores: taken, or refused at once."""

from pathlib import Path
from typing import Any

import pytest

from toolwire import Agent, Delivery, Effect, Grant, Limits, SqliteStore, Tier, Tool, tool
from toolwire.errors import DefinitionError
from toolwire.protocol.budgets import Budget
from toolwire.protocol.policy import Autonomy, Rule, Verdict
from toolwire.testing import ScriptedModel

G: Any = Grant
L: Any = Limits
B: Any = Budget
T: Any = Tool
A: Any = Agent


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.mark.parametrize(
    ("given", "field", "meant"),
    [
        ({"permissions": ["file_read"]}, "permissions", frozenset({"file_read"})),
        ({"permissions": "file_read"}, "permissions", frozenset({"file_read"})),
        ({"permissions": (name for name in ("a", "b"))}, "permissions", frozenset({"a", "b"})),
        ({"tier": "run"}, "tier", Tier.RUN),
        ({"tier": "CRAWL"}, "tier", Tier.CRAWL),
        ({"tier": 2}, "tier", Tier.RUN),
        ({"rules": ("deny x",)}, "rules", (Rule(Verdict.DENY, frozenset({"x"})),)),
        ({"rules": "deny x"}, "rules", (Rule(Verdict.DENY, frozenset({"x"})),)),
        ({"roots": Path("/srv")}, "roots", ("/srv",)),
        ({"roots": ["/a", Path("/b")]}, "roots", ("/a", "/b")),
        ({"network": ["example.com"]}, "network", ("example.com",)),
        ({"confirmed": "*"}, "confirmed", frozenset({"*"})),
        ({"autonomy": "readonly"}, "autonomy", Autonomy.READONLY),
        ({"max_calls": 3.0}, "max_calls", 3),
    ],
)
def test_a_grant_takes_what_is_clearly_meant(given: dict[str, Any], field: str, meant: Any) -> None:
    made = getattr(G(**given), field)
    assert (made, type(made)) == (meant, type(meant))


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (G, {"tier": "rum"}, "must be one of Tier.CRAWL, Tier.WALK, Tier.RUN, not 'rum'"),
        (G, {"tier": True}, "must be one of Tier"),
        (G, {"tier": None}, "must be one of Tier"),
        (G, {"permissions": {"file_read": True}}, "must be names in a list or set"),
        (G, {"permissions": [1]}, "1 is not one of them"),
        (G, {"permissions": None}, "must be names in a list or set, not None"),
        (G, {"permissions": [""]}, "'' is not one of them"),
        (G, {"rules": ["dney x"]}, "holds 'dney x', which must read like"),
        (G, {"rules": [5]}, "5 is not one of them"),
        (G, {"rules": 5}, "must be rules in a list"),
        (G, {"roots": [5]}, "5 is not one of them"),
        (G, {"network": b"x"}, "must be texts in a list"),
        (G, {"max_calls": -1}, "must be at least 0"),
        (G, {"autonomy": "some"}, "must be one of Autonomy"),
        (G, {"wary": "no"}, "must be True or False"),
        (G, {"platform": 3}, "must be text"),
        (G, {"permision": []}, "Grant has no field 'permision'; it has tier, permissions"),
        *((L, {name: -1}, "must be at least 1") for name in ("iterations", "parallel", "repeats", "calls_per_step")),
        (L, {"iterations": 0}, "must be at least 1, not 0"),
        (L, {"iterations": "10"}, "must be a whole number, not '10'"),
        (L, {"iterations": None}, "must be a whole number, not None"),
        (L, {"iterations": True}, "must be a whole number"),
        (L, {"tokens": -5}, "must be at least 0"),
        (L, {"deadline_s": float("nan")}, "must be a number that is not negative"),
        (L, {"deadline_s": -1}, "must be a number that is not negative"),
        (L, {"cost_usd": "1"}, "must be a number"),
        (L, {"tools_enabled": 1}, "must be True or False"),
        (L, {"iteration": 3}, "Limits has no field 'iteration'"),
        (B, {"calls": -1}, "must be at least 0"),
        (B, {"wall_s": "1h"}, "must be a number"),
        (T, {"name": None, "description": "x"}, "must be text"),
        (T, {"name": "x", "description": None}, "must be text"),
        (T, {"name": "x", "description": "x", "needs": 5}, "must be names in a list"),
        (T, {"name": "x", "description": "x", "timeout_s": 0}, "must be above 0"),
        (T, {"name": "x", "description": "x", "input_schema": []}, "must be a dict"),
        (T, {"name": "x", "description": "x", "examples": {"a": 1}}, "must be a list of arguments"),
        (Rule, {"verdict": "forbid"}, "must be one of Verdict"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_a_sentence_about_the_field(
    kind: Any, given: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        kind(**given)
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(kind.__name__)


def test_a_grant_of_a_kind_of_its_own_is_looked_at_as_well() -> None:
    class Careful(Grant, frozen=True):
        """What a program may define for itself."""

    assert Careful(tier="run").tier is Tier.RUN  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"Careful\(max_calls=…\) must be at least"):
        Careful(max_calls=-1)


def test_no_limit_can_be_said_as_infinity() -> None:
    assert L(deadline_s=float("inf"), tokens=float("inf")) == Limits()


def test_a_tool_takes_what_is_clearly_meant() -> None:
    made = T(
        "x", "X.", tier="run", needs=["shell"], effect="pure", delivery="user", reads="file:a", platforms={"linux"}
    )
    assert (made.tier, made.needs, made.effect, made.delivery) == (Tier.RUN, {"shell"}, Effect.PURE, Delivery.USER)
    assert (made.reads, made.platforms) == (("file:a",), frozenset({"linux"}))


@pytest.mark.parametrize(
    "options",
    [
        {"needs": 5},
        {"examples": 5},
        {"timeout_s": "5"},
        {"requires_confirmation": "yes"},
        {"reads": [1]},
        {"category": 1},
    ],
)
def test_a_wrong_option_of_a_tool_is_a_definition_error(options: dict[str, Any]) -> None:
    with pytest.raises(DefinitionError):
        tool(add.in_process.function, **options)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((None,), "this is without name and ask and close; a model is a text such as 'ollama:qwen3'"),
        ((5,), "a model is a text"),
        ((ScriptedModel,), "this is a class and not one of its objects"),
        ((ScriptedModel("x"), "calculator"), "must be a list of functions and tools"),
        ((ScriptedModel("x"), 5), "must be a list of functions and tools"),
    ],
)
def test_an_agent_says_what_its_model_and_tools_must_be(given: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        A(*given)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"grant": {"tier": "run"}}, r"must be a Grant\(…\)"),
        ({"limits": 5}, r"must be a Limits\(…\)"),
        ({"budget": Limits()}, r"must be a Budget\(…\)"),
        ({"store": "folder"}, "must be a store such as await SqliteStore.at"),
        ({"store": SqliteStore}, "must be a store such as"),
        ({"name": 5}, r"Agent\(name=…\) must be text"),
        ({"project": None}, r"Agent\(project=…\) must be text"),
        ({"system": None}, r"Agent\(system=…\) must be text"),
    ],
)
def test_an_agent_says_what_its_other_parts_must_be(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        A(ScriptedModel("x"), **options)


def test_a_store_that_was_not_awaited_is_told() -> None:
    with pytest.raises(TypeError, match="await it"):
        A(ScriptedModel("x"), store=SqliteStore.at("folder"))


async def test_an_agent_takes_one_tool_without_a_list() -> None:
    async with A(ScriptedModel("x"), add) as agent:
        assert (await agent.call("add", {"a": 1, "b": 2})).structured == 3


@pytest.mark.parametrize("question", ["", "  \n", 3, None, b"x"])
async def test_what_is_no_question_is_refused_before_anything_is_on_record(question: Any) -> None:
    async with A(ScriptedModel("x")) as agent:
        with pytest.raises((TypeError, ValueError), match="question"):
            await agent.ask(question)
        assert await agent.store.turns(limit=5) == []


@pytest.mark.parametrize("arguments", [None, "a=1", [1]])
async def test_what_are_no_arguments_are_refused(arguments: Any) -> None:
    async with A(ScriptedModel("x"), [add]) as agent:
        with pytest.raises(TypeError, match="arguments must be a dict"):
            await agent.call("add", arguments)


async def test_a_store_is_opened_by_text_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for home in (str(tmp_path / "one"), tmp_path / "two", "~/three"):
        await (await SqliteStore.at(home)).close_store()
    assert all((tmp_path / name / "store.db").is_file() for name in ("one", "two", "three"))
    wrong: Any = None
    for wrong in (None, 5, ""):
        with pytest.raises(TypeError, match="a folder is named by text or a Path"):
            await SqliteStore.at(wrong)
