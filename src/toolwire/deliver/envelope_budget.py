"""How much of an output an agent is shown at once, and the rest of it in pieces of the same size. Pure."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

BUDGETS: Mapping[str, int] = {
    "gemini-shell": 900_000,
    "claude-dc": 180_000,
    "qwen-local": 28_000,
    "human-cli": 50_000,
}
UNKNOWN = 16_000
SMALLEST = 200
LARGEST = 2_000_000
_BYTES_PER_TOKEN = 3  # code and paths have shorter tokens than prose
_HEAD_SHARE = 1 / 3


class SizeBudget(Struct, frozen=True):
    """So many characters, or about so many tokens."""

    most: int = UNKNOWN
    unit: str = "characters"

    def cost(self, text: str) -> int:
        if self.unit == "characters":
            return len(text) + 1
        return -(-(len(text.encode("utf-8", "replace")) + 1) // _BYTES_PER_TOKEN)

    @property
    def longest_line(self) -> int:
        """As many characters as fit for certain."""
        most = self.most if self.unit == "characters" else self.most * _BYTES_PER_TOKEN // 4
        return max(most - 1, 1)


def budget_for(agent: str, given: str = "") -> SizeBudget:
    """What is given (`12000` characters, `3000t` tokens), or else what the agent of this name can take.

    Raises ValueError, with a sentence, for what is no budget.
    """
    if not given:
        return SizeBudget(BUDGETS.get(agent, UNKNOWN))
    digits = given.removesuffix("t")
    if not digits.isascii() or not digits.isdigit() or len(digits) > 9:
        raise ValueError(f"{given[:40]!r} is no budget; write 12000 (characters) or 3000t (tokens)")
    most = min(max(int(digits), SMALLEST), LARGEST)
    return SizeBudget(most, "tokens" if given.endswith("t") else "characters")


def pieces(units: Iterable[str], budget: SizeBudget, most_units: int) -> list[list[str]]:
    """The units in pieces that each fit. A unit that fits in none is cut, and goes on in the next piece."""
    found: list[list[str]] = []
    spent = 0
    for unit in units:
        for part in _fitting(unit, budget):
            cost = budget.cost(part)
            if not found or spent + cost > budget.most or len(found[-1]) >= most_units:
                found.append([])
                spent = 0
            found[-1].append(part)
            spent += cost
    return found


class OutputEnds(Struct, frozen=True):
    """The beginning and the end of an output, and how many lines lie between them."""

    head: Sequence[str]
    missing: int
    tail: Sequence[str]


def ends(lines: Sequence[str], budget: SizeBudget) -> OutputEnds:
    """A third of the budget for the beginning, the rest for the end, where commands say what went wrong."""
    cut = [next(_fitting(line, budget)) if len(line) > budget.longest_line // 3 else line for line in lines]
    share = int(budget.most * _HEAD_SHARE)
    head = _as_fits(cut, share, budget.cost)
    tail = _as_fits(cut[len(head) :][::-1], budget.most - share, budget.cost)[::-1]
    return OutputEnds(head, len(lines) - len(head) - len(tail), tail)


def _as_fits(lines: Sequence[str], most: int, cost: Callable[[str], int]) -> list[str]:
    taken: list[str] = []
    for line in lines:
        most -= cost(line)
        if most < 0:
            break
        taken.append(line)
    return taken


def _fitting(unit: str, budget: SizeBudget) -> Iterator[str]:
    if budget.cost(unit) <= budget.most:
        yield unit
        return
    step = budget.longest_line
    for at in range(0, len(unit), step):
        yield unit[at : at + step]
