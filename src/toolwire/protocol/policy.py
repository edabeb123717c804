"""The operator's rules about calls: what is never done, what a person is asked about, what needs no asking."""

from collections.abc import Iterable
from enum import IntEnum, StrEnum

from toolwire.protocol.checked import CheckedStruct, check_fields, count, names, one_of, text

TAINTED = "The turn that asks for this has read untrusted content"
"""The reason of the rule by which a sub-agent is as tainted as the turn that set it to work."""
_TAINTED_BEFORE = "Whoever asks for this has read what strangers may have written"  # in turns of earlier versions


class Autonomy(IntEnum):
    """How much is done without approval: nothing that changes anything, what is harmless, or everything."""

    READONLY = 0
    SUPERVISED = 1
    FULL = 2


class Verdict(StrEnum):
    """What a rule says about the calls it matches. Deny is final, and asking wins over allowing."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@check_fields(
    verdict=one_of(Verdict), tools=names, permission=text, argument=text, pattern=text, reason=text, quorum=count(1)
)
class Rule(CheckedStruct, frozen=True):
    """One line of a policy, about the calls of some tools, or of all tools that need a permission.

    `tools` are exact names. With `argument`, only calls whose argument fits `pattern` are meant: a glob over the whole
    value, in which `*` stands for anything; for the command of a shell tool, words that a command begins with.
    Where a rule asks, so many different people must agree as `quorum` says.
    A rule gives nothing that the grant's tier and permissions do not: allowing means that no approval is requested.
    """

    verdict: Verdict
    tools: frozenset[str] = frozenset()
    permission: str = ""
    argument: str = ""
    pattern: str = ""
    reason: str = ""
    quorum: int = 1

    def __str__(self) -> str:
        """The rule as it is written in settings: `deny write, edit where path is *.lock`."""
        whose = ", ".join(sorted(self.tools)) if self.tools else f"needs {self.permission}"
        several = f" by {self.quorum}" if self.quorum > 1 else ""
        where = f" where {self.argument} is {self.pattern}" if self.argument else ""
        return f"{self.verdict} {whose}{several}{where}"

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Read a rule as it is written in settings. Raises ValueError, which says what is right.

        The first word is the verdict; then come tools by name, or `needs` and a permission; with `by 2` two people
        must agree; `where ARGUMENT is PATTERN` narrows the rule to some arguments.
        """
        head, narrowed, condition = text.partition(" where ")
        verdict, _, whose = head.strip().partition(" ")
        whose, _, people = whose.partition(" by ")
        argument, _, pattern = condition.partition(" is ")
        if verdict not in set(Verdict) or not whose.strip() or bool(narrowed) != bool(argument.strip() and pattern):
            raise ValueError(_RULE_FORM)
        if people and not (people.strip().isdecimal() and 1 <= int(people) <= MOST_PEOPLE):
            raise ValueError(f"by {people.strip()[:20]!r} must be the number of people who must agree")
        permission = whose.removeprefix("needs ").strip() if whose.startswith("needs ") else ""
        tools = frozenset() if permission else frozenset(name.strip() for name in whose.split(",") if name.strip())
        if not tools and not permission:
            raise ValueError(_RULE_FORM)
        if "*" in "".join(tools) + permission:
            raise ValueError("a rule names its tools or a permission exactly; * stands only in patterns")
        return cls(Verdict(verdict), tools, permission, argument.strip(), pattern, quorum=int(people or 1))


MOST_PEOPLE = 100
_RULE_FORM = (
    "must read like `deny write, edit where path is *.lock`, `allow bash where command is git status` "
    "or `ask needs network by 2`"
)


def inherits_taint(rules: Iterable[Rule]) -> bool:
    """Whether a turn works for one that has read untrusted content."""
    return any(rule.reason in (TAINTED, _TAINTED_BEFORE) for rule in rules)
