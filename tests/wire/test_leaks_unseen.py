"""Calls in every catalogued text format, written without a look at the readers: calls, text and cuts are all right."""

from typing import Any

import pytest

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import parse_reply

from .sets import LEAKS, TOOLS, bare, calls_in, stream

IN_FULL = 0.985


def _read(leak: dict[str, Any]) -> Reply:
    return parse_reply(leak["text"], TOOLS, finish_reason=leak["finish_reason"])


def _is_right(leak: dict[str, Any], reply: Reply) -> bool:
    wanted = [{"name": call["name"], "arguments": call["arguments"]} for call in leak["calls"]]
    rest = leak["rest"] is None or bare(leak["rest"]) == bare(reply.content)
    cut = "truncated" in {problem.code for problem in reply.problems}
    return calls_in(reply) == wanted and rest and cut == leak["truncated"]


def test_B6_nearly_all_leaks_are_read_in_full() -> None:
    wrong = [leak["id"] for leak in LEAKS if not _is_right(leak, _read(leak))]

    assert len(wrong) <= (1 - IN_FULL) * len(LEAKS), wrong


@pytest.mark.parametrize("size", [1, 6])
def test_B6_every_leak_streamed_is_the_leak_read_whole(size: int) -> None:
    for leak in LEAKS:
        reply, _ = stream(leak["text"], size, leak["finish_reason"])

        assert repr(reply) == repr(_read(leak)), leak["id"]
