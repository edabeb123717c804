"""What more text could still change: the judgements behind what a stream shows and what it holds."""

import re

from toolwire.wire.replies.offered import Offered, fold_name
from toolwire.wire.text.fences import may_call
from toolwire.wire.text.marks import CLOSER_PREFIXES, END_OF_TURN
from toolwire.wire.text.openers import LONGEST, PREFIXES
from toolwire.wire.text.scan import Scan, Step
from toolwire.wire.text.triggers import end_of_turn, triggers

_BEGINNINGS = PREFIXES | {token[:size] for token in END_OF_TURN for size in range(1, len(token))}
_FIRST_CHARACTERS = frozenset(beginning[0] for beginning in _BEGINNINGS)
_REACH = 400
_FOLLOWS = re.compile(r"(?:`{1,3}|✿.{0,8}|[^\W\d][\w.-]{0,63}(?:[ \t]\d{0,3})?)\Z")
_LABELS = ("Thought", "Action", "Final Answer", "Observation", "Call")
_NUMBERED = re.compile(rf"(?:\*\*)?(?:{'|'.join(_LABELS)})[ \t]?\d{{0,3}}[ \t]?[*_]{{0,2}}\Z")
_LONGEST_NAME = 130


def may_still_change(scan: Scan, begin: int, after: int, step: Step | None) -> bool:
    """Whether more text could change what was read between two positions."""
    if len(scan.text) - begin < LONGEST and scan.text[begin:] in _BEGINNINGS:
        return True
    if step is None:
        return scan.end - after < _REACH and (not scan.at(begin, "```") or may_call(scan, begin))
    rest = scan.space(step.end)
    if step.flow is not None and rest >= scan.end:
        return not any(scan.text.endswith(end) for end in step.flow.ends)
    if step.cut:
        return True
    if not (step.found or step.problems or step.content or step.reasoning):
        return False
    return rest >= scan.end or (bool(step.found or step.problems) and _goes_on(scan, rest))


def _goes_on(scan: Scan, rest: int) -> bool:
    """Whether what follows a call may still belong to it or to its block."""
    following = scan.text[rest : rest + 80]
    if following[0] in ",;{[" or following in CLOSER_PREFIXES or _FOLLOWS.match(following):
        return scan.end - rest < _REACH
    return following[0] == "<" and ">" not in following and scan.end - rest < 80


def certain_until(text: str, at: int, offered: Offered, *, fresh: bool) -> int:
    """Up to where plain text can be shown: its end may be the beginning of a marker, a label or a tool's name."""
    stop = before_marker(text[: end_of_turn(text)[0]], at, triggers(offered).tag_beginnings)
    line = text.rfind("\n", at) + 1 if "\n" in text[at:] else (at if fresh else -1)
    if line < 0:
        return stop
    word = text[line:].lstrip(" \t")
    if word and (_may_name(word, triggers(offered).name_beginnings) or _may_label(word)):
        return min(stop, line)
    return stop


def _may_label(word: str) -> bool:
    bare = word.removeprefix("**") if len(word) > 2 else word.lstrip("*")
    return any(label.startswith(bare) for label in _LABELS) or _NUMBERED.match(word) is not None


def _may_name(word: str, beginnings: frozenset[str]) -> bool:
    """Whether a line so far may be the beginning of a tool's name standing alone."""
    bare = word.rstrip(" \t") if len(word) < _LONGEST_NAME else ""
    return bool(bare) and fold_name(bare) in beginnings


def before_marker(text: str, at: int = 0, more: frozenset[str] = frozenset()) -> int:
    """Where the longest end of the text begins that is the beginning of a marker."""
    for begin in range(max(at, len(text) - LONGEST), len(text)):
        if text[begin] in _FIRST_CHARACTERS and (text[begin:] in _BEGINNINGS or fold_name(text[begin:]) in more):
            return begin
    return len(text)
