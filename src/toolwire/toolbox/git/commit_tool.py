"""The tool that commits: all or nothing, and never twice for the same call.

A tree is made in an index of its own; then, with the repository's index locked, the branch moves only if it still is
where it was. The log of HEAD carries the call's key, written with the move, so a call that is run again after a crash
finds what it did.
"""

import hashlib
from secrets import token_hex
from typing import Annotated, TypedDict

from msgspec.structs import replace

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.protocol.context import Context
from toolwire.protocol.engines import DEFAULT_ENGINE
from toolwire.protocol.operations import ExecOps, shell
from toolwire.protocol.tools import Effect, Tier, Tool
from toolwire.toolbox.files.granted_paths import wrong
from toolwire.toolbox.git.running import MOST_PATHS, GitRepository, git_output, inner_paths, open_repository, revision

LONGEST_MESSAGE = 20_000
USUAL_AUTHOR = "toolwire <toolwire@localhost>"
MOST_FILES = 1000
_MOST_SUBJECT = 200

# Words: the call's key, the expected HEAD or nothing, what HEAD's log is told, `all` or `some`, how many stand-ins,
# these, then the paths; `some` without paths is what is staged already. The message comes on stdin.
_SCRIPT = r"""
set -euo pipefail
key=$1 expected=$2 said=$3 mode=$4 count=$5; shift 5
ghosts=("${@:1:count}"); shift "$count"
refuse() { printf '%s\n' "$1" >&2; exit "${2:-3}"; }
top=$(git rev-parse --show-toplevel)
if [ "$mode" = all ]; then cd "$top"; set -- .; fi
dir=$(git rev-parse --absolute-git-dir)
done_before=$(git reflog show --format='%H %gs' HEAD 2>/dev/null | grep -F -m1 -- "[$key]" | cut -d' ' -f1 || true)
if [ -n "$done_before" ] && git merge-base --is-ancestor "$done_before" HEAD; then
  before=$(git rev-parse -q --verify "$done_before^" || true)
  printf '%s\0%s\0%s\0' "$done_before" "$before" "$(git branch --show-current)"
  exec git diff-tree -r --root --no-commit-id --name-only -z "$done_before"
fi
for state in MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD rebase-merge rebase-apply; do
  [ ! -e "$dir/$state" ] || refuse "a merge, rebase, cherry-pick or revert is under way; a person must finish it" 4
done
old=$(git rev-parse --verify --quiet HEAD || true)
[ -z "$expected" ] || [ "$(git rev-parse --verify --end-of-options "$expected^{commit}")" = "$old" ] \
  || refuse "HEAD is at ${old:-no commit}, not at $expected" 4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
index=$(git rev-parse --git-path index)
[ ! -e "$index" ] || cp -- "$index" "$work/before"
# Not `git add`, which asks each submodule how it is, and so obeys the configuration of that.
stage() {
  {
    git diff-files --ignore-submodules=dirty --no-renames --relative --name-only -z -- "$@"
    git ls-files -z --others --exclude-standard -- "$@" | { grep -zv '/$' || true; }
  } > "$work/list"
  git update-index --add --remove --replace -z --stdin < "$work/list"
  for name in ${ghosts[@]+"${ghosts[@]}"}; do
    at="$top/$name"
    if [ -f "$at" ] && [ "$(stat -c %s/%Y -- "$at")" = 0/1 ]; then
      git -C "$top" diff --cached --quiet --ignore-submodules=dirty --no-ext-diff --no-textconv -- "$name" \
        || git -C "$top" update-index --force-remove -- "$name"
    fi
  done
}
if [ -e "$work/before" ]; then cp "$work/before" "$work/index"; cp "$work/before" "$work/tree"; fi
if [ $# -gt 0 ]; then
  export GIT_INDEX_FILE=$work/tree
  if [ -n "$old" ]; then git read-tree --reset "$old"; else git read-tree --empty; fi
  [ "$mode" = all ] || git ls-files -c -o --exclude-standard --error-unmatch -- "$@" > /dev/null
  stage "$@"
  GIT_INDEX_FILE=$work/index stage "$@"
fi
export GIT_INDEX_FILE=$work/tree
tree=$(git write-tree)
[ -z "$old" ] || [ "$tree" != "$(git rev-parse "$old^{tree}")" ] || refuse "there is nothing to commit" 5
base=${old:-$(git hash-object -t tree --stdin < /dev/null)}
git diff-tree -r --no-commit-id --name-only -z "$base" "$tree" > "$work/names"
filtered=$(git check-attr -z --stdin filter < "$work/names" | tr '\n\0' '?\n' \
  | awk 'NR % 3 == 1 { name = $0 } NR % 3 == 0 && !/^(unspecified|unset|set)$/ { one = name } END { print one }')
[ -z "$filtered" ] || refuse "$filtered needs a filter, such as LFS, that is not run here; leave it to a person" 4
commit=$(git commit-tree ${old:+-p "$old"} -F - "$tree")
unset GIT_INDEX_FILE
lock=$index.lock
(set -C; : > "$lock") 2> /dev/null || refuse "another git process is at work in this repository; try again" 6
trap 'rm -rf "$work" "$lock"' EXIT
if [ -e "$work/before" ] && ! cmp -s "$index" "$work/before"; then refuse "the index changed meanwhile; try again" 6; fi
git update-ref -m "$said [$key]" HEAD "$commit" "$old" || refuse "the branch moved meanwhile; look and try again" 6
cat "$work/index" > "$lock"
mv -f -- "$lock" "$index"
printf '%s\0%s\0%s\0' "$commit" "$old" "$(git branch --show-current)"
cat "$work/names"
"""


class CommitOutput(TypedDict):
    commit: Annotated[str, Field(description="The id of the new commit.")]
    parent: Annotated[str, Field(description="What was checked out before it; empty for a first commit.")]
    branch: Annotated[str, Field(description="The branch that moved; empty if none is checked out.")]
    subject: Annotated[str, Field(description="The first line of the message.")]
    files: Annotated[list[str], Field(description="The files that it changes, at most 1000 of them.")]
    total: Annotated[int, Field(description="How many files it changes.")]


def git_commit_tool(ops: ExecOps, *, author: str = "", stand_ins: tuple[str, ...] = ()) -> Tool:
    """The tool that commits through `ops`, under the repository's own name or else as `author`."""

    @tool(
        name="git_commit",
        tier=Tier.RUN,
        effect=Effect.TRANSACTIONAL,
        journaled=True,
        category="git",
        needs={"git"},
        writes=("workspace",),
        sandbox=DEFAULT_ENGINE,
        examples=(
            {"message": "Fix the leap year", "paths": ["src/calendar.py"]},
            {"message": "Add notes\n\nThey were asked for.", "all": True, "expected_head": "main"},
        ),
    )
    async def git_commit(
        context: Context,
        message: Annotated[str, Field(min_length=1, max_length=LONGEST_MESSAGE)],
        paths: Annotated[list[Annotated[str, Field(min_length=1, max_length=4096)]], Field(max_length=MOST_PATHS)] = [],  # noqa: B006 - never changed; a list is what the schema says
        all: bool = False,  # noqa: A002 - git's own word
        expected_head: Annotated[str, Field(max_length=250)] = "",
        repository: Annotated[str, Field(min_length=1, max_length=4096)] = ".",
    ) -> CommitOutput:
        """Commit changes of a git repository: the given paths, or all, or what is staged already. Runs no hooks.

        Args:
            message: What the commit does; the first line is its subject.
            paths: The files and folders to commit as they are now, relative to the repository's folder.
            all: Commit every change, new and deleted files too.
            expected_head: Commit only if this is the commit that is checked out.
            repository: The folder of the repository, relative to the workspace.
        """
        if all and paths:
            raise wrong("give either all or paths")
        expected = revision(expected_head, "expected_head") if expected_head else ""
        asked = await open_repository(ops, context, repository)
        chosen = inner_paths(paths, context, repository)
        said, mode = f"commit: {_subject(message)}", "all" if all else "some"
        words = (_key(context), expected, said, mode, str(len(stand_ins)), *stand_ins, *chosen)
        return await _committed(_signed(asked, author), _body(message), words)

    return git_commit


async def _committed(asked: GitRepository, body: bytes, words: tuple[str, ...]) -> CommitOutput:
    ran = await asked.run((*shell(_SCRIPT), "git_commit", *words), body, writable=True)
    commit, parent, branch, *names = git_output(ran).split("\0")
    files = [name for name in names if name]
    return {
        "commit": commit,
        "parent": parent,
        "branch": branch,
        "subject": _subject(body.decode()),
        "files": files[:MOST_FILES],
        "total": len(files),
    }


def _key(context: Context) -> str:
    """The same for every try of a call, and nothing that a message could be mistaken for."""
    key = context.idempotency_key if context.call_id else token_hex()
    return f"toolwire {hashlib.sha256(key.encode()).hexdigest()[:24]}"


def _body(message: str) -> bytes:
    lines = (line.rstrip() for line in message.strip().splitlines())
    body = "\n".join(lines) + "\n"
    if not body.strip() or "\0" in body or any("\ud800" <= char <= "\udfff" for char in body):
        raise wrong("the message must have words, and no NUL or broken Unicode")
    return body.encode()


def _subject(message: str) -> str:
    return message.strip().partition("\n")[0].strip()[:_MOST_SUBJECT]


def _signed(asked: GitRepository, author: str) -> GitRepository:
    """The repository with someone to sign as, where its own configuration names no author."""
    if asked.settings.get("user.name") and asked.settings.get("user.email"):
        return asked
    name, _, address = (author or USUAL_AUTHOR).rstrip(">").partition(" <")
    env = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", address))
    }
    return replace(asked, command=replace(asked.command, env={**asked.command.env, **env}))
