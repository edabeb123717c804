"""Tells a command that failed at a protected name that toolwire protects it. Pure.

To a program a protected name is one that is busy, read-only or forbidden, and its message does not say why.
"""

from collections.abc import Iterator, Mapping

from toolwire.protocol.obeyed import Obeyed, class_of

_MOST_LINES, _MOST_NOTES, _LONGEST_LINE = 400, 5, 2_000
_PHRASES = {
    "sealed": ("read-only file system", "device or resource busy", "permission denied", "operation not permitted",
               "erofs", "ebusy", "eacces", "eperm", "cross-device link"),
    "hidden": ("no such file or directory", "read-only file system", "permission denied", "device or resource busy",
               "enoent", "erofs", "ebusy", "eacces"),
    "masked": ("connection refused", "permission denied", "econnrefused", "eacces", "device or resource busy", "ebusy",
               "not a socket"),
    "keys": ("permission denied", "eacces"),
}  # fmt: skip
_SENTENCES = {
    "sealed": "toolwire protects {path!r}, which other programs obey: commands can read it and not change it.",
    "hidden": "toolwire hides {path!r} from commands.",
    "masked": "toolwire does not let commands reach {path!r}, a socket or pipe of a program outside of the sandbox.",
    "keys": "toolwire hides {path!r}, which holds keys, from commands that were not approved.",
}
_OF_GIT = " Nothing but `git config KEY VALUE` or `git remote …` can set keys, by which git starts no program."
_APPROVABLE = " The tools write, edit and apply_patch can, after approval."


def explain_refusals(errors: str, protected: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """A sentence for each protected name that a line of error messages complains about."""
    notes = dict.fromkeys(_found(errors, protected))
    return tuple(notes)[:_MOST_NOTES]


def _found(errors: str, protected: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    for line in errors.splitlines()[-_MOST_LINES:]:
        short = line[:_LONGEST_LINE]
        lowered = short.lower()
        for how, phrases in _PHRASES.items():
            if not any(phrase in lowered for phrase in phrases):
                continue
            path = _named(short, protected.get(how, ()))
            if path:
                yield _SENTENCES[how].format(path=path) + _advice(how, path)
                break


def _advice(how: str, path: str) -> str:
    if how != "sealed":
        return ""
    return _OF_GIT if path.endswith(".git/config") else _APPROVABLE if _may_ask(path) else ""


def _may_ask(path: str) -> bool:
    kind = class_of(path)
    return kind is not None and kind[0] is Obeyed.ASKED


def _named(line: str, paths: tuple[str, ...]) -> str:
    """The protected path that a line names: whole if it can be, or by its last part."""
    whole = max((path for path in paths if path in line), key=len, default="")
    return whole or next((path for path in paths if path.rpartition("/")[2] in line), "")
