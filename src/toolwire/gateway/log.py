"""One line for each request: who asked which model, how it ended, what was mended. Never arguments, never keys."""

from collections.abc import Callable
from urllib.parse import quote

from msgspec import Struct, field

from toolwire.gateway.calls import Tally
from toolwire.wire.encode.outbound import Json, to_json

_LONGEST_MODEL = 80


class RequestEntry(Struct):
    """What is known of one request when it is over."""

    id: str
    method: str
    path: str
    model: str = ""
    stream: bool = False
    status: int = 0
    code: str = ""
    answered: bool = False
    elapsed_ms: float = 0.0
    tally: Tally = field(default_factory=Tally)

    def fields(self) -> Json:
        """The entry as a JSON object."""
        known: Json = {
            "request_id": self.id,
            "method": self.method,
            "path": self.path,
            "model": plain(self.model),
            "stream": self.stream,
            "status": self.status,
            "calls": self.tally.calls,
            "repaired": self.tally.repaired,
            "problems": self.tally.problems[:8],
            "ms": round(self.elapsed_ms, 1),
        }
        return known | ({"code": self.code} if self.code else {})


def plain(text: str) -> str:
    """A client's word, short and without anything that could look like another line."""
    return "".join(char if char.isprintable() else "?" for char in text[:_LONGEST_MODEL])


def escaped(text: str) -> str:
    """A client's word as one word of a line: what is not printable, and what would part it, in percent escapes."""
    return "".join(
        char if char.isprintable() and char != " " else quote(char, safe="", errors="replace") for char in text
    )


def as_text(entry: RequestEntry) -> str:
    """The line for people. Each word of a client is one word here, so that none can look like a line of its own."""
    model = escaped(entry.model[:_LONGEST_MODEL])
    words = [escaped(entry.method), escaped(entry.path), model or "-", str(entry.status)]
    if entry.tally.calls:
        words.append(f"calls={entry.tally.calls}")
    if entry.tally.repaired:
        words.append(f"repaired={entry.tally.repaired}")
    if entry.tally.problems:
        words.append(f"problems={escaped(','.join(sorted(set(entry.tally.problems))[:8]))}")
    if entry.code:
        words.append(f"({escaped(entry.code)})")
    return " ".join([*words, f"{entry.elapsed_ms:.0f} ms"])


def as_json(entry: RequestEntry) -> str:
    """The line for programs."""
    return to_json(entry.fields()).decode()


Log = Callable[[RequestEntry], None]


def silent(entry: RequestEntry) -> None:
    """Nothing is kept."""
