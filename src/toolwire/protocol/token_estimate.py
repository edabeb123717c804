"""About how many tokens a text has, without a vocabulary. Pure.

Common tokenizers give a word of a language they know well one token, with the space before it; long or rare words,
digits, signs and other scripts take more. The estimate is made to be above what they count for prose, JSON and the
catalogue of tools (`benchmarks/context.py` shows by how much), so that a budget held by it holds.
"""

import re

_PIECE = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+|\s+|[^\sA-Za-z0-9]+")


def estimate_tokens(text: str) -> int:
    """The tokens of a text, rather too many than too few."""
    return sum(map(_tokens, _PIECE.findall(text)))


def _tokens(piece: str) -> int:
    first = piece[0]
    if first.isspace():
        return 0 if piece == " " else 1  # a single space belongs to the word behind it
    if not piece.isascii():
        return sum(1 if ord(char) < 0x3000 else 2 for char in piece)
    if first.isdigit():
        return (len(piece) + 2) // 3
    if first.isalpha():
        return 1 + (len(piece) - 1) // 10
    return (len(piece) + 1) // 2
