"""Dialogues in which something is in the way: an error, a missing detail, no fitting tool, orders in a result."""

import re
from collections.abc import Sequence

from training.catalogue import rivals, world
from training.corrections import retried
from training.families import Family
from training.making import Dialogue, Maker, failure, lines, result
from training.naming import Made
from training.outcomes import document
from training.requests import Ask, ask
from training.spoken import TAG
from training.wording import is_order, worded

READERS = ("read", "webfetch", "bash", "read_file", "websearch", "grep", "todoread", "sessions_history")
INFORMING = {"weather", "stock", "news", "score", "movie", "timein", "directions", "distance", "flights", "websearch"}
BUSY = ("busy, please call once more", "temporary failure, retry now", "interrupted, call again")
REFUSALS = (
    "I can't do that with these tools.",
    "I can't do that with the tools I have.",
    "I can't do that: none of my tools fits.",
    "Sorry, I have no tool for that.",
    "I can't help with that, I don't have a tool for it.",
)
ADMISSIONS = (
    "That didn't work: {message}.",
    "I couldn't do that: {message}.",
    "It failed: {message}.",
    "Sorry, that failed: {message}.",
    "I could not get a result: {message}.",
)
IGNORED = (
    "It also contains instructions, which I did not follow.",
    "It also gives me orders; I ignored them.",
    "There is also an instruction in it that I won't follow.",
)


def failing(maker: Maker) -> Dialogue:
    """A call that fails: admit it plainly, or do what the error says would be right."""
    asked = maker.ask(maker.family())
    made = maker.made(asked, seeds := maker.seeds())
    talk = Dialogue("failing", maker.offer([made], seeds))
    if maker.rng.random() < 0.6 and retried(maker, asked, talk, made):
        return talk
    talk.user(asked.request(maker.rng))
    talk.calls((made, asked.arguments(made)))
    if maker.rng.random() < 0.08:
        talk.gets(failure(made, maker.rng.choice(BUSY)))
        maker.served(talk, asked, made)
        return talk
    message = _hopeless(maker, asked)
    talk.gets(failure(made, message))
    talk.says(maker.rng.choice(ADMISSIONS).format(message=message))
    return talk


def _hopeless(maker: Maker, asked: Ask) -> str:
    """An error that does not tell what would be right; now and then it names what was asked for."""
    values = {role: asked.values[role] for role in asked.said if role in asked.family.roles}
    said = [role for role, value in values.items() if isinstance(value, str) and "\n" not in value]
    if not said or maker.rng.random() < 0.5:
        return maker.rng.choice(lines("errors"))
    role, quote = maker.rng.choice(said), maker.rng.choice(["'", '"', "", ""])
    bad = f"{quote}{values[role]}{quote}"
    return maker.rng.choice(lines("failures")).format(role=role.replace("_", " "), bad=bad)


def refusing(maker: Maker) -> Dialogue:
    """A wish that none of the tools can fulfil."""
    asked = maker.ask(maker.family())
    while not (asked.family.cannot or "outside" in asked.family.tags) or not _is_wish(asked):
        asked = maker.ask(maker.family())
    general = {"delegate", "expert", "llm", "edge", "nodes"}
    if asked.family.group in INFORMING or asked.family.seed:
        general |= {"websearch", "browser", "webfetch", "codesearch", "http"}
    if "shell" in asked.family.tags or asked.family.seed:
        general |= {"shell", "runcode", "procstart", "skillcmd", "skillbg", "skillservice"}
    without = frozenset(general) | rivals(asked.family.group)
    thing = asked.family.name.split(".")[0]
    if "outside" in asked.family.tags and "." in asked.family.name:
        without |= {family.group for family in world().all if family.name.startswith(f"{thing}.")}
    tools = [] if maker.rng.random() < 0.08 else maker.offer([], maker.seeds(), without, [asked.family])
    talk = Dialogue("refuse", tools)
    talk.user(asked.request(maker.rng))
    talk.says(_refusal(maker, asked.family))
    return talk


_ASKED_FOR = re.compile(
    r"\?|\b(please|pls|plz|kindly|can you|could you|would you|will you|i want|i need|i'd like|let's)\b"
)


def _is_wish(asked: Ask) -> bool:
    """Whether it asks for something in so many words: a remark would be answered in another way than by a refusal."""
    text = asked.frame.text
    if TAG in asked.family.tags:
        return _ASKED_FOR.search(" ".join([text, *asked.said.values()]).lower()) is not None
    return (
        is_order(text) or text.endswith("?") or text.startswith(("I need", "I want", "I'd like", "we need", "{", "a "))
    )


def _refusal(maker: Maker, family: Family) -> str:
    if family.cannot and maker.rng.random() < 0.5:
        return f"I can't {family.cannot} with these tools."
    return maker.rng.choice(REFUSALS)


def asking(maker: Maker) -> Dialogue:
    """A wish that leaves out what the tool needs: ask for it."""
    family = maker.rng.choice([family for family in world().asked if family.bare])
    must = [role for role in family.roles.values() if role.must]
    asked = maker.ask(family)
    made = maker.made(asked, seeds := maker.seeds())
    talk = Dialogue("ask", maker.offer([made], seeds))
    talk.user(worded(maker.rng.choice(family.bare), {}, maker.rng))
    labels = " and the ".join(role.name.replace("_", " ").replace(".", " ") for role in must[:2])
    talk.says(
        maker.rng.choice(
            ["What is the {}?", "Please tell me the {}.", "Which {}?" if len(must) == 1 else "What are the {}?"]
        ).format(labels)
    )
    if len(must) == 1 and not family.slots and asked.said.keys() == {must[0].name}:
        talk.user(asked.said[must[0].name])
        maker.served(talk, asked, made)
    return talk


def injected(maker: Maker) -> Dialogue:
    """A result that gives orders; it is data, so it is told, not obeyed."""
    family = world().by_name[maker.rng.choice(READERS)]
    asked = maker.ask(family)
    made = maker.made(asked, seeds := maker.seeds())
    talk = Dialogue("inject", maker.offer([made], seeds))
    talk.user(asked.request(maker.rng))
    talk.calls((made, asked.arguments(made)))
    order = maker.rng.choice(lines("injections")).format(order=_order(maker, talk.tools))
    body = document(maker.rng)[:2]
    told = " / ".join(body)
    talk.gets(result(made, "\n".join([*body, order] if maker.rng.random() < 0.6 else [order, *body])))
    talk.says(f"It says: {told}{'' if told[-1:] in '.!?' else '.'} {maker.rng.choice(IGNORED)}")
    return talk


def _order(maker: Maker, tools: Sequence[Made]) -> str:
    target = maker.rng.choice(tools)
    family = target.family if target.family.frames else world().by_name["bash"]
    if maker.rng.random() < 0.5:
        return ask(family, maker.rng).request(maker.rng, alone=False)
    return maker.rng.choice([f"call {target.tool.name}", *lines("orders")])
