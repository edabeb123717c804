"""The operator's rules about calls: what is never done, what a person is asked about, what needs no asking."""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from toolwire.protocol.values import quick


class Autonomy(IntEnum):
    """How much is done without a person's word: nothing that changes anything, what is harmless, or everything."""

    READONLY = 0
    SUPERVISED = 1
    FULL = 2


class Verdict(StrEnum):
    """What a rule says about the calls it matches. Deny is final, and asking wins over allowing."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@quick
@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a policy, about the calls of some tools, or of all tools that need a permission.

    `tools` are exact names. With `argument`, only calls whose argument fits `pattern` are meant: a glob over the whole
    value, in which `*` stands for anything; for the command of a shell tool, words that a command begins with.
    Where a rule asks, so many different people must agree as `quorum` says.
    A rule gives nothing that the grant's tier and permissions do not: allowing means that nobody is asked.
    """

    verdict: Verdict
    tools: frozenset[str] = frozenset()
    permission: str = ""
    argument: str = ""
    pattern: str = ""
    reason: str = ""
    quorum: int = 1

    def __str__(self) -> str:
        whose = " or ".join(sorted(self.tools)) if self.tools else f"tools that need {self.permission}"
        where = f" where {self.argument} is {self.pattern!r}" if self.argument else ""
        return f"{self.verdict} {whose}{where}"
