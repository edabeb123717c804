"""Approvals for a pattern: one answer for a call and all that are like it. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from posixpath import dirname, normpath
from typing import Any
from urllib.parse import urlsplit

from toolwire.decide.families import FOLDER_ARGUMENT, SHELL_ARGUMENT
from toolwire.decide.matching import begins, normal
from toolwire.decide.pinned import names_program, offered_words, runs_whole
from toolwire.decide.policy import allowed_by
from toolwire.decide.shell import base_name, read_shell, runs_others
from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.policy import Rule, Verdict
from toolwire.protocol.tools import Tool

LONGEST_PATTERN = 500


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
    if argument == SHELL_ARGUMENT and (name := _too_wide(value, rest.split())):
        raise ValueError(f"{rest.strip()!r} would cover anything that {name!r} runs; name what it runs as well")
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


def matching_approval(
    cards: Iterable[ApprovalCard], tool: Tool, arguments: Mapping[str, Any], policy: str
) -> ApprovalCard | None:
    """The question whose yes for a pattern answers this call too: the same tool under the same policy."""
    rules: dict[Rule, ApprovalCard] = {}
    for card in cards:
        if card.tool != tool.name or card.policy != policy or not _alike(card.arguments, arguments):
            continue
        rule = _rule_of(card)
        if rule is not None and not _is_too_wide(rule, arguments):
            rules.setdefault(rule, card)
    found = allowed_by(rules, tool, arguments)
    return None if found is None else rules[found]


def _too_wide(text: str, wanted: Sequence[str]) -> str:
    """The program in a text that the pattern fits and of which it does not name what is run; nothing if all is well."""
    for words in read_shell(text).commands:
        fits_it = begins(words, " ".join(wanted))
        if fits_it and (not names_program(words, len(wanted)) or (runs_others(words[0]) and "*" in "".join(wanted))):
            return base_name(words[0])
    return ""


def _is_too_wide(rule: Rule, arguments: Mapping[str, Any]) -> bool:
    value = arguments.get(rule.argument)
    return rule.argument == SHELL_ARGUMENT and isinstance(value, str) and bool(_too_wide(value, rule.pattern.split()))


def _alike(approved: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether two commands run in the same folder: in another one, the same words run other files."""
    one, other = (normpath(str(each.get(FOLDER_ARGUMENT) or ".")) for each in (approved, arguments))
    return one == other


def pattern_scope(arguments: Mapping[str, Any], pattern: str) -> str:
    """What an approval for a pattern covers, in words for the approver."""
    if " is " in pattern or not isinstance(arguments.get(SHELL_ARGUMENT), str):
        return "every call of this tool that fits"
    if runs_whole(pattern.split()):
        return "exactly this command, in this folder"
    return "every command in this folder that begins like this, whatever the files that it names hold by then"


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
            kept = offered_words(commands[0]) if commands else ()
            if kept and not any("*" in word or len(word.split()) != 1 for word in kept):
                yield " ".join(kept)
        case {"path": str(path)} if "*" not in path:  # in a pattern it would stand for anything
            yield f"path is {folder}/*" if (folder := dirname(normal(path))) else f"path is {path}"
        case {"url": str(url)} if "*" not in url.partition("://")[2].partition("/")[0]:
            parts = urlsplit(url)
            yield f"url is {parts.scheme}://{parts.netloc}/*"
