"""A dialogue as it grows, and what is needed to make one: tools, requests, calls, results, answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Message, Reply, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from training import composed, spoken
from training.catalogue import around, size, world
from training.families import Family
from training.naming import Made, make
from training.outcomes import Outcome, outcome
from training.requests import Ask, ask
from training.values import DATA, Draw, draw

SPOKEN = 0.55
COMPOSED = 0.38
SWAPPED = set("place path host url id ticker word domain server symbol dir branch dish of person room product".split())


@dataclass(slots=True)
class Dialogue:
    """A dialogue as it grows, over the tools on offer."""

    kind: str
    tools: list[Made] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)

    def user(self, text: str) -> None:
        self.messages.append(UserMessage(text))

    def says(self, text: str) -> None:
        self.messages.append(Reply(text))

    def calls(self, *calls: tuple[Made, dict[str, Any]]) -> None:
        self.messages.append(Reply(calls=tuple(ToolCall(made.tool.name, arguments) for made, arguments in calls)))

    def gets(self, *results: ToolResult) -> None:
        self.messages.append(ResultsMessage(results))


def result(made: Made, shown: Any) -> ToolResult:
    text = shown if isinstance(shown, str) else ""
    return ToolResult("", made.tool.name, Status.SUCCESS, (Text(text),), None if text else shown)


def failure(made: Made, message: str) -> ToolResult:
    return ToolResult.failed(ToolCall(made.tool.name, {}), Code.EXECUTION_FAILED, message)


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes dialogues of one kind of material: what is trained on, or what was held back."""

    rng: Draw
    held_frames: bool | None = False
    held_tools: bool = False
    tools: int | None = None

    def family(self, app: str = "") -> Family:
        """Something to ask for, of that app if one is named."""
        if not self.held_tools and (app or self.rng.random() < SPOKEN):
            return spoken.pick(self.rng, world().by_name, app, held=self.held_frames)
        if self.rng.random() < COMPOSED:
            act = composed.pick(self.rng, held=self.held_tools)
            return composed.compose(act, self.rng, held=None if self.held_tools else self.held_frames)
        if self.held_tools:
            return self.rng.choice([family for family in world().all if family.held and family.frames])
        return world().pick(self.rng)

    def ask(self, family: Family) -> Ask:
        return ask(family, self.rng, held=None if self.held_tools else self.held_frames)

    def made(self, asked: Ask, seeds: bool) -> Made:
        plain = bool(asked.family.seed) and (seeds or self.rng.random() < 0.35)
        return make(asked.family, self.rng, asked.need, plain=plain)

    def offer(
        self, needed: list[Made], seeds: bool, without: frozenset[str] = frozenset(), against: Sequence[Family] = ()
    ) -> list[Made]:
        count = max(self.tools or size(self.rng), len(needed))
        return around(needed, self.rng, count, seeds=seeds, without=without, against=against, held=self.held_tools)

    def seeds(self) -> bool:
        return self.rng.random() < 0.45

    def round(self, talk: Dialogue, asked: Ask, made: Made) -> Outcome:
        talk.user(asked.request(self.rng))
        return self.served(talk, asked, made)

    def served(self, talk: Dialogue, asked: Ask, made: Made) -> Outcome:
        talk.calls((made, asked.arguments(made)))
        came = outcome(asked, self.rng)
        talk.gets(result(made, came.shown))
        talk.says(came.answer)
        return came

    def served_all(self, talk: Dialogue, asks: Sequence[Ask], mades: Sequence[Made]) -> None:
        talk.calls(*[(made, asked.arguments(made)) for asked, made in zip(asks, mades, strict=True)])
        came = [outcome(asked, self.rng) for asked in asks]
        talk.gets(*[result(made, one.shown) for made, one in zip(mades, came, strict=True)])
        talk.says(" ".join(one.answer if one.answer[-1:] in ".!?" else f"{one.answer}." for one in came))

    def swapped(self, asked: Ask, role: str) -> Ask:
        said, value = draw(asked.family.roles[role].kind, self.rng)
        while value == asked.values[role]:
            said, value = draw(asked.family.roles[role].kind, self.rng)
        return replace(asked, said={**asked.said, role: said}, values={**asked.values, role: value})


@cache
def lines(name: str) -> tuple[str, ...]:
    return tuple((DATA / f"{name}.txt").read_text(encoding="utf-8").splitlines())


def swappable(asked: Ask) -> str:
    """The one thing of a request that another could stand for; empty if there is none."""
    for role in asked.family.roles.values():
        if (
            role.must
            and role.name in asked.said
            and role.kind.split()[0] in SWAPPED
            and role.name not in asked.frame.fixed
        ):
            return role.name
    return ""
