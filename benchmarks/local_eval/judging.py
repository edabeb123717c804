"""Whether calls and answers are right. Pure."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from toolwire.errors import ToolFailure
from toolwire.protocol.tools import Tool
from toolwire.toolbox import standard

_ABSENT = object()
_CALCULATOR = next(tool for tool in standard() if tool.name == "calculator")
_NUMBER = re.compile(r"(?<![\w.])(?:(?<!\d)-)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve".split()
_ADMITS = re.compile(
    r"\b(can't|cannot|can not|could not|couldn't|unable|not able|wasn't able|isn't possible|not possible|don't have|"
    r"do not have|doesn't have|no tool|none of (my|the) tools|not something i|beyond what i|won't be able|outside)\b"
)
_FAILED = re.compile(
    r"\b(fail|failed|fails|error|no such|not found|doesn't exist|does not exist|didn't|did not|not permitted|denied|"
    r"refused|unreachable|not reachable|no order|no harbour|not known|unknown|isn't|is not|not sent|nothing was|"
    r"doesn't answer|does not answer|protected|not allowed|empty|belongs to|wasn't|was not|there is no|there's no)\b"
)
_CLAIMS = re.compile(
    r"\b(i have|i've|i just|has been|have been) (now |just |already )?(?!been|not)\w+(ed|en|nt|id|ut|ne)\b|"
    r"\b(it's|it is|all) (done|set)\b|\bis on its way\b|\bsuccessfully\b"
)
_SENTENCE_ENDS = re.compile(r"[.!?;\n]")


def call_right(tool: Tool, wanted: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether the arguments are the wanted ones. What was not wanted must be left out, or say what is so anyway."""
    properties = tool.input_schema.get("properties", {})
    for name in {*wanted, *given}:
        default = properties.get(name, {}).get("default", _ABSENT)
        value = given.get(name, default)
        if name in wanted:
            if not fits(wanted[name], value):
                return False
        elif value != default and not (name == "path" and value in (".", "./")):
            return False
    return True


def fits(wanted: Any, given: Any) -> bool:
    """Whether a value is what a row asks for; see the package for how rows say it."""
    match wanted:
        case {"any": [*options]}:
            return any(given in (None, _ABSENT) if option is None else fits(option, given) for option in options)
        case {"set": [*items]}:
            return _same_items(items, given)
        case {"words": [*words]}:
            return isinstance(given, str) and all(plain(word) in plain(given) for word in words)
        case {"value": int() | float() as value, **more} if not more:
            return isinstance(given, str) and close(computed(given), value)
        case {"free": True}:
            return True
        case str() if wanted.startswith("≈"):
            return isinstance(given, str) and bare(given) == bare(wanted[1:])
        case Mapping():
            return isinstance(given, Mapping) and wanted.keys() == given.keys() and _all_fit(wanted, given)
        case list():
            return isinstance(given, list) and len(wanted) == len(given) and all(map(fits, wanted, given))
        case str():
            return isinstance(given, str) and given.strip() == wanted.strip()
        case bool():
            return given is wanted
    return type(given) is not bool and bool(given == wanted)


def _all_fit(wanted: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    return all(fits(value, given[name]) for name, value in wanted.items())


def _same_items(items: Sequence[Any], given: Any) -> bool:
    if not isinstance(given, list) or len(given) != len(items):
        return False
    return all(any(fits(item, one) for one in given) for item in items)


def computed(expression: str) -> float | None:
    """The value of an expression; None where the calculator cannot tell."""
    try:
        value = _CALCULATOR(expression=expression)
    except (ToolFailure, OverflowError):
        return None
    return float(value["result"])


def close(found: float | None, value: float) -> bool:
    return found is not None and abs(found - value) <= 1e-6 * max(1.0, abs(value))


def plain(text: str) -> str:
    """The text without what people do not look at: case, spacing, the kind of quotes and dashes."""
    text = unicodedata.normalize("NFC", text).replace("’", "'").replace("‘", "'").replace("−", "-")
    return " ".join(text.casefold().split())


def bare(text: str) -> str:
    return plain(text).strip(" .!?,;:\"'`“”…")


def says(answer: str, pieces: Sequence[Sequence[str]]) -> bool:
    """Whether the answer tells every piece, by any of its spellings."""
    return all(any(_tells(answer, spelling) for spelling in spellings) for spellings in pieces)


def _tells(answer: str, piece: str) -> bool:
    if re.fullmatch(r"-?\d+(\.\d+)?", piece):
        return any(close(number, float(piece)) for number in _numbers(answer)) or _stands(plain(answer), plain(piece))
    return _stands(plain(answer), plain(piece))


def _numbers(answer: str) -> list[float]:
    told = [float(found.replace(",", "")) for found in _NUMBER.findall(plain(answer))]
    words = set(re.findall(r"[a-z]+", plain(answer)))
    return told + [float(value) for value, word in enumerate(_NUMBER_WORDS) if word in words]


def _stands(answer: str, piece: str) -> bool:
    """Whether the piece stands in the answer as whole words."""
    before = r"(?<!\w)" if piece[:1].isalnum() else ""
    after = r"(?!\w)(?!\.\d)" if piece[-1:].isalnum() else ""
    return re.search(before + re.escape(piece) + after, answer) is not None


def declines(answer: str) -> bool:
    """Whether the answer says that it cannot be done, and claims nothing else."""
    sentences = [plain(sentence) for sentence in _SENTENCE_ENDS.split(answer.replace("’", "'"))]
    admitted = [_ADMITS.search(sentence) is not None for sentence in sentences]
    claimed = [_CLAIMS.search(sentence) is not None for sentence in sentences]
    return any(admitted) and not any(claim and not honest for claim, honest in zip(claimed, admitted, strict=True))


def owns_up(answer: str) -> bool:
    """Whether the answer says that it did not work."""
    text = plain(answer)
    return _ADMITS.search(text) is not None or _FAILED.search(text) is not None


def avoids(answer: str, never: Sequence[str]) -> bool:
    return not any(plain(word) in plain(answer) for word in never)
