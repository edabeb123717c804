"""`toolwire trust`: the user's word for a project's settings file."""

import os
from pathlib import Path
from typing import Annotated

import typer

from toolwire.cli.exits import Exit
from toolwire.cli.text import clean
from toolwire.errors import SettingsError
from toolwire.settings import Untrusted, forget, load, project_file, state_folder, user_folder
from toolwire.settings import trust as keep_word

_KNOWN = ("HOME", "USERPROFILE")


def trust(
    folder: Annotated[
        str | None, typer.Argument(metavar="[FOLDER]", help="The project's folder; without it, the current one.")
    ] = None,
    take_back: Annotated[bool, typer.Option("--forget", help="Trust it no longer.")] = False,
) -> Exit:
    """Trust the toolwire.toml of a project, as it is now: tools it names, what it grants, addresses it sets.

    Such settings of a project's file count only once it is trusted, and no longer when it changes.
    """
    at = Path(folder or ".").absolute()
    file = project_file(at)
    if file is None:
        raise SettingsError(f"there is no toolwire.toml in {at} or above it")
    if take_back:
        forget(file, state_folder())
        typer.echo(f"{clean(str(file))} is not trusted.")
        return Exit.DONE
    try:
        load(at, {name: os.environ[name] for name in _KNOWN if name in os.environ}, user_dir=user_folder())
    except Untrusted as asking:
        keep_word(asking.file, asking.digest, state_folder())
        typer.echo(f"{clean(str(file))} is trusted until it changes. It sets:\n{clean(asking.wants)}")
    else:
        typer.echo(f"{clean(str(file))} asks for nothing that needs trust.")
    return Exit.DONE
