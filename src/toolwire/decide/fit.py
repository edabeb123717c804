"""Whether a rule means a call, in as many words as there are."""

from enum import IntEnum


class RuleMatch(IntEnum):
    """Whether a rule means a call."""

    NO = 0
    MAYBE = 1
    YES = 2
