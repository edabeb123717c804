"""What a translation could not say in the other language. A loss is always a value, never a silence."""

from msgspec import Struct


class Loss(Struct, frozen=True):
    """Something that was left out or weakened: where it stood, and what became of it in plain words."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"
