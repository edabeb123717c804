"""Which tools a request most likely means, for a model that cannot be shown all of them. Pure.

Words are weighed as BM25 does: a word that few tools know says more, and a long description counts for less.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from toolwire.lazy import lazy_pattern
from toolwire.protocol.attached_text import own_words
from toolwire.protocol.chat import Message, UserMessage
from toolwire.protocol.tools import Tool

WISH_CHARS = 4000
DESCRIPTION_CHARS = 2000
MOST_INPUTS = 64
NAME_WEIGHT = 3
EARLIER_REQUESTS = 2

_SATURATION = 1.2
_LENGTH_PENALTY = 0.75
_WORD = lazy_pattern(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_]+")
_COMMON = frozenset(
    "a an and are as at be by can could do does for from get give have how i if in into is it its just let me my of "
    "on one or our please tell that the there these this to up us use want was we what when which will with would you "
    "your".split()
)

# What a wish looks like says what it is about, even where no word does.
_SHAPES = (
    (lazy_pattern(r"\d\s?[-+*/^×÷]\s?\d|\d\s?%"), "calculate arithmetic expression"),
    (lazy_pattern(r"https?://|\bwww\."), "url web page fetch"),
    (lazy_pattern(r"[\w-]\.[a-z]{1,4}\b|[\w.]/\w"), "file path read"),
    (lazy_pattern(r"\w@\w"), "email address send"),
)
# What tools are described with, and the words that people have for it.
_MEANT = {
    "calculate arithmetic": "plus minus times divided multiply percent sum square root much many add subtract",
    "random number": "dice roll coin flip lucky pick draw",
    "timer schedule": "wait remind minute second alarm later",
    "echo message": "repeat say back",
    "read": "show open see contain look view content inside",
    "list directory": "folder which everything",
    "search find": "where look mention google news contain locate",
    "web": "google online internet news website site",
    "write create": "save store put make new note down",
    "edit replace update": "change fix swap rename correct modify set",
    "delete remove": "erase throw rid clear",
    "execute command shell": "run bash terminal script",
    "send email": "mail text message tell notify",
    "memory": "ram",
    "temperature": "hot warm cold",
    "process stop": "kill end quit",
}


def likeliest(tools: Sequence[Tool], wish: str, most: int) -> tuple[Tool, ...]:
    """The tools that the words of a wish fit best, at most so many, in the order in which they were given.

    Where words say nothing, the first ones are kept.
    """
    if len(tools) <= most:
        return tuple(tools)
    scores = _scores([_known_words(tool) for tool in tools], _wanted_words(wish[:WISH_CHARS]))
    best = sorted(range(len(tools)), key=lambda place: (-scores[place], place))[: max(most, 0)]
    return tuple(tools[place] for place in sorted(best))


def wish_of(messages: Iterable[Message]) -> str:
    """What a person asked for: the last request, and the ones before it, which it may refer to."""
    said = [own_words(message.text)[:WISH_CHARS] for message in messages if isinstance(message, UserMessage)]
    return "\n".join([*said[-1:], *said[-1 - EARLIER_REQUESTS :]])


def _wanted_words(wish: str) -> Mapping[str, float]:
    """The words of a wish; those that it only hints at count for half."""
    said = _words(wish)
    hints = [words for shape, words in _SHAPES if shape.search(wish)]
    hints += [meant for word in said for meant in _HINTS.get(word, ())]
    wanted = dict.fromkeys(_words(" ".join(hints)), 0.5)
    return wanted | dict(Counter(said))


def _scores(known: Sequence[Mapping[str, int]], wanted: Mapping[str, float]) -> list[float]:
    lengths = [sum(words.values()) for words in known]
    usual = sum(lengths) / len(lengths) or 1.0
    worth = {word: _worth(sum(word in words for words in known), len(known)) * times for word, times in wanted.items()}
    return [
        sum(worth[word] * _fit(words[word], length / usual) for word in worth if word in words)
        for words, length in zip(known, lengths, strict=True)
    ]


def _worth(holders: int, tools: int) -> float:
    return math.log1p((tools - holders + 0.5) / (holders + 0.5))


def _fit(times: int, length: float) -> float:
    room = _SATURATION * (1 - _LENGTH_PENALTY + _LENGTH_PENALTY * length)
    return times * (_SATURATION + 1) / (times + room)


def _known_words(tool: Tool) -> Mapping[str, int]:
    """The words that a tool is described with; its name counts for more than what is said about it."""
    words = Counter(_words(tool.description[:DESCRIPTION_CHARS]))
    for word in _words(tool.name):
        words[word] += NAME_WEIGHT
    properties = tool.input_schema.get("properties")
    if isinstance(properties, Mapping):
        for name, schema in list(properties.items())[:MOST_INPUTS]:
            words.update(_words(f"{name} {_choices(schema)}"))
    return words


def _choices(schema: object) -> str:
    match schema:
        case {"enum": [*choices]}:
            return " ".join(str(choice)[:40] for choice in choices[:MOST_INPUTS])
    return ""


def _words(text: str) -> list[str]:
    found = (_stem(word.lower()) for word in _WORD.findall(text))
    return [word for word in found if word not in _COMMON]


def _stem(word: str) -> str:
    """Roughly one form for the forms of an English word: files, file; calculates, calculator, calculate."""
    for endings in (("ies", "es", "s"), ("ing", "ed", "er", "or"), ("e", "y", "i")):
        ending = next((ending for ending in endings if word.endswith(ending)), "")
        if ending and len(word) > len(ending) + 2:
            word = word[: -len(ending)]
    return word


_HINTS: dict[str, list[str]] = {}
for _meant, _said in _MEANT.items():
    for _word in _words(_said):
        _HINTS.setdefault(_word, []).append(_meant)
