"""`toolwire serve` takes people's word about the calls of its own project."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from tests.cli.stage import Stage
from tests.gateway.test_approvals import CARD
from tests.gateway.test_serve import address, first_line
from tests.no_tls import NO_TLS
from toolwire import SqliteStore
from toolwire.protocol.approvals import ApprovalCard
from toolwire.protocol.turns import Ending, EndReason, Turn
from toolwire.record.contract import TurnStats


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


def keep(home: Path) -> None:
    async def kept() -> None:
        async with await SqliteStore.at(home) as store:
            await store.request_approval(CARD, ())

    asyncio.run(kept())


def kept(home: Path) -> ApprovalCard:
    async def read() -> ApprovalCard:
        async with await SqliteStore.at(home) as store:
            return await store.approval(CARD.id)

    return asyncio.run(read())


def asked(url: str, path: str = "", **body: object) -> httpx2.Response:
    headers = {"authorization": "Bearer a-long-token"}
    method = "POST" if body else "GET"
    return httpx2.request(
        method, f"{url}/v1/approvals{path}", json=body or None, headers=headers, trust_env=False, verify=NO_TLS
    )


def test_the_projects_questions_are_answered_in_the_name_of_the_token(stage: Stage) -> None:
    process = stage.start(
        "serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--token-env", "ANN", ANN="a-long-token"
    )
    url = address(first_line(process))

    before = asked(url).json()
    keep(stage.folder / ".toolwire")
    [listed] = asked(url).json()["data"]
    answered = asked(url, f"/{listed['id']}", granted=True, digest=listed["digest"])

    assert before == {"data": []}
    assert answered.json()["state"] == "granted"
    assert kept(stage.folder / ".toolwire").word.by == "ANN"


@pytest.mark.parametrize(("project", "seen"), [("default", 200), ("tenant-b", 404)])
def test_T62_a_gateway_sees_what_waits_in_its_own_project(stage: Stage, project: str, seen: int) -> None:
    process = stage.start(
        "serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--token-env", "ANN", "--project", project,
        ANN="a-long-token",
    )  # fmt: skip
    url = address(first_line(process))
    keep(stage.folder / ".toolwire")

    assert len(asked(url).json()["data"]) == len(asked(url, "?state=all").json()["data"]) == (seen == 200)
    assert asked(url, f"/{CARD.id}").status_code == seen
    assert asked(url, f"/{CARD.id}", granted=True).status_code == seen
    assert len(kept(stage.folder / ".toolwire").answers) == (seen == 200)


def test_questions_of_a_turn_that_has_ended_are_not_listed_as_open(stage: Stage) -> None:
    async def end() -> None:
        async with await SqliteStore.at(stage.folder / ".toolwire") as store:
            turn = Turn(CARD.turn_id)
            await store.begin(turn)
            await store.end(replace(turn, ending=Ending(EndReason.DEADLINE, "")), TurnStats())

    process = stage.start(
        "serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--token-env", "ANN", ANN="a-long-token"
    )
    url = address(first_line(process))
    keep(stage.folder / ".toolwire")
    before = [one["id"] for one in asked(url).json()["data"]]
    asyncio.run(end())

    assert (before, asked(url).json()) == ([CARD.id], {"data": []})
    assert [one["state"] for one in asked(url, "?state=all").json()["data"]] == ["expired"]
    refused = asked(url, f"/{CARD.id}", granted=True)
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_decided")


def test_a_gateway_without_tokens_knows_nothing_of_approvals(stage: Stage) -> None:
    process = stage.start("serve", "--upstream", "http://127.0.0.1:9", "--port", "0")
    url = address(first_line(process))
    keep(stage.folder / ".toolwire")

    assert asked(url).status_code == 404
    assert asked(url, f"/{CARD.id}", granted=True).status_code == 404
    assert kept(stage.folder / ".toolwire").answers == ()


def test_people_who_could_not_answer_are_a_mistake_that_is_said(stage: Stage) -> None:
    (stage.folder / "toolwire.toml").write_text('[approval]\npeople = ["BOB"]\n', encoding="utf-8")

    ran = stage.run(
        "serve", "--upstream", "http://127.0.0.1:9", "--port", "0", "--token-env", "ANN", ANN="a-long-token"
    )

    assert ran.code == 2
    assert "approval.people names BOB" in ran.err
