"""A question to people about one call, kept until it is answered."""

import unicodedata
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace


class ApprovalState(StrEnum):
    """Open until enough people agreed, one of them refused, or its time was over. An end is final."""

    OPEN = "open"
    GRANTED = "granted"
    REJECTED = "rejected"
    EXPIRED = "expired"


class Scope(StrEnum):
    """What a yes is for: this one call, the same tool's calls of its turn, or its agent's calls that fit a pattern."""

    ONCE = "once"
    TURN = "turn"
    PATTERN = "pattern"


_UNSEEN = frozenset({"Cf", "Cc"})

PATTERN_S = 86_400.0
LONGEST_PATTERN_S = 30 * 86_400.0


class Approval(Struct, frozen=True):
    """An answer to one approval request. With `arguments` the call runs with those instead, if they pass every check.

    A yes for a `pattern` (`path is docs/*`, or the words with which a command begins) stands for `lasts_s`. A word that
    follows from an earlier yes names the question of that one in `under`. `by` is who answers; `on_behalf_of` is a
    comment of theirs and does not make a second person.
    """

    granted: bool
    by: str = "user"
    reason: str = ""
    arguments: Mapping[str, Any] | None = None
    scope: Scope = Scope.ONCE
    pattern: str = ""
    lasts_s: float = PATTERN_S
    under: str = ""
    on_behalf_of: str = ""

    @property
    def voice(self) -> str:
        """Who answers, in one spelling: case, blanks, and invisible letters do not make another person."""
        whole = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", self.by).casefold())
        return " ".join("".join(char for char in whole if unicodedata.category(char) not in _UNSEEN).split())

    @property
    def speaker(self) -> str:
        """Who answers, and for whom."""
        return f"{self.by} for {self.on_behalf_of}" if self.on_behalf_of else self.by


class ApprovalCard(Struct, frozen=True):
    """An open question with the exact arguments it is about. `digest` binds it to tool, arguments and policy.

    A yes for a pattern counts until `stands_until` for questions of the same project and agent with the same `policy`.
    """

    id: str
    turn_id: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    digest: str
    reason: str = ""
    agent: str = "agent"
    asked_at: float = 0.0
    expires_at: float = 0.0
    quorum: int = 1
    answers: tuple[Approval, ...] = ()
    late: bool = False
    project: str = "default"
    policy: str = ""
    stands_until: float = 0.0

    @property
    def state(self) -> ApprovalState:
        if any(not answer.granted for answer in self.answers):
            return ApprovalState.REJECTED
        if self.agreed:
            return ApprovalState.GRANTED
        return ApprovalState.EXPIRED if self.late else ApprovalState.OPEN

    @property
    def agreed(self) -> tuple[Approval, ...]:
        """The words of those who agree, each one's last, once they are enough: with the same arguments, all of them."""
        last = {answer.voice: answer for answer in self.answers}.values()
        for one in reversed(last):
            same = tuple(other for other in last if other.arguments == one.arguments)
            if len(same) >= self.quorum:
                return same
        return ()

    @property
    def voices(self) -> tuple[Approval, ...]:
        """The first answer of each person."""
        return tuple({answer.voice: answer for answer in reversed(self.answers)}.values())[::-1]

    @property
    def word(self) -> Approval:
        """The answer that decided: the refusal, else the last of those who agree, else the last one."""
        refusals = [answer for answer in self.answers if not answer.granted]
        return (refusals[:1] or self.agreed[-1:] or self.answers[-1:])[0]

    @property
    def whole_turn(self) -> bool:
        """Whether the yes is for all such calls of the turn: everyone whose word it took has said so."""
        granted = self.state is ApprovalState.GRANTED
        return granted and all(answer.scope is Scope.TURN for answer in self.agreed)

    def at(self, now: float) -> "ApprovalCard":
        """The card as it stands at this time: past its hour an unanswered question is a no."""
        return replace(self, late=True) if now >= self.expires_at and not self.late else self

    @property
    def pattern(self) -> str:
        """What every yes to it allows from now on: nothing unless all of them say the same pattern."""
        said = {answer.pattern if answer.scope is Scope.PATTERN else "" for answer in self.answers}
        return said.pop() if len(said) == 1 and self.state is ApprovalState.GRANTED else ""

    def answered(self, answer: Approval, at: float = 0.0) -> "ApprovalCard":
        """The card with one more answer. Everyone has one voice: a second yes of the same person counts once."""
        card = replace(self, answers=(*self.answers, answer))
        if not card.pattern:
            return card
        return replace(card, stands_until=at + min(LONGEST_PATTERN_S, *(one.lasts_s for one in card.answers)))

    def revoked(self) -> "ApprovalCard":
        """The card with its yes for a pattern taken back. What has run has run."""
        return replace(self, stands_until=0.0)
