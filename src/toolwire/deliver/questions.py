"""A question as people are shown it: what would run, spelled so that nothing in it can look like something else."""

import re
from typing import Any, TypeAlias

from toolwire.define.canonical import canonical, digest
from toolwire.deliver.lookalikes import escape
from toolwire.protocol.approvals import Approval, ApprovalCard

QuestionJson: TypeAlias = dict[str, Any]

LONGEST_LISTED = 2_000
_ANNOUNCED = ("id", "tool", "agent", "reason", "digest", "turn_id", "asked_at", "expires_at", "quorum")
_HARD_TO_SEE = re.compile("[^ -~]| {3,}")


def question_json(card: ApprovalCard, *, whole: bool) -> QuestionJson:
    """The question as JSON, with everything that its answer is bound to."""
    return {
        "id": card.id,
        "state": card.state.value,
        "tool": card.tool,
        "agent": plain(card.agent),
        "reason": plain(card.reason),
        "arguments": arguments_shown(card, whole=whole),
        "digest": card.digest,
        "turn_id": card.turn_id,
        "call_id": card.call_id,
        "asked_at": card.asked_at,
        "expires_at": card.expires_at,
        "quorum": card.quorum,
        "answers": [_answer(answer) for answer in card.answers],
    }


def announcement_json(card: ApprovalCard, *, arguments: bool) -> QuestionJson:
    """What others are told when a question opens; its arguments only if they may know them."""
    told = {name: value for name, value in question_json(card, whole=False).items() if name in _ANNOUNCED}
    if arguments:
        told["arguments"] = arguments_shown(card, whole=False)
    return {"event": "approval.asked", "approval": told}


def arguments_shown(card: ApprovalCard, *, whole: bool) -> QuestionJson:
    """The exact arguments as escaped JSON, with the length and the digest of what they are."""
    text = visible_json(card.arguments)
    cut = not whole and len(text) > LONGEST_LISTED
    kept = text[:LONGEST_LISTED] if cut else text
    return {"json": kept, "length": len(text), "sha256": digest(card.arguments), "truncated": cut}


def visible_json(value: Any) -> str:
    """JSON in which every character can be seen: sorted, ASCII alone, and rows of spaces as what they are.

    Read as JSON it gives the very value. Letters of other scripts are escaped too: some of them look like ours, and
    some turn the reading direction.
    """
    return _HARD_TO_SEE.sub(lambda found: escape(found[0]), canonical(value).decode())


def plain(text: str) -> str:
    """A sentence without anything that moves a cursor, hides, or begins a new line."""
    return "".join(char if char.isprintable() else escape(char) for char in text)


def _answer(answer: Approval) -> QuestionJson:
    said: QuestionJson = {"granted": answer.granted, "by": plain(answer.speaker), "reason": plain(answer.reason)}
    if answer.arguments is not None:  # the next person asked must see what they would agree to
        said["arguments"] = visible_json(answer.arguments)
    return said | {"scope": answer.scope.value, "edited": answer.arguments is not None}
