"""The ladder that every call climbs: exists, offered, tier, permissions, arguments, policy, confirmation, limits.

`decide` gives the verdict, `preflight` lists everything that stands in the way, `explain` tells the whole climb.
All three walk the same rungs, so they cannot disagree. Most rungs say the same about every call of a tool under one
grant: a `Clearance` climbs those once.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from toolwire.decide.policy import Ruling, allows_any, ruling
from toolwire.define.arguments import Checked, Checker
from toolwire.define.canonical import digest
from toolwire.define.toolbox import Toolbox
from toolwire.disclose.offer import covers, runs_on
from toolwire.protocol.calls import Allowed, Decision, Denied, NeedsApproval, Source, ToolCall
from toolwire.protocol.outcomes import Code
from toolwire.protocol.policy import Verdict
from toolwire.protocol.tools import Grant, Tool

RUNGS = ("exists", "offered", "tier", "permissions", "arguments", "policy", "confirmation", "limits")
TIMEOUT_ARGUMENT = "timeout_ms"
_MOST_NAMED = 3
_IN_FOLDERS = frozenset({"file_read", "file_write", "shell", "git", "session"})
_TRIED_FIRST = (
    "It is tried first in a box that changes nothing, reaches nothing and hides keys; if it wants no more than that, "
    "its result counts."
)


class Case(Struct, frozen=True):
    """A call and everything that its judgement depends on.

    `offered` are the names shown to the model, None when nothing was narrowed; `spent` counts the calls of the turn
    before this one, `place` the calls before it in the same reply. `tainted` says that untrusted text was read, and
    `read` where it came from.
    """

    call: ToolCall
    toolbox: Toolbox
    grant: Grant
    offered: frozenset[str] | None = None
    spent: int = 0
    place: int = 0
    calls_per_step: int = 32
    tainted: bool = False
    read: tuple[Source, ...] = ()


class Rung(Struct, frozen=True):
    """One line of an explanation: `verdict` is passed, denied, asks, tries or unreached."""

    rule: str
    verdict: str
    sentence: str


Issue = Denied | NeedsApproval

_ASK, _DENY = Verdict.ASK, Verdict.DENY


def decide(case: Case) -> Decision:
    """The first rung that fails is the sentence the model reads; no approval is requested of what would be refused."""
    tool = case.toolbox.get(case.call.name)
    if tool is None:
        return _unknown(case)
    checked = case.toolbox.checker(tool.name).check(case.call.arguments)
    asks: NeedsApproval | None = None
    for issue in _climb(case, tool, checked):
        if isinstance(issue, Denied):
            return issue
        asks = issue
    return asks or _allowed(case, tool, checked)


class Clearance:
    """The tools of a toolbox whose calls need only a look, as long as the turn has read nothing untrusted.

    What it allows, `decide` allows as well; about everything else `decide` has to be asked.
    """

    __slots__ = ("_cleared", "grant", "toolbox")

    def __init__(self, toolbox: Toolbox, grant: Grant) -> None:
        self.toolbox = toolbox
        self.grant = grant
        self._cleared: dict[str, tuple[Tool, Checker, float] | None] = {}

    def allow(self, call: ToolCall, offered: frozenset[str] | None, spent: int, data: bytes | None) -> Allowed | None:
        """The call as it may run, or None where the ladder has to be climbed.

        `spent` are the calls before it, and `data` its arguments as JSON; None where orjson cannot write them.
        """
        name, arguments = call.name, call.arguments
        try:
            cleared = self._cleared[name]
        except KeyError:
            if (found := self.toolbox.get(name)) is None:  # models invent any number of names
                return None
            cleared = self._cleared[name] = self._look_at(found)
        if cleared is None or call.fault or call.options is not None or spent >= self.grant.max_calls:
            return None
        if (offered is not None and name not in offered) or TIMEOUT_ARGUMENT in arguments:
            return None
        tool, checker, timeout_s = cleared
        return Allowed(call, tool, arguments, timeout_s) if checker.fits(arguments, data) else None

    def _look_at(self, tool: Tool) -> tuple[Tool, Checker, float] | None:
        grant = self.grant
        runs = not tool.platforms or runs_on(tool, grant.platform)
        covered = tool.tier <= grant.tier and tool.needs <= grant.permissions
        if not (runs and covered and allows_any(tool, grant)):
            return None
        return tool, self.toolbox.checker(tool.name), timeout_for(tool, {})


def too_many(call: ToolCall, most: int, left_out: int) -> Denied:
    """The one answer to all calls of a reply beyond the first: this one, and those that were left out."""
    sentence = (
        f"Only the first {most} calls of one reply are run. This one and {left_out:,} more were left out; "
        "send what is still needed in the next reply."
    )
    return Denied(call, Code.PERMISSION_DENIED, sentence, "limits", left_out)


def preflight(case: Case) -> list[Issue]:
    """Everything that stands between this call and its execution. Nothing runs."""
    tool = case.toolbox.get(case.call.name)
    if tool is None:
        return [_unknown(case)]
    return list(_climb(case, tool, case.toolbox.checker(tool.name).check(case.call.arguments)))


def explain(case: Case) -> list[Rung]:
    """The whole climb, rung by rung, with the sentence that each rung has for this call."""
    issues = {_rule(issue): issue for issue in preflight(case)}
    tool = case.toolbox.get(case.call.name)
    if tool is None:
        rest = [Rung(rule, "unreached", "not judged: there is no such tool") for rule in RUNGS[1:]]
        return [_failed(issues["exists"]), *rest]
    return [_failed(issues[rule]) if rule in issues else Rung(rule, "passed", _why(rule, case, tool)) for rule in RUNGS]


def timeout_for(tool: Tool, arguments: Mapping[str, Any]) -> float:
    """The time a call gets: what it asks for in a declared `timeout_ms`, never above the tool's maximum."""
    wanted = tool.timeout_s
    if TIMEOUT_ARGUMENT in arguments and _takes_a_timeout(tool):
        asked = arguments[TIMEOUT_ARGUMENT]
        wanted = asked / 1000 if isinstance(asked, (int, float)) and asked > 0 else wanted
    return min(wanted, tool.max_timeout_s)


def _climb(case: Case, tool: Tool, checked: Checked) -> Iterator[Issue]:
    """The rungs above `exists`, lowest first; yields what fails."""
    call, grant = case.call, case.grant
    if case.offered is not None and tool.name not in case.offered and covers(grant, tool):
        yield Denied(call, Code.PERMISSION_DENIED, f"{tool.name!r} is not offered in this turn.", "offered")
    if tool.platforms and not runs_on(tool, grant.platform):
        where = ", ".join(sorted(tool.platforms))
        yield Denied(call, Code.UNAVAILABLE, f"{tool.name!r} runs on {where}, not on {grant.platform}.", "offered")
    if tool.tier > grant.tier:
        yield Denied(call, Code.PERMISSION_DENIED, _tier_sentence(tool, grant), "tier")
    if missing := tool.needs - grant.permissions:
        yield Denied(call, Code.PERMISSION_DENIED, _permission_sentence(tool, missing), "permissions")
    if call.fault:
        sentence = f"The call of {tool.name!r} cannot run: {call.fault}."
        yield Denied(call, Code.INVALID_PARAMS, sentence, "arguments")
    elif checked.faults:
        faults = " ".join(fault if fault[-1:] in ".?!" else f"{fault}." for fault in checked.faults)
        sentence = f"Invalid arguments for {tool.name!r}: {faults}"
        yield Denied(call, Code.INVALID_PARAMS, sentence, "arguments")
    ruled = ruling(tool, checked.arguments, grant, tainted=case.tainted)
    if ruled.tries or ruled.verdict is _ASK:
        yield _approval(case, tool, checked, ruled)
    elif ruled.verdict is _DENY:
        yield Denied(call, Code.PERMISSION_DENIED, f"{ruled.sentence} Tell the user that it is not allowed.", "policy")
    if case.place >= case.calls_per_step or case.spent + case.place >= grant.max_calls:
        yield Denied(call, Code.PERMISSION_DENIED, _limit_sentence(case), "limits")


def _allowed(case: Case, tool: Tool, checked: Checked) -> Allowed:
    arguments, timeout_s, longest_s = checked.arguments, tool.timeout_s, tool.max_timeout_s
    if TIMEOUT_ARGUMENT in arguments:
        timeout_s = timeout_for(tool, arguments)
        if _takes_a_timeout(tool):
            arguments = {**arguments, TIMEOUT_ARGUMENT: int(timeout_s * 1000)}
    elif timeout_s > longest_s:
        timeout_s = longest_s
    if (options := case.call.options) is not None and options.timeout_s is not None:
        timeout_s = min(options.timeout_s, longest_s)
    return Allowed(case.call, tool, arguments, timeout_s, checked.notes)


def _takes_a_timeout(tool: Tool) -> bool:
    return TIMEOUT_ARGUMENT in tool.input_schema.get("properties", ())


def _approval(case: Case, tool: Tool, checked: Checked, ruled: Ruling) -> NeedsApproval:
    allowed = _allowed(case, tool, checked)
    policy = [case.grant.autonomy.name, *sorted(map(str, case.grant.rules))]
    shown: dict[str, Any] = {
        "tool": tool.name,
        "version": tool.version,
        "arguments": dict(checked.arguments),
        "policy": policy,
    }
    if works_in_folders(tool, checked.arguments):
        shown["roots"] = [*case.grant.roots]  # a relative path means another file in other folders
    version = digest(
        {"tool": tool.name, "version": tool.version, "policy": policy, "reason": ruled.sentence, **_place(case.grant)}
    )
    reason = f"{ruled.sentence} {_whence(case.read)}".rstrip() if ruled.wary else ruled.sentence
    quorum = ruled.rule.quorum if ruled.rule else 1
    refusal = f"{ruled.sentence} Tell the user that it is not allowed." if ruled.verdict is Verdict.DENY else ""
    return NeedsApproval(allowed, reason, digest(shown), quorum, version, ruled.tries, refusal)


def works_in_folders(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    """Whether a call can mean something else in other folders: it may name a file, or work where it is started."""
    return bool(arguments) or not tool.needs.isdisjoint(_IN_FOLDERS)


def _place(grant: Grant) -> dict[str, list[str]]:
    """Where calls work and how far they reach: an approval for calls like one is not for those in another folder."""
    return {"roots": [*grant.roots], "network": sorted(grant.network) if "network" in grant.permissions else []}


def _whence(read: tuple[Source, ...]) -> str:
    """What was read, the newest first, for the approver; an approval is not bound to it."""
    places = list(dict.fromkeys(str(source) for source in reversed(read)))
    more = f", and {len(places) - _MOST_NAMED} more" if len(places) > _MOST_NAMED else ""
    return f"It has read {', '.join(places[:_MOST_NAMED])}{more}." if places else ""


def _unknown(case: Case) -> Denied:
    if case.offered is not None and case.call.name in case.offered:  # it was there when the turn began
        away = f"{case.call.name!r} is temporarily unavailable. Go on without it, or try again later."
        return Denied(case.call, Code.UNAVAILABLE, away, "exists")
    reach = [tool.name for tool in case.toolbox if covers(case.grant, tool)]
    among = reach if case.offered is None else [name for name in reach if name in case.offered]
    near = case.toolbox.nearest(case.call.name, among=among)
    advice = f"Did you mean {' or '.join(repr(name) for name in near)}?" if near else _some(among)
    name = case.call.name[:128]
    return Denied(case.call, Code.NOT_FOUND, f"There is no tool named {name!r}. {advice}", "exists")


def _some(names: list[str]) -> str:
    if not names:
        return "No tools are available; answer without them."
    shown = ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
    return f"Available: {shown}. Choose one of these, or answer without a tool."


def _tier_sentence(tool: Tool, grant: Grant) -> str:
    return (
        f"{tool.name!r} needs tier {tool.tier.name}; this turn has tier {grant.tier.name}. "
        "Use what is offered, or tell the user that a higher tier must be granted."
    )


def _permission_sentence(tool: Tool, missing: frozenset[str]) -> str:
    return (
        f"Permission denied for {tool.name!r}: it needs {', '.join(sorted(missing))}, which this turn does not have. "
        "Explain this to the user, or use another tool."
    )


def _limit_sentence(case: Case) -> str:
    if case.place >= case.calls_per_step:
        return f"Only the first {case.calls_per_step} calls of one reply are run. Send the rest in the next reply."
    return f"This turn has used its {case.grant.max_calls} calls. Answer with what you have."


def _rule(issue: Issue) -> str:
    return issue.rule if isinstance(issue, Denied) else "confirmation"


def _failed(issue: Issue) -> Rung:
    if isinstance(issue, Denied):
        return Rung(issue.rule, "denied", issue.message)
    if issue.tries:
        return Rung("confirmation", "tries", f"{_TRIED_FIRST} Otherwise: {issue.refusal or issue.reason}")
    return Rung("confirmation", "asks", issue.reason)


def _why(rule: str, case: Case, tool: Tool) -> str:
    grant = case.grant
    match rule:
        case "exists":
            return f"{tool.name!r} is in the toolbox (version {tool.version})."
        case "offered":
            return "Nothing narrows the offer." if case.offered is None else f"{tool.name!r} is offered in this turn."
        case "tier":
            return f"It needs tier {tool.tier.name}; the grant has {grant.tier.name}."
        case "permissions":
            return f"It needs {', '.join(sorted(tool.needs)) or 'no permission'}."
        case "arguments":
            return "They pass the tool's schema."
        case "policy" | "confirmation":
            ruled = ruling(tool, case.call.arguments, grant, tainted=case.tainted)
            return ruled.sentence if ruled.rule or rule == "confirmation" else "No rule forbids it."
        case _:
            left = grant.max_calls - case.spent - case.place
            return f"{left} of {grant.max_calls} calls are left in this turn."
