"""Our own help pages: examples, the terminal's width, and colour where it is wanted."""

import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

from toolwire.lazy import lazy_pattern

EXAMPLES = {
    "toolwire": ('toolwire ask "What is 12 * 12?"', "toolwire tools list", "toolwire ask --help"),
    "toolwire ask": (
        'toolwire ask "What is 12 * 12?"',
        'git diff | toolwire ask -m ollama:qwen3 "Review this"',
        'toolwire ask -m openai:gpt-4o --tools coding --tier run --allow file_write "Fix the typo in README.md"',
        "toolwire ask --resume",
    ),
    "toolwire chat": ("toolwire chat", "toolwire chat -m ollama:qwen3 --tools coding --allow file_read"),
    "toolwire call": (
        "toolwire call calculator expression=2^10",
        "toolwire call bash command=ls --tools shell --tier run --allow shell",
        """toolwire call read --args '{"path": "README.md"}' --allow file_read""",
    ),
    "toolwire preflight": ("toolwire preflight write path=a.txt content=hi --tools coding",),
    "toolwire explain": ("toolwire explain bash command='git push' --tools shell", "toolwire explain --call call_1234"),
    "toolwire approvals": ("toolwire approvals", "toolwire approvals --patterns"),
    "toolwire approve": (
        "toolwire approve",
        'toolwire approve 4b1e --deny --reason "put it in docs/"',
        "toolwire approve 4b1e --pattern 'git commit' --hours 8",
    ),
    "toolwire tools list": ("toolwire tools list --tools coding,shell",),
    "toolwire tools show": ("toolwire tools show bash --tools shell",),
    "toolwire parse": ("toolwire parse reply.txt", "toolwire parse - < reply.txt"),
    "toolwire serve": ("toolwire serve --upstream http://127.0.0.1:11434/v1",),
    "toolwire schedule add": (
        'toolwire schedule add "Morning report" --daily 09:00 --timezone Europe/Berlin --ask "What is new?"',
        'toolwire schedule add Backup --cron "0 3 * * SUN" --call bash --arguments \'{"command": "make backup"}\'',
    ),
    "toolwire schedule list": ("toolwire schedule list --json",),
    "toolwire schedule pause": ('toolwire schedule pause "Morning report"',),
    "toolwire schedule resume": ('toolwire schedule resume "Morning report"',),
    "toolwire schedule remove": ("toolwire schedule remove 0192f3",),
    "toolwire schedule next": ('toolwire schedule next --cron "30 9 * * MON-FRI" --timezone America/New_York',),
    "toolwire registry add": ("toolwire registry add tools.yaml", "toolwire registry add --project acme tools.toml"),
    "toolwire registry list": ("toolwire registry list --json",),
    "toolwire registry show": ("toolwire registry show web_search", "toolwire registry show web_search@1.2 --json"),
    "toolwire registry remove": (
        "toolwire registry remove web_search@1.2",
        "toolwire registry remove web_search --all",
    ),
    "toolwire records bootstrap": (
        "toolwire records bootstrap records/",
        "toolwire records bootstrap --dry-run agents.yaml",
    ),
    "toolwire records list": (
        "toolwire records list --schema note.v1 --tag house",
        "toolwire records list --text fence",
    ),
    "toolwire records show": ("toolwire records show 4b1e", "toolwire records show 4b1e --view llm --json"),
    "toolwire records create": (
        """toolwire records create note.v1 '{"colour": "red"}' --title Door --tag house""",
        "toolwire records create tool.config.v1 @config.json --title Keys",
    ),
    "toolwire records edit": (
        """toolwire records edit 4b1e --version 3 '{"context": {"colour": null}, "title": "Gate"}'""",
    ),
    "toolwire records delete": ("toolwire records delete 4b1e --version 3",),
    "toolwire records search": ('toolwire records search "what colour has the door" --nn 3',),
    "toolwire conformance": (
        "toolwire conformance --subject cg.v1r4.test.public.cmd.tool.note -- node service.js",
        "toolwire conformance --subject cg.v1r4.test.public.cmd.tool.note --token-env TOKEN --cards 127.0.0.1:8790",
    ),
    "toolwire trust": ("toolwire trust", "toolwire trust .toolwire"),
    "toolwire logs": ("toolwire logs --follow", "toolwire logs --turn 4b1e"),
    "toolwire docs": ("toolwire docs", "toolwire docs settings"),
    "toolwire completion": ('eval "$(toolwire completion bash)"',),
}
"""What one types, for each command's help."""

_TYPES = lazy_pattern(r"(?m)^(  \S+)( <[\w\[\]]+>)")  # of arguments, as Python knows them
_NARROWEST, _WIDEST = 30, 110
_HEADINGS = lazy_pattern(r"(?m)^(Usage|Arguments|Options|Commands|Examples):")
_NAMES = lazy_pattern(r"(?m)^  (-[-\w]+(?:, --[-\w]+)?|[a-z]+(?=  ))")


def help_page(ctx: Any, path: str, get_help: Callable[[Any], str]) -> str:
    """The help of the command at `path` as wide as the terminal, with examples."""
    if ctx.terminal_width is None and sys.stdout.isatty():
        ctx.terminal_width = min(max(shutil.get_terminal_size().columns, _NARROWEST), _WIDEST) - 1
    page = _TYPES.sub(lambda found: found[1] + " " * len(found[2]), get_help(ctx).rstrip())
    if examples := EXAMPLES.get(path):
        page = "\n".join([page, "", "Examples:", *(f"  {line}" for line in examples)])
    return colour_page(page)


def colour_page(page: str) -> str:
    """A help page with bold headings and coloured names, unless the output is not a terminal that shows them."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb" or not sys.stdout.isatty()
    if plain:
        return page
    return _NAMES.sub("  \x1b[36m\\1\x1b[0m", _HEADINGS.sub("\x1b[1m\\1:\x1b[0m", page))
