"""Numbers that are right or refused: exact fractions, and approximations that know their own error.

Everything here is to be called inside `precisely()`.
"""

import decimal
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from toolwire.errors import ToolFailure

# An exact value may have about 1,200 digits. One that outgrows this goes on as an approximation.
EXACT_BITS = 4096
DIGITS = 110
_PRECISE = decimal.Context(
    prec=DIGITS,
    Emax=100_000,
    Emin=-100_000,
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow, decimal.Underflow],
)
ROUNDING = Decimal(f"1e{2 - DIGITS}")
_CERTAIN = Decimal("1e-15")
_SAME = Decimal("1e-50")
_TRACE = Decimal("1e-50")
_LOST = Decimal("1e-40")


class Approximate(NamedTuple):
    """A value that is off by at most `error`."""

    value: Decimal
    error: Decimal


Number = Fraction | Approximate


def precisely() -> AbstractContextManager[decimal.Context]:
    """A block in which decimals have enough digits, and a bounded size, for the promises made here."""
    return decimal.localcontext(_PRECISE)


def add(left: Number, right: Number) -> Number:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return _kept(left + right)
    a, b = approximate(left), approximate(right)
    small, large = sorted((abs(a.value), abs(b.value)))
    # A part too small to leave a trace must not be taken for nothing once the large part cancels out.
    lost = large * _LOST if 0 < small < large * _TRACE else Decimal(0)
    return exact_or_approximate(a.value + b.value, a.error + b.error + lost, large)


def negate(number: Number) -> Number:
    return -number if isinstance(number, Fraction) else Approximate(number.value.copy_negate(), number.error)


def multiply(left: Number, right: Number) -> Number:
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return _kept(left * right)
    a, b = approximate(left), approximate(right)
    return exact_or_approximate(a.value * b.value, abs(a.value) * b.error + abs(b.value) * a.error)


def divide(left: Number, right: Number) -> Number:
    _refuse_zero(right, "nothing can be divided by zero")
    if isinstance(left, Fraction) and isinstance(right, Fraction):
        return _kept(left / right)
    a, b = approximate(left), approximate(right)
    quotient = a.value / b.value
    return exact_or_approximate(quotient, (a.error + abs(quotient) * b.error) / (abs(b.value) - b.error))


def remainder(left: Number, right: Number) -> Number:
    """What is left of `left` after whole multiples of `right`; it has the sign of `right`."""
    _refuse_zero(right, "there is no remainder after division by zero")
    whole = floor(divide(left, right))
    return add(left, negate(multiply(whole, right)))


def power(base: Number, exponent: Number) -> Number:
    if isinstance(exponent, Fraction) and exponent.denominator == 1:
        return _whole_power(base, exponent.numerator)
    if sign(base) < 0:
        raise ToolFailure("a negative number has no real power with a fraction as its exponent")
    if sign(base) == 0:
        return _power_of_zero(sign(exponent))
    if isinstance(base, Fraction) and exponent == Fraction(1, 2):
        return square_root(base)
    return exponential(multiply(exponent, logarithm(base)))


def _power_of_zero(direction: int) -> Fraction:
    if direction <= 0:
        raise ToolFailure("zero cannot be raised to a negative power: that would divide by zero")
    return Fraction(0)


def _whole_power(base: Number, exponent: int) -> Number:
    if isinstance(base, Fraction):
        if base == 0:
            return Fraction(1) if exponent == 0 else _power_of_zero(exponent)
        if abs(base) == 1:
            return base if exponent % 2 else Fraction(1)
        if _bits(base) * abs(exponent) <= 2 * EXACT_BITS:
            return _kept(base**exponent)
    if sign(base) == 0:
        return _power_of_zero(exponent)
    size = exponential(multiply(Fraction(exponent), logarithm(absolute(base))))
    return negate(size) if sign(base) < 0 and exponent % 2 else size


def square_root(number: Number) -> Number:
    if sign(number) < 0:
        raise ToolFailure("a negative number has no real square root")
    if isinstance(number, Fraction):
        top, bottom = math.isqrt(number.numerator), math.isqrt(number.denominator)
        if top * top == number.numerator and bottom * bottom == number.denominator:
            return Fraction(top, bottom)
        return Approximate(root := approximate(number).value.sqrt(), root * ROUNDING)
    root = number.value.sqrt()
    return exact_or_approximate(root, number.error / root)


def exponential(number: Number) -> Number:
    if number == 0:
        return Fraction(1)
    near = approximate(number)
    result = near.value.exp()
    return exact_or_approximate(result, 2 * result * near.error, irrational=isinstance(number, Fraction))


def logarithm(number: Number) -> Number:
    """The natural logarithm."""
    if sign(number) <= 0:
        raise ToolFailure("only numbers above zero have a logarithm")
    if number == 1:
        return Fraction(0)
    near = approximate(number)
    return exact_or_approximate(near.value.ln(), 2 * near.error / near.value, irrational=isinstance(number, Fraction))


def absolute(number: Number) -> Number:
    return negate(number) if sign(number) < 0 else number


def floor(number: Number) -> Fraction:
    return Fraction(_whole(number, math.floor))


def ceiling(number: Number) -> Fraction:
    return Fraction(_whole(number, math.ceil))


def rounded(number: Number, places: int = 0) -> Number:
    """Rounded to `places` decimals, halves away from zero as people do it."""
    scale = Fraction(10) ** places
    size = floor(add(multiply(absolute(number), scale), Fraction(1, 2)))
    return (size if sign(number) >= 0 else -size) / scale


def _whole(number: Number, cut: Callable[[Fraction], int]) -> int:
    if isinstance(number, Fraction):
        return cut(number)
    low, high = (cut(Fraction(number.value) + side * Fraction(number.error)) for side in (-1, 1))
    if low != high:
        raise ToolFailure("this value is not known precisely enough to be made a whole number")
    return low


def factorial(number: Number) -> Number:
    if not isinstance(number, Fraction) or number.denominator != 1 or number < 0:
        raise ToolFailure("only whole numbers from 0 on have a factorial")
    if number > 1000:
        raise ToolFailure(
            f"the factorial of {_short(number)} is too large; a result holds at most 170!, a value on the way 1000!"
        )
    return _kept(Fraction(math.factorial(number.numerator)))


def _short(number: Fraction) -> str:
    text = str(number)
    return text if len(text) < 20 else f"a number of {len(text)} digits"


def less(left: Number, right: Number) -> bool:
    return sign(add(left, negate(right))) < 0


def approximate(number: Number) -> Approximate:
    if isinstance(number, Approximate):
        return number
    value = Decimal(number.numerator) / Decimal(number.denominator)
    return Approximate(value, abs(value) * ROUNDING)


def sign(number: Number) -> int:
    """-1, 0 or 1. Refuses an approximation that may be either."""
    if isinstance(number, Fraction):
        return (number > 0) - (number < 0)
    if abs(number.value) <= number.error:
        raise ToolFailure("this value cannot be told from zero, so the result is not certain")
    return -1 if number.value < 0 else 1


def _refuse_zero(number: Number, sentence: str) -> None:
    if sign(number) == 0:
        raise ToolFailure(sentence)


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _kept(number: Fraction) -> Number:
    return number if _bits(number) <= EXACT_BITS else approximate(number)


def exact_or_approximate(
    value: Decimal, error: Decimal, scale: Decimal | None = None, *, irrational: bool = False
) -> Number:
    """The approximation with the error of its last step; the whole number instead where it plainly is one.

    `scale` is the size of the largest value that was rounded on the way, if that is not the result. An `irrational`
    result, as all these functions have for fractions, is never a whole number, however near it comes to one.
    """
    error += (abs(value) if scale is None else scale) * ROUNDING
    if error > _CERTAIN * max(abs(value), Decimal(1)):
        raise ToolFailure("too many digits cancel each other out for a certain result")
    # sqrt(2)^2 is 2: no other value that people write comes this near to a whole number.
    if not irrational and error < _SAME and abs(value - (whole := value.to_integral_value())) <= error:
        return Fraction(int(whole))
    return Approximate(value, error)
