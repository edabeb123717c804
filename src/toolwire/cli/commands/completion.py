"""`toolwire completion`: the script that has a shell complete commands, options and their values."""

from typing import Annotated

import typer
from typer._completion_shared import get_completion_script

from toolwire.cli.entry.exits import Exit
from toolwire.errors import SettingsError

VARIABLE = "_TOOLWIRE_COMPLETE"
"""Set by the script when the shell wants to know what could come next."""

_WHERE = {
    "bash": 'eval "$(toolwire completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(toolwire completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "toolwire completion fish | source    # in ~/.config/fish/config.fish",
}


def completion(
    shell: Annotated[str, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> Exit:
    """Print the script that completes toolwire's commands and options in a shell.

    For bash put into ~/.bashrc: eval "$(toolwire completion bash)". For zsh the same in ~/.zshrc, after compinit; for
    fish into its config: toolwire completion fish | source
    """
    if shell not in _WHERE:
        raise SettingsError(f"there is no completion for {shell[:40]!r}; there is one for {', '.join(_WHERE)}")
    typer.echo(f"# {_WHERE[shell]}")
    typer.echo(get_completion_script(prog_name="toolwire", complete_var=VARIABLE, shell=shell))
    return Exit.DONE
