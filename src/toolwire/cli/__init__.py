"""The entry point for the terminal. Importing it loads no command: `entry.program` finds one when it is invoked.

    entry      the table of commands, their options, exit codes and errors
    help       help pages
    commands   one module a command
    resolve    what the words of a command line stand for: projects, turns, tools, agents
    views      how turns, calls, tools and approvals are shown
    terminal   reading and writing: text, JSON, questions

A package uses those below it; `commands` also uses `entry`, whose table knows commands by name only.
"""

from toolwire.cli.entry.program import main as main
from toolwire.cli.entry.program import program as program
