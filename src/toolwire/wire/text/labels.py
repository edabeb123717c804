"""Formats that work with labels at the beginning of a line: ReAct, Qwen-Agent, Raven, Functionary, a name alone."""

import re

from toolwire.wire.lenient.values import PartList, PartObject
from toolwire.wire.replies.offered import Offer, fold_name
from toolwire.wire.text.bodies import Opener, fits, read_body, read_json, read_named
from toolwire.wire.text.channels import ADDRESS, ADDRESS_SO_FAR, read_message
from toolwire.wire.text.json_values import read_value
from toolwire.wire.text.marks import FENCE, Markers
from toolwire.wire.text.scan import Found, Scan, Step, TextFlow, unclosed_call
from toolwire.wire.text.syntax import CALL_HEAD, read_call_syntax

_STARS = r"[*_ \t]{0,6}"
_NUMBER = r"(?:[ \t]?\d{1,3})?"
LABEL = re.compile(
    rf"{_STARS}(?P<label>Thought|Action Input|Action|Final Answer|Observation|Call){_NUMBER}\s?{_STARS}:{_STARS}"
)
_NEXT = re.compile(rf"\n{_STARS}(?:Thought|Action Input|Action|Final Answer|Observation){_NUMBER}\s?{_STARS}:")
_LABEL_ENDS = tuple(f"\n{stars}{label}" for stars in ("", "**") for label in ("Thought", "Action", "Final", "Observ"))
_ACTION_NAME = re.compile(r"[`\"' \t]*+(?P<name>[^\W\d][\w.-]{0,127})[`\"' \t]*+")
_AFTER_ACTION = ("Observation", "Thought", "Final Answer")
_INPUT = re.compile(rf"\s*+{_STARS}Action Input{_NUMBER}\s?{_STARS}:{_STARS}")
_NO_ACTION = re.compile(
    rf"[`\"'(\[ \t]*+(?i:none|n/?a|nil|null|-+|nothing|no(?:\s(?:further\s|more\s|tool\s)?(?:action|tool|call)s?)?"
    rf"(?:\s(?:is\s|are\s)?(?:needed|required|necessary))?)[`\"')\].! \t]*+(?=\n|\Z)"
    rf"(?:\s*+{_STARS}Action Input{_NUMBER}\s?{_STARS}:[^\n]*+)?"
)
_BRACKETS = re.compile(r"\[(?P<text>[^\n]*)\][ \t]*(?=\n|\Z)")
_STOP_WORD = re.compile(r"\s*+Observation\s*+\Z")
_LONGEST_LABEL = 32
_REACT = Markers("react", (), ("\nObservation:", "\n```"))
_RAVEN = Markers("nexusraven", (), ("<bot_end>",))


def read_label(scan: Scan, pos: int, opened: Opener) -> Step | None:
    """Whatever a label at `pos` announces."""
    label = LABEL.match(scan.text, pos, scan.end)
    if label is None:
        return None
    match label["label"]:
        case "Thought":
            following = _NEXT.search(scan.text, label.end(), scan.end)
            stop = following.start() if following else scan.end
            flow = TextFlow(label.end(), _LABEL_ENDS, reasoning=True)
            return Step(stop, reasoning=scan.text[label.end() : stop], flow=flow)
        case "Final Answer":
            return Step(label.end())
        case "Action":
            return _read_action(scan, label.end(), opened)
        case "Call":
            return read_call_syntax(scan, scan.space(label.end()), _RAVEN) if _calls_known(scan, label.end()) else None
        case _:
            return None


def _calls_known(scan: Scan, at: int) -> bool:
    head = CALL_HEAD.match(scan.text, scan.space(at), scan.end)
    return head is not None and scan.offered.get(head["name"]) is not None


def _read_action(scan: Scan, at: int, opened: Opener) -> Step | None:
    begin = scan.space(at)
    if scan.at(begin, "```") or scan.at(begin, "{") or scan.at(begin, "["):
        return _observed(scan, read_body(scan, begin, _REACT, opened))
    nothing = _NO_ACTION.match(scan.text, begin, scan.end)
    if nothing is not None and scan.offered.get(scan.text[begin : nothing.end()].strip()) is None:
        return (
            Step(scan.end, cut=True) if scan.growing and _input_may_come(scan, nothing.end()) else Step(nothing.end())
        )
    name = _ACTION_NAME.match(scan.text, begin, scan.end)
    offer = scan.offered.get(name["name"]) if name else None
    if name is None or offer is None:
        undecided = (
            name is not None
            and name.end() >= scan.end
            and any(fold_name(known).startswith(fold_name(name["name"])) for known in scan.offered.by_name)
        )
        return scan.cut_inside("the text ends inside an action") if undecided else None
    if CALL_HEAD.match(scan.text, name.start("name"), scan.end):
        return _observed(scan, read_call_syntax(scan, name.start("name"), _REACT))
    bracket = _BRACKETS.match(scan.text, name.end(), scan.end)
    if bracket is not None:
        return _observed(scan, _found(offer, bracket["text"], (at, bracket.end())))
    given = _INPUT.match(scan.text, name.end(), scan.end)
    if given is None:
        if scan.growing and _may_be_label(scan, scan.space(name.end())):
            return scan.cut_inside("the text ends before an action's input")
        rest = scan.text[name.end() : min(scan.end, name.end() + 80)].strip()
        if scan.cut and "Action Input".startswith(rest):
            return scan.cut_inside("an action has no input")
        if scan.space(name.end()) < scan.end and not _NEXT.match(scan.text, name.end(), scan.end):
            alone = not offer.required and scan.at(name.end(), "\n")
            return _observed(scan, _found(offer, {}, (at, name.end()))) if alone else None
        return _without_input(scan, offer, (at, name.end()))
    return _observed(scan, _read_input(scan, at, offer, given.end()))


def _may_be_label(scan: Scan, at: int) -> bool:
    """Whether the last line so far may still become a label."""
    return scan.end - at < _LONGEST_LABEL and "\n" not in scan.text[at : scan.end]


def _input_may_come(scan: Scan, at: int) -> bool:
    rest = scan.text[at : at + 200].strip()
    return "Action Input".startswith(rest) or (rest.startswith("Action Input") and "\n" not in rest)


def _without_input(scan: Scan, offer: Offer, span: tuple[int, int]) -> Step | None:
    """An action without an input, for a tool that needs none, is over where an observation or a thought follows."""
    following = LABEL.match(scan.text, scan.space(span[1]), scan.end)
    if following is not None and following["label"] in _AFTER_ACTION and not offer.required:
        return _observed(scan, _found(offer, {}, span))
    if following is not None and not offer.required:
        return unclosed_call(offer.name, span[1])
    return scan.cut_inside("an action has no input")


def _read_input(scan: Scan, begin: int, offer: Offer, at: int) -> Step | None:
    start = scan.space(at)
    fence = FENCE.match(scan.text, start, scan.end)
    start = scan.space(fence.end()) if fence else start
    if scan.at(start, "{"):
        value = read_value(scan, start, _REACT.closes)
        if value is not None and isinstance(value.value, PartObject | PartList):
            return scan.cut_inside(f"a call of {offer.name!r} was cut off")
        if value is not None and isinstance(value.value, dict):
            end = scan.past(value.end, "```") if fence else value.end
            return _found(offer, value.value, (begin, end), value.note, value.fault)
    following = _NEXT.search(scan.text, at, scan.end)
    stop = following.start() if following else scan.end
    text = scan.text[start:stop].strip()
    text = text.removesuffix("```").strip() if fence else text
    if (not text and offer.required) or (scan.cut and stop >= scan.end):
        return scan.cut_inside("an action's input was cut off")
    if not offer.properties:
        return _found(offer, {}, (begin, stop))
    return _found(offer, _unquoted(text) if text else {}, (begin, stop))


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'`" else text


def _found(offer: Offer, arguments: object, span: tuple[int, int], note: str = "", fault: str = "") -> Step | None:
    if not fits(offer, arguments):
        return None
    return Step(span[1], [Found(offer, arguments, "react", span, note=note, weak=True, fault=fault)])


def _observed(scan: Scan, step: Step | None) -> Step | None:
    """What follows an observation was invented by the model: it is neither text nor call."""
    if step is None or step.cut:
        return step
    label = LABEL.match(scan.text, scan.space(step.end), scan.end)
    if (label is not None and label["label"] == "Observation") or _STOP_WORD.match(scan.text, step.end, scan.end):
        step.end = scan.end
    return step


_QWEN = re.compile(r"✿FUNCTION✿\s*+:?\s*+(?P<name>[\w.-]{1,128})\s*+(?:✿ARGS✿\s*+:?\s*+)?")
_QWEN_ENVELOPE = Markers("qwen_agent", (), ("✿RESULT✿", "✿FUNCTION✿"))


def read_qwen_agent(scan: Scan, pos: int) -> Step | None:
    """`✿FUNCTION✿: f`, `✿ARGS✿: {…}`; behind `✿RESULT✿` nothing is the model's to say."""
    head = _QWEN.match(scan.text, pos, scan.end)
    if head is None:
        return scan.cut_inside("the text ends inside a call") if scan.end - pos < 160 else None
    if scan.at(head.end(), "{"):
        step = read_named(scan, pos, head["name"], head.end(), _QWEN_ENVELOPE)
    elif "✿ARGS✿: ".startswith(scan.text[head.end() : min(head.end() + 10, scan.end)]):
        return scan.cut_inside("the text ends inside a call")
    else:
        stop = scan.find("✿", head.end())
        text = scan.text[head.end() : stop if stop >= 0 else scan.end].strip()
        offer = scan.offered.get(head["name"])
        end = stop if stop >= 0 else scan.end
        if not text and offer is not None and not scan.at(end, "✿RE"):
            return unclosed_call(offer.name, end)
        step = _found(offer, text or {}, (pos, end)) if offer else None
    if step is not None and not step.cut and scan.at(scan.space(step.end), "✿RESULT✿"):
        back = scan.find("✿RETURN✿", step.end)
        step.end = scan.end if back < 0 else back + len("✿RETURN✿")
    return step


_RECIPIENT = re.compile(r"(?:>>>|<\|recipient\|>)?\s*+(?P<name>[\w.-]{1,128})\s*+\n?\s*+(?P<content><\|content\|>)?")
_FUNCTIONARY = Markers("functionary_v2", (), (">>>", "<|stop|>", "\n<|from|>"))
_TURN = re.compile(r"\s*+<\|from\|>\s*+assistant\s*+")
_PYTHON_BODY = re.compile(r"\s*+```(?:python)?\s*+tool_call\s*+\(")


def read_recipient(scan: Scan, pos: int, *, marked: bool) -> Step | None:
    """A recipient on its own line: `all` speaks to the user, a tool's name is a call with the JSON below it."""
    head = _RECIPIENT.match(scan.text, pos, scan.end)
    if head is None:
        return None
    name = head["name"]
    if name == "all" and (marked or head["content"] or pos == 0):
        return Step(head.end())
    offer = scan.offered.get(name)
    python = _PYTHON_BODY.match(scan.text, head.end(), scan.end)
    if offer is not None and python is not None:
        return _read_chatglm(scan, pos, offer, python)
    if not scan.at(head.end(), "{"):
        cut = marked and scan.end - pos < 200 and head.end() >= scan.end
        return scan.cut_inside("the text ends before a call's arguments") if cut else None
    if offer is None and not (marked or head["content"]):
        return None
    step = read_named(scan, pos, name, head.end(), _FUNCTIONARY)
    if step is None or (not marked and step.found and not fits(step.found[0].offer, step.found[0].arguments)):
        return None
    turn = _TURN.match(scan.text, step.end, scan.end) if not step.cut else None
    step.end = turn.end() if turn else step.end
    return step


def _read_chatglm(scan: Scan, pos: int, offer: Offer, python: re.Match[str]) -> Step | None:
    """ChatGLM3: the name, then a fence with `tool_call(…)` in it."""
    inner = Scan(f"{offer.name}({scan.text[python.end() : scan.end]}", scan.offered)
    step = read_call_syntax(inner, 0, _RAVEN)
    if step is None or step.cut:
        return step and scan.cut_inside(f"a call of {offer.name!r} was cut off")
    end = scan.past(python.end() + step.end - len(offer.name) - 1, "```")
    return Step(end, [Found(offer, found.arguments, "chatglm3", (pos, end)) for found in step.found])


_WORTH_READING = re.compile(r"""\{\s*+(?:["'“\w]|\Z)|\[\s*+(?:[{\w]|\Z)""")
_LINE_END = re.compile(r"[ \t;,.]*+(?=\n|\Z)")


def read_bare(scan: Scan, pos: int) -> Step | None:
    """JSON or a call at the beginning of a line with nothing around it to say that it is a call."""
    char = scan.text[pos]
    if char in "{[" and not _WORTH_READING.match(scan.text, pos, scan.end):
        return None
    if char == "{" or (char == "[" and not CALL_HEAD.match(scan.text, scan.space(pos + 1), scan.end)):
        return read_json(scan, pos, "bare_json", (), weak=True)
    step = read_call_syntax(scan, pos, None)
    if step is None or step.cut or _LINE_END.match(scan.text, step.end, scan.end):
        return step
    return None


_TO_ALL = re.compile(r"\s*+all[ \t]*+\n\s*+(?:<\|content\|>)?")
_TO_ALL_SO_FAR = re.compile(r"\s*+(?:a(?:l(?:l[ \t]*+\n?\s*+(?:<[|conte>]{0,9})?)?)?)?\Z")
_HEADER_STARTS = frozenset(" \n\tat")


def start_undecided(text: str) -> bool:
    """Whether the beginning of a text may still turn out to be the rest of a header."""
    return bool(ADDRESS_SO_FAR.match(text) or _TO_ALL_SO_FAR.match(text))


def read_start(scan: Scan, opened: Opener) -> Step | None:
    """A header whose opening marker stood in the prompt, so that the text begins in the middle of it."""
    if scan.text[:1] not in _HEADER_STARTS:
        return None
    if ADDRESS.match(scan.text, 0, scan.end):
        return read_message(scan, 0, opened)
    to_all = _TO_ALL.match(scan.text, 0, scan.end)
    if to_all is not None:
        return Step(to_all.end())
    return None
