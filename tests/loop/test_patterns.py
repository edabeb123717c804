"""A yes for a pattern: it stands for its agent, project, tool and policy, until it expires or is taken back."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolwire import Agent, Answer, Approval, Grant, MemoryStore, SqliteStore, Tier, Tool, tool
from toolwire.errors import Fenced, Suspended
from toolwire.protocol.approvals import Scope
from toolwire.protocol.calls import NeedsApproval
from toolwire.protocol.policy import Rule
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call

pytestmark = pytest.mark.feature("F126")
GRANT = Grant(tier=Tier.RUN, permissions=frozenset({"shell"}))


class Shell:
    """A shell that notes what it was told, and a person who says the same each time."""

    def __init__(self, word: Approval | None = None) -> None:
        self.ran: list[str] = []
        self.asked: list[str] = []
        self.word = word or for_pattern("git commit")

    def tools(self) -> list[Tool]:
        @tool(tier=Tier.RUN, needs={"shell"})
        def bash(command: str) -> str:
            """Run a command."""
            self.ran.append(command)
            return "done"

        @tool(tier=Tier.RUN, untrusted=True)
        def page(url: str) -> str:
            """Read a page."""
            return f"page {url}"

        return [bash, page]

    async def approve(self, request: NeedsApproval) -> Approval:
        self.asked.append(request.allowed.arguments.get("command", "a page"))
        return self.word

    def agent(self, store: Store, *script: Any, **more: Any) -> Agent:
        given: dict[str, Any] = {"grant": GRANT, "approve": self.approve, **more}
        return Agent(ScriptedModel(*script, "Done."), self.tools(), store=store, **given)


def for_pattern(pattern: str, **more: Any) -> Approval:
    return Approval(granted=True, by="ann", scope=Scope.PATTERN, pattern=pattern, **more)


def commits(*texts: str) -> list[Any]:
    return [call("bash", command=text) for text in texts]


async def test_an_approval_for_a_pattern_is_requested_once_and_survives_turns_and_processes(tmp_path: Path) -> None:
    shell = Shell()
    async with await SqliteStore.at(tmp_path) as store:
        await shell.agent(store, *commits("git commit -m a", "git commit -m b")).ask("Commit")
    async with await SqliteStore.at(tmp_path) as store:
        await shell.agent(store, *commits("git commit -am c", "git add x")).ask("More")

    assert shell.asked == ["git commit -m a", "git add x"]
    assert shell.ran == ["git commit -m a", "git commit -m b", "git commit -am c", "git add x"]


async def test_what_follows_from_a_pattern_is_on_record_with_who_said_it_and_where() -> None:
    shell, store = Shell(), MemoryStore()
    await shell.agent(store, *commits("git commit -m a", "git commit -m b")).ask("Commit")

    second, first = await store.approvals()
    assert [(word.by, word.under, word.reason) for word in second.answers] == [
        ("ann", first.id, "allowed by pattern: git commit")
    ]
    assert [row.detail.get("under") for row in await store.audit_log() if row.event == "approved"] == [None, first.id]


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other"},
        {"project": "other"},
        {"grant": replace(GRANT, rules=(Rule.parse("allow bash where command is ls"),))},
    ],
)
async def test_it_is_for_the_same_agent_project_and_policy_alone(other: dict[str, Any]) -> None:
    shell, store = Shell(), MemoryStore()
    await shell.agent(store, *commits("git commit -m a")).ask("Commit")
    await shell.agent(store, *commits("git commit -m b"), **other).ask("Commit")
    await shell.agent(store, *commits("git commit -m c")).ask("Commit")

    assert shell.asked == ["git commit -m a", "git commit -m b"]


@pytest.mark.parametrize(
    "text",
    [
        "git push",
        "git commit -m a; rm x",
        "git commit -m a > x",
        "git -c a=b commit",
        "GIT_DIR=x git commit",
        "./git commit",
        "git commit $(rm x)",
        "git $x",
    ],
)
async def test_nothing_else_gets_through_with_it(text: str) -> None:
    shell, store = Shell(), MemoryStore()
    online = replace(GRANT, permissions=GRANT.permissions | {"network"})
    await shell.agent(store, *commits("git commit -m a", text), grant=online).ask("Commit")

    assert shell.asked == ["git commit -m a", text]


HERE = replace(GRANT, roots=("/srv/app",), network=("good.test",), permissions=frozenset({"shell", "network"}))
OFFLINE = replace(HERE, permissions=GRANT.permissions)
ELSEWHERE = [
    (HERE, replace(HERE, roots=("/srv/other",))),
    (HERE, replace(HERE, roots=("/srv/other", "/srv/app"))),
    (HERE, replace(HERE, network=("good.test", "other.test"))),
    (OFFLINE, HERE),
]


@pytest.mark.parametrize(("here", "there"), ELSEWHERE, ids=["other-folder", "another-first", "more-hosts", "network"])
async def test_T111_a_pattern_approved_for_one_folder_and_its_hosts_is_asked_about_elsewhere(
    here: Grant, there: Grant
) -> None:
    shell, store = Shell(for_pattern("./build.sh")), MemoryStore()
    await shell.agent(store, *commits("./build.sh"), grant=here).ask("Build")
    await shell.agent(store, *commits("./build.sh"), grant=there).ask("Build there")

    assert shell.asked == ["./build.sh", "./build.sh"]


async def test_T111_control_in_the_same_folder_with_the_same_hosts_it_is_asked_about_once() -> None:
    shell, store = Shell(for_pattern("./build.sh")), MemoryStore()
    await shell.agent(store, *commits("./build.sh"), grant=HERE).ask("Build")
    await shell.agent(
        store, *commits("./build.sh -v"), grant=replace(HERE, permissions=HERE.permissions | {"git"})
    ).ask("Build again")

    assert shell.asked == ["./build.sh"]
    assert shell.ran == ["./build.sh", "./build.sh -v"]


async def test_deny_stays_final() -> None:
    shell, store = Shell(for_pattern("rm *")), MemoryStore()
    await shell.agent(store, *commits("rm a")).ask("Clean")
    await shell.agent(store, *commits("rm -rf /")).ask("Clean more")

    assert shell.ran == ["rm a"]


async def test_it_expires_and_can_be_taken_back() -> None:
    now = [1000.0]
    store = MemoryStore(clock=lambda: now[0], monotonic=lambda: now[0])
    shell = Shell(for_pattern("git commit", lasts_s=60.0))
    await shell.agent(store, *commits("git commit -m a")).ask("Commit")
    now[0] += 61
    await shell.agent(store, *commits("git commit -m b")).ask("Commit")
    [standing] = await store.active_patterns()
    await store.revoke(standing.id, "bob")
    await shell.agent(store, *commits("git commit -m c")).ask("Commit")

    assert len(shell.asked) == 3
    with pytest.raises(Fenced, match="nothing to take back"):
        await store.revoke(standing.id, "bob")
    assert [row.detail["by"] for row in await store.audit_log() if row.event == "revoked"] == ["bob"]


async def test_an_approval_from_before_untrusted_content_does_not_cover_what_comes_after() -> None:
    for scope in (Scope.PATTERN, Scope.TURN):
        shell = Shell(replace(for_pattern("git commit"), scope=scope))
        script = (*commits("git commit -m a"), call("page", url="x"), *commits("git commit -m b", "git commit -m c"))
        await shell.agent(MemoryStore(), *script).ask("Commit")

        assert shell.asked == ["git commit -m a", "a page", "git commit -m b"]


async def test_several_approvers_must_all_name_the_same_pattern() -> None:
    store, shell = MemoryStore(), Shell()
    two = replace(GRANT, rules=(Rule.parse("ask bash by 2"),))

    def agent(*script: Any) -> Agent:
        return shell.agent(store, *script, grant=two, approve=None, suspends=True)

    async def asked_and_answered(text: str, *words: Approval) -> None:
        with pytest.raises(Suspended) as waits:
            await agent(*commits(text)).ask("Commit")
        for word in words:
            await store.answer(waits.value.approvals[0], word)
        await agent().resume(waits.value.turn_id)

    await asked_and_answered("git commit -m a", for_pattern("git commit"), replace(for_pattern("git"), by="bob"))
    assert await store.active_patterns() == []
    await asked_and_answered("git commit -m b", for_pattern("git commit"), replace(for_pattern("git commit"), by="bob"))
    answer: Answer = await agent(*commits("git commit -m c")).ask("Commit")

    assert answer.text == "Done."
    assert shell.ran == ["git commit -m a", "git commit -m b", "git commit -m c"]


@pytest.mark.parametrize("pattern", ["", "*", "* commit", "git push", "path is docs/*", "git commit -x"])
async def test_a_pattern_that_does_not_fit_its_own_call_approves_that_call_alone(pattern: str) -> None:
    shell, store = Shell(for_pattern(pattern)), MemoryStore()
    await shell.agent(store, *commits("git commit -m a", "git commit -m b")).ask("Commit")

    assert len(shell.asked) == 2
    assert len(shell.ran) == 2


@pytest.mark.parametrize("at_once", [True, False])
async def test_T65_approvals_are_limited_in_a_turn(at_once: bool) -> None:
    shell = Shell(Approval(granted=False, by="ann"))
    calls = commits(*(f"rm {number}" for number in range(6)))
    script = [calls] if at_once else calls
    answer = await shell.agent(MemoryStore(), *script, questions=3).ask("Clean")

    told = [result.text for message in answer.turn.messages for result in getattr(message, "results", ())]
    assert len(shell.asked) == 3
    assert sum("its limit of 3 approval requests" in text for text in told) == (3 if at_once else 0)


async def test_T65_control_without_a_limit_approvals_are_requested_as_often_as_the_model_likes() -> None:
    shell = Shell(Approval(granted=False, by="ann"))
    calls = commits(*(f"rm {number}" for number in range(30)))
    await shell.agent(MemoryStore(), calls, questions=1000).ask("Clean")

    assert len(shell.asked) == 30


async def test_T65_an_agent_leaves_only_so_many_questions_open() -> None:
    shell, store = Shell(), MemoryStore()
    for number in range(2):
        with pytest.raises(Suspended):
            await shell.agent(store, *commits(f"rm {number}"), approve=None, suspends=True, questions=2).ask("Clean")
    answer = await shell.agent(store, *commits("rm 3"), approve=None, suspends=True, questions=2).ask("Clean")

    assert "2 pending approval requests" in str(answer.turn.messages)
    assert len(await store.approvals(only_open=True)) == 2
