"""Dialogues that need no tool."""

from collections.abc import Sequence

from training import composed
from training.catalogue import world
from training.families import Family
from training.making import Dialogue, Maker, lines
from training.naming import make
from training.spoken import family_of, talked
from training.values import draw
from training.wording import worded


def talking(maker: Maker) -> Dialogue:
    """Conversation that needs no tool."""
    luck, without = maker.rng.random(), frozenset[str]()
    if luck < 0.35:
        return chatting(maker)
    if luck < 0.55:
        return remarking(maker)
    source = "talk"
    if luck < 0.75:
        source, without = "facts", frozenset({"expert", "llm", "delegate", "codesearch", "edge"})
    talk = Dialogue("talk", maker.offer([], maker.seeds(), without))
    for line in maker.rng.sample(part_of(lines(source), maker.held_frames), maker.rng.choice([1, 1, 1, 2])):
        said, answer = line.split(" => ")
        talk.user(worded(said[:1].upper() + said[1:], {}, maker.rng))
        talk.says(answer)
    return talk


def chatting(maker: Maker) -> Dialogue:
    """Something that was said by the way, about the matter of one of the tools on offer or about none."""
    name, _, rest = maker.rng.choice(part_of(lines("chatter"), maker.held_frames)).partition(": ")
    said, answer = rest.split(" => ")
    near = [make(_named(name), maker.rng, plain=True)] if name != "-" else []
    talk = Dialogue("talk", maker.offer(near, maker.seeds()))
    talk.user(worded(said, {}, maker.rng, alone=False))
    talk.says(answer)
    return talk


def _named(name: str) -> Family:
    """The built-in tool of that name, or the one of an app."""
    if name in world().by_name:
        return world().by_name[name]
    tool = next(tool for tool in talked() if tool.name == name)
    return family_of(tool, (), {})


def remarking(maker: Maker) -> Dialogue:
    """A remark about what a tool on offer is for, without any wish."""
    family, remark, said = _about_act(maker) if maker.rng.random() < 0.6 else _about_thing(maker)
    talk = Dialogue("talk", maker.offer([make(family, maker.rng)], maker.seeds()))
    talk.user(worded(remark[:1].upper() + remark[1:], said, maker.rng))
    talk.says(maker.rng.choice(lines("replies")))
    return talk


def _about_act(maker: Maker) -> tuple[Family, str, dict[str, str]]:
    act = composed.pick(maker.rng, held=maker.held_tools)
    remark = maker.rng.choice(act.idle)
    said = {role.name: draw(role.kind, maker.rng)[0] for role in act.roles if f"{{{role.name}}}" in remark}
    return composed.compose(act, maker.rng), remark, said


def _about_thing(maker: Maker) -> tuple[Family, str, dict[str, str]]:
    able = [family for family in world().all if "." in family.name and not family.seed and not family.held]
    family = maker.rng.choice(able)
    one = family.name.split(".")[0]
    many = world().by_name[f"{one}.list"].names[-1].removesuffix(" list")
    return family, maker.rng.choice(lines("remarks")), {"one": one, "many": many}


def part_of(every: Sequence[str], held: bool | None) -> list[str]:
    """The lines that are held back, those that are not, or all."""
    back = set(every[7::9])
    return [line for line in every if held is None or (line in back) == held]


def about(maker: Maker) -> Dialogue:
    """What can you do? The catalogue says it."""
    talk = Dialogue("about", maker.offer([], maker.seeds()))
    talk.user(worded(maker.rng.choice(lines("about")), {}, maker.rng))
    names = [made.tool.name for made in talk.tools]
    listed = ", ".join(names[:8]) + (" and more" if len(names) > 8 else "")
    talk.says(maker.rng.choice(["I can use these tools: {}.", "My tools are {}.", "With my tools: {}."]).format(listed))
    return talk
