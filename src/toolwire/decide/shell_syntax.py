"""The syntax of a shell text around its commands: what does nothing by itself, and what can hide an effect. Pure."""

import re
from collections.abc import Iterator
from typing import Any

from toolwire.lazy import lazy_pattern

_PLAIN = frozenset(
    "program redirected_statement command command_name word number string string_content raw_string ansi_c_string "
    "concatenation simple_expansion variable_name special_variable_name expansion command_substitution "
    "process_substitution pipeline list subshell compound_statement if_statement elif_clause else_clause "
    "while_statement for_statement do_group negated_command file_redirect file_descriptor herestring_redirect "
    "test_command unary_expression binary_expression parenthesized_expression test_operator extglob_pattern "
    "arithmetic_expansion brace_expression regex".split()
)
_VALUE_ONLY = frozenset(["${", "}", "#", "%", "%%", "##", "^", "^^", ",", ",,", ":-", "-", "/", "//", "/#", "/%"])
_SUMS = frozenset("arithmetic_expansion number binary_expression unary_expression parenthesized_expression".split())
_ARITHMETIC = frozenset("-eq -ne -lt -le -gt -ge".split())
_MADE = frozenset("simple_expansion expansion command_substitution concatenation".split())
_MOST_PARTS = 200
_SIGNS = frozenset(["[", "]", "=", "==", "!=", "!", "(", ")", '"', "$", "${", "}", "$(", "`"])
_LOOKS_INTO_NAMES = frozenset(["-v", "-R"])


def is_plain(node: Any) -> bool:
    """Whether a named node does nothing but run the commands in it; a remark must have its line to itself."""
    if node.type == "comment":
        return node.prev_sibling is None or node.start_point[0] > node.prev_sibling.end_point[0]
    return node.type in _PLAIN


def left_unread(node: Any) -> bool:
    """Whether the shell would expand something in a part that the tree took for plain text."""
    match node.type:
        case "command_substitution":  # of nested backquotes the tree sees the outer ones only
            return bool(node.children[0].type == "`" and b"\\`" in node.text)
        case "heredoc_body" if _is_open(node):
            return b"`" in node.text or (not node.child_count and _expands(node))
        case "heredoc_content" if _is_open(node.parent):
            return _expands(node)
        case "word" | "regex" if node.parent.type == "expansion":
            return _expands(node) or b"<(" in node.text or b">(" in node.text
        case "raw_string":  # within an expansion within double quotes, single ones quote nothing
            return node.parent.type == "expansion" and _expands(node)
        case "word" | "regex" | "string_content" | "extglob_pattern" | "number" | "special_character":
            return not node.child_count and _expands(node)
    return False


def holds_more(node: Any) -> bool:
    """Whether a part of the text holds something that the tree does not tell of, such as the end of a command.

    The tree takes a line that begins with a backslash for one more word of the line before it, and much for a pattern.
    """
    if not node.child_count:
        ends = _ENDS.get(node.type)
        if ends is not None and node.parent.type == "expansion":
            ends = _AN_EXPANSION_ENDS
        return ends is not None and ends.search(_PAIRS.sub(b"", node.text)) is not None
    first, *others = node.children
    if first.type == "{" and others and first.end_byte == others[0].start_byte:
        return True  # to the shell a brace that something follows at once begins a list of words
    gaps = b"".join(_between(node))
    if node.type == "heredoc_body":
        return _is_open(node) and _EXPANDS.search(gaps) is not None
    if node.type in _ONE_WORD:
        return bool(gaps)
    return bool(gaps.strip(b" \t" if node.type in _ON_ONE_LINE else b" \t\n"))


def _between(node: Any) -> Iterator[bytes]:
    """What stands in a node and in none of its parts."""
    begin = at = node.start_byte
    for child in sorted(node.children, key=lambda one: one.start_byte):
        yield node.text[at - begin : max(child.start_byte, at) - begin]
        at = max(at, child.end_byte)
    yield node.text[at - begin :]


_PAIRS = lazy_pattern(rb"\\.", re.DOTALL)  # a backslash and what it takes the meaning from
_A_WORD_ENDS = lazy_pattern(rb"[\s;&|<>()]")
_AN_EXPANSION_ENDS = lazy_pattern(rb"[\n;&{}'\"`<>|]")
_A_LINE_ENDS = lazy_pattern(rb"[\n;&]")
_ENDS = {
    **dict.fromkeys(("word", "number", "special_character", "variable_name", "file_descriptor"), _A_WORD_ENDS),
    "regex": _A_LINE_ENDS, "extglob_pattern": _A_LINE_ENDS, "comment": lazy_pattern(rb"\n"),
    "string_content": lazy_pattern(rb'"'),
}  # fmt: skip
_ONE_WORD = frozenset(["command_name", "concatenation", "variable_assignment"])
_ON_ONE_LINE = frozenset(["command", "file_redirect", "herestring_redirect"])


_EXPANDS = lazy_pattern(rb"(?<!\\)(?:\\\\)*(?:`|\$[({[])")


def _expands(node: Any) -> bool:
    return _EXPANDS.search(node.text) is not None


def is_sure_heredoc(redirect: Any, text: str) -> bool:
    """Whether the tree and the shell agree where a here-document ends, and no word stands behind its delimiter."""
    parts = {child.type: child for child in redirect.children}
    start, end = parts.get("heredoc_start"), parts.get("heredoc_end")
    if start is None or end is None or not parts.keys() <= _AROUND_A_HEREDOC:
        return False
    first, _, rest = redirect.text[start.end_byte - redirect.start_byte :].partition(b"\n")
    alone = text[end.end_byte : end.end_byte + 1] in ("", "\n")
    delimiter = start.text.translate(None, b"'\"\\")
    *_, last = lines = rest.split(b"\n")
    ends_there = redirect.end_byte == end.end_byte and last == delimiter == end.text and alone
    return ends_there and delimiter not in lines[:-1] and delimiter.isalnum() and b"<<" not in first


_AROUND_A_HEREDOC = frozenset(
    "<< heredoc_start heredoc_body heredoc_end file_redirect file_descriptor pipeline list command | && ||".split()
)


def _is_open(body: Any) -> bool:
    """Whether the text of a here-document is expanded: it is unless some of its delimiter is quoted."""
    start = next((one for one in body.parent.children if one.type == "heredoc_start"), None)
    return start is None or not any(mark in start.text for mark in (b"'", b'"', b"\\"))


def hidden_effect(node: Any) -> str:
    """What an expansion, a test, a sum or a loop can do beyond giving a value; nothing for most.

    The shell evaluates names inside sums, and a name may have a subscript with a command in it.
    """
    match node.type:
        case "arithmetic_expansion" if not _is_a_sum(_within(node)):
            return "a sum with variables can run what they hold"
        case "expansion" if any(map(_does_more, node.children)):
            return "an expansion does more than give a value"
        case "test_command" if _tests_names(node):
            return "a test can run what its words hold"
        case "for_statement" if not _is_own_name(node):
            return "a loop sets a variable of the shell's own"
    return ""


def _is_a_sum(parts: list[Any]) -> bool:
    return len(parts) <= _MOST_PARTS and all(part.type in _SUMS for part in parts if part.is_named)


def _does_more(part: Any) -> bool:
    return part.type == "subscript" or not (part.is_named or part.type in _VALUE_ONLY)


def _tests_names(node: Any) -> bool:
    inner = _within(node)
    operators = {one.text.decode("utf-8", "replace") for one in inner if one.type == "test_operator"}
    if operators & _LOOKS_INTO_NAMES or len(inner) > _MOST_PARTS:
        return True
    if node.children[0].type == "[[":
        return bool(operators & _ARITHMETIC)
    signs = {one.type for one in inner if not one.is_named}  # others than these redirect, whatever the tree says
    return not signs <= _SIGNS or any(one.type in _MADE and one.parent.type != "string" for one in inner)


def _is_own_name(node: Any) -> bool:
    names = [child.text.decode("utf-8", "replace") for child in node.children if child.type == "variable_name"]
    return all(name.islower() and name not in ("histchars", "auto_resume") for name in names[:1])


def _within(root: Any) -> list[Any]:
    """The nodes of a part, itself among them, up to one more than are looked at."""
    found: list[Any] = []
    waiting = [root]
    while waiting and len(found) <= _MOST_PARTS:
        node = waiting.pop()
        found.append(node)
        waiting.extend(node.children)
    return found
