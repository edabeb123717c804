"""Dialogues in which everything goes well: one call, several, the same again, a look into a file."""

from toolwire.protocol.chat import Reply
from training.catalogue import clash, world
from training.families import Frame
from training.making import Dialogue, Maker, lines, result, swappable
from training.naming import make
from training.requests import Ask
from training.spoken import doubles, family_of, flat
from training.values import draw, words
from training.wording import is_order, worded

SAME_AGAIN = (
    "and {x}?",
    "what about {x}?",
    "how about {x}?",
    "and for {x}?",
    "same for {x}",
    "now {x}",
    "{x} too please",
)
JOINTS = (
    " and ",
    ". ",
    "\n",
    ", also ",
    ". And ",
    " and then ",
    ", then ",
    ". Then ",
    ". Also ",
    "; ",
    " and also ",
    ", and ",
    " plus ",
    " & ",
    ", after that ",
    " - and ",
    ", and while you're at it, ",
    ". After that, ",
    ", oh and ",
    " and please ",
    ", and please also ",
)
COUNTED = {2: ("Two things: ", "I need two things: ", "both please: "), 3: ("Three things: ", "a few things: ")}


def single(maker: Maker) -> Dialogue:
    """One request, one call, one answer."""
    seeds = maker.seeds()
    asked = maker.ask(maker.family())
    made = maker.made(asked, seeds)
    talk = Dialogue("single", maker.offer([made], seeds))
    maker.round(talk, asked, made)
    return talk


def session(maker: Maker) -> Dialogue:
    """Requests one after another that have nothing to do with each other but the tools on offer."""
    seeds, wished = maker.seeds(), maker.rng.choice([2, 2, 3, 3, 4])
    asks = [maker.ask(maker.family())]
    for _ in range(4 * wished):
        asked = maker.ask(maker.family(asks[0].family.app if maker.rng.random() < 0.6 else ""))
        if len(asks) < wished and not any(clash(other.family, asked.family) for other in asks):
            asks.append(asked)
    mades = [maker.made(asked, seeds) for asked in asks]
    if len({made.tool.name.lower() for made in mades}) < len(mades):
        return single(maker)
    talk = Dialogue("single", maker.offer(mades, seeds))
    for asked, made in zip(asks, mades, strict=True):
        maker.round(talk, asked, made)
    return talk


def several(maker: Maker) -> Dialogue:
    """Several wishes in one request: as many calls at once."""
    if (luck := maker.rng.random()) < 0.35:
        return twins(maker)
    if luck < 0.45:
        return doubled(maker)
    seeds = maker.seeds()
    asks: list[Ask] = []
    wished = maker.rng.choice([2, 2, 2, 2, 3])
    while len(asks) < wished:
        asked = maker.ask(maker.family())
        if not any(clash(other.family, asked.family) for other in asks):
            asks.append(asked)
    mades = [maker.made(asked, seeds) for asked in asks]
    if len({made.tool.name for made in mades}) < len(mades):
        return several(maker)
    talk = Dialogue("several", maker.offer(mades, seeds))
    text = _joined(maker, [asked.request(maker.rng, alone=False) for asked in asks])
    if maker.rng.random() < 0.06:
        text = maker.rng.choice(COUNTED[len(asks)]) + text
    capital = asks[0].frame.text[:1].islower() and maker.rng.random() < 0.6
    talk.user(text[:1].upper() + text[1:] if capital else text)
    maker.served_all(talk, asks, mades)
    return talk


def doubled(maker: Maker) -> Dialogue:
    """Several calls of one tool, as somebody put it."""
    tool, said = maker.rng.choice(doubles())
    family = family_of(tool, said.calls, world().by_name)
    values = [dict(flat(arguments, family.roles)) for arguments in said.calls]
    asks = [Ask(family, Frame(said.text, one, False), {}, one) for one in values]
    need = frozenset(role for one in values for role in one)
    made = make(family, maker.rng, need, plain=bool(family.seed) and maker.rng.random() < 0.6)
    talk = Dialogue("several", maker.offer([made], maker.seeds()))
    talk.user(said.text)
    maker.served_all(talk, asks, [made] * len(asks))
    return talk


def _joined(maker: Maker, parts: list[str]) -> str:
    text = parts[0]
    for part in parts[1:]:
        if text.endswith("?") or not is_order(part):
            joint = maker.rng.choice(JOINTS[:5])
            joint = joint.lstrip(".") if text.endswith("?") else joint
        else:
            joint = maker.rng.choice(JOINTS)
        text += joint + part
    return text


def twins(maker: Maker) -> Dialogue:
    """The same wish for two things."""
    for _ in range(50):
        asked = maker.ask(maker.family())
        role = swappable(asked)
        if role and len(asked.said) == 1 and asked.frame.text.count("{") == 1:
            break
    else:
        return single(maker)
    other = maker.swapped(asked, role)
    both = {role: f"{asked.said[role]} and {other.said[role]}"}
    made = maker.made(asked, seeds := maker.seeds())
    talk = Dialogue("several", maker.offer([made], seeds))
    talk.user(worded(asked.frame.text, both, maker.rng))
    maker.served_all(talk, [asked, other], [made, made])
    return talk


def again(maker: Maker) -> Dialogue:
    """A second request that leaves out what the first one said."""
    for _ in range(50):
        asked = maker.ask(maker.family())
        if role := swappable(asked):
            break
    else:
        return single(maker)
    made = maker.made(asked, seeds := maker.seeds())
    talk = Dialogue("again", maker.offer([made], seeds))
    maker.round(talk, asked, made)
    other = maker.swapped(asked, role)
    talk.user(worded(maker.rng.choice(SAME_AGAIN), {"x": other.said[role]}, maker.rng, alone=False))
    maker.served(talk, other, made)
    return talk


def recall(maker: Maker) -> Dialogue:
    """A question about what was said just now: no call, the answer again."""
    talk = single(maker)
    talk.kind = "recall"
    told = talk.messages[-1]
    assert isinstance(told, Reply)
    talk.user(worded(maker.rng.choice(lines("recalls")), {}, maker.rng))
    talk.says(told.content)
    return talk


def lookup(maker: Maker) -> Dialogue:
    """A question that one line of a file answers."""
    family = world().by_name[maker.rng.choice(["read", "read", "read_file"])]
    path = draw("path", maker.rng)
    keys = maker.rng.sample(words("setting"), maker.rng.randint(1, 4))
    values = {key: draw("int 1 9000", maker.rng)[1] for key in keys}
    asked = Ask(family, family.frames[0], {"path": path[0]}, {"path": path[1]})
    made = maker.made(asked, seeds := maker.seeds())
    talk = Dialogue("lookup", maker.offer([made], seeds, frozenset({"searchtext", "shell", "inspect"})))
    key = maker.rng.choice(keys)
    talk.user(worded(maker.rng.choice(lines("lookups")), {"key": key, "path": path[0]}, maker.rng))
    talk.calls((made, asked.arguments(made)))
    joint = maker.rng.choice([": ", " = ", "="])
    text = "\n".join(f"{name}{joint}{value}" for name, value in values.items())
    talk.gets(result(made, maker.rng.choice([text, {"path": path[1], "text": text}])))
    talk.says(
        maker.rng.choice(["The {} is {}.", "It says that the {} is {}.", "The {} is set to {}."]).format(
            key, values[key]
        )
    )
    return talk
