"""Approval of a call by itself: the request that is kept, answers, limits, and the files that an approval covers."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Approval, Grant, MemoryStore, Tier, Toolbox, tool
from toolwire.hub.approvals import ApprovalGate
from toolwire.hub.approved_files import bind_files
from toolwire.hub.calls import Waiting
from toolwire.hub.services import Services
from toolwire.hub.slots import Slots
from toolwire.protocol.approvals import ApprovalCard, Scope
from toolwire.protocol.calls import Allowed, Denied, NeedsApproval, ToolCall
from toolwire.protocol.chat import Reply
from toolwire.protocol.events import ApprovalAsked, Event
from toolwire.protocol.records import CallCard
from toolwire.protocol.turns import Turn
from toolwire.protocol.waits import ForApproval
from toolwire.testing import FrozenClock

GRANT = Grant(Tier.RUN, frozenset({"shell"}))


@tool(tier=Tier.RUN, requires_confirmation=True)
def launch(what: str = "one") -> str:
    """Launch."""
    return what


class Stage:
    """A turn on record whose calls need approval."""

    def __init__(self, **services: Any) -> None:
        self.store, self.told, self.events = MemoryStore(), list[ApprovalCard](), list[Event]()
        self.clock, self.turn, self.slots = FrozenClock(), Turn("t", grant=GRANT), Slots(1)
        self.services = Services(
            Toolbox.of(launch), self.store, tell=self.told.append, clock=self.clock, monotonic=self.clock, **services
        )
        self.gate = ApprovalGate(self.services, self.turn, self.slots, self.events.append)
        self.count = 0

    async def card(self) -> CallCard:
        if not self.count:
            await self.store.begin(self.turn)
        self.count += 1
        name = f"c{self.count}"
        card = CallCard(name, "t", 1, ToolCall("launch", {"what": "one"}, name), "d")
        await self.store.append_reply(self.turn, Reply(calls=(card.call,)), [card], [])
        return card


def request(card: CallCard, **more: Any) -> NeedsApproval:
    allowed = Allowed(card.call, launch, card.call.arguments, 1.0)
    return replace(NeedsApproval(allowed, "It launches.", "digest", policy="policy"), **more)


def reason(decision: object) -> str:
    assert isinstance(decision, Denied)
    return decision.message


async def test_a_request_is_kept_told_and_shown_and_its_answer_counts() -> None:
    asked = list[NeedsApproval]()

    async def yes(one: NeedsApproval) -> Approval:
        stage.clock.advance(7)
        asked.append(one)
        return Approval(granted=True, by="ann")

    stage = Stage(approve=yes, approval_s=60.0)
    card = await stage.card()
    one = request(card, quorum=1)
    assert await stage.gate.knows(card, one) is False
    assert await stage.gate.decide(card, one) is one.allowed
    [kept] = await stage.store.approvals()
    assert (kept.call_id, kept.digest, kept.reason, kept.policy) == ("c1", "digest", "It launches.", "policy")
    assert (kept.expires_at - kept.asked_at, [told.id for told in stage.told]) == (60.0, [kept.id])
    assert stage.events == [ApprovalAsked("c1", "launch", {"what": "one"}, "It launches.", "digest", 1)]
    assert (asked, stage.slots.waited_s) == ([one], 7.0)
    assert await stage.gate.knows(card, one) is True
    assert await stage.gate.knows(await stage.card(), one) is False
    assert [row.event for row in await stage.store.audit_log(turn_id="t")] == ["approved"]


async def test_an_approver_that_fails_is_a_refusal() -> None:
    async def broken(_: NeedsApproval) -> Approval:
        raise ValueError("no line")

    stage = Stage(approve=broken)
    card = await stage.card()
    said = "The user did not allow 'launch': asking failed (ValueError: no line)"
    assert reason(await stage.gate.decide(card, request(card))) == said
    [kept] = await stage.store.approvals()
    assert [(answer.granted, answer.by) for answer in kept.answers] == [(False, "nobody")]


async def test_a_request_that_waits_is_told_once_and_void_when_anything_has_changed() -> None:
    stage = Stage(suspends=True)
    card = await stage.card()
    first = await stage.gate.decide(card, request(card))
    again = await stage.gate.decide(card, request(card))
    [kept] = await stage.store.approvals()
    assert first == again == Waiting((ForApproval(kept.id),))
    assert len(stage.told) == 1
    assert stage.events == []
    changed = reason(await stage.gate.decide(card, request(card, digest="other")))
    assert changed.startswith("Tool, arguments, policy or files have changed since approval was requested")
    await stage.store.answer(kept.id, Approval(granted=False, by="ann"))
    assert reason(await stage.gate.decide(card, request(card))) == "The user did not allow 'launch'."


async def test_a_request_after_a_trial_is_in_the_audit_log() -> None:
    stage = Stage(suspends=True)
    card = await stage.card()
    await stage.gate.decide(card, request(card, tries=True))
    [row] = await stage.store.audit_log(turn_id="t")
    assert (row.event, row.rule, row.detail, row.at) == (
        "awaiting_approval", "confirmation", {"reason": "It launches."}, stage.clock(),
    )  # fmt: skip


async def test_one_approver_is_not_enough_where_several_are_needed() -> None:
    async def yes(_: NeedsApproval) -> Approval:
        return Approval(granted=True, by="ann")

    stage = Stage(approve=yes)
    card = await stage.card()
    said = "More approvals are needed before 'launch' may run."
    assert reason(await stage.gate.decide(card, request(card, quorum=2))) == said
    absent = Stage()
    card = await absent.card()
    said = "It launches. No approver is present; tell the user what you wanted to do."
    assert reason(await absent.gate.decide(card, request(card))) == said
    assert await absent.store.approvals() == []


async def test_a_turn_and_an_agent_have_so_many_requests() -> None:
    stage = Stage(suspends=True, questions=2)
    cards = [await stage.card() for _ in range(3)]
    waits = [await stage.gate.decide(card, request(card)) for card in cards]
    assert [isinstance(one, Waiting) for one in waits] == [True, True, False]
    assert reason(waits[2]) == "This turn has reached its limit of 2 approval requests. Continue without this call."
    assert isinstance(await stage.gate.decide(cards[0], request(cards[0])), Waiting), "it was requested before"
    other = ApprovalGate(stage.services, replace(stage.turn, id="u"), stage.slots, None)
    await stage.store.begin(Turn("u", grant=GRANT))
    card = CallCard("d1", "u", 1, ToolCall("launch", {}, "d1"), "d")
    await stage.store.append_reply(Turn("u"), Reply(calls=(card.call,)), [card], [])
    said = "This agent has 2 pending approval requests already. Continue without this call."
    assert reason(await other.decide(card, request(card))) == said
    for kept in await stage.store.approvals():
        await stage.store.answer(kept.id, Approval(granted=True, by="ann"))
    assert isinstance(await other.decide(card, request(card)), Waiting)


async def test_an_approval_for_the_turn_answers_the_next_call_and_uses_no_request() -> None:
    async def for_all(_: NeedsApproval) -> Approval:
        return Approval(granted=True, by="ann", scope=Scope.TURN)

    stage = Stage(approve=for_all, questions=1)
    first, second = await stage.card(), await stage.card()
    await stage.gate.decide(first, request(first))
    assert await stage.gate.knows(second, request(second)) is True
    assert await stage.gate.knows(second, request(second, policy="other")) is False
    decision = await stage.gate.decide(second, request(second))
    assert isinstance(decision, Allowed)
    kept = {one.call_id: one.answers for one in await stage.store.approvals()}
    assert [(one.by, one.reason, bool(one.under)) for one in kept["c2"]] == [
        ("ann", "allowed for the whole turn", True)
    ]
    assert len(stage.events) == 1


@pytest.mark.parametrize("chosen", [{"what": "two"}, {"what": 7, "x": 1}])
async def test_other_arguments_are_judged_like_any(chosen: dict[str, Any]) -> None:
    async def other(_: NeedsApproval) -> Approval:
        return Approval(granted=True, by="ann", arguments=chosen)

    stage = Stage(approve=other)
    card = await stage.card()
    decision = await stage.gate.decide(card, request(card))
    assert isinstance(decision, Denied) == ("x" in chosen)
    if isinstance(decision, Allowed):
        assert (decision.arguments, decision.notes[-1]) == (chosen, "the user changed the arguments")


# Files


@tool(name="bash", tier=Tier.RUN, needs=["shell"])
def bash(command: str, workdir: str = ".") -> str:
    """Run."""
    return command


def command(text: Any, **more: Any) -> NeedsApproval:
    allowed = Allowed(ToolCall("bash", {}, "c"), bash, {"command": text, **more}, 1.0)
    return NeedsApproval(allowed, "It runs.", "digest")


def shown(path: Path, name: str) -> str:
    return f"{name} (sha256 {sha256(path.read_bytes()).hexdigest()[:12]})"


async def test_the_files_of_a_command_are_part_of_the_question(tmp_path: Path) -> None:
    grant = replace(GRANT, roots=(str(tmp_path),))
    script, inner = tmp_path / "run.sh", tmp_path / "sub" / "run.sh"
    inner.parent.mkdir()
    for path in (script, inner):
        path.write_text(f"echo {path}")

    bound, files = await bind_files(command("sh run.sh"), grant)
    assert files is not None
    assert bound.digest not in ("digest", "")
    assert bound.reason == (
        f"It runs. Approval covers the present content of {shown(script, 'run.sh')}. "
        "Not covered: files that these load or run in turn."
    )
    assert (files.command, files.root, set(files.digests)) == ("sh run.sh", str(tmp_path), {"run.sh"})
    assert await files.difference() == ""
    below, _ = await bind_files(command("sh run.sh", workdir="sub"), grant)
    assert shown(inner, "sub/run.sh") in below.reason
    in_box, _ = await bind_files(command("sh /workspace/run.sh"), grant)
    assert shown(script, "run.sh") in in_box.reason
    script.write_text("echo changed")
    assert await files.difference() == "run.sh"
    again, _ = await bind_files(command("sh run.sh"), grant)
    assert again.digest != bound.digest


async def test_a_new_file_counts_where_the_command_could_run_it(tmp_path: Path) -> None:
    grant = replace(GRANT, roots=(str(tmp_path),))
    (tmp_path / "a").write_text("a")
    for text, counts in (("make a", True), ("cat a Makefile", False)):
        (tmp_path / "Makefile").unlink(missing_ok=True)
        _, files = await bind_files(command(text), grant)
        assert files is not None
        (tmp_path / "Makefile").write_text("all:")
        assert (await files.difference() == "Makefile") is counts


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("sh missing.sh", "Not covered: files that it loads or runs."),
        ("sh $x", "Not covered: files whose names are made when it runs, files that it loads or runs."),
        ("sh folder", "Not covered: folder (a folder), files that it loads or runs."),
        ("rm folder", ""),
        ("rm $x", ""),
    ],
)
async def test_what_an_approval_does_not_cover_is_said(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "folder").mkdir()
    bound, files = await bind_files(command(text), replace(GRANT, roots=(str(tmp_path),)))
    assert bound.reason == f"It runs. {told}".strip()
    assert (files is None, bound.digest == "digest") == (not told, not told)


async def test_many_files_are_named_in_part_and_keys_are_named(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(10)]
    for name in names:
        (tmp_path / name).write_text(name)
    grant = replace(GRANT, roots=(str(tmp_path),))
    eight, ten = [(await bind_files(command(f"cat {' '.join(names[:count])}"), grant))[0].reason for count in (8, 10)]
    assert (eight.count("sha256"), "more" in eight) == (8, False)
    assert (ten.count("sha256"), ten.endswith(", 2 more.")) == (8, True)
    (tmp_path / ".env").write_text("KEY=1")
    keys, files = await bind_files(command("true"), grant)
    assert keys.reason == "It runs. The command can read the keys in .env."
    assert files is not None


async def test_a_call_that_is_no_command_has_no_files(tmp_path: Path) -> None:
    grant = replace(GRANT, roots=(str(tmp_path),))
    (tmp_path / "run.sh").write_text("")
    plain = command("sh run.sh")
    without = replace(plain, allowed=replace(plain.allowed, tool=launch))
    for one, given in ((command(7), grant), (plain, GRANT), (without, grant)):
        assert await bind_files(one, given) == (one, None)
