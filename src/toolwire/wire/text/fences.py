"""Code fences: a fence that is the message, or ends it, may be a call; one that illustrates is text."""

import re
from collections.abc import Callable

from toolwire.wire.text.bodies import Opener, read_json
from toolwire.wire.text.labels import LABEL, read_label
from toolwire.wire.text.marks import FENCE, Markers
from toolwire.wire.text.scan import Scan, Step
from toolwire.wire.text.syntax import CALL_HEAD, read_call_syntax

_MARKED = frozenset(
    {"tool_call", "tool_calls", "tool_code", "tool_use", "function_call", "toolcall", "action", "tool", "tools"}
)
_CLOSES = ("\n```", "```")
_TOOL_CODE = Markers("tool_code", (), _CLOSES)
_FUNCTOOLS = "functools["
CLOSE = re.compile(r"```(?![\w+-])")
_ASSIGNED = re.compile(r"[^\W\d]\w{0,63}\s{0,8}=\s{0,8}(?=[^\W\d])")
_PRINTED = re.compile(r"\s*+print\([^()\n]{0,200}+(?:\)|\Z)")
_PLAIN = frozenset({"", "json", "json5", "jsonc", "jsonl", "xml", "text", "txt", "plaintext", "python", "py"})
_CODE = frozenset({"python", "py"})


def is_code(scan: Scan, at: int) -> bool:
    """Whether a fence says that it holds a program."""
    fence = FENCE.match(scan.text, at, scan.end)
    return fence is not None and fence[1].lower() in _CODE


def read_fence(scan: Scan, at: int, opened: Opener) -> Step | None:
    """A fence with a call in it, or the whole fence as text."""
    fence = FENCE.match(scan.text, at, scan.end)
    if fence is None:
        return None
    marked = fence[1].lower() in _MARKED
    if scan.cut and fence[1] and fence.end() >= scan.end and any(word.startswith(fence[1]) for word in _MARKED):
        return scan.cut_inside("the text ends where a call begins")
    known = marked or fence[1].lower() in _PLAIN
    step = _read_call(scan, fence.end(), opened, marked=marked) if known else None
    if step is not None and step.cut:
        return step
    if step is not None:
        close = scan.space(step.end)
        closed = CLOSE.match(scan.text, close, scan.end) is not None
        step.end = close + 3 if closed else step.end
        if scan.text[close : scan.end] in ("`", "``"):
            close = step.end = scan.end
        if closed or close >= scan.end:
            return step
    return _as_text(scan, at, fence.end())


def _read_call(scan: Scan, pos: int, opened: Opener, *, marked: bool) -> Step | None:
    at = scan.space(pos)
    if at >= scan.end:
        return None
    envelopes = _one_after_the_other(scan, at, lambda at: opened(scan, at, 2))
    if envelopes is not None:
        return envelopes
    if scan.text[at] in "{[" and not CALL_HEAD.match(scan.text, scan.space(at + 1), scan.end):
        return read_json(scan, at, "fenced_json", _CLOSES, weak=True)
    if LABEL.match(scan.text, at, scan.end):
        return _read_labels(scan, at, opened)
    if scan.text[at] == "<":
        return None
    if marked:
        return _one_after_the_other(scan, at, lambda at: _read_code(scan, at), tell=True)
    return read_call_syntax(scan, at, None)


def _read_labels(scan: Scan, at: int, opened: Opener) -> Step | None:
    """Thoughts and an action under their labels. With an observation it is the record of a run."""
    close = scan.find(_CLOSES[0], at)
    if scan.find("\nObservation", at, close if close >= 0 else scan.end) >= 0:
        return None
    total = Step(at)
    while (step := read_label(scan, scan.space(total.end), opened)) is not None and step.end > total.end:
        total.end, total.cut = step.end, step.cut
        total.reasoning += step.reasoning
        total.found += step.found
        if step.found or step.cut:
            return total
    return None


def _read_code(scan: Scan, at: int) -> Step | None:
    """A statement with calls, whose value may be given a name and then be printed."""
    assigned = _ASSIGNED.match(scan.text, at, scan.end)
    step = read_call_syntax(scan, assigned.end() if assigned else at, _TOOL_CODE)
    if step is not None and not step.cut:
        while (printed := _PRINTED.match(scan.text, step.end, scan.end)) is not None:
            step.end = printed.end()
    return step


def _one_after_the_other(scan: Scan, at: int, read: Callable[[int], Step | None], *, tell: bool = False) -> Step | None:
    """Everything that can be read in a row, if there is a call in it; `tell` also of tools that were not offered."""
    total = Step(at)
    while (begin := scan.space(total.end)) < scan.end and (step := read(begin)) is not None:
        total.end = step.end
        total.found += step.found
        total.content += step.content
        total.problems += step.problems
        total.cut = total.cut or step.cut
        if total.cut:
            break
    return total if total.found or total.cut or (tell and total.problems) else None


def _as_text(scan: Scan, at: int, body: int) -> Step:
    close = scan.find("\n```", max(at, body - 1))
    close = close + 1 if close >= 0 else scan.find("```", body)
    end = close + 3 if close >= 0 else scan.end
    return Step(end, content=scan.text[at:end])


def may_call(scan: Scan, at: int) -> bool:
    """Whether a fence whose end has not come may still turn out to hold a call."""
    fence = FENCE.match(scan.text, at, scan.end)
    if fence is None or fence[1].lower() in _MARKED:
        return True
    body = scan.space(fence.end())
    if body >= scan.end or scan.text[body] in "{[<✿" or LABEL.match(scan.text, body, scan.end):
        return True
    word = scan.text[body : min(scan.end, body + len(_FUNCTOOLS))]
    if _FUNCTOOLS.startswith(word):
        return True
    head = CALL_HEAD.match(scan.text, body, scan.end)
    if head is not None:
        return head["name"] == "print" or scan.offered.get(head["name"].removeprefix("default_api.")) is not None
    return scan.end - body < 40 and "\n" not in scan.text[body : scan.end]
