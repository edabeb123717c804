"""What git prints for programs, read into values. The text is a repository's: anything may stand in it."""

from collections.abc import Iterator
from typing import Annotated, TypedDict

from toolwire.define.fields import Field

_RECORD, _UNIT = "\n", "\0"
LOG_FORMAT = "tformat:%H%x00%P%x00%an%x00%ae%x00%aI%x00%D%x00%s%x00%b"
_LOG_FIELDS = 8
BRANCH_FORMAT = "%00".join(
    f"%({name})"
    for name in (
        "refname:short", "HEAD", "objectname", "upstream:short", "upstream:track,nobracket",
        "committerdate:iso-strict", "contents:subject",
    )
)  # fmt: skip
LONGEST_BODY = 4000
_FIELDS = {"1 ": 8, "2 ": 9, "u ": 10}
_STATES = {
    "M": "modified", "A": "added", "D": "deleted", "R": "renamed", "C": "copied", "T": "type_changed",
    "U": "unmerged", ".": "",
}  # fmt: skip


class ChangedFile(TypedDict):
    path: Annotated[str, Field(description="The file, from the top of the repository.")]
    staged: Annotated[str, Field(description="What the next commit does to it: added, modified, deleted …; or empty.")]
    unstaged: Annotated[str, Field(description="What happened to it since: modified, deleted, untracked …; or empty.")]
    old_path: Annotated[str, Field(description="Where it was before it was renamed or copied; or empty.")]


class Head(TypedDict):
    branch: Annotated[str, Field(description="The branch that is checked out; empty if none is.")]
    commit: Annotated[str, Field(description="The commit that is checked out; empty before the first one.")]
    upstream: Annotated[str, Field(description="The branch it follows, such as origin/main; or empty.")]
    ahead: Annotated[int, Field(description="Commits that the upstream lacks.")]
    behind: Annotated[int, Field(description="Commits that only the upstream has.")]


class Commit(TypedDict):
    commit: Annotated[str, Field(description="Its full id.")]
    parents: Annotated[list[str], Field(description="The ids of its parents; none for a first commit.")]
    author: Annotated[str, Field(description="Who wrote it.")]
    email: Annotated[str, Field(description="The author's address.")]
    date: Annotated[str, Field(description="When, in ISO 8601.")]
    refs: Annotated[list[str], Field(description="Branches and tags that point to it.")]
    subject: Annotated[str, Field(description="The first line of its message.")]
    body: Annotated[str, Field(description="The rest of its message; cut where it is very long.")]


class Branch(TypedDict):
    name: Annotated[str, Field(description="The branch.")]
    current: Annotated[bool, Field(description="Whether it is checked out.")]
    commit: Annotated[str, Field(description="The id of its newest commit.")]
    upstream: Annotated[str, Field(description="The branch it follows; or empty.")]
    track: Annotated[str, Field(description="How it stands to its upstream, such as 'ahead 2'; or empty.")]
    date: Annotated[str, Field(description="When its newest commit was made, in ISO 8601.")]
    subject: Annotated[str, Field(description="The first line of its newest commit's message.")]


class FileDiff(TypedDict):
    path: Annotated[str, Field(description="The file.")]
    old_path: Annotated[str, Field(description="Where it was before, if it was renamed; or empty.")]
    added: Annotated[int | None, Field(description="Lines added; null for a binary file.")]
    deleted: Annotated[int | None, Field(description="Lines deleted; null for a binary file.")]


def read_status(text: str) -> tuple[Head, list[ChangedFile]]:
    """Names that are not to be seen while untracked, an empty one, then `git status --porcelain=v2 --branch -z`."""
    head: Head = {"branch": "", "commit": "", "upstream": "", "ahead": 0, "behind": 0}
    entries: list[ChangedFile] = []
    pieces = iter(text.split(_UNIT))
    unseen = {f"? {name}" for name in iter(lambda: next(pieces, ""), "")}
    for piece in pieces:
        if piece.startswith("# branch."):
            _read_head(head, piece.removeprefix("# branch."))
        elif piece and piece not in unseen:
            entries += _read_entry(piece, pieces)
    return head, entries


def _read_head(head: Head, line: str) -> None:
    match line.split(" ", 2):
        case ["oid", oid]:
            head["commit"] = "" if oid == "(initial)" else oid
        case ["head", name]:
            head["branch"] = "" if name == "(detached)" else name
        case ["upstream", name]:
            head["upstream"] = name
        case ["ab", ahead, behind]:
            head["ahead"], head["behind"] = _number(ahead), _number(behind)


def _read_entry(piece: str, rest: Iterator[str]) -> Iterator[ChangedFile]:
    match piece[:2], piece.split(" ", _FIELDS.get(piece[:2], 1)):
        case "1 ", [_, states, _, _, _, _, _, _, path]:
            yield _entry(path, states)
        case "2 ", [_, states, _, _, _, _, _, _, _, path]:
            yield _entry(path, states, next(rest, ""))
        case "u ", [_, _, _, _, _, _, _, _, _, _, path]:
            yield _entry(path, "UU")
        case "? ", [_, path]:
            yield {"path": path, "staged": "", "unstaged": "untracked", "old_path": ""}


def _entry(path: str, states: str, old: str = "") -> ChangedFile:
    staged, unstaged = (_STATES.get(letter, letter) for letter in states[:2].ljust(2, "."))
    return {"path": path, "staged": staged, "unstaged": unstaged, "old_path": old}


def read_log(text: str) -> list[Commit]:
    """`git log -z` in `LOG_FORMAT`."""
    fields = text.split(_UNIT)
    whole = len(fields) // _LOG_FIELDS * _LOG_FIELDS
    return [_commit(fields[at : at + _LOG_FIELDS]) for at in range(0, whole, _LOG_FIELDS)]


def _commit(fields: list[str]) -> Commit:
    commit, parents, author, email, date, refs, subject, body = fields
    return {
        "commit": commit,
        "parents": parents.split(),
        "author": author,
        "email": email,
        "date": date,
        "refs": [ref.strip() for ref in refs.split(",") if ref.strip()],
        "subject": subject,
        "body": body.strip()[:LONGEST_BODY],
    }


def read_branches(text: str) -> list[Branch]:
    """`git for-each-ref` in `BRANCH_FORMAT`."""
    found: list[Branch] = []
    for line in text.split(_RECORD):
        fields = line.split(_UNIT)
        if len(fields) == 7:
            name, head, commit, upstream, track, date, subject = fields
            found.append({
                "name": name, "current": head == "*", "commit": commit, "upstream": upstream, "track": track,
                "date": date, "subject": subject,
            })  # fmt: skip
    return found


def read_diff(text: str) -> tuple[list[FileDiff], str]:
    """`git diff --numstat -z --patch`: the files, and the patch as it is."""
    files: list[FileDiff] = []
    at = 0
    while at < len(text) and text[at] != _UNIT:
        line, at = _until_nul(text, at)
        added, deleted, path = [*line.split("\t", 2), "", ""][:3]
        old = ""
        if not path:
            old, at = _until_nul(text, at)
            path, at = _until_nul(text, at)
        files.append({"path": path, "old_path": old, "added": _count(added), "deleted": _count(deleted)})
    return files, text[at + 1 :]


def _until_nul(text: str, at: int) -> tuple[str, int]:
    end = text.find(_UNIT, at)
    return (text[at:], len(text)) if end < 0 else (text[at:end], end + 1)


def _count(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _number(text: str) -> int:
    return _count(text.lstrip("+-")) or 0
