"""Arithmetic as people write it, read without guessing: what could mean two things is refused with both spellings."""

from collections.abc import Callable, Mapping
from decimal import DecimalException
from fractions import Fraction
from typing import NamedTuple

from toolwire.define.nearest import nearest
from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.calculator import numbers
from toolwire.toolbox.calculator.formatting import FormattedNumber, show
from toolwire.toolbox.calculator.functions import CONSTANTS, FUNCTIONS, degrees, fault_of_count
from toolwire.toolbox.calculator.numbers import Number
from toolwire.toolbox.calculator.tokens import Token, literal, refuse, tokens_of

DEEPEST = 50


class Term(NamedTuple):
    """A value, and whether it was written as a bare percentage, which decides what may be done with it."""

    value: Number
    percent: bool = False


def calculate(expression: str) -> FormattedNumber:
    """The value of an arithmetic expression. Raises ToolFailure with a sentence that says what to write instead."""
    try:
        with numbers.precisely():
            return show(_ExpressionReader(tokens_of(expression)).whole())
    except (DecimalException, OverflowError):
        raise ToolFailure("a value on the way is too large or too small to be computed") from None


class _ExpressionReader:
    """Reads tokens from left to right, one method for each strength of binding, and computes on the way."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        self._in_call = False

    def whole(self) -> Number:
        if not self._tokens:
            refuse("the expression is empty")
        value = self._sum().value
        if (rest := self._peek()) is not None:
            raise self._misplaced(rest)
        return value

    def _peek(self, ahead: int = 0) -> Token | None:
        return self._tokens[self._at + ahead] if self._at + ahead < len(self._tokens) else None

    def _take(self, *texts: str) -> str:
        token = self._peek()
        if token is None or token.text not in texts:
            return ""
        self._at += 1
        return token.text

    def _misplaced(self, token: Token) -> ToolFailure:
        before = self._tokens[self._at - 1] if self._at else None
        if before and (token.kind != "mark" or token.text in "(√"):
            pair = f"{before.text[:20]!r} and {token.text[:20]!r}"
            sentence = f"an operator is missing between {pair}; write * for multiplication"
        elif token.text == "//":
            sentence = "// is not known; write floor(a / b)"
        else:
            sentence = f"{token.text[:20]!r} does not belong at character {token.start + 1}"
        return ToolFailure(sentence, code=Code.INVALID_PARAMS)

    def _sum(self) -> Term:
        left = self._product()
        while sign := self._take("+", "-"):
            right = self._product()
            if left.percent or right.percent:
                refuse(
                    "adding or subtracting a percentage can mean two things: write 200 * (1 + 10/100) for 10% more "
                    "than 200, or 200 + 10/100 for the plain sum"
                )
            left = Term(numbers.add(left.value, right.value if sign == "+" else numbers.negate(right.value)))
        return left

    def _product(self) -> Term:
        left = self._signed()
        while sign := self._take("*", "/", "%", "of"):
            right = self._signed()
            if sign == "of":
                if not left.percent:
                    refuse("'of' is only understood after a percentage, as in 15% of 80")
                left = Term(numbers.multiply(left.value, right.value), right.percent)
            else:
                left = Term(_PRODUCTS[sign](left.value, right.value))
        return left

    def _signed(self) -> Term:
        minus = False
        while sign := self._take("+", "-"):
            minus ^= sign == "-"
        term = self._power()
        return term._replace(value=numbers.negate(term.value)) if minus else term

    def _power(self) -> Term:
        base = self._postfixed()
        if not self._take("^"):
            return base
        self._deeper()
        exponent = self._signed()
        self._depth -= 1
        return Term(numbers.power(base.value, exponent.value))

    def _postfixed(self) -> Term:
        term = Term(self._atom())
        while (token := self._peek()) is not None and token.text in {"!", "%", "°"}:
            if token.text == "%" and self._is_remainder(token):
                return term
            before = self._tokens[self._at - 1].text
            if before in {"!", "%", "°"}:
                refuse(f"{before + token.text!r} can mean several things; use parentheses")
            self._at += 1
            term = _POSTFIXES[token.text](term.value)
        return term

    def _is_remainder(self, sign: Token) -> bool:
        """Whether a % stands between two operands. Refuses spellings that also read as a percentage."""
        after = self._peek(1)
        if after is None or after.text in {"of", ")", ",", "*", "/", "^", "!", "%", "°", "//"}:
            return False
        touches_left = sign.start == self._tokens[self._at - 1].end
        if after.text in {"+", "-"} or (touches_left and after.start > sign.end):
            refuse(
                "this % can mean a percentage or a remainder: write 10/100 for 10 percent, mod(10, 3) for a remainder"
            )
        return True

    def _atom(self) -> Number:
        token = self._peek()
        if token is None:
            refuse("the expression ends too early")
        self._at += 1
        match token.kind, token.text:
            case "number", text:
                return literal(text)
            case "grouped", text:
                return self._with_thousands(text)
            case "name", name:
                return self._named(name)
            case _, "(":
                return self._inside()
            case _, "√":
                return self._rooted()
            case _:
                self._at -= 1
                raise self._misplaced(token)

    def _rooted(self) -> Number:
        self._deeper()
        root = numbers.square_root(self._atom())
        self._depth -= 1
        return root

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEEPEST:
            refuse(f"the expression is nested more than {DEEPEST} deep")

    def _inside(self) -> Number:
        self._deeper()
        outer, self._in_call = self._in_call, False
        value = self._sum().value
        self._close()
        self._in_call = outer
        return value

    def _close(self) -> None:
        if not self._take(")"):
            if (token := self._peek()) is not None:
                raise self._misplaced(token)
            refuse("a closing parenthesis is missing")
        self._depth -= 1

    def _named(self, name: str) -> Number:
        if name in CONSTANTS:
            return CONSTANTS[name]()
        if name not in FUNCTIONS:
            names = [*FUNCTIONS, *CONSTANTS]
            near = nearest(name, names)
            advice = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(names)}"
            refuse(f"{name[:40]!r} is not known; {advice}")
        if not self._take("("):
            refuse(f"{name} is a function: write {name}(…) with its value in parentheses")
        given = self._arguments()
        if fault := fault_of_count(name, len(given)):
            refuse(fault)
        return FUNCTIONS[name](*given)

    def _arguments(self) -> list[Number]:
        self._deeper()
        outer, self._in_call = self._in_call, True
        given = [self._sum().value]
        while self._take(","):
            given.append(self._sum().value)
        self._close()
        self._in_call = outer
        return given

    def _with_thousands(self, text: str) -> Number:
        whole, dot, decimals = text.partition(".")
        if self._in_call or (whole.count(",") == 1 and not dot):
            refuse(
                f"the comma in {text[:40]!r} can mean several things: leave it out of a number, write a point for "
                "decimals, and put a space after a comma between two values"
            )
        return literal(whole.replace(",", "") + dot + decimals)


_PRODUCTS = {"*": numbers.multiply, "/": numbers.divide, "%": numbers.remainder}

_POSTFIXES: Mapping[str, Callable[[Number], Term]] = {
    "!": lambda number: Term(numbers.factorial(number)),
    "%": lambda number: Term(numbers.divide(number, Fraction(100)), percent=True),
    "°": lambda number: Term(degrees(number)),
}
