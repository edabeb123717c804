"""Dialogues that need no tool."""

from collections.abc import Sequence

from training.making import Dialogue, Maker, lines
from training.wording import worded


def talking(maker: Maker) -> Dialogue:
    """Conversation that needs no tool."""
    without = frozenset[str]()
    source = "talk"
    if maker.rng.random() < 0.25:
        source, without = "facts", frozenset({"websearch", "expert", "llm", "delegate", "codesearch", "edge"})
    talk = Dialogue("talk", maker.offer([], maker.seeds(), without))
    for line in maker.rng.sample(part_of(lines(source), maker.held_frames), maker.rng.choice([1, 1, 1, 2])):
        said, answer = line.split(" => ")
        talk.user(worded(said[:1].upper() + said[1:], {}, maker.rng))
        talk.says(answer)
    return talk


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
