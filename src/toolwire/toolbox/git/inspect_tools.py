"""Git, for looking: status, diff, log and branches of a repository in the workspace. `commit_tool.py` has what changes.

There is no tool that pushes, pulls, fetches or clones: nothing here reaches a network.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypedDict

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.execute.sandbox.protected import PROTECTED
from toolwire.protocol.context import Context
from toolwire.protocol.engines import DEFAULT_ENGINE
from toolwire.protocol.operations import ExecOps, shell
from toolwire.protocol.tools import Effect, JsonObject, Tier, Tool
from toolwire.toolbox.files.granted_paths import wrong
from toolwire.toolbox.git.commit_tool import git_commit_tool
from toolwire.toolbox.git.output import (
    BRANCH_FORMAT,
    LOG_FORMAT,
    Branch,
    ChangedFile,
    Commit,
    FileDiff,
    Head,
    read_branches,
    read_diff,
    read_log,
    read_status,
)
from toolwire.toolbox.git.ruled_diff import without_ruled_out
from toolwire.toolbox.git.running import MOST_PATHS, git_output, inner_paths, open_repository, revision

MOST_ENTRIES = 1000
USUAL_CHARS = 30_000
MOST_CHARS = 500_000

FolderArgument = Annotated[str, Field(min_length=1, max_length=4096)]
PathsArgument = Annotated[list[Annotated[str, Field(min_length=1, max_length=4096)]], Field(max_length=MOST_PATHS)]
RevisionArgument = Annotated[str, Field(max_length=250)]

_NO_PROGRAMS = ("--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty")

# A box that is open on the workspace has empty files in place of protected names; they are no work of anyone's.
_STATUS = """
top=$(git rev-parse --show-toplevel) && cd "$top" || exit
for name; do
  if [ -f "$name" ] && [ "$(stat -c %s/%Y -- "$name")" = 0/1 ]; then printf '%s\\0' "$name"; fi
done
printf '\\0'
exec git status --porcelain=v2 --branch -z --untracked-files=normal --ignore-submodules=dirty --find-renames
"""


def stand_in_names() -> tuple[str, ...]:
    """Every name that may have a stand-in while a box is open."""
    names = (name.split("/") for name in PROTECTED)
    whole = ("/".join(parts[:depth]) for parts in names for depth in range(1, len(parts) + 1))
    return tuple(dict.fromkeys(name for name in whole if not name.startswith(".git/") and name != ".git"))


class StatusOutput(Head):
    clean: Annotated[bool, Field(description="Whether nothing is changed or untracked.")]
    entries: Annotated[list[ChangedFile], Field(description="The files that are changed or untracked.")]
    total: Annotated[int, Field(description="How many there are; more than are listed where there are very many.")]
    truncated: Annotated[bool, Field(description="Whether there are so many that not even all were counted.")]


class DiffOutput(TypedDict):
    files: Annotated[list[FileDiff], Field(description="The files that differ.")]
    total: Annotated[int, Field(description="How many differ; more than are listed where there are very many.")]
    patch: Annotated[str, Field(description="The differences as a unified diff, from start on.")]
    total_chars: Annotated[int, Field(description="Characters in the whole patch.")]
    truncated: Annotated[bool, Field(description="Whether the patch goes on; read on with start.")]
    note: Annotated[str, Field(description="What was left out and why; empty if nothing.")]


class LogOutput(TypedDict):
    commits: Annotated[list[Commit], Field(description="The commits, newest first.")]


class BranchOutput(TypedDict):
    current: Annotated[str, Field(description="The branch that is checked out; empty if none is.")]
    branches: Annotated[list[Branch], Field(description="The branches, those with the newest commits first.")]
    total: Annotated[int, Field(description="How many there are; more than are listed where there are very many.")]


def git(ops: ExecOps, *, author: str = "") -> tuple[Tool, ...]:
    """All git tools, on whatever runs commands. `author` (`Name <address>`) signs where a repository names none."""
    return (
        git_status_tool(ops),
        git_diff_tool(ops),
        git_log_tool(ops),
        git_branch_tool(ops),
        git_commit_tool(ops, author=author, stand_ins=stand_in_names()),
    )


def _looking(name: str, *examples: JsonObject) -> Callable[[Callable[..., Any]], Tool]:
    """What all tools that only look have in common."""
    return tool(
        name=name,
        examples=examples,
        tier=Tier.CRAWL,
        effect=Effect.PURE,
        category="git",
        needs={"git"},
        reads=("workspace",),
        sandbox=DEFAULT_ENGINE,
    )


def git_status_tool(ops: ExecOps) -> Tool:
    """The tool that tells what is changed in a repository."""

    @_looking("git_status", {}, {"repository": "vendor/lib"})
    async def git_status(context: Context, repository: FolderArgument = ".") -> StatusOutput:
        """Show the branch and the changed, staged and untracked files of a git repository.

        Args:
            repository: The folder of the repository, relative to the workspace.
        """
        asked = await open_repository(ops, context, repository)
        ran = await asked.run((*shell(_STATUS), "git_status", *stand_in_names()))
        head, entries = read_status(git_output(ran))
        return {
            **head,
            "clean": not entries,
            "entries": entries[:MOST_ENTRIES],
            "total": len(entries),
            "truncated": ran.stdout.truncated,
        }

    return git_status


def git_diff_tool(ops: ExecOps) -> Tool:
    """The tool that shows differences: of the working tree, of a commit, or between two commits."""

    @_looking(
        "git_diff", {}, {"staged": True}, {"commit": "HEAD"}, {"base": "main", "commit": "next", "paths": ["src"]}
    )
    async def git_diff(
        context: Context,
        commit: RevisionArgument = "",
        base: RevisionArgument = "",
        staged: bool = False,
        paths: PathsArgument = [],  # noqa: B006 - never changed; a list is what the schema says
        context_lines: Annotated[int, Field(ge=0, le=100)] = 3,
        start: Annotated[int, Field(ge=0, le=2**31)] = 0,
        max_chars: Annotated[int, Field(ge=100, le=MOST_CHARS)] = USUAL_CHARS,
        repository: FolderArgument = ".",
    ) -> DiffOutput:
        """Show what changed: by default what is not staged, or what is, or a commit, or between two commits.

        Args:
            commit: A commit, branch or tag: what it changed, or with base how it differs from that.
            base: What to compare with; the working tree is compared with it unless commit is given.
            staged: Show what the next commit would change.
            paths: Only these files and folders, relative to the repository's folder.
            context_lines: How many lines to show around each change.
            start: The character of the patch to begin at, to read on in a long one.
            max_chars: How many characters of the patch to give at most.
            repository: The folder of the repository, relative to the workspace.
        """
        asked = await open_repository(ops, context, repository)
        words = _diff_words(commit, base, staged=staged)
        shape = (*_NO_PROGRAMS, "-M", "--numstat", "-z", "--patch", f"-U{context_lines}", "--end-of-options")
        ran = await asked.git(*words[0], *shape, *words[1], "--", *inner_paths(paths, context, repository))
        cut = ran.stdout.truncated
        shown = without_ruled_out(*read_diff(git_output(ran)), context, repository, paths, cut=cut)
        return _diff_output(*shown, start, max_chars, cut=cut)

    return git_diff


def _diff_words(commit: str, base: str, *, staged: bool) -> tuple[list[str], list[str]]:
    """The words before the options, and the commits after them."""
    if staged and commit:
        raise wrong("give either staged or commit; what is staged belongs to no commit yet")
    places = [f"{revision(one, name)}^{{commit}}" for one, name in ((base, "base"), (commit, "commit")) if one]
    if commit and not base:
        return ["show", "--format=", "--diff-merges=first-parent"], places
    return ["diff", *(["--cached"] if staged else [])], places


def _diff_output(files: list[FileDiff], patch: str, note: str, start: int, max_chars: int, *, cut: bool) -> DiffOutput:
    if start and start >= len(patch):
        raise wrong(f"the patch has {len(patch)} characters, so nothing begins at {start}")
    end = start + max_chars
    return {
        "files": files[:MOST_ENTRIES],
        "total": len(files),
        "patch": patch[start:end],
        "total_chars": len(patch),
        "truncated": cut or end < len(patch),
        "note": note,
    }


def git_log_tool(ops: ExecOps) -> Tool:
    """The tool that lists commits."""

    @_looking("git_log", {"max_count": 3}, {"ref": "main", "paths": ["README.md"]})
    async def git_log(
        context: Context,
        max_count: Annotated[int, Field(ge=1, le=500)] = 10,
        skip: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
        ref: RevisionArgument = "HEAD",
        paths: PathsArgument = [],  # noqa: B006 - never changed; a list is what the schema says
        author: Annotated[str, Field(max_length=200)] = "",
        since: Annotated[str, Field(max_length=100)] = "",
        repository: FolderArgument = ".",
    ) -> LogOutput:
        """List commits of a git repository, newest first.

        Args:
            max_count: How many commits to give at most.
            skip: How many to leave out first, to read on.
            ref: The branch, tag or commit to begin at.
            paths: Only commits that touch these files and folders, relative to the repository's folder.
            author: Only commits whose author's name or address contains this.
            since: Only commits after this date, such as 2025-01-31.
            repository: The folder of the repository, relative to the workspace.
        """
        asked = await open_repository(ops, context, repository)
        wanted = [f"--author={author}"] * bool(author) + [f"--since={since}"] * bool(since)
        ran = await asked.git(
            "log", "-z", f"--format={LOG_FORMAT}", "--no-show-signature", "--no-color", "--decorate=short",
            "--fixed-strings", f"--max-count={max_count}", f"--skip={skip}", *wanted,
            "--end-of-options", revision(ref, "ref"), "--", *inner_paths(paths, context, repository),
        )  # fmt: skip
        return {"commits": read_log(git_output(ran))}

    return git_log


def git_branch_tool(ops: ExecOps) -> Tool:
    """The tool that lists branches."""

    @_looking("git_branch", {}, {"remotes": True})
    async def git_branch(context: Context, remotes: bool = False, repository: FolderArgument = ".") -> BranchOutput:
        """List the branches of a git repository, with what each points to and follows.

        Args:
            remotes: List what is known of the branches of remotes, too.
            repository: The folder of the repository, relative to the workspace.
        """
        asked = await open_repository(ops, context, repository)
        which = ["refs/heads", *(["refs/remotes"] if remotes else [])]
        ran = await asked.git("for-each-ref", f"--format={BRANCH_FORMAT}", "--sort=-committerdate", "--", *which)
        found = read_branches(git_output(ran))
        current = next((one["name"] for one in found if one["current"]), "")
        return {"current": current, "branches": found[:MOST_ENTRIES], "total": len(found)}

    return git_branch
