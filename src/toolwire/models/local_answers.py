"""What the embedded model's answers owe to the results they answer. Pure.

A small model sees a long result and says `It worked.`, or calls again what was just refused. An answer that tells
nothing of what came back is followed by what came back, and for a call that makes no sense any more stands its outcome.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from toolwire.models.local_dialogue import clip
from toolwire.protocol.calls import ToolResult

MOST_CHARS = 400
MOST_PIECES = 12
MOST_DEPTH = 4
SHORTEST = 2
_EMPTY = frozenset("ok done success successful true yes sent saved completed".split())
_WORDS = re.compile(r"[\w.:/@%-]+")
_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,15})?")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")


def untold(answer: str, results: Sequence[ToolResult]) -> str:
    """What must be added to the answer: the results of which it tells nothing; empty if there are none."""
    silent = [result for result in results if result.ok and not _tells(answer, result)]
    return clip(" ".join(f"{result.name}: {_plainly(result)}" for result in silent), MOST_CHARS)


def outcome(results: Sequence[ToolResult]) -> str:
    """What came of the calls, for a model that has no words for it."""
    failed = [result.error.message.split(". ")[0].rstrip(".") for result in results if result.error]
    if failed:
        return clip(f"I couldn't do that: {failed[0]}.", MOST_CHARS)
    return untold("", results) or "Done."


def _tells(answer: str, result: ToolResult) -> bool:
    """Whether a piece of the result stands in the answer, or the result has nothing to tell."""
    told = _words(answer)
    pieces = [_words(piece) for piece in _pieces(result)]
    return not pieces or any(words & told for words in pieces)


def _words(text: str) -> set[str]:
    """The words of a text, numbers in one spelling."""
    found = (word.strip(".,:") for word in _WORDS.findall(_THOUSANDS.sub("", text.casefold())))
    return {f"{float(word):g}" if _NUMBER.fullmatch(word) else word for word in found if word}


def _pieces(result: ToolResult) -> list[str]:
    """The values of a result that say more than that it worked."""
    every = _leaves(_content(result), 0)
    told = (str(value).casefold().strip() for _, value in zip(range(MOST_PIECES), every, strict=False))
    return [piece for piece in told if piece not in _EMPTY and (len(piece) >= SHORTEST or piece.isdigit())]


def _leaves(value: Any, depth: int) -> Iterator[Any]:
    match value:
        case bool() | None:
            return
        case str() | int() | float():
            yield value
        case Mapping() if depth < MOST_DEPTH:
            for item in value.values():
                yield from _leaves(item, depth + 1)
        case list() | tuple() if depth < MOST_DEPTH:
            for item in value:
                yield from _leaves(item, depth + 1)


def _content(result: ToolResult) -> Any:
    return result.structured if isinstance(result.structured, Mapping | list | tuple) else result.text[:MOST_CHARS]


def _plainly(result: ToolResult) -> str:
    content = _content(result)
    return content if isinstance(content, str) else _listed(content, 0)


def _listed(value: Any, depth: int) -> str:
    """An object as `name value, name value`, a list as its items."""
    match value:
        case Mapping() if depth < MOST_DEPTH:
            return ", ".join(f"{key} {_listed(item, depth + 1)}" for key, item in list(value.items())[:MOST_PIECES])
        case list() | tuple() if depth < MOST_DEPTH:
            return "; ".join(_listed(item, depth + 1) for item in value[:MOST_PIECES])
        case str():
            return value
    return json.dumps(value, ensure_ascii=False, default=str)
