"""The result of a tool as a person reads it on a terminal: what a command wrote, or the text without its envelope."""

import re
from collections.abc import Mapping
from typing import Any

from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import duration
from toolwire.lazy import lazy_pattern
from toolwire.protocol.calls import ToolResult

_ENVELOPE = lazy_pattern(r"\A# TE_BEGIN_META (\w+)\n.*\n# TE_END_META \1\n")
_ADVICE = lazy_pattern(r" (Available|Use what is offered|Explain this|Did you mean|Choose one)\b.*", re.DOTALL)


def show_result(screen: Screen, result: ToolResult, *, is_cured: bool = False) -> None:
    """Show a result and how it ended; where a command that cures it follows (`is_cured`), without advice to a model."""
    ran = result.structured if isinstance(result.structured, Mapping) else {}
    if isinstance(ran.get("stdout"), str) and isinstance(ran.get("stderr"), str):
        _show_streams(screen, ran)
    elif not result.is_failure:
        screen.say(without_envelope(result.text))
    else:
        # What follows the first sentence of a refusal is advice to a model.
        screen.tell(_ADVICE.sub("", result.text) if is_cured else without_envelope(result.text), "red")
    code = f" ({result.error.code})" if result.error else ""
    ended = f"exit code {ran['exit_code']} · " if ran.get("exit_code") else ""
    screen.tell(f"{ended}{result.status}{code} in {duration(result.elapsed_ms)} · {result.call_id}", "dim")


def without_envelope(text: str) -> str:
    """The text of a result without the lines that tell a model about it."""
    return _ENVELOPE.sub("", text)


def _show_streams(screen: Screen, ran: Mapping[str, Any]) -> None:
    """What a command wrote, each stream where it belongs."""
    if out := ran["stdout"].removesuffix("\n"):
        screen.say(out)
    if err := ran["stderr"].removesuffix("\n"):
        screen.tell(err)
    for note in ran.get("notes") or ():
        screen.tell(str(note), "yellow")
