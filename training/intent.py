"""Train the model of `toolwire.wire.text.intent`: `python -m training.intent [--across] [--write]`.

It learns from the answers in `tests/data/shown_or_meant*.jsonl` that are listed below and from surroundings composed
of the lines in `data/intent`. Plain Python, the same weights for the same seed. `--across` trains on all sets but one
and tests on that one, for each of them; `--write` writes the weights of all.
"""

import argparse
import json
import random
import re
from base64 import b85encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import Any
from zlib import compress

from toolwire.wire.replies.reply import parse_reply
from toolwire.wire.text import intent, shown
from toolwire.wire.text.intent import Surroundings, buckets, likelihood

_HERE = Path(__file__).parent
_LINES = _HERE / "data" / "intent"
_SETS = _HERE.parent / "tests" / "data"
_WEIGHTS = Path(intent.__file__).with_name("intent_weights.py")
# Each set with its tools; all were written without a look at the rules, the last seven by writers of their own.
SETS = {
    "shown_or_meant": "shown_or_meant_tools",
    "shown_or_meant_second": "shown_or_meant_tools",
    "shown_or_meant_third": "shown_or_meant_tools",
    "shown_or_meant_fourth": "shown_or_meant_fourth_tools",
    "shown_or_meant_chatty": "shown_or_meant_fourth_tools",
    "shown_or_meant_coding": "shown_or_meant_fourth_tools",
    "shown_or_meant_european": "shown_or_meant_fourth_tools",
    "shown_or_meant_scripts": "shown_or_meant_fourth_tools",
    "shown_or_meant_plain": "shown_or_meant_fourth_tools",
    "shown_or_meant_mixed": "shown_or_meant_fourth_tools",
}
TARGETS = {"meant": 1.0, "shown": 0.0, "unclear": 0.3}
TOOL_NAMES = ("read_file", "bash", "search_web", "get_weather", "calculator", "translate", "http_get", "create_event")
FORMS = ("marked",) * 10 + ("bare",) * 5 + ("fenced",) * 5 + ("code", "label")
_CALL = '{"name": "calculator", "arguments": {"expression": "40 + 2"}}'
SHORT_CALLS = {"marked": f"<tool_call>{_CALL}</tool_call>", "bare": _CALL, "fenced": f"```json\n{_CALL}\n```"}
SCALE = 32
BUCKETS = 1 << 17
DROPPED = 0.4
COMPOSED = 0.05  # what a composed example counts, where a real one counts 1
AFTER_CALL = {"meant": 0.06, "shown": 0.004, "unclear": 0.0}


@dataclass(frozen=True)
class Example:
    """What the model sees of a call, how likely it is meant, and how much the example counts."""

    buckets: tuple[int, ...]
    target: float
    weight: float = 1.0


class Lines:
    """Sentences from templates: `[this|that]` is a choice, `{name}` one of a list (`{Name}`: with a capital)."""

    def __init__(self, chance: random.Random) -> None:
        self.random = chance
        rows = (line.partition(": ") for line in _read("slots"))
        self.slots = {name: values.split(" / ") for name, _, values in rows}
        self.slots |= {"tool": list(TOOL_NAMES), "any": _common()}

    def of(self, *names: str) -> list[str]:
        return [line for name in names for line in _read(name)]

    def say(self, template: str) -> str:
        text = template
        while "[" in text:
            changed = re.sub(r"\[([^\[\]]*)\]", lambda match: self.random.choice(match[1].split("|")), text)
            if changed == text:
                break
            text = changed
        text = re.sub(r"\{(\w+)\}", lambda match: self._filled(match[1]), text)
        return text.replace("\\n", "\n").replace("  ", " ")

    def _filled(self, name: str) -> str:
        value = self.random.choice(self.slots[name.lower().removesuffix("_cap").rstrip("_")])
        return value[0].upper() + value[1:] if name[0].isupper() or name.endswith("_cap") else value


def _common() -> list[str]:
    """Any words, so that the model does not lean on what the words around a call happen to be about."""
    words = (_HERE / "data" / "words" / "common.txt").read_text(encoding="utf-8").split()
    return [word for word in words if word.isalpha() and 3 < len(word) < 10]


def _read(name: str) -> list[str]:
    lines = (_LINES / f"{name}.txt").read_text(encoding="utf-8").split("\n")
    return [line for line in lines if line.strip() and not line.startswith("# ")]


def composed(seed: int, count: int) -> Iterator[tuple[Surroundings, float]]:
    """Surroundings put together from the lines, half of them of calls that are meant."""
    lines = Lines(random.Random(seed))
    kinds = {kind: Parts(lines, kind) for kind in TARGETS}
    for number in range(count):
        kind = "unclear" if number % 16 == 0 else "meant" if number % 2 else "shown"
        yield kinds[kind].around(), TARGETS[kind]


class Parts:
    """What stands before and behind calls of one kind."""

    def __init__(self, lines: Lines, kind: str) -> None:
        self.lines, self.kind = lines, kind
        apart = kind != "unclear"
        self.before = lines.of(f"{kind}_before", f"{kind}_before_world") if apart else []
        self.behind = lines.of(f"{kind}_behind") if apart else []
        self.whole = [line.partition("||") for line in lines.of(f"{kind}_around")]
        self.next = lines.of(f"{kind}_next") if kind == "meant" else []
        self.context = lines.of("context") + (lines.of("shown_behind") if kind == "meant" else [])

    def around(self) -> Surroundings:
        draw, choose = self.lines.random.random, self.lines.random.choice
        if not self.before or draw() < 0.35:
            before, _, behind = choose(self.whole)
        else:
            before, behind = self._apart()
        traits: tuple[str, ...] = ()
        if draw() < AFTER_CALL[self.kind]:
            before, behind, traits = choose(self.next or self.before), "", ("after call",)
        lead, text = self.lines.say(before).rstrip(" "), self.lines.say(behind).strip()
        if lead.strip() and not traits and draw() < 0.45:
            lead = " ".join(self.lines.say(choose(self.context)) for _ in range(choose((1, 1, 2, 3)))) + " " + lead
        gap = choose(("\n", "\n\n", "\n\n", "\n\n", " ")) if lead.strip() else ""
        return Surroundings(lead + gap, text, choose(FORMS), traits=traits if lead.strip() else ("first",))

    def _apart(self) -> tuple[str, str]:
        draw = self.lines.random.random
        before, behind = _weighted(self.lines.random, self.before), _weighted(self.lines.random, self.behind)
        if draw() > (0.2 if self.kind == "meant" else 0.55):
            return before, ""
        if draw() < 0.4:
            before = self.lines.random.choice(self.context) if draw() < 0.2 else ""
        return before, behind + (" " + _weighted(self.lines.random, self.behind)) * (draw() < 0.3)


def _weighted(chance: random.Random, templates: list[str]) -> str:
    """Longer templates have more choices, so they come more often."""
    return chance.choices(templates, [sqrt(len(one)) for one in templates])[0]


@lru_cache
def _tools(name: str) -> list[dict[str, Any]]:
    return list(json.loads((_SETS / f"{SETS[name]}.json").read_text(encoding="utf-8")))


def short() -> Iterator[tuple[str, str]]:
    """The kind and the text of each answer in `short.txt`, with its call in the form that is named there."""
    for row in _read("short"):
        how, _, lead = row.partition(": ")
        kind, form = how.split()
        yield kind, f"{lead}\n{SHORT_CALLS[form]}"


def _answers(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (_SETS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def recorded(kind: str, text: str, tools: list[dict[str, Any]]) -> Iterable[Surroundings]:
    """What the model is asked about an answer of this kind when it answers right."""
    asked: list[Surroundings] = []

    def right(around: Surroundings) -> float:
        if shown.ALONE not in around.traits:
            asked.append(around)
        return TARGETS[kind]

    with _judging(right):
        parse_reply(text, tools)
    return dict.fromkeys(asked)


@contextmanager
def _judging(answer: Callable[[Surroundings], float]) -> Iterator[None]:
    """While it is open, calls are judged by a function instead of the model."""
    module = vars(shown)
    model, module["chance"] = module["chance"], answer
    try:
        yield
    finally:
        module["chance"] = model


def examples(sets: Iterable[str], seed: int, count: int) -> list[Example]:
    answers = [(one["kind"], one["text"], _tools(name)) for name in sets for one in _answers(name)]
    answers += [(kind, text, _tools("shown_or_meant_fourth")) for kind, text in short()]
    out = [
        Example(tuple(sorted(buckets(around, BUCKETS))), TARGETS[kind])
        for kind, text, tools in answers
        for around in recorded(kind, text, tools)
    ]
    out += [
        Example(tuple(sorted(buckets(around, BUCKETS))), target, COMPOSED) for around, target in composed(seed, count)
    ]
    return out


class Ftrl:
    """Logistic regression by follow-the-regularised-leader, which leaves weights that hardly help at zero."""

    def __init__(self, alpha: float = 0.06, beta: float = 1.0, l1: float = 0.005, l2: float = 3.0) -> None:
        self.alpha, self.beta, self.l1, self.l2 = alpha, beta, l1, l2
        self.z: dict[int, float] = {}
        self.n: dict[int, float] = {}

    def weight(self, bucket: int) -> float:
        z = self.z.get(bucket, 0.0)
        if -self.l1 <= z <= self.l1:
            return 0.0
        return -(z - (self.l1 if z > 0 else -self.l1)) / ((self.beta + sqrt(self.n[bucket])) / self.alpha + self.l2)

    def learn(self, example: Example) -> None:
        weights = {bucket: self.weight(bucket) for bucket in example.buckets}
        slope = (likelihood(sum(weights.values())) - example.target) * example.weight
        square = slope * slope
        z, n = self.z, self.n
        for bucket, weight in weights.items():
            before = n.get(bucket, 0.0)
            rate = (sqrt(before + square) - sqrt(before)) / self.alpha
            z[bucket] = z.get(bucket, 0.0) + slope - rate * weight
            n[bucket] = before + square


def train(found: list[Example], seed: int, epochs: int) -> dict[int, int]:
    """The weights, as whole numbers of a byte."""
    model, order = Ftrl(), random.Random(seed)
    for _ in range(epochs):
        order.shuffle(found)
        for example in found:
            kept = tuple(bucket for bucket in example.buckets if order.random() >= DROPPED)
            model.learn(Example(kept, example.target, example.weight))
    weights = {bucket: max(-127, min(127, round(model.weight(bucket) * SCALE))) for bucket in model.z}
    return {bucket: weight for bucket, weight in sorted(weights.items()) if weight}


def misses(name: str, weights: dict[int, int]) -> list[tuple[str, str, float]]:
    """The answers of a set that are lost, run though shown, or (of the unclear ones) run."""

    def likely(around: Surroundings) -> float:
        said.append(likelihood(sum(weights.get(bucket, 0) for bucket in buckets(around, BUCKETS)) / SCALE))
        return said[-1]

    out = []
    for answer in _answers(name):
        said = list[float]()
        with _judging(likely):
            reply = parse_reply(answer["text"], _tools(name))
        ran = [{"name": call.name, "arguments": call.arguments} for call in reply.calls if not call.fault]
        wanted = [{"name": call["name"], "arguments": call["arguments"]} for call in answer.get("calls", ())]
        if (ran != wanted) if answer["kind"] == "meant" else ran:
            out.append((answer["kind"], answer["text"], said[0] if said else -1.0))
    return out


def _tell(name: str, weights: dict[int, int]) -> None:
    found, kinds = misses(name, weights), Counter(answer["kind"] for answer in _answers(name))
    rates = (f"{len([one for one in found if one[0] == kind])} of {kinds[kind]} {kind}" for kind in kinds)
    print(f"{name}: wrong are", ", ".join(rates))
    for kind, text, likely in found:
        print(f"   {kind} {likely:.2f} {text[:300]!r}")


def _packed(weights: dict[int, int]) -> str:
    raw = bytearray(BUCKETS)
    for bucket, weight in weights.items():
        raw[bucket] = weight & 0xFF
    written = b85encode(compress(bytes(raw), 9)).decode()
    return "\n".join(written[at : at + 110] for at in range(0, len(written), 110))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=40_000)
    options.add_argument("--epochs", type=int, default=12)
    options.add_argument("--across", action="store_true")
    options.add_argument("--write", action="store_true")
    given = options.parse_args()
    if given.across:
        for held in SETS:
            kept = [name for name in SETS if name != held]
            weights = train(examples(kept, given.seed, given.count), given.seed, given.epochs)
            print("without", held, len(weights), "weights")
            _tell(held, weights)
    if given.write:
        weights = train(examples(SETS, given.seed, given.count), given.seed, given.epochs)
        packed = _packed(weights)
        head = '"""The weights of `intent`, made by `training.intent`: do not edit."""\n\n'
        text = f'{head}SCALE = {SCALE}\nBUCKETS = {BUCKETS}\nPACKED = """\n{packed}\n"""\n'
        _WEIGHTS.write_text(text, encoding="utf-8")
        print(len(weights), "weights,", len(packed), "characters")


if __name__ == "__main__":
    main()
