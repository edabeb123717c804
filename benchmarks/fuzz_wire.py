"""Read broken model output until told to stop: `python -m benchmarks.fuzz_wire 1000000 [seed]`."""

import random
import sys
import time

from tests.wire.adversaries import TOOLS
from tests.wire.cases import CASES
from tests.wire.fuzzing import broken_response, broken_text

from toolwire.wire.replies.reply import StreamParser, parse_reply

SLOW_S = 0.05
OFFERED = [*TOOLS, *{tool["function"]["name"]: tool for case in CASES for tool in case["tools"]}.values()]


def main(count: int, seed: int) -> None:
    dice = random.Random(seed)
    began, failed, slow = time.perf_counter(), 0, 0
    for number in range(count):
        sample = broken_text(dice) if dice.random() < 0.75 else broken_response(dice)
        before = time.process_time()
        try:
            _read(sample, dice, streamed=number % 4 == 0)
        except Exception as error:  # the one thing that must never happen
            failed += 1
            print(f"{type(error).__name__}: {error}: {sample!r}"[:2000])
        slow += time.process_time() - before > SLOW_S * (1 + len(repr(sample)) / 10_000)
    print(f"{count} inputs, {failed} exceptions, {slow} slow, {time.perf_counter() - began:.0f} s, seed {seed}")
    sys.exit(bool(failed))


def _read(sample: object, dice: random.Random, *, streamed: bool) -> None:
    reply = parse_reply(sample, OFFERED)
    if not streamed or not isinstance(sample, str):
        return
    parser, at = StreamParser(OFFERED), 0
    while at < len(sample):
        size = dice.randrange(1, 24)
        parser.feed(sample[at : at + size])
        at += size
    if repr(parser.finish()) != repr(reply):
        raise AssertionError("the stream differs from the whole")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
