"""What a translation could not say in the other language. A loss is always a value, never a silence."""

from dataclasses import dataclass

from toolwire.protocol.values import fast_frozen


@fast_frozen
@dataclass(frozen=True, slots=True)
class Loss:
    """Something that was left out or weakened: where it stood, and what became of it in plain words."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"
