"""The project of the folder in which a command was started. Who is at a terminal can trust its settings file."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from toolwire.assemble.project import ProjectFolder, open_project
from toolwire.cli.terminal.input import confirm, user_is_present
from toolwire.cli.terminal.text import clean, distinct
from toolwire.record.projects import DEFAULT
from toolwire.settings import Untrusted


def current_project(flags: Mapping[str, Any] | None = None, *, project: str = DEFAULT) -> ProjectFolder:
    """The project of this folder. A settings file that needs trust is shown at a terminal. Raises SettingsError."""
    found = open_project(flags, name=project, trusts=_ask_for_trust)
    for file in found.settings.ignored_files:
        typer.echo(_ignored_file(file), err=True)
    return found


def _ignored_file(file: Path) -> str:
    advice = f"if you know what it says, set TOOLWIRE_TRUST={shlex.quote(str(file.parent))}"
    return clean(f"{file} belongs to another user and was not read; {advice}")


def _ask_for_trust(asking: Untrusted) -> bool:
    if not user_is_present():
        return False
    typer.echo(f"{clean(asking.reason)}:\n{distinct(asking.wants)}", err=True)
    return confirm("Do you trust this file, until it changes?")
