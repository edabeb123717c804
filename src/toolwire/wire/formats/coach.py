"""The coach: of the formats that a model can be spoken to in, the one that has worked best, and why in a sentence."""

import math
from collections.abc import Iterable, Sequence

from msgspec import Struct

from toolwire.errors import SettingsError
from toolwire.wire.formats.negotiation import Formats, negotiate
from toolwire.wire.formats.preference import AUTO, NO_PREFERENCE, FormatChoice, FormatPreference
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.formats.tally import FormatTally

ENOUGH_CALLS = 20
_Z = 1.64  # one-sided 95 %


class Advice(Struct, frozen=True):
    """A definition format, and the sentence that explains the choice."""

    definition_format: str
    why: str


def recommend_format(
    tallies: Iterable[FormatTally], model: str, usual: str, able: Sequence[str], *, enough: int = ENOUGH_CALLS
) -> Advice:
    """The best of the formats in `able` for this model, by what was counted; `usual` unless another is surely better.

    Surely: the lowest share of good calls that the other one's count allows for is above the usual one's own share.
    """
    known = {one.offered: one for one in tallies if one.model == model and one.offered in able}
    usually = known.get(usual)
    if usually is None or usually.calls < enough:
        seen = usually.calls if usually else 0
        return Advice(
            usual, f"{usual} (default) for {model}: {seen} calls observed, alternatives are considered from {enough}"
        )
    rivals = [one for one in known.values() if one.offered != usual and one.calls >= enough]
    best = max(rivals, key=at_least, default=usually)
    if best is not usually and at_least(best) > (usually.success_rate or 0.0):
        return Advice(best.offered, f"{_record(best)}, better than {_record(usually)}")
    return Advice(usual, f"{_record(usually)}, and nothing else that was tried is surely better")


def at_least(one: FormatTally) -> float:
    """The share of good calls that can be relied on after this many (the lower end of Wilson's interval)."""
    if not one.calls:
        return 0.0
    n, share = one.calls, one.clean / one.calls
    centre = share + _Z * _Z / (2 * n)
    spread = _Z * math.sqrt(share * (1 - share) / n + _Z * _Z / (4 * n * n))
    return (centre - spread) / (1 + _Z * _Z / n)


def choose_formats(
    tallies: Iterable[FormatTally], provider: str, model: str, preference: FormatPreference = NO_PREFERENCE
) -> Formats:
    """The formats for this model, the coach heard. Models are counted under their `provider:model` names.

    A format pinned in the settings stands, and the coach can be sent away. Raises SettingsError as `negotiate` does.
    """
    formats = negotiate(provider, model, preference)
    if not preference.coach or preference.definition_format != AUTO:
        return formats
    name = f"{provider}:{model}"
    advice = recommend_format(tallies, name, formats.definition_format, possible_formats(provider, model))
    if advice.definition_format == formats.definition_format:
        return Formats(formats.definition_format, formats.call_parser, formats.result_format, advice.why)
    chosen = negotiate(
        provider, model, FormatChoice(advice.definition_format, preference.call_parser, preference.result_format)
    )
    return Formats(chosen.definition_format, chosen.call_parser, chosen.result_format, advice.why)


def possible_formats(provider: str, model: str) -> tuple[str, ...]:
    """Every definition format that this provider's API can carry, and that tells all about a tool."""
    return tuple(name for name, dialect in DIALECTS.items() if not dialect.abridged and _can(provider, model, name))


def _can(provider: str, model: str, name: str) -> bool:
    try:
        negotiate(provider, model, FormatChoice(name))
    except SettingsError:
        return False
    return True


def _record(one: FormatTally) -> str:
    return f"{one.offered} worked in {one.clean / one.calls:.0%} of {one.calls} calls of {one.model}"
