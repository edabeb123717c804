"""How a computed number is written down."""

import math
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from toolwire.errors import ToolFailure
from toolwire.toolbox.calculator.numbers import Number, approximate

LONGEST_DECIMAL = 40


class FormattedNumber(NamedTuple):
    """A number as JSON can carry it, in digits, and whether the first of these is exact."""

    result: int | float
    formatted: str
    exact: bool


def show(number: Number) -> FormattedNumber:
    """The number for a result. Refuses what a float cannot hold.

    Many JSON readers lose digits of whole numbers beyond 64 bits, so these keep them as text only.
    """
    if isinstance(number, Fraction) and number.denominator == 1 and number.numerator.bit_length() < 64:
        return FormattedNumber(number.numerator, str(number.numerator), True)
    near = approximate(number)
    if near.error > abs(near.value) * Decimal("1e-18"):
        raise ToolFailure("too many digits cancel each other out for a certain result")
    result = float(near.value)
    if math.isinf(result) or result == 0.0:
        bound = "large to be written down; the largest is about 1.8e308" if result else "small to be written down"
        raise ToolFailure(f"the result is too {bound}")
    exact = isinstance(number, Fraction) and Fraction(repr(result)) == number
    return FormattedNumber(result, _digits(number, result), exact)


def _digits(number: Number, rounded_result: float) -> str:
    """All digits of a whole number or short decimal, the rounded ones of any other."""
    if isinstance(number, Fraction) and number.denominator == 1:
        return str(number.numerator)
    value = approximate(number).value
    if value == number and len(plain := f"{value:f}") <= LONGEST_DECIMAL:
        return plain
    return repr(rounded_result)
