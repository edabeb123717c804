"""Yeses for a pattern: what somebody may say about a call and all that are like it. Pure."""

from collections.abc import Iterable, Mapping
from posixpath import dirname
from typing import Any
from urllib.parse import urlsplit

from toolwire.decide.matching import SHELL_ARGUMENT, normal
from toolwire.decide.policy import allowed_by
from toolwire.decide.shell import UNKNOWN, read_shell
from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Tool

LONGEST_PATTERN = 500
# Programs whose first word says what they do.
_SEVERAL_IN_ONE = frozenset("git npm pnpm yarn pip uv cargo go docker podman kubectl make apt brew systemctl".split())


def pattern_rule(tool: str, arguments: Mapping[str, Any], pattern: str) -> Rule:
    """A pattern as a rule about one tool. Raises ValueError for one that does not fit the call it is said about.

    It reads `ARGUMENT is PATTERN`; without an argument it is about the command, and says how one begins.
    """
    argument, is_, rest = pattern.partition(" is ")
    if not is_ or argument not in arguments:
        argument, rest = SHELL_ARGUMENT, pattern
    value = arguments.get(argument)
    if not isinstance(value, str):
        raise ValueError("a pattern is about an argument that is text, such as `path is docs/*` or `git commit`")
    if len(pattern) > LONGEST_PATTERN or not rest.split() or not rest.split()[0].strip("*"):
        raise ValueError(f"a pattern has at most {LONGEST_PATTERN} characters and begins with more than *")
    rule = Rule(Verdict.ALLOW, frozenset({tool}), argument=argument, pattern=rest.strip())
    if allowed_by([rule], _as_asked(tool, argument), arguments) is None:
        raise ValueError(f"{pattern!r} does not fit the call that it is said about, or not all of it")
    return rule


def offered_pattern(tool: str, arguments: Mapping[str, Any]) -> str:
    """The pattern that one would most likely mean by saying yes to calls like this one; empty where there is none."""
    for pattern in _likely(arguments):
        try:
            pattern_rule(tool, arguments, pattern)
        except ValueError:
            continue
        return pattern
    return ""


def standing_yes(
    cards: Iterable[ApprovalCard], tool: Tool, arguments: Mapping[str, Any], policy: str
) -> ApprovalCard | None:
    """The question whose yes for a pattern answers this call too: the same tool under the same policy."""
    rules: dict[Rule, ApprovalCard] = {}
    for card in cards:
        if card.tool == tool.name and card.policy == policy and (rule := _rule_of(card)) is not None:
            rules.setdefault(rule, card)
    found = allowed_by(rules, tool, arguments)
    return None if found is None else rules[found]


def _rule_of(card: ApprovalCard) -> Rule | None:
    try:
        return pattern_rule(card.tool, card.arguments, card.pattern)
    except ValueError:
        return None


def _as_asked(tool: str, argument: str) -> Tool:
    """The tool as far as the pattern goes: what is said about a command is said about shell text."""
    return Tool(tool, "", needs=frozenset({"shell"} if argument == SHELL_ARGUMENT else ()))


def _likely(arguments: Mapping[str, Any]) -> Iterable[str]:
    match arguments:
        case {"command": str(text)}:
            commands = read_shell(text).commands
            words = commands[0] if commands else ()
            kept = words[: 2 if words[:1] and words[0] in _SEVERAL_IN_ONE else 1]
            if kept and not any(UNKNOWN in word or "*" in word or " " in word for word in kept):
                yield " ".join(kept)
        case {"path": str(path)} if "*" not in path:  # in a pattern it would stand for anything
            yield f"path is {folder}/*" if (folder := dirname(normal(path))) else f"path is {path}"
        case {"url": str(url)} if "*" not in url.partition("://")[2].partition("/")[0]:
            parts = urlsplit(url)
            yield f"url is {parts.scheme}://{parts.netloc}/*"
