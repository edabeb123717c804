"""From the terminal to `Agent.ask`: the files of ours that a reader has to pass, in the order of the journey.

Decision 33 says what is made before the question is asked, and what with its first use. A file that only holds two
ideas together would be one less here, and no less to read.
"""

import json
from pathlib import Path

from tests.cli.way_in import traced

WAY_IN = {
    # The command line becomes a command.
    "cli/entry/program.py": "`main`: the table of commands",
    "cli/entry/streams.py": "standard streams that cannot fail a command",
    "cli/entry/command.py": "options and arguments are read, and the command is called",
    "cli/commands/ask.py": "`ask`: the whole command, on one screen",
    "cli/terminal/input.py": "piped text is read",
    "lazy.py": "what loads modules when they are first used",
    # The project and its settings.
    "cli/resolve/agents.py": "`Flags`: what was said on the command line",
    "cli/resolve/project.py": "who is at the terminal can trust a settings file",
    "assemble/project.py": "`ProjectFolder`: folder, environment and settings",
    "settings/loading.py": "the layers of settings, put together and checked",
    "record/ownership.py": "what belongs to the user: the state folder, and later the home of the record",
    "settings/sources.py": "the layers as they are written",
    "settings/sections.py": "what sections of settings are made with",
    "settings/schema.py": "`Settings`",
    "models/opening.py": "a name becomes a model; here its provider is looked up",
    # Who watches.
    "cli/terminal/screen.py": "what is printed, and where",
    "cli/views/watch.py": "shows the turn while it goes on",
    "agent.py": "`run_sync`, and in the end `Agent`",
    # The store.
    "assemble/stores.py": "the store of the settings",
    "assemble/state_ownership.py": "a record that someone else made is refused, a new one is signed",
    "record/sqlite.py": "`SqliteStore.at`",
    "record/schema.py": "tables are made or migrated",
    "record/projects.py": "what one project sees of the store",
    # The agent.
    "cli/views/prompts.py": "the person who approves calls",
    "assemble/specs.py": "`AgentSpec`, and the grant and the model of it",
    "toolbox/registry.py": "the table of built-in tools",
    "assemble/agents.py": "`open_agent`: the spec becomes an agent",
    "models/local.py": "the embedded model; its engine is opened with the first question",
    "define/toolbox.py": "`Toolbox`: tools are made when they are first used",
    "assemble/tools.py": "the tools of the project",
}
"""Every file with a function that runs, and what happens there. A new one is a step more for each reader."""


def test_the_way_from_the_terminal_to_the_agent_passes_these_files_in_this_order(tmp_path: Path) -> None:
    ran = traced(tmp_path, "ask", "What is 12*12?")
    entered = json.loads(ran.stdout)["entered"]

    assert entered["agent.py"][-1] == "Agent.ask", ran.stderr
    assert list(entered) == list(WAY_IN)
