"""`toolwire release`: gives back the names of what commands made and toolwire held back."""

import os
from pathlib import Path
from typing import Annotated

import typer

from toolwire.cli.entry.exits import Exit
from toolwire.cli.terminal.text import clean
from toolwire.execute.sandbox.held_back import HeldBack, all_held_back, held_back_at
from toolwire.execute.sandbox.held_back import release as give_back


def release(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="What to release, by its present or its former name."),
    ] = None,
) -> Exit:
    """List what was held back in this folder, or give some of it its name back.

    A command in a sandbox cannot make what other programs obey, such as .vscode or .github/workflows: it is moved
    aside. Look at it first; editors, agents and CI follow it once it is released.
    """
    root = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        held = sorted(all_held_back(root), key=lambda one: one.lies_at)
        if not paths:
            return _list(held)
        return max((_release(root, held, path) for path in paths), default=Exit.DONE)
    finally:
        os.close(root)


def _list(held: list[HeldBack]) -> Exit:
    for one in held:
        typer.echo(f"{clean(one.lies_at)}  (was {clean(one.path)})")
    if not held:
        typer.echo("Nothing is held back in this folder.")
    return Exit.DONE


def _release(root: int, held: list[HeldBack], path: str) -> Exit:
    wanted = os.path.relpath(path, Path.cwd()).rstrip("/")
    exactly = held_back_at(root, wanted)  # where the list does not look, too
    found = [exactly] if exactly is not None else [one for one in held if wanted == one.path]
    if len(found) != 1:
        several = ", ".join(clean(one.lies_at) for one in found)
        reason = (
            f"several are held back ({several}); name one of them" if found else "nothing of this name is held back"
        )
        typer.echo(f"{clean(path)}: {reason}.", err=True)
        return Exit.USAGE if found else Exit.NOT_FOUND
    try:
        released = give_back(root, found[0].lies_at)
    except OSError as error:
        typer.echo(f"{clean(found[0].path)} {error.strerror or error}; nothing was released.", err=True)
        return Exit.FAILED
    typer.echo(f"Released {clean(released.path)}.")
    return Exit.DONE
