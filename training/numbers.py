"""Numbers as people write them."""

import random

ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen".split()
ONES += "seventeen eighteen nineteen".split()
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()


def in_words(number: int) -> str:
    """Twenty-three for 23; up to 9999."""
    if number < 0:
        return f"minus {in_words(-number)}"
    if number < 20:
        return ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return TENS[tens - 2] + (f"-{ONES[ones]}" if ones else "")
    size, name = (1000, "thousand") if number >= 1000 else (100, "hundred")
    head, rest = divmod(number, size)
    joint = " and " if rest and rest < 100 else " "
    return f"{in_words(head)} {name}{joint + in_words(rest) if rest else ''}"


def plain_number(value: float) -> int | float:
    return int(value) if float(value).is_integer() else value


def spoken(number: int, rng: random.Random) -> str:
    """A whole number as somebody might write it."""
    luck = rng.random()
    if (luck < 0.14 and abs(number) <= 100) or (luck < 0.02 and abs(number) < 10_000):
        return in_words(number)
    return f"{number:,}" if abs(number) >= 1000 and luck > 0.85 else str(number)
