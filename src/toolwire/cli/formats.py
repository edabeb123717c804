"""`toolwire metrics --formats`: in which formats models are told about tools, and how well each has worked."""

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from toolwire.cli.exits import Exit
from toolwire.cli.screen import Screen
from toolwire.cli.text import clean
from toolwire.wire.coach import able_formats, advise
from toolwire.wire.format_tally import FormatTally, write_tally
from toolwire.wire.negotiate import negotiate

_RIGHT = ("replies", "calls", "clean", "repaired", "leaked", "unknown", "broken", "sure")


def show_formats(screen: Screen, tallies: Sequence[FormatTally], *, as_json: bool) -> Exit:
    """A line for each model and format, the names that models invented, and what the coach makes of it."""
    advice = {model: _advice(model, tallies) for model in dict.fromkeys(one.model for one in tallies)}
    if as_json:
        screen.json({"formats": [write_tally(one) for one in tallies], "advice": advice})
        return Exit.DONE
    if not tallies:
        screen.say("No model behind an API has been asked with tools yet.", "dim")
        return Exit.DONE
    screen.table(("model", "format", *_RIGHT), [_row(one) for one in tallies], right=_RIGHT)
    for one in tallies:
        if one.strangers:
            names = ", ".join(f"{clean(name)} ({count})" for name, count in one.strangers)
            screen.say(f"{clean(one.model)} called tools that nobody offered: {names}", "yellow")
    for sentence in advice.values():
        screen.say(f"Coach: {clean(sentence)}.", "dim")
    return Exit.DONE


def _row(one: FormatTally) -> list[str | Text]:
    broken = one.malformed + one.truncated + one.invalid
    troubles = (one.repaired, one.mismatched, one.unknown, broken)
    return [
        Text(clean(one.model), "bold"),
        one.offered,
        str(one.replies),
        str(one.calls),
        "-" if one.success_rate is None else f"{one.success_rate:.0%}",
        *(Text(str(number), "red" if number else "dim") for number in troubles),
        "-" if one.mean_confidence is None else f"{one.mean_confidence:.2f}",
    ]


def _advice(name: str, tallies: Sequence[FormatTally]) -> Any:
    provider, _, model = name.partition(":")
    usual = negotiate(provider, model).definition_format
    return advise(tallies, name, usual, able_formats(provider, model)).why
