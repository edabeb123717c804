"""Microseconds of CPU for a check of about 1 kB of arguments. Run: python benchmarks/validation.py"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import orjson

from toolwire.define.arguments import Checker
from toolwire.define.canonical import canonical, digest
from toolwire.protocol.tools import Tool

TEXT = {"type": "string", "minLength": 1, "maxLength": 2000}
COUNT = {"type": "integer", "minimum": 0, "maximum": 10_000}

# 10 top-level and 11 nested properties, three levels, one oneOf.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["title", "body", "author", "target"],
    "properties": {
        "title": TEXT,
        "body": TEXT,
        "priority": {"enum": ["low", "normal", "high"]},
        "draft": {"type": "boolean"},
        "weight": {"type": "number", "minimum": 0},
        "retries": COUNT,
        "labels": {"type": "array", "items": TEXT, "maxItems": 20},
        "slug": {"type": "string", "pattern": "^[a-z0-9-]{1,64}$"},
        "author": {
            "type": "object",
            "additionalProperties": False,
            "required": ["name"],
            "properties": {
                "name": TEXT,
                "age": COUNT,
                "address": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {"street": TEXT, "city": TEXT, "zip": TEXT},
                },
            },
        },
        "target": {
            "oneOf": [
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["kind", "path"],
                    "properties": {"kind": {"const": "file"}, "path": TEXT, "line": COUNT},
                },
                {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["kind", "url"],
                    "properties": {"kind": {"const": "web"}, "url": TEXT},
                },
            ]
        },
    },
}

VALID: dict[str, Any] = {
    "title": "Check arguments before they are used",
    "body": "A model writes arguments as it pleases. " * 13,
    "priority": "high",
    "draft": False,
    "weight": 0.75,
    "retries": 3,
    "labels": ["schema", "speed", "clarity"],
    "slug": "check-arguments-before-use",
    "author": {
        "name": "Ada Lovelace",
        "age": 36,
        "address": {"street": "12 St James's Square", "city": "London", "zip": "SW1Y"},
    },
    "target": {"kind": "file", "path": "src/toolwire/define/arguments.py", "line": 42},
}
TWO_WRONG = VALID | {"retries": -1, "priority": "urgent"}
MISNAMED = {("titel" if name == "title" else name): value for name, value in VALID.items()}
WRONG_INSIDE = VALID | {"author": {"name": "Ada Lovelace", "age": -1}}
TO_COERCE = VALID | {"retries": "3", "draft": "false"}
WITH_NULLS = VALID | {"title": "a null b"}


def microseconds(work: Callable[[], object], rounds: int = 2_000) -> str:
    """Median, least and most CPU time over five repetitions."""
    taken = []
    for _ in range(5):
        start = time.process_time_ns()
        for _ in range(rounds):
            work()
        taken.append((time.process_time_ns() - start) / rounds / 1000)
    return f"{statistics.median(taken):7.2f}  [{min(taken):.2f}..{max(taken):.2f}]"


def main() -> None:
    tool = Tool("bench", "Measures a check.", SCHEMA)
    checker = Checker(tool)
    raw = jsonschema_rs.Draft202012Validator(SCHEMA)
    small = {"path": "src/main.py", "offset": 10, "limit": 200, "follow": True}
    assert checker.check(VALID).ok
    assert len(checker.check(TWO_WRONG).faults) == 2
    assert checker.check(TO_COERCE).arguments == VALID
    print(f"arguments: {len(orjson.dumps(VALID))} bytes; us of CPU, median [least..most] of 5")
    for label, work in (
        ("floor: jsonschema-rs is_valid", lambda: raw.is_valid(VALID)),
        ("check, valid", lambda: checker.check(VALID)),
        ("check, valid, text contains 'null'", lambda: checker.check(WITH_NULLS)),
        ("floor: jsonschema-rs list of 2 errors", lambda: list(raw.iter_errors(TWO_WRONG))),
        ("check, 2 faults", lambda: checker.check(TWO_WRONG)),
        ("check, 2 faults, read", lambda: checker.check(TWO_WRONG).faults),
        ("check, 1 missing, 1 unknown with a guess", lambda: checker.check(MISNAMED).faults),
        ("check, 1 fault inside an object", lambda: checker.check(WRONG_INSIDE).faults),
        ("check, 2 values coerced", lambda: checker.check(TO_COERCE)),
        ("compile", lambda: Checker(tool)),
        ("canonical, 4 small arguments", lambda: canonical(small)),
        ("digest, 4 small arguments", lambda: digest(small)),
        ("digest, 1 kB with a float", lambda: digest(VALID)),
    ):
        print(f"  {label:42s}{microseconds(work)}")


if __name__ == "__main__":
    main()
