"""What a watcher of a stream has not been shown yet of the text that it brought in the end."""

_OVERLAP = 4096


def unsent(shown: str, whole: str) -> str:
    """What of the whole text has not been shown. White space does not count: it may move where a call was."""
    if whole.startswith(shown):
        return whole[len(shown) :]
    seen, wanted = collapse_space(shown), collapse_space(whole)
    if wanted.startswith(seen):
        return after(whole, len(seen))
    if seen.endswith(wanted):
        return ""
    return after(whole, _overlap(seen[-_OVERLAP:], wanted))


def collapse_space(text: str) -> str:
    """The text without its white space."""
    return "".join(text.split())


def after(text: str, count: int) -> str:
    """The text behind its first `count` characters that are no white space."""
    for at, char in enumerate(text):
        if count == 0:
            return text[at:] if text[at:].strip() else ""
        if not char.isspace():
            count -= 1
    return ""


def _overlap(seen: str, wanted: str) -> int:
    """How much of the beginning of one text is the end of the other."""
    return next((size for size in range(min(len(seen), len(wanted)), 0, -1) if seen.endswith(wanted[:size])), 0)
