"""What settings or a program prefer about the formats in which a model is spoken to."""

from typing import Protocol

from toolwire.protocol.values import dataclass, fast_frozen

AUTO = "auto"


class FormatPreference(Protocol):
    """What a profile's settings say about formats; `auto` leaves it to us."""

    @property
    def definition_format(self) -> str: ...
    @property
    def call_parser(self) -> str: ...
    @property
    def result_format(self) -> str: ...
    @property
    def coach(self) -> bool: ...


@fast_frozen
@dataclass(frozen=True, slots=True)
class FormatChoice:
    """A preference in plain words, for callers without a settings file."""

    definition_format: str = AUTO
    call_parser: str = AUTO
    result_format: str = AUTO
    coach: bool = True


NO_PREFERENCE = FormatChoice()
