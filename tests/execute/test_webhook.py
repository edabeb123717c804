"""The webhook: told of each question once, signed, through the guarded door, and never in the way of a call."""

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.egress.network import Answering, Heard, Server, connector, saying, serving
from toolwire import Agent, Approval, Grant, MemoryStore, Tier, tool
from toolwire.deliver.questions import announcement_json
from toolwire.errors import SettingsError, Suspended
from toolwire.execute.egress.web import Web
from toolwire.execute.webhook import MOST_AT_ONCE, WAITS_S, Webhook
from toolwire.protocol.approvals import ApprovalCard, Scope
from toolwire.testing import ScriptedModel, call
from toolwire.wire.encode.outbound import to_json

BOUND_S = 5
KEY = b"a key that only two know"


class Naps:
    """Instead of sleeping, notes for how long."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def hook(server: Server, naps: Naps | None = None, **more: Any) -> Webhook:
    web = Web(connector({"hooks.example": ["127.0.0.1"]}))
    return Webhook(
        f"http://hooks.example:{server.port}/ask?x=1", KEY, web=web, clock=lambda: 1_000.5, sleep=naps or Naps(), **more
    )


def in_turn(*statuses: str) -> Answering:
    left = list(statuses)

    async def answering(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await saying(b"", status=left.pop(0))(heard, writer)

    return answering


@tool(tier=Tier.RUN)
def unlock(door: int) -> str:
    """Unlock a door."""
    return f"door {door} is open"


def agent(*script: Any, **more: Any) -> Agent:
    given = {"grant": Grant(tier=Tier.RUN), "suspends": True, **more}
    return Agent(ScriptedModel(*script), [unlock], **given)


@contextmanager
def warnings_of_the_webhook(caplog: pytest.LogCaptureFixture) -> Iterator[list[str]]:
    said: list[str] = []
    with caplog.at_level(logging.WARNING, "toolwire.webhook"):
        yield said
    said += [record.getMessage() for record in caplog.records]


async def test_a_question_is_announced_when_it_opens_and_not_again_when_the_turn_goes_on() -> None:
    store, told = MemoryStore(), list[ApprovalCard]()

    with pytest.raises(Suspended) as waits:
        await agent(call("unlock", door=7), store=store, tell=told.append).ask("Open 7")
    with pytest.raises(Suspended):
        await agent("Done.", store=store, tell=told.append).resume(waits.value.turn_id)

    assert [card.id for card in told] == list(waits.value.approvals)


async def test_a_call_that_the_whole_turn_was_granted_for_is_not_announced() -> None:
    told = list[ApprovalCard]()

    async def approve(_: object) -> Approval:
        return Approval(granted=True, scope=Scope.TURN)

    script = (call("unlock", door=1), call("unlock", door=2), "Done.")
    await agent(*script, approve=approve, tell=told.append).ask("Open both")

    assert [card.arguments for card in told] == [{"door": 1}]


async def test_a_question_is_open_as_long_as_it_was_made_for() -> None:
    told = list[ApprovalCard]()

    with pytest.raises(Suspended):
        await agent(call("unlock", door=7), tell=told.append, approval_s=60.0).ask("Open 7")

    assert told[0].expires_at - told[0].asked_at == 60.0


@pytest.mark.parametrize("arguments", [False, True])
async def test_the_announcement_is_signed_and_holds_arguments_only_where_that_was_chosen(arguments: bool) -> None:
    async with serving(saying(b"ok")) as server, asyncio.timeout(BOUND_S), hook(server) as sent:
        with pytest.raises(Suspended) as waits:
            await agent(
                call("unlock", door=7),
                tell=lambda card: sent.send(card.id, to_json(announcement_json(card, arguments=arguments))),
            ).ask("Open 7")

    [heard] = server.heard
    said = json.loads(heard.body)
    expected = hmac.new(KEY, b"1000." + heard.body, hashlib.sha256).hexdigest()
    assert heard.line == "POST /ask?x=1 HTTP/1.1"
    assert heard.headers["x-toolwire-signature"] == f"v1={expected}"
    assert heard.headers["x-toolwire-timestamp"] == "1000"
    assert heard.headers["x-toolwire-delivery"] == said["approval"]["id"] == waits.value.approvals[0]
    assert (said["event"], said["approval"]["tool"]) == ("approval.asked", "unlock")
    assert said["approval"].keys() >= {"id", "tool", "reason", "digest", "expires_at"}
    assert ("arguments" in said["approval"]) == arguments
    assert (b'{\\"door\\":7}' in heard.body) == arguments


async def test_a_server_in_trouble_is_told_again_under_the_same_name() -> None:
    naps = Naps()
    answering = in_turn("503 Busy", "429 Slow", "204 Fine")
    async with serving(answering) as server, asyncio.timeout(BOUND_S), hook(server, naps) as sent:
        sent.send("ask-1", b"{}")

    assert [heard.headers["x-toolwire-delivery"] for heard in server.heard] == ["ask-1"] * 3
    assert naps.taken == list(WAITS_S[1:])


async def test_a_server_that_refuses_or_sends_us_elsewhere_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(in_turn("404 Gone", "302 Found")) as server, asyncio.timeout(BOUND_S):
        with warnings_of_the_webhook(caplog) as said:
            async with hook(server) as sent:
                sent.send("ask-1", b"{}")
            async with hook(server) as sent:
                sent.send("ask-2", b"{}")

    assert server.connections == 2
    assert [line.rpartition(": ")[2] for line in said] == [
        "it answered with status 404",
        "it answered with status 302",
    ]
    assert "x=1" not in "".join(said)


async def test_a_webhook_that_never_answers_is_in_nobodys_way() -> None:
    silence = asyncio.Event()

    async def silent(heard: Heard, writer: asyncio.StreamWriter) -> None:
        await silence.wait()

    async with serving(silent) as server, asyncio.timeout(BOUND_S):
        async with hook(server, closing_s=0.01) as sent:
            for number in range(MOST_AT_ONCE + 5):
                sent.send(f"ask-{number}", b"{}")
            await server.reached.wait()
            answer = await agent("Hello.").ask("Hello?")
        silence.set()

    assert answer.text == "Hello."


@pytest.mark.parametrize("hosts", [(), ("other.example",), ("127.0.0.1",), ("GET 127.0.0.1:{port}",)])
async def test_T36_a_webhook_reaches_no_private_address_that_was_not_named(
    hosts: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(saying(b"ok")) as server, asyncio.timeout(BOUND_S):
        named = [host.format(port=server.port) for host in hosts]
        with warnings_of_the_webhook(caplog) as said:
            async with Webhook(f"http://127.0.0.1:{server.port}/", hosts=named, sleep=Naps()) as sent:
                sent.send("ask-1", b"{}")

    assert server.connections == 0
    assert "not on the public internet" in said[0]


async def test_T36_control_a_host_that_the_operator_named_is_reached() -> None:
    async with serving(saying(b"ok")) as server, asyncio.timeout(BOUND_S):
        named = f"127.0.0.1:{server.port}"
        async with Webhook(f"http://{named}/", hosts=[named]) as sent:
            sent.send("ask-1", b"{}")

    assert server.connections == 1
    assert "x-toolwire-signature" not in server.heard[0].headers


@pytest.mark.parametrize(
    ("url", "hosts", "said"),
    [
        ("ftp://hooks.example", (), "approval.webhook: a URL starts with"),
        ("http://good.example\\@evil.example", (), "approval.webhook: "),
        ("https://hooks.example", ("*",), "approval.webhook_hosts: "),
    ],
)
def test_what_cannot_be_an_address_is_refused_at_once(url: str, hosts: tuple[str, ...], said: str) -> None:
    with pytest.raises(SettingsError, match=said.replace(".", r"\.")):
        Webhook(url, hosts=hosts)
