"""The corpus of model outputs, and what it means to read one of them rightly."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import StreamParser, parse_reply
from toolwire.wire.replies.unsent import collapse_space

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "data" / "wire_cases.jsonl").read_text(encoding="utf-8").splitlines()
]

# What stood before the end of reasoning that the prompt had opened was shown as text, and cannot be taken back.
LATE_NEWS = ("</think>", "[BEGIN FINAL RESPONSE]")


def read_case(case: Mapping[str, Any], provider: str = "auto") -> Reply:
    """The reply to a case, streamed if the case is a stream."""
    if "chunks" in case:
        return streamed(case, case["chunks"], provider)
    return parse_reply(case["response"], case["tools"], provider, case.get("finish_reason"))


def streamed(case: Mapping[str, Any], chunks: Iterable[Any], provider: str = "auto") -> Reply:
    """The reply to the same case in other pieces."""
    parser = StreamParser(case["tools"], provider, case.get("finish_reason"))
    for chunk in chunks:
        parser.feed(chunk)
    return parser.finish()


def text_of(case: Mapping[str, Any]) -> str | None:
    """The whole text of a case that is text; None for a provider's JSON."""
    if isinstance(case.get("response"), str):
        return str(case["response"])
    chunks = case.get("chunks") or []
    return "".join(chunks) if chunks and all(isinstance(chunk, str) for chunk in chunks) else None


def differences(case: Mapping[str, Any], reply: Reply) -> list[str]:
    """In what a reply differs from a case's expectation: white space in text is free, everything else counts."""
    expected = case["expect"]
    found: list[str] = []
    calls = [(call.name, call.arguments) for call in reply.calls]
    wanted = [(call["name"], call["arguments"]) for call in expected["calls"]]
    if len(calls) != len(wanted) or not all(_same(list(a), list(b)) for a, b in zip(calls, wanted, strict=False)):
        found.append(f"calls {calls}")
    elif any(
        "id" in want and want["id"] != call.alias for want, call in zip(expected["calls"], reply.calls, strict=True)
    ):
        found.append(f"ids {[call.alias for call in reply.calls]}")
    for name, got in (("content", reply.content), ("reasoning", reply.reasoning)):
        want = expected.get(name, "")
        if want is not None and "".join(want.split()) != "".join(got.split()):
            found.append(f"{name} {got!r}")
    missing = set(expected.get("errors", ())) - {problem.code for problem in reply.problems}
    return found + [f"missing problem {code}" for code in sorted(missing)]


def _same(left: Any, right: Any) -> bool:
    """Equal as JSON: 1 is 1.0, but true is not 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def wrong(shown: str, final: str, text: str) -> bool:
    """Whether a watcher saw something else than the final text. White space may move where a call was."""
    if any(end in text for end in LATE_NEWS) and "<think>" not in text:
        return not collapse_space(shown).endswith(collapse_space(final))
    return collapse_space(shown) != collapse_space(final)
