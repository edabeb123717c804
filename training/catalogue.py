"""The tools on offer in a dialogue: those that are needed among others that are not."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache

from training import composed, entities, families, spoken
from training.families import Family
from training.naming import Made, make
from training.values import DATA, Draw, words

OFTEN = {
    "calculator": 6.0,
    "read": 4.0,
    "grep": 3.0,
    "bash": 3.0,
    "write": 3.0,
    "random": 3.0,
    "echo": 2.5,
    "timer": 2.5,
}
OFTEN |= dict.fromkeys(("edit", "list", "websearch", "webfetch", "todowrite"), 2.5) | {"glob": 2.0}
OFTEN |= dict.fromkeys(("git_status", "git_diff", "git_commit", "git_log", "git_branch", "todoread"), 1.5)
OFTEN |= dict.fromkeys(("question", "browser", "codesearch", "ping", "sessions_list", "image", "weather"), 1.0)


@dataclass(slots=True)
class World:
    """All families; which of them may be asked for, and how often."""

    all: list[Family]
    asked: list[Family] = field(init=False)
    weights: list[float] = field(init=False)
    by_name: dict[str, Family] = field(init=False)

    def __post_init__(self) -> None:
        self.by_name = {family.name: family for family in self.all}
        self.asked = [family for family in self.all if family.frames and not family.held]
        self.weights = [weight(family) for family in self.asked]

    def pick(self, rng: Draw) -> Family:
        return rng.choices(self.asked, self.weights)[0]


def weight(family: Family) -> float:
    if family.name in OFTEN:
        return OFTEN[family.name]
    if family.seed:
        return 0.75
    return 0.12 if "." in family.name else 0.8


@cache
def world() -> World:
    return World(families.load() + entities.load())


@cache
def _conflicts() -> dict[str, frozenset[str]]:
    """For each group, the groups that could be meant by the same words."""
    found: dict[str, set[str]] = {}
    for line in (DATA / "conflicts.txt").read_text(encoding="utf-8").splitlines():
        for group in line.split():
            found.setdefault(group, set()).update(line.split())
    return {group: frozenset(others) for group, others in found.items()}


def rivals(group: str) -> frozenset[str]:
    return _conflicts().get(group, frozenset()) | {group}


def clash(one: Family, other: Family) -> bool:
    """Whether the same words could mean both. Tools of one app never clash; others may, if they speak of the same."""
    if other.group in rivals(one.group):
        return True
    if spoken.TAG not in one.tags | other.tags or (one.app and one.app == other.app) or (one.seed and other.seed):
        return False
    return bool(_matter(_words_of(one)) & _matter(_words_of(other)))


def _words_of(family: Family) -> str:
    return " ".join([*family.names[:4], *family.purposes])


@lru_cache(4096)
def _matter(text: str) -> frozenset[str]:
    """What a tool is about: the beginnings of the words that tell it from others."""
    told = (word.lower() for word in re.findall(r"[A-Za-z]{4,}", text))
    return frozenset(word[:5] for word in told if word not in words("anyverb"))


def size(rng: Draw) -> int:
    """How many tools a catalogue has: from 2 to 30."""
    return rng.choices([rng.randint(2, 7), rng.randint(8, 17), rng.randint(18, 30)], [30, 45, 25])[0]


def around(
    needed: list[Made],
    rng: Draw,
    count: int,
    *,
    seeds: bool,
    without: frozenset[str] = frozenset(),
    against: Sequence[Family] = (),
    held: bool = False,
) -> list[Made]:
    """A catalogue of about that many tools that holds what is needed and nothing that could be meant instead."""
    closed = frozenset().union(without, *(rivals(made.family.group) for made in needed))
    wished = [*against, *(made.family for made in needed)]
    names = {made.tool.name.lower() for made in needed}
    groups: set[str] = set()
    listed = list(needed)
    for family in _candidates(needed, rng, count, seeds, held):
        if len(listed) >= count:
            break
        if family.group in closed or family.group in groups or (family.held and not held):
            continue
        if any(clash(one, family) for one in wished):
            continue
        made = make(family, rng, plain=bool(family.seed) and (seeds or rng.random() < 0.4))
        if made.tool.name.lower() not in names:
            listed.append(made)
            names.add(made.tool.name.lower())
            groups.add(family.group)
    rng.shuffle(listed)
    return listed


def _candidates(needed: list[Made], rng: Draw, count: int, seeds: bool, held: bool) -> list[Family]:
    every = world().all
    near = [family for made in needed for family in _relatives(made.family, rng)]
    acts = [act for made in needed for act in composed.neighbours(made.family.name, rng, rng.randint(0, 4))]
    acts += [composed.pick(rng, held=None if held else False) for _ in range(count if rng.random() < 0.7 else 0)]
    invented = [composed.compose(act, rng) for act in acts if held or not act.held]
    if seeds:
        common = [family for family in every if family.name in OFTEN and family.seed]
        rng.shuffle(common)
        others = rng.sample([family for family in every if family.seed], count)
        mixed = common[: rng.randint(count // 2, count)] + others + common
    else:
        mixed = rng.choices(every, [0.15 if "." in family.name else 0.6 for family in every], k=3 * count)
    mixed[::2] = [*invented[4:], *mixed[::2]][: len(mixed[::2])]
    app = next((made.family.app for made in needed if made.family.app), "")
    talked = spoken.others(rng, app, rng.choice([0, 3, count])) if app or rng.random() < 0.5 else []
    if not app:
        mixed[1::3] = [*talked, *mixed[1::3]][: len(mixed[1::3])]
        talked = []
    return near + talked + invented[:4] + mixed


def _relatives(family: Family, rng: Draw) -> list[Family]:
    """Tools of the same thing, and of the same verb."""
    thing, dot, verb = family.name.partition(".")
    if not dot or family.seed or rng.random() < 0.2:
        return []
    same = [other for other in world().all if other.name.startswith(f"{thing}.") and other is not family]
    alike = [other for other in world().all if other.name.endswith(f".{verb}") and not other.seed]
    return rng.sample(same, min(len(same), rng.randint(1, 5))) + rng.sample(alike, 2)
