"""Sine, cosine and tangent of radians to many digits, with pi and e."""

from decimal import Decimal
from fractions import Fraction
from functools import cache

from toolwire.errors import ToolFailure
from toolwire.toolbox.calculator.numbers import (
    DIGITS,
    ROUNDING,
    Approximate,
    Number,
    approximate,
    divide,
    exact_or_approximate,
    sign,
)

_LARGEST_ANGLE = Decimal("1e30")
# The terms of a series over one turn stay below 20, and there are fewer than 200 of them.
_SERIES_SCALE = Decimal(4000)


def sine(angle: Number) -> Number:
    if angle == 0:
        return Fraction(0)
    near = _within_one_turn(angle)
    scale = _SERIES_SCALE * min(abs(near.value), Decimal(1))
    return exact_or_approximate(
        _series(near.value, near.value, 1), near.error, scale, irrational=isinstance(angle, Fraction)
    )


def cosine(angle: Number) -> Number:
    if angle == 0:
        return Fraction(1)
    near = _within_one_turn(angle)
    return exact_or_approximate(
        _series(near.value, Decimal(1), 0), near.error, _SERIES_SCALE, irrational=isinstance(angle, Fraction)
    )


def tangent(angle: Number) -> Number:
    below = cosine(angle)
    if sign(below) == 0:
        raise ToolFailure("the tangent has no value at this angle")
    return divide(sine(angle), below)


def _within_one_turn(angle: Number) -> Approximate:
    near = approximate(angle)
    if abs(near.value) > _LARGEST_ANGLE:
        raise ToolFailure("angles above 10^30 radians are not computed")
    turns = (near.value / (2 * pi().value)).to_integral_value()
    if not turns:
        return near
    rest = near.value - 2 * turns * pi().value
    return Approximate(rest, near.error + 2 * abs(turns) * (pi().error + 8 * ROUNDING))


def _series(angle: Decimal, term: Decimal, order: int) -> Decimal:
    """The Taylor series of sine (from `angle`, order 1) or cosine (from 1, order 0)."""
    total, square = term, angle * angle
    while term and term.adjusted() > -DIGITS - 5:
        order += 2
        term = -term * square / (order * (order - 1))
        total += term
    return total


@cache
def pi() -> Approximate:
    """Machin's formula on integers with guard digits."""
    one = 10 ** (DIGITS + 10)

    def arctangent_of_inverse(n: int) -> int:
        total, term, odd = 0, one // n, 1
        while term:
            total += term // odd if odd % 4 == 1 else -(term // odd)
            term //= n * n
            odd += 2
        return total

    scaled = 4 * (4 * arctangent_of_inverse(5) - arctangent_of_inverse(239))
    return Approximate(Decimal(scaled) / one, 4 * ROUNDING)


@cache
def euler() -> Approximate:
    return Approximate(Decimal(1).exp(), 3 * ROUNDING)
