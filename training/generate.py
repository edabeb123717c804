"""Write dialogues for training or for checking: `python -m training.generate --seed 1 --count 1000 --out FILE`.

The same seed gives the same file. Each line holds the kind of dialogue, its turns, and with `--tools` its tools.
"""

import argparse
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from toolwire.models.local_dialogue import turns
from training.dialogues import Dialogue, Maker, dialogue

PARTS: dict[str, dict[str, Any]] = {
    "train": {},
    "phrasings": {"held_frames": True, "tools": 15},
    "tools": {"held_tools": True, "tools": 15},
}


def generate(seed: int, count: int, part: str = "train") -> Iterator[Dialogue]:
    """So many dialogues of that part; the n-th is the same whatever the count."""
    for number in range(count):
        yield dialogue(Maker(random.Random(f"{part}:{seed}:{number}"), **PARTS[part]))


def as_turns(talk: Dialogue) -> list[tuple[str, str]]:
    return list(turns(talk.messages, [made.tool for made in talk.tools]))


def as_json(talk: Dialogue, *, tools: bool = False) -> dict[str, Any]:
    listed = [
        {"name": made.tool.name, "description": made.tool.description, "input_schema": made.tool.input_schema}
        for made in talk.tools
    ]
    return {"kind": talk.kind, "turns": as_turns(talk)} | ({"tools": listed} if tools else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--part", choices=PARTS, default="train")
    parser.add_argument("--tools", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with given.out.open("w", encoding="utf-8") as file:
        for talk in generate(given.seed, given.count, given.part):
            file.write(json.dumps(as_json(talk, tools=given.tools), ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
