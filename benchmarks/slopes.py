"""How the time to read a text grows with its size, for texts made to be slow: `python -m benchmarks.slopes [WORDS]`.

Each adversary of the tests is read whole and as a stream, from 1 KB to 4 MB. The slope is that of the line through the
logarithms of size and CPU time, over the sizes that take long enough to be measured; 1 is linear. Ends with 1 when a
slope or the time for 1 MB is above its target. With WORDS, only adversaries whose name holds one of them.
"""

import math
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median

from tests.wire.adversaries import GENERATORS, TOOLS

from toolwire.wire.replies.reply import StreamParser, parse_reply

SIZES = tuple(1024 * 4**step for step in range(7))
MEGABYTE = 1024 * 4**5
STEEPEST, LONGEST_MS = 1.15, 250.0
ROUNDS = 3
UPPER = 4  # small texts cost more for each character, which would hide a steep end
MEASURABLE_MS = 1.0
PIECE = 8


def whole(text: str) -> None:
    parse_reply(text, TOOLS)


def streamed(text: str) -> None:
    parser = StreamParser(TOOLS)
    for at in range(0, len(text), PIECE):
        parser.feed(text[at : at + PIECE])
    parser.finish()


WAYS: dict[str, Callable[[str], None]] = {"whole": whole, "streamed": streamed}


def taken_ms(read: Callable[[str], None], text: str) -> float:
    def once() -> float:
        began = time.process_time()
        read(text)
        return (time.process_time() - began) * 1e3

    return median(once() for _ in range(ROUNDS))


def slope(times_ms: Sequence[float]) -> float:
    """The slope over the upper sizes that could be measured; 0 where fewer than two could."""
    measured = [(math.log(size), math.log(ms)) for size, ms in zip(SIZES, times_ms, strict=True) if ms > MEASURABLE_MS]
    points = measured[-UPPER:]
    if len(points) < 2:
        return 0.0
    x_mean = sum(x for x, _ in points) / len(points)
    y_mean = sum(y for _, y in points) / len(points)
    return sum((x - x_mean) * (y - y_mean) for x, y in points) / sum((x - x_mean) ** 2 for x, _ in points)


def main(words: list[str]) -> int:
    chosen = {name: make for name, make in GENERATORS.items() if not words or any(word in name for word in words)}
    print(f"{len(chosen)} adversaries, ms at {', '.join(f'{size // 1024} KB' for size in SIZES)}; slope")
    steep = 0
    for way, read in WAYS.items():
        found: list[tuple[float, float, str]] = []
        for name, make in chosen.items():
            times = [taken_ms(read, make(size)) for size in SIZES]
            grown, megabyte_ms = slope(times), times[SIZES.index(MEGABYTE)]
            found.append((grown, megabyte_ms, name))
            late = grown > STEEPEST or (way == "whole" and megabyte_ms > LONGEST_MS)
            steep += late
            row = "".join(f"{ms:>9.2f}" for ms in times)
            print(f"{way:>8} {name:<62}{row}{grown:>7.2f}{'  <-' if late else ''}", flush=True)
        slowest = max(found, key=lambda one: one[1])
        print(f"{way}: steepest {max(found)[0]:.2f} ({max(found)[2]}), 1 MB at most {slowest[1]:.0f} ms ({slowest[2]})")
    return 1 if steep else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
