"""The dialogues that the embedded model is trained on."""

import functools
import json
from collections.abc import Iterator

import jsonschema_rs
import pytest
from training.catalogue import rivals, world
from training.dialogues import Dialogue
from training.families import seed_tools
from training.generate import as_json, as_turns, generate

from toolwire.models.local_dialogue import calls_in
from toolwire.protocol.chat import Reply, ResultsMessage, UserMessage

PARTS = {"train": 600, "phrasings": 300, "tools": 300}


@functools.cache
def generated(part: str) -> list[Dialogue]:
    """As many dialogues of a part as any test looks at: to generate one takes 3 ms."""
    return list(generate(6, PARTS[part], part))


@pytest.fixture(params=PARTS)
def dialogues(request: pytest.FixtureRequest) -> list[Dialogue]:
    return generated(request.param)[:300]


def called(talk: Dialogue) -> Iterator[tuple[str, dict[str, object]]]:
    for message in talk.messages:
        if isinstance(message, Reply):
            yield from ((call.name, dict(call.arguments)) for call in message.calls)


def test_the_same_seed_gives_the_same_dialogues_and_another_gives_others() -> None:
    first, again, other = ([as_json(talk) for talk in generate(seed, 20)] for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_every_call_fits_the_schema_of_a_tool_on_offer(dialogues: list[Dialogue]) -> None:
    for talk in dialogues:
        schemas = {made.tool.name: dict(made.tool.input_schema) for made in talk.tools}
        for name, arguments in called(talk):
            assert jsonschema_rs.is_valid(schemas[name], arguments), (schemas[name], arguments)


def test_a_dialogue_starts_with_the_tools_and_ends_with_what_the_model_says(dialogues: list[Dialogue]) -> None:
    for talk in dialogues:
        roles = [role for role, _ in as_turns(talk)]
        assert (roles[0], roles[1], roles[-1]) == ("system", "user", "assistant")
        assert not calls_in(as_turns(talk)[-1][1])


def test_a_catalogue_has_at_most_thirty_tools_with_different_names(dialogues: list[Dialogue]) -> None:
    for talk in dialogues:
        names = [made.tool.name for made in talk.tools]
        assert len(names) <= 30
        assert len(set(names)) == len(names)


def test_calls_and_results_come_in_pairs(dialogues: list[Dialogue]) -> None:
    for talk in dialogues:
        for before, after in zip(talk.messages, talk.messages[1:], strict=False):
            if isinstance(before, Reply) and before.calls:
                assert isinstance(after, ResultsMessage)
                assert [call.name for call in before.calls] == [result.name for result in after.results]
            else:
                assert isinstance(after, Reply) == isinstance(before, UserMessage | ResultsMessage)


def test_held_tools_are_never_trained_on() -> None:
    held = {family.name for family in world().all if family.held}
    assert held
    for talk in generated("train"):
        assert not held & {made.family.name for made in talk.tools}


def test_held_phrasings_are_never_trained_on() -> None:
    assert all(frame.held for family in world().asked for frame in family.asked(held=True))
    assert any(family.asked(held=True) for family in world().asked)
    assert not any(frame.held for family in world().asked for frame in family.asked(held=False))


def test_no_other_tool_on_offer_could_be_meant_by_the_same_words() -> None:
    for talk in generated("train"):
        if talk.kind == "single":
            wanted = {name for name, _ in called(talk)}
            families = [made.family for made in talk.tools if made.tool.name in wanted]
            last = families[-1] if len(families) == 1 else None
            others = {made.family.group for made in talk.tools if made.tool.name not in wanted}
            assert last is None or not others & rivals(last.group)


def test_orders_inside_a_result_are_never_followed() -> None:
    for talk in generated("train"):
        if talk.kind == "inject":
            assert len(list(called(talk))) == 1


def test_every_built_in_tool_is_known_to_the_generator() -> None:
    assert {family.seed for family in world().all if family.seed} == seed_tools().keys()


def test_a_line_of_the_file_is_plain_json() -> None:
    (talk,) = generate(1, 1)
    assert json.loads(json.dumps(as_json(talk, tools=True))).keys() == {"kind", "turns", "tools"}
