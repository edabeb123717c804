"""`toolwire metrics --formats`: in which formats models are told about tools, and how well each has worked."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import asdict
from rich.text import Text

from toolwire.cli.terminal.screen import Screen
from toolwire.cli.terminal.text import clean
from toolwire.wire.formats.coach import possible_formats, recommend_format
from toolwire.wire.formats.costs import FormatCost, format_costs
from toolwire.wire.formats.negotiation import negotiate
from toolwire.wire.formats.tally import FormatTally, write_tally

_RIGHT = ("replies", "calls", "clean", "repaired", "leaked", "unknown", "broken", "sure")
_TOKENS = ("a request", "a tool", "a call", "a result")


def show_formats(screen: Screen, tallies: Sequence[FormatTally], *, as_json: bool) -> None:
    """A line for each model and format, the names that models invented, and what the coach makes of it.

    What a format costs is what comes on top of the names, descriptions, arguments and words themselves.
    """
    told = {one.offered for one in tallies}
    costs = [cost for cost in format_costs() if cost.format in told]
    advice = {model: _advice(model, tallies) for model in dict.fromkeys(one.model for one in tallies)}
    if as_json:
        screen.json(
            {
                "formats": [write_tally(one) for one in tallies],
                "advice": advice,
                "costs": [asdict(one) for one in costs],
            }
        )
        return
    if not tallies:
        screen.say("No model behind an API has been asked with tools yet.", "dim")
        return
    screen.table(("model", "format", *_RIGHT), [_row(one) for one in tallies], right=_RIGHT)
    for one in tallies:
        if one.unknown_names:
            names = ", ".join(f"{clean(name)} ({count})" for name, count in one.unknown_names)
            screen.say(f"{clean(one.model)} called tools that were not offered: {names}", "yellow")
    screen.table(("tokens on top", *_TOKENS), [_costs(one) for one in costs], right=_TOKENS)
    for sentence in advice.values():
        screen.say(f"Format: {clean(sentence)}.", "dim")


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


def _costs(one: FormatCost) -> list[str | Text]:
    return [one.format, *(f"{tokens:.0f}" for tokens in (one.fixed, one.per_tool, one.per_call, one.per_result))]


def _advice(name: str, tallies: Sequence[FormatTally]) -> Any:
    provider, _, model = name.partition(":")
    usual = negotiate(provider, model).definition_format
    return recommend_format(tallies, name, usual, possible_formats(provider, model)).why
