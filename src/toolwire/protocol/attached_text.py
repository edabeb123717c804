"""Text that a user sends along with a question, such as piped input, set apart from the user's own words.

It is the user's message, like anything they type or paste: it taints no turn. But it is data and not a wish, so calls
that stand in it word for word are quotations, and it unlocks nothing.
"""

import re

_NAME = "standard input"
_FEWEST_DASHES = 5
_BEGIN = re.compile(rf"(?m)^(-{{{_FEWEST_DASHES},}}) {_NAME} \1$")


def attach(question: str, text: str) -> str:
    """The question with the text below it, between two lines that do not occur in the text."""
    dashes = "-" * _FEWEST_DASHES
    while f"{dashes} {_NAME} {dashes}" in text or _end(dashes) in text:
        dashes += "-"
    return f"{question}\n\n{dashes} {_NAME} {dashes}\n{text}\n{_end(dashes)}"


def attached_text(message: str) -> str:
    """What was sent along with a question; empty where nothing was."""
    begin, end = _place(message)
    return message[begin:end].partition("\n")[2]


def own_words(message: str) -> str:
    """The question without what was sent along with it."""
    begin, end = _place(message)
    return message[:begin].rstrip() if end else message


def _end(dashes: str) -> str:
    return f"{dashes} end of {_NAME} {dashes}"


def _place(message: str) -> tuple[int, int]:
    """Where the first line of the attached part begins and its text ends; two zeros where there is none."""
    begin = _BEGIN.search(message)
    end = message.find(f"\n{_end(begin[1])}", begin.end()) if begin else -1
    return (begin.start(), end) if begin and end >= 0 else (0, 0)
