"""Applying the hunks of a patch to a text. Pure; a hunk costs no more than a pass over the text."""

from typing import NamedTuple

from toolwire.toolbox.files.patch_syntax import FilePatch, Hunk


class DoesNotApply(ValueError):
    """The text is not what the patch expects; the words say which hunk and what to do."""


class _Cursor(NamedTuple):
    """How far a text has been patched: a position, its line, and by how many lines the rest has moved."""

    at: int = 0
    line: int = 1
    shift: int = 0


def added_text(patch: FilePatch) -> str:
    """The content of a file that a patch adds."""
    lines = [line for hunk in patch.hunks for line in hunk.new]
    bare = any(hunk.new_ends_bare for hunk in patch.hunks)
    return "\n".join(lines) + ("\n" if lines and not bare else "")


def apply_patch_to(patch: FilePatch, text: str) -> str:
    """The text after the patch. Line ends stay as they are in the text. Raises DoesNotApply."""
    crlf = "\r\n" in text and text.count("\n") == text.count("\r\n")
    body = text.replace("\r\n", "\n") if crlf else text
    bare = bool(body) and not body.endswith("\n")
    # Every line follows a line end, so that looking for whole lines is looking for text.
    body = f"\n{body}".removesuffix("" if bare else "\n")
    cursor = _Cursor()
    for number, hunk in enumerate(patch.hunks, 1):
        body, cursor = _one(hunk, body, cursor, f"hunk {number} of {patch.path!r}")
        if hunk.new_ends_bare or hunk.old_ends_bare:
            bare = hunk.new_ends_bare
    done = body.removeprefix("\n") + ("\n" if body and not bare else "")
    return done.replace("\n", "\r\n") if crlf else done


def _one(hunk: Hunk, body: str, cursor: _Cursor, name: str) -> tuple[str, _Cursor]:
    old = "".join(f"\n{line}" for line in hunk.old)
    new = "".join(f"\n{line}" for line in hunk.new)
    at = _place(hunk, body, old, cursor, name)
    line = cursor.line + body.count("\n", cursor.at, at) + len(hunk.new)
    shift = cursor.shift + len(hunk.new) - len(hunk.old)
    return body[:at] + new + body[at + len(old) :], _Cursor(at + len(new), line, shift)


def _place(hunk: Hunk, body: str, old: str, cursor: _Cursor, name: str) -> int:
    """Where the lines of a hunk are: at the line it names, or else in the one place that has them."""
    after = _after_anchor(hunk, body, cursor.at, name)
    named = _line_at(body, cursor, hunk.line + cursor.shift) if hunk.line else -1
    if not hunk.old:
        return named if hunk.line else after if hunk.anchor else len(body)
    if named >= 0 and _is_at(body, old, named):
        return named
    places = _places(body, old, after)
    if hunk.at_end:
        last = len(body) - len(old)
        places = [last] if last >= after and _is_at(body, old, last) else []
    if not places:
        raise DoesNotApply(
            f"{name}: the lines to change, beginning with {hunk.old[0][:120]!r}, are not in the file. "
            "Read the file, then write the patch anew."
        )
    if len(places) > 1 and not hunk.anchor:
        raise DoesNotApply(f"{name}: the lines to change are there more than once. Give more lines around them.")
    return places[0]


def _after_anchor(hunk: Hunk, body: str, start: int, name: str) -> int:
    """The end of the line that the hunk names to be looked after."""
    if not hunk.anchor:
        return start
    at = start
    while (at := body.find(hunk.anchor, at)) >= 0:
        begin, end = body.rfind("\n", 0, at), body.find("\n", at)
        end = len(body) if end < 0 else end
        if body[begin + 1 : end].strip() == hunk.anchor:
            return end
        at = end
    raise DoesNotApply(f"{name}: there is no line {hunk.anchor!r} in the file. Read it, then write the patch anew.")


def _places(body: str, old: str, start: int) -> list[int]:
    """The first two places of these whole lines."""
    found: list[int] = []
    at = start
    while len(found) < 2 and (at := body.find(old, at)) >= 0:
        if _is_at(body, old, at):
            found.append(at)
        at += 1
    return found


def _is_at(body: str, old: str, at: int) -> bool:
    end = at + len(old)
    return body.startswith(old, at) and (end == len(body) or body[end] == "\n")


def _line_at(body: str, cursor: _Cursor, line: int) -> int:
    """Where a line begins, as the position of the line end before it; not before the cursor, not after the end."""
    at = cursor.at
    for _ in range(line - cursor.line):
        at = body.find("\n", at + 1)
        if at < 0:
            return len(body)
    return at
