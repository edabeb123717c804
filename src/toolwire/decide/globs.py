"""Patterns of rules, in which only `*` means something. Pure."""


def fits(text: str, pattern: str) -> bool:
    """Whether a whole text fits a pattern, in time that grows with the text alone."""
    first, *rest = pattern.split("*")
    if not rest:
        return text == pattern
    if not text.startswith(first):
        return False
    *middle, last = rest
    at = len(first)
    for piece in middle:
        found = text.find(piece, at)
        if found < 0:
            return False
        at = found + len(piece)
    return len(text) - len(last) >= at and text.endswith(last)
