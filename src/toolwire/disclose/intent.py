"""What tier a question seems to ask for. A proposal only: the grant's tier is the most it can ever be."""

import re

from msgspec import Struct
from msgspec.structs import replace

from toolwire.lazy import lazy_pattern
from toolwire.protocol.tools import Grant, Tier

_RUN = frozenset(
    "write edit change create delete remove rename move install run execute build deploy fix patch commit push "
    "refactor update replace append save send restart stop start kill format".split()
)
_WALK = frozenset(
    "read show open list search find grep look inspect check compare analyse analyze explain trace calculate "
    "compute count measure fetch get print display summarise summarize what which where when how why who".split()
)
_NEGATIONS = frozenset("not never don't dont without avoid no won't cannot can't shouldn't mustn't nor neither".split())
_REACH = 3
_WORD = lazy_pattern(r"[a-z][a-z'’]*")
_LONGEST_QUESTION = 10_000


class Proposal(Struct, frozen=True):
    """The tier that a question seems to ask for, and the word that says so (empty when none does)."""

    tier: Tier
    word: str


def propose_tier(question: str) -> Proposal:
    """Read whole words only, and skip those that a negation in the same clause denies."""
    found = Proposal(Tier.CRAWL, "")
    for clause in re.split(r"[.;:!?\n,]", question[:_LONGEST_QUESTION].lower()):
        words = [word.replace("’", "'") for word in _WORD.findall(clause)]
        for place, word in enumerate(words):
            tier = Tier.RUN if word in _RUN else Tier.WALK if word in _WALK else Tier.CRAWL
            if tier > found.tier and not _NEGATIONS.intersection(words[max(0, place - _REACH) : place]):
                found = Proposal(tier, word)
    return found


def unlock(grant: Grant, question: str) -> Grant:
    """The grant for one turn: no higher than it was, and no higher than the question asks for."""
    return replace(grant, tier=min(grant.tier, propose_tier(question).tier))
