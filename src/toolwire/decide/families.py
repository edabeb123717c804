"""Which tools a rule that denies or asks means beside those that it names. Pure.

A rule follows a tool to its other names. A rule about a path or an address means all tools that could do the same to
that file or page: what may not be read is not searched either, and what may not be written is not patched.
"""

from collections.abc import Mapping
from enum import Flag, auto
from functools import lru_cache
from typing import Any

from toolwire.protocol.key_files import holds_keys
from toolwire.protocol.policy import Rule

PATH_ARGUMENTS = ("path", "paths")
URL_ARGUMENT = "url"
SHELL_ARGUMENT = "command"
FOLDER_ARGUMENT = "workdir"

_SAME_TOOL = (
    frozenset(("read", "read_file")),
    frozenset(("write", "write_file")),
    frozenset(("edit", "edit_block")),
    frozenset(("list", "list_dir")),
    frozenset(("search_code", "codesearch")),
)
# What the first may not run, the others may not run either. Denying jobs leaves commands allowed.
_DOES_THE_SAME = {"bash": frozenset(("job_start",))}
SHOWING = frozenset("read read_file grep search_code codesearch image git_diff".split())
SHOWING_FOLDERS = frozenset(("git_diff",))
"""Tools that show the content of whole folders."""
LISTING = frozenset("list list_dir glob find stat".split())
CHANGING = frozenset("write write_file edit edit_block apply_patch".split())
FETCHING = frozenset("webfetch browser".split())
_SHOWS_WHAT_IT_CHANGED = frozenset("edit edit_block apply_patch".split())


def shows_key_files(tool: str, arguments: Mapping[str, Any]) -> bool:
    """Whether a call names a file with keys whose content it would show."""
    if tool not in SHOWING and tool not in _SHOWS_WHAT_IT_CHANGED:
        return False
    named = [arguments.get(name) for name in PATH_ARGUMENTS]
    paths = (path for value in named for path in (value if isinstance(value, list) else (value,)))
    return any(isinstance(path, str) and holds_keys(path) for path in paths)


class RuleReach(Flag):
    """What a rule about a path or an address is about: content, names, changes of files, or pages of the web."""

    NOTHING = 0
    CONTENT = auto()
    NAMES = auto()
    CHANGES = auto()
    PAGES = auto()


def every_name(tools: frozenset[str]) -> frozenset[str]:
    """These tools by all their names, and those that do the same in another way."""
    found = tools.union(*(names for names in _SAME_TOOL if names & tools))
    return found.union(*(others for name, others in _DOES_THE_SAME.items() if name in found))


@lru_cache(maxsize=1024)
def reach(rule: Rule) -> RuleReach:
    """What a rule about a path or an address is about; nothing for any other rule."""
    names, found = every_name(rule.tools), RuleReach.NOTHING
    if rule.argument in PATH_ARGUMENTS:
        if names & SHOWING or rule.permission == "file_read":
            found |= RuleReach.CONTENT | RuleReach.NAMES
        if names & LISTING:
            found |= RuleReach.NAMES
        if names & CHANGING or rule.permission == "file_write":
            found |= RuleReach.CHANGES
    elif rule.argument == URL_ARGUMENT and (names & FETCHING or rule.permission == "network"):
        found |= RuleReach.PAGES
    return found


@lru_cache(maxsize=1024)
def tools_like_it(rule: Rule) -> frozenset[str]:
    """The built-in tools that a rule about a path or an address means because of what they do."""
    about, found = reach(rule), frozenset[str]()
    if RuleReach.CONTENT in about:
        found |= SHOWING | _SHOWS_WHAT_IT_CHANGED
    if RuleReach.NAMES in about:
        found |= LISTING
    if RuleReach.CHANGES in about:
        found |= CHANGING
    return found | FETCHING if RuleReach.PAGES in about else found
