"""A call that is made is run, one that is only shown is not: the error rates over a set written without the rules."""

from typing import Any

import pytest

from toolwire.protocol.chat import Reply
from toolwire.wire.replies.reply import parse_reply

from .sets import ANSWERS, BY_WRITER, FOURTH_TOOLS, THIRD, TOOLS, bare, calls_in, stream

MOST_LOST, MOST_RUN = 0.02, 0.01
# Wrong answers of sets by independent writers, which may only become fewer: meant and not run, shown and run. The model
# was trained on all but the last, whose figures are those of its first reading.
RATCHETS = [
    ("fourth", 0, 1),
    ("chatty", 0, 0),
    ("coding", 0, 0),
    ("european", 0, 0),
    ("scripts", 0, 1),
    ("plain", 0, 1),
    ("mixed", 2, 0),
    ("unseen", 16, 2),
]
# What a dialect marks as thinking or addresses to another reader is not the answer, so it leaves the text.
MARKUP = ("<|channel|>", "<|message|>", "[THINK]", "<think", "Thought:", "Final Answer:")


def _whole(text: str) -> Reply:
    return parse_reply(text, TOOLS)


def _streamed(text: str) -> Reply:
    return stream(text, 5)[0]


def _of(kind: str) -> list[dict[str, Any]]:
    return [answer for answer in ANSWERS if answer["kind"] == kind]


def _wanted(answer: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": call["name"], "arguments": call["arguments"]} for call in answer["calls"]]


@pytest.mark.parametrize("read", [_whole, _streamed])
def test_B3_few_calls_that_are_made_are_lost(read: Any) -> None:
    meant = _of("meant")
    lost = [answer["id"] for answer in meant if calls_in(read(answer["text"])) != _wanted(answer)]

    assert len(lost) <= MOST_LOST * len(meant), lost


@pytest.mark.parametrize("read", [_whole, _streamed])
def test_B3_hardly_a_call_that_is_only_shown_is_run(read: Any) -> None:
    shown = _of("shown")
    run = [answer["id"] for answer in shown if calls_in(read(answer["text"]))]

    assert len(run) <= MOST_RUN * len(shown), run


def test_B3_the_third_set_is_read_like_the_others() -> None:
    meant, shown = ([one for one in THIRD if one["kind"] == kind] for kind in ("meant", "shown"))
    lost = [answer["id"] for answer in meant if calls_in(_whole(answer["text"])) != _wanted(answer)]
    run = [answer["id"] for answer in shown if calls_in(_whole(answer["text"]))]

    assert (len(meant), len(shown)) == (214, 209)
    assert len(lost) <= MOST_LOST * len(meant), lost
    assert len(run) <= MOST_RUN * len(shown), run


@pytest.mark.parametrize(("name", "most_lost", "most_run"), RATCHETS)
def test_B3_sets_of_independent_writers_are_read_no_worse_than_before(name: str, most_lost: int, most_run: int) -> None:
    meant, shown = ([one for one in BY_WRITER[name] if one["kind"] == kind] for kind in ("meant", "shown"))
    lost = [one["id"] for one in meant if calls_in(parse_reply(one["text"], FOURTH_TOOLS)) != one["calls"]]
    run = [one["id"] for one in shown if calls_in(parse_reply(one["text"], FOURTH_TOOLS))]

    assert min(len(meant), len(shown)) >= 130
    assert len(lost) <= most_lost, lost
    assert len(run) <= most_run, run


def test_B3_answers_that_were_never_seen_keep_to_the_limits() -> None:
    """A call that is meant is run, or the model is told to send it alone; hardly one is taken for text in silence."""
    meant, shown = ([one for one in BY_WRITER["unseen"] if one["kind"] == kind] for kind in ("meant", "shown"))
    replies = [parse_reply(one["text"], FOURTH_TOOLS) for one in meant]
    told = [reply for reply in replies if "unclear" in {one.code for one in reply.problems}]
    silent = [reply for reply in replies if not calls_in(reply) and reply not in told]
    run = [one["id"] for one in shown if calls_in(parse_reply(one["text"], FOURTH_TOOLS))]

    assert (len(meant), len(shown)) == (200, 200)
    assert len(silent) <= MOST_LOST * len(meant)
    assert len(told) <= 13
    assert len(run) <= MOST_RUN * len(shown), run


def test_B3_what_stays_unclear_is_not_run_and_the_model_is_told() -> None:
    unclear = _of("unclear")
    run = [answer["id"] for answer in unclear if calls_in(_whole(answer["text"]))]
    told = [answer for answer in unclear if "unclear" in {one.code for one in _whole(answer["text"]).problems}]

    assert len(run) <= 1, run
    assert len(told) >= 0.8 * len(unclear)


def test_B3_what_is_only_shown_stays_visible() -> None:
    for answer in _of("shown"):
        reply = _whole(answer["text"])
        if not reply.calls and not any(mark in answer["text"] for mark in MARKUP):
            assert reply.content.strip() == answer["text"].strip(), answer["id"]


@pytest.mark.parametrize("size", [1, 7])
def test_B3_a_stream_shows_nothing_that_the_whole_text_does_not_have(size: int) -> None:
    for answer in ANSWERS:
        text = answer["text"]
        if "</think>" in text and "<think>" not in text:
            continue  # what came before was shown as text by then
        whole = _whole(text)
        reply, shown = stream(text, size)

        assert repr(reply) == repr(whole), answer["id"]
        assert bare(whole.content).startswith(bare(shown)), answer["id"]
