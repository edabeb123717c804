"""What settings or a program prefer about the formats in which a model is spoken to."""

from typing import Protocol

from msgspec import Struct

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


class FormatChoice(Struct, frozen=True):
    """A preference in plain words, for callers without a settings file."""

    definition_format: str = AUTO
    call_parser: str = AUTO
    result_format: str = AUTO
    coach: bool = True


NO_PREFERENCE = FormatChoice()
