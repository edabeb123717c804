"""The pieces of an expression: numbers, names and marks."""

import re
from fractions import Fraction
from typing import NamedTuple, NoReturn

from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code

LONGEST = 2000
MOST_DIGITS = 400

_TOKEN = re.compile(
    r"\s*(?:(?P<grouped>[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,_])(?:\.[0-9]+)?)"
    r"|(?P<number>(?:[0-9][0-9_]*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z0-9_]*|π)"
    r"|(?P<mark>\*\*|//|[-+*/^%!(),°√×÷−]))"
)
_SAME_MARK = {"**": "^", "×": "*", "÷": "/", "−": "-"}


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int


def refuse(sentence: str) -> NoReturn:
    """Say what is wrong with how an expression is written."""
    raise ToolFailure(sentence, code=Code.INVALID_PARAMS)


def tokens_of(expression: str) -> list[Token]:
    """The tokens of an expression, in lower case. Raises ToolFailure on anything else, and on too much of it."""
    if len(expression) > LONGEST:
        refuse(f"the expression has {len(expression)} characters; at most {LONGEST} are read")
    tokens: list[Token] = []
    at = 0
    expression = expression.rstrip()
    while at < len(expression):
        found = _TOKEN.match(expression, at)
        if found is None:
            rest = expression[at:].lstrip()
            refuse(f"{rest[:1]!r} is not understood at character {len(expression) - len(rest) + 1}")
        kind = found.lastgroup or ""
        text = found[kind].lower()
        tokens.append(Token(kind, _SAME_MARK.get(text, text), found.start(kind), found.end()))
        at = found.end()
    return tokens


def literal(text: str) -> Fraction:
    """The exact value of a number as it is written."""
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MOST_DIGITS or len(exponent) > 5 or abs(int(exponent or 0)) > MOST_DIGITS:
        refuse(f"a number with more than {MOST_DIGITS} digits is not read")
    if "__" in text or "_." in text or mantissa.endswith("_"):
        refuse(f"{text[:40]!r} is not a number")
    whole, _, decimals = mantissa.replace("_", "").partition(".")
    return Fraction(int((whole + decimals) or 0)) * Fraction(10) ** (int(exponent or 0) - len(decimals))
