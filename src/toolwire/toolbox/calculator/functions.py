"""The names that an expression may use, and what they stand for."""

from collections.abc import Callable, Mapping
from fractions import Fraction

from toolwire.errors import ToolFailure
from toolwire.protocol.outcomes import Code
from toolwire.toolbox.calculator import angles, numbers
from toolwire.toolbox.calculator.numbers import Number

MOST_DECIMALS = 400


def log(number: Number, base: Number) -> Number:
    below = numbers.logarithm(base)
    if below == 0:
        raise ToolFailure("there is no logarithm to base 1")
    return numbers.divide(numbers.logarithm(number), below)


def rounded(number: Number, places: Number = Fraction(0)) -> Number:
    if not isinstance(places, Fraction) or places.denominator != 1 or abs(places) > MOST_DECIMALS:
        raise ToolFailure(f"round takes a whole number of decimals, at most {MOST_DECIMALS}", code=Code.INVALID_PARAMS)
    return numbers.rounded(number, places.numerator)


def smallest(*given: Number) -> Number:
    least = given[0]
    for number in given[1:]:
        least = number if numbers.less(number, least) else least
    return least


def largest(*given: Number) -> Number:
    return numbers.negate(smallest(*map(numbers.negate, given)))


def degrees(number: Number) -> Number:
    """That many degrees, in radians."""
    return numbers.multiply(number, numbers.divide(angles.pi(), Fraction(180)))


CONSTANTS: Mapping[str, Callable[[], Number]] = {"pi": angles.pi, "π": angles.pi, "e": angles.euler}

FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "sqrt": numbers.square_root,
    "sin": angles.sine,
    "cos": angles.cosine,
    "tan": angles.tangent,
    "ln": numbers.logarithm,
    "log10": lambda number: log(number, Fraction(10)),
    "log2": lambda number: log(number, Fraction(2)),
    "log": log,
    "exp": numbers.exponential,
    "abs": numbers.absolute,
    "round": rounded,
    "floor": numbers.floor,
    "ceil": numbers.ceiling,
    "min": smallest,
    "max": largest,
    "mod": numbers.remainder,
    "pow": numbers.power,
    "factorial": numbers.factorial,
}

_COUNTS = {"log": (2, 2), "round": (1, 2), "min": (1, 100), "max": (1, 100), "mod": (2, 2), "pow": (2, 2)}


def fault_of_count(name: str, given: int) -> str:
    """What is wrong with giving this function so many values; empty if nothing is."""
    low, high = _COUNTS.get(name, (1, 1))
    if low <= given <= high:
        return ""
    if name == "log":
        return "log alone can mean two things: write ln(x), log10(x), or log(x, base)"
    wanted = str(low) if low == high else f"{low} to {high}"
    return f"{name} takes {wanted} value{'s' if high > 1 else ''}, not {given}"
