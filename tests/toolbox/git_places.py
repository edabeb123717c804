"""Repositories to work on, ways to run git, and attacks that a repository can hold."""

import asyncio
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from toolwire.protocol.operations import Command, Listener, Output, Ran

ME = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"} | {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Ann"), ("EMAIL", "ann@example.org"))
}


def git(folder: Path, *words: str) -> str:
    """Git as a person runs it, outside of every box."""
    done = subprocess.run(
        ["git", *words], cwd=folder, env={**os.environ, **ME}, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def started(folder: Path) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "tea.txt").write_text("green\nblack\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Add tea\n\nBoth kinds.")
    return folder


class Open:
    """No box: commands as this process runs them, with the variables they ask for, or with none of these."""

    def __init__(self, *, defused: bool = True) -> None:
        self._defused = defused

    async def run(self, command: Command, listener: Listener | None = None) -> Ran:
        env: Mapping[str, str] = command.env if self._defused else ME
        process = await asyncio.create_subprocess_exec(
            *command.argv,
            cwd=Path(command.workspace, command.cwd),
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        async with asyncio.timeout(30):
            out, err = await process.communicate(command.stdin)
        return Ran(process.returncode, None, Output(out, b"", len(out)), Output(err, b"", len(err)))


def _configured(*pairs: str) -> Callable[[Path, str], None]:
    def attack(folder: Path, program: str) -> None:
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            git(folder, "config", key, value.replace("PROGRAM", program))

    return attack


def _driven(kind: str, *pairs: str) -> Callable[[Path, str], None]:
    def attack(folder: Path, program: str) -> None:
        (folder / ".gitattributes").write_text(f"* {kind}=evil\n")
        _configured(*pairs)(folder, program)

    return attack


def _included(folder: Path, program: str) -> None:
    (folder / "more.cfg").write_text(f'[filter "evil"]\n\tclean = "{program}; cat"\n')
    (folder / ".gitattributes").write_text("* filter=evil\n")
    git(folder, "config", "includeIf.gitdir:**.path", str(folder / "more.cfg"))


def _odd_name(folder: Path, program: str) -> None:
    (folder / ".gitattributes").write_text("* filter=a=b.c\n")
    with (folder / ".git" / "config").open("a") as config:
        config.write(f'[filter "a=b.c"]\n\tclean = "{program}; cat"\n\trequired = true\n')


def _hooked(folder: Path, program: str) -> None:
    hooks = folder / ".git" / "hooks"
    for name in ("pre-commit", "post-commit", "post-index-change", "reference-transaction", "commit-msg"):
        (hooks / name).write_text(f"#!/bin/sh\n{program}\n")
        (hooks / name).chmod(0o755)


def _hooks_elsewhere(folder: Path, program: str) -> None:
    _hooked(folder, program)
    (folder / ".git" / "hooks").rename(folder / "tools")
    git(folder, "config", "core.hooksPath", str(folder / "tools"))


def _partial_clone(folder: Path, program: str) -> None:
    """An object is missing, and the remote that promises it names the program that brings it."""
    _configured(
        "remote.origin.url", str(folder / ".git"), "remote.origin.promisor", "true",
        "remote.origin.uploadpack", f"{program}; git-upload-pack", "extensions.partialClone", "origin",
        "core.repositoryFormatVersion", "1", "protocol.file.allow", "always",
    )(folder, program)  # fmt: skip
    blob = git(folder, "rev-parse", "HEAD:tea.txt")
    (folder / ".git" / "objects" / blob[:2] / blob[2:]).unlink()


def _signed(folder: Path, program: str) -> None:
    commit = git(folder, "cat-file", "commit", "HEAD")
    head, _, message = commit.partition("\n\n")
    seal = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n x\n -----END PGP SIGNATURE-----"
    made = subprocess.run(
        ["git", "hash-object", "-t", "commit", "-w", "--stdin"],
        cwd=folder, input=f"{head}\n{seal}\n\n{message}\n", text=True, capture_output=True, check=True,
    )  # fmt: skip
    git(folder, "update-ref", "HEAD", made.stdout.strip())
    script = folder / "seal"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o755)
    _configured("log.showSignature", "true", "commit.gpgSign", "true", "gpg.program", str(script))(folder, program)


def _submodule(folder: Path, program: str) -> None:
    """A repository in the repository, with a filter of its own."""
    inner = started(folder / "lib")
    (inner / ".gitattributes").write_text("* filter=evil\n")
    git(inner, "config", "filter.evil.clean", f"{program}; cat")
    git(folder, "-c", "protocol.file.allow=always", "submodule", "add", "-q", "./lib", "lib")
    # As long as before and of another time, so that git must look inside.
    (inner / "tea.txt").write_text("GREEN\nBLACK\n")
    os.utime(inner / "tea.txt", (1_000_000_000, 1_000_000_000))


ATTACKS: Mapping[str, Callable[[Path, str], None]] = {
    "fsmonitor": _configured("core.fsmonitor", "PROGRAM; false"),
    "clean_filter": _driven("filter", "filter.evil.clean", "PROGRAM; cat"),
    "process_filter": _driven("filter", "filter.evil.process", "PROGRAM"),
    "odd_filter_name": _odd_name,
    "included_config": _included,
    "textconv": _driven("diff", "diff.evil.textconv", "PROGRAM; cat"),
    "diff_command": _driven("diff", "diff.evil.command", "PROGRAM"),
    "diff_external": _configured("diff.external", "PROGRAM"),
    "hooks": _hooked,
    "hooks_elsewhere": _hooks_elsewhere,
    "partial_clone": _partial_clone,
    "signature": _signed,
    "submodule": _submodule,
}
