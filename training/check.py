"""What the adapter learned, measured in llama.cpp as the runtime uses it, on dialogues that were held back.

python -m training.check --adapter FILE [--part phrasings|tools] [--count N] [--misses]
"""

import argparse
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

from toolwire.models.local_dialogue import OPENING, calls_in, chat_turn
from toolwire.models.local_engine import LocalEngine
from toolwire.models.local_grammar import dialogue_grammar
from toolwire.models.weights import weights_of
from toolwire.protocol.tools import Tool
from training.generate import PARTS, as_json, generate

MOST_TOKENS = 200


def written(engine: LocalEngine, turns: list[Any], tools: list[Tool]) -> str:
    """What the model says after these turns."""
    prompt = "".join(chat_turn(role, text) for role, text in turns) + OPENING
    known = "\n".join(text for _, text in turns) if turns[-1][0] == "tool" else None
    grammar = dialogue_grammar(tools, known)
    return engine.write(prompt, slot=0, max_tokens=MOST_TOKENS, grammar=grammar).text.strip()


def verdict(expected: str, given: str, heard: str) -> str:
    """`right`, or what is wrong with it."""
    wanted, called = calls_in(expected), calls_in(given)
    if not wanted:
        return _told(expected, given, heard) if not called else "called"
    if not called:
        return "silent"
    if [call.name for call in wanted] != [call.name for call in called]:
        return "tool"
    same = all(one.arguments == other.arguments for one, other in zip(wanted, called, strict=True))
    return "right" if same else "arguments"


def _told(expected: str, given: str, heard: str) -> str:
    """Whether the facts of the result that the expected answer tells are told; outside results, silence is enough."""
    facts = [word for word in re.findall(r"[\w.@/:-]*\d[\w.@/:-]*|[A-Z]\w+", expected) if word in heard]
    return "right" if all(fact.rstrip(".") in given for fact in facts) else "answer"


def check(engine: LocalEngine, part: str, count: int, show: bool) -> dict[str, Any]:
    """By kind of turn, how many were right; and how long they took."""
    seen: Counter[str] = Counter()
    right: Counter[str] = Counter()
    times: list[float] = []
    for talk in generate(11, count, part):
        row = json.loads(json.dumps(as_json(talk, tools=True)))
        tools = [Tool(**tool) for tool in row["tools"]]
        for place, (role, text) in enumerate(row["turns"]):
            if role != "assistant":
                continue
            before = row["turns"][:place]
            began = time.perf_counter()
            given = written(engine, before, tools)
            times.append(time.perf_counter() - began)
            kind = f"{row['kind']}.{_form(before[-1][0], text)}"
            found = verdict(text, given, before[-1][1] if before[-1][0] == "tool" else "")
            seen[kind] += 1
            right[kind] += found == "right"
            if show and found != "right":
                print(f"{kind} {found}\n  asked    {before[-1][1][:300]}\n  expected {text}\n  given    {given}")
    times.sort()
    report = {kind: f"{right[kind]}/{seen[kind]}" for kind in sorted(seen)}
    return report | {"median_s": round(times[len(times) // 2], 2), "p95_s": round(times[len(times) * 95 // 100], 2)}


def _form(heard: str, text: str) -> str:
    if calls_in(text):
        return "call"
    return "answer" if heard == "tool" else "talk"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--adapter", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, default="phrasings")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--misses", action="store_true")
    given = parser.parse_args()
    engine = LocalEngine(weights_of("smollm2"), adapter=given.adapter, threads=2)
    print(json.dumps(check(engine, given.part, given.count, given.misses), indent=1))


if __name__ == "__main__":
    main()
