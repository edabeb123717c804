"""Whether a call in a text is made or only shown: by where and how it stands first, by the words around it second.

1. In quotation marks, inline code, a block quote, a table, a comment or an element for code it is shown.
2. Indented like code, as a line of a log or of a dialogue, or with a placeholder for an argument it is shown.
3. Alone it is made; right behind a question only where the words leave no doubt.
4. What that leaves open `intent` weighs: it says how likely the call is meant, by the words before and behind it.

Where that stays unclear, nothing is run and the model is told what to do. Everything looked at is bounded.
"""

import re
from enum import Enum

from msgspec import Struct

from toolwire.wire.text.intent import Surroundings, chance, ending
from toolwire.wire.text.marks import AFTER_CALL, CLOSERS, CLOSING, OPENING
from toolwire.wire.text.scan import Found, Scan
from toolwire.wire.text.tags import LOOKED_BEHIND
from toolwire.wire.text.triggers import triggers

# A call is run if it is meant this likely, and the model is told of one that is not run from the last figure on. A
# call in the markers of its format is less often shown than one that is written as plain JSON.
_RUN, _RUN_MARKED, _TELL = 0.5, 0.36, 0.04
_RUN_LABELS = 0.9  # labels behind a colon are mostly a description of labels
_RUN_QUESTION = 0.65  # what stands right behind a question mostly asks for permission
_LINE = 400
ALONE = "lead alone"
_PAIRS = {
    "“": "”",
    "„": "“”",
    "«": "»",
    "‹": "›",
    "「": "」",
    "『": "』",
    '"': '"',
    "'": "'",
    "‘": "’",
    "`": "`",
    "”": "”",
    "»": "«",
    "（": "）",
}
_OPENING = "“„«‹「『‘"
_ANY_MARK = re.compile(rf"[{_OPENING}\"`]")
_OPENS_LINE = re.compile(rf"(?:\A|\n)[ \t]*([{_OPENING}\"])")
_TABLE = re.compile(r"[ \t]{0,8}\|")
_BULLET = re.compile(r"[ \t]*(?:[-*+•–]|\d{1,3}[.)]|\([a-z\d]\))[ \t]+")
_QUOTE = re.compile(r"[ \t]{0,3}(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)*>")
_LOG = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d(?::\d\d)?|\[?(?:INFO|DEBUG|WARN(?:ING)?|ERROR|TRACE|FATAL)\b"
    r"|[$#%] |>>> ?|<<< ?|[+-]{1,3}(?=[ \t]*<))"
)
_PLACEHOLDER = re.compile(
    r"<(?:your|the|an?|some|insert)?[ _-]?[a-z][a-z _-]{2,30}>|\{\{[^{}]{1,40}\}\}|\$\{[^{}]{1,40}\}"
    r"|\[(?:your|insert|the)[^\[\]]{1,30}\]|(?:YOUR|MY|INSERT)_[A-Z_]{2,30}|\.\.\.|…",
    re.IGNORECASE,
)
_ROLE = re.compile(
    r"^[ \t>*_]*(?:user|human|assistant|ai|bot|agent|model|tool|system|q|a)[*_ \t]*:", re.IGNORECASE | re.MULTILINE
)
_CAPITALS = re.compile(r"[A-Z][A-Z_]{3,30}")
_MARKERS = 8
_LABEL = re.compile(r"[*_]{0,4}(?:Thought|Action|Observation|Final Answer)\b[^\n:]{0,12}:|Observation\s*\Z")
_NEXT = re.compile(rf"```|(?:^|\n)[ \t]*[{{\[](?=[\"{{\w])|(?:^|\n){_LABEL.pattern}")
_FENCED_ON = re.compile(r"\w{0,12}\n[{\[]")
_VALUE = re.compile(r"\w[\w./-]{2,}")
_NAME = re.compile(r"\s*+(\w[\w.-]{0,127})\s*+[({]")
_GAP = re.compile(r"[\s,;]*(?:(?:and|then|und|et|y|e|и|、)[\s,]*)?")


class CallForm(Enum):
    """How a call stands in the text."""

    MARKED = "marked"
    BARE = "bare"
    FENCED = "fenced"
    CODE = "code"
    LABEL = "label"


class CallVerdict(Enum):
    """What becomes of a call in a text; `WAIT` says that the text behind it must come first."""

    MADE = "made"
    SHOWN = "shown"
    UNCLEAR = "unclear"
    WAIT = "wait"


class CallSite(Struct):
    """A call in its surroundings: the text before it that the user reads, and the whole text around its span."""

    scan: Scan
    begin: int
    end: int
    form: CallForm
    before: str
    found: list[Found]
    first: bool
    shown_before: bool = False
    made_before: bool = False


def is_continued(gap: str) -> bool:
    """Whether nothing but a separator stands between two calls, so that one verdict holds for both."""
    match = _GAP.match(gap)
    return match is not None and match.end() == len(gap)


def judge(place: CallSite) -> CallVerdict:
    """Whether a call is made or only shown."""
    line = place.before[place.before.rfind("\n") + 1 :]
    structure = _quoted(place, line)
    if structure is not None:
        return structure
    following = _following(place)
    if following is None:
        return CallVerdict.WAIT
    if not following and not place.before.strip():
        return CallVerdict.MADE
    return _weighed(place, line, following)


def is_announced(before: str, form: CallForm = CallForm.MARKED) -> bool:
    """Whether the words before a place announce that a call is made there."""
    return bool(before.strip()) and chance(Surroundings(before, "", form.value, traits=(ALONE,))) >= _RUN


def _quoted(place: CallSite, line: str) -> CallVerdict | None:
    """Whether the call stands in quotation marks or inline code, in a block quote or in a table."""
    if _QUOTE.match(line) or _TABLE.match(line):
        return _shown_unless_made(_before_line(place))
    text, end = place.scan.text, place.end
    opener = place.before.rstrip(" \t\n\u00a0\u202f")[-1:]
    if opener in _PAIRS:
        close = place.scan.space(end)
        if place.scan.growing and close >= place.scan.end:
            return CallVerdict.WAIT
        direct = opener in _OPENING or place.before.endswith(opener)
        if direct and close < place.scan.end and text[close] in _PAIRS[opener]:
            return _shown_unless_made(place.before.rstrip()[:-1])
    return _inside_quotes(place, line)


def _shown_unless_made(before: str) -> CallVerdict:
    """What is quoted is shown; where the words say that it is made, it is unclear."""
    return CallVerdict.UNCLEAR if is_announced(before) else CallVerdict.SHOWN


def _inside_quotes(place: CallSite, line: str) -> CallVerdict | None:
    """Whether quotation marks or inline code that open on this line close behind the call."""
    if _in_long_quotation(place):
        return CallVerdict.SHOWN
    if not _ANY_MARK.search(line):
        return None
    marks = [mark for mark in (*_OPENING, '"', "`") if _is_open(line, mark)]
    if not marks:
        return None
    behind = _behind(place, to_line_end=True)
    for mark in marks:
        if any(close in behind for close in _PAIRS[mark]):
            return CallVerdict.SHOWN
    whole_line = len(behind) >= _LINE or "\n" in place.scan.text[place.end : place.end + _LINE]
    return CallVerdict.WAIT if place.scan.growing and not whole_line else None


def _in_long_quotation(place: CallSite) -> bool:
    """Whether quotation marks that open a line some lines before close behind the call."""
    opened = [match[1] for match in _OPENS_LINE.finditer(place.before)]
    if not opened or "\n" not in place.before:
        return False
    mark = opened[-1]
    quoted = place.before[place.before.rfind(mark) if mark in _OPENING else place.before.rfind("\n" + mark) + 1 :]
    end = place.begin if place.form is CallForm.LABEL else place.end  # labels go on up to the last one
    behind = place.scan.text[end : end + LOOKED_BEHIND]
    return _is_open(quoted, mark) and any(re.search(rf"{close}[ \t.,]*(?:\n|\Z)", behind) for close in _PAIRS[mark])


def _is_open(line: str, mark: str) -> bool:
    if mark in _OPENING:
        return line.rfind(mark) > max(line.rfind(close) for close in _PAIRS[mark])
    return line.count(mark) % 2 == 1


def _behind(place: CallSite, *, to_line_end: bool = False) -> str:
    scan, at = place.scan, place.end
    for _ in range(_MARKERS):
        closing = CLOSING.match(scan.text, at, scan.end) or AFTER_CALL.match(scan.text, at, scan.end)
        if closing is None:
            break
        at = closing.end()
    behind = scan.text[at : min(scan.end, at + (_LINE if to_line_end else LOOKED_BEHIND))]
    return behind.partition("\n")[0] if to_line_end else behind.strip()


def _names_tool(scan: Scan, behind: str) -> bool:
    """Whether the next call follows, by its name."""
    name = _NAME.match(behind)
    return name is not None and scan.offered.get(name[1]) is not None


def _before_line(place: CallSite) -> str:
    return place.before[: place.before.rfind("\n") + 1]


def _following(place: CallSite) -> str | None:
    """The words behind the call, up to the next one. None while more of them must come."""
    behind = _behind(place)
    if OPENING.match(behind) or _LABEL.match(behind) or _names_tool(place.scan, behind) or _FENCED_ON.match(behind):
        return ""
    if place.scan.growing and place.scan.end - place.end < LOOKED_BEHIND:
        return None
    if behind.endswith(CLOSERS):
        return ""  # the rest of a value that has the end tags of its own format
    marker, line = triggers(place.scan.offered).strong.search(behind), _NEXT.search(behind)
    following = min((match.start() for match in (marker, line) if match is not None), default=-1)
    return behind[:following] if following >= 0 else behind


def _weighed(place: CallSite, line: str, following: str) -> CallVerdict:
    likely = chance(_surroundings(place, line, following))
    run = likely >= _least(place)
    if _in_dialogue(place, line):
        return CallVerdict.SHOWN
    if _has_placeholder(place.found):
        return CallVerdict.UNCLEAR if run else CallVerdict.SHOWN
    if _set_apart(place, line):
        return CallVerdict.UNCLEAR if run or place.form is CallForm.LABEL else CallVerdict.SHOWN
    if run and (likely >= _RUN_QUESTION or not (place.before.strip() and ending(place.before) == "?")):
        return CallVerdict.MADE
    return CallVerdict.UNCLEAR if likely >= _TELL else CallVerdict.SHOWN


def _least(place: CallSite) -> float:
    """How likely a call must be meant to be run."""
    if introduced_as_label(place.form, place.before):
        return _RUN_LABELS
    return _RUN_MARKED if place.form is CallForm.MARKED else _RUN


def _surroundings(place: CallSite, line: str, following: str) -> Surroundings:
    if any(one.fault for one in place.found):
        following = ""  # it is answered, never run, so what follows cannot speak against it
    rest = _behind(place)[len(following) :] if following else ""
    same = bool(rest) and _same_call(place, rest)
    traits = {
        "first": place.first,
        "shown before": place.shown_before,
        "after call": place.made_before,
        "same again": same,
        "several": len(place.found) > 1,
        "item": _BULLET.match(line) is not None,
        "in line": bool(line.strip() and following) and _goes_on(place),
    }
    kept = tuple(name for name, present in traits.items() if present)
    return Surroundings(place.before, following, place.form.value, bool(rest) and not same, kept)


def _goes_on(place: CallSite) -> bool:
    """Whether the line goes on with words behind the call."""
    return bool(_behind(place, to_line_end=True).strip())


def _same_call(place: CallSite, text: str) -> bool:
    """Whether a text has the tool and the first argument of a call: one call in two forms is a comparison."""
    one = place.found[0]
    values = _VALUE.findall(str(one.arguments)[:_LINE])
    return bool(values) and one.offer.name in text and values[-1] in text


def introduced_as_label(form: CallForm, before: str) -> bool:
    """Whether labels stand behind a heading or a sentence that leads up to them, as in a description of labels."""
    return form is CallForm.LABEL and before.rstrip().endswith((":", "："))


def _in_dialogue(place: CallSite, line: str) -> bool:
    """Whether the call is a line of a conversation that is written down."""
    return _ROLE.match(line) is not None and _ROLE.search(_before_line(place)) is not None


def _set_apart(place: CallSite, line: str) -> bool:
    """Whether the call's line is indented like code, an item of a list, or a line of a log."""
    if place.first and not line.strip():
        return False
    if line.startswith(("    ", "\t")) and place.form is not CallForm.FENCED:
        return True
    if _LOG.match(line):
        return True
    bullet = _BULLET.match(line)
    return bullet is not None and place.form is not CallForm.FENCED and not is_announced(line[bullet.end() :])


def _has_placeholder(found: list[Found]) -> bool:
    """Whether an argument is something to be filled in."""
    for one in found:
        values = one.arguments.values() if isinstance(one.arguments, dict) else ()
        texts = [value for value in values if isinstance(value, str)]
        if any(len(text) < 60 and _PLACEHOLDER.fullmatch(text.strip()) for text in texts):
            return True
        if len(texts) > 1 and all(_CAPITALS.fullmatch(text) for text in texts):
            return True
    return False
