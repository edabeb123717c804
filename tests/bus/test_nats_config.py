"""`toolwire nats config`: what its files let each user do, at a real server."""

import asyncio
import json
import random
import string
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.errors import TimeoutError as NatsTimeout

from tests.bus.servers import NatsServer, free_port, running
from tests.cli.stage import Stage
from toolwire.assemble.buses import nats_servers, open_bus
from toolwire.assemble.project import ProjectFolder
from toolwire.bus.contract import Bus, HandoffAnswer
from toolwire.bus.nats_connection import NatsServers, SecureClient
from toolwire.bus.nats_jetstream import nats_bus
from toolwire.errors import BusUnavailable
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import Subject
from toolwire.settings import load

SOON_S = 20.0
ROLES = ("orchestrator", "worker", "service")
COMMAND = BusMessage(str(Subject.tool("acme", "public", "search")), b"1")
REPORT = BusMessage(str(Subject.report("acme", "public")), b"2")
WAKEUP = BusMessage(str(Subject.wakeup("acme", "public", "ann")), b"3")
PMO = BusMessage(str(Subject.pmo("acme", "public", "launch_principal")), b"4")
REPORTS = "cg.v1r4.acme.*.cmd.sys.execution.report"
TOOLS = "cg.v1r4.acme.*.cmd.tool.>"


class ConfiguredServer:
    """A server that was set up by the command, for the projects acme and beta."""

    def __init__(self, folder: Path) -> None:
        self.stage = Stage(folder)
        port = free_port()
        words = ("--project", "acme", "--project", "beta", "--service", "search", "--node", f"127.0.0.1:{port}")
        ran = self.stage.run("nats", "config", "brk", *words, "--stream-mb", "8", "--json")
        assert ran.code == 0, ran.err
        self.written = ran.json
        self.server = NatsServer(folder, config=Path(self.written["configs"][0]), port=port)

    def user(self, project: str, role: str) -> dict[str, Any]:
        (found,) = [user for user in self.written["users"] if (user["project"], user["role"]) == (project, role)]
        return dict(found)

    def place(self, project: str, role: str) -> ProjectFolder:
        folder = self.stage.folder / f"{project}-{role}"
        folder.mkdir(exist_ok=True)
        (folder / "toolwire.toml").write_text(self.user(project, role)["settings"])
        return ProjectFolder(folder, {}, load(folder, {"TOOLWIRE_TRUST": str(folder)}))


@pytest.fixture(scope="module")
def configured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredServer]:
    made = ConfiguredServer(tmp_path_factory.mktemp("configured"))
    made.server.start()
    try:
        asyncio.run(make_streams(made))
        yield made
    finally:
        made.server.kill()


async def make_streams(made: ConfiguredServer) -> None:
    for project in ("acme", "beta"):
        async with open_bus(made.place(project, "orchestrator")):
            pass


class Raw:
    """A client without a library of ours between it and the server, and what the server refused it."""

    def __init__(self, servers: NatsServers) -> None:
        self.client = SecureClient(servers)
        self.refused: list[str] = []
        self.heard: list[str] = []

    async def publish(self, subjects: Iterable[str], data: bytes = b"x") -> None:
        for subject in subjects:
            await self.client.publish(subject, data)
        await self.client.flush_all()

    async def subscribe(self, subjects: Iterable[str]) -> None:
        for subject in subjects:
            await self.client.subscribe(subject, cb=self._hear)
        await self.client.flush_all()

    async def has(self, count: int, *, refused: bool = False) -> None:
        """Wait for so many messages, or refusals: the library hands them over later than it reads them."""
        async with asyncio.timeout(SOON_S):
            while len(self.refused if refused else self.heard) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

    async def _hear(self, message: Any) -> None:
        self.heard.append(message.subject)

    async def note(self, error: Exception) -> None:
        self.refused.append(str(error))


@asynccontextmanager
async def raw(servers: NatsServers) -> AsyncIterator[Raw]:
    made = Raw(servers)
    await made.client.connect(list(servers.urls), error_cb=made.note, **servers.options())
    try:
        yield made
    finally:
        await made.client.close()


async def take(bus: Bus, pattern: str, durable: str) -> BusMessage:
    async with bus.subscribe(pattern, durable=durable) as subscription, asyncio.timeout(SOON_S):
        delivered = await anext(subscription)
        await delivered.ack()
        return delivered.message


async def test_each_role_can_do_its_work(configured: ConfiguredServer) -> None:
    async with (
        open_bus(configured.place("acme", "orchestrator")) as orchestrator,
        open_bus(configured.place("acme", "worker")) as worker,
        open_bus(configured.place("acme", "service")) as service,
    ):
        await orchestrator.publish(COMMAND)
        assert await take(worker, TOOLS, "workers") == COMMAND
        assert await take(service, COMMAND.subject.replace("public", "*"), "service-search") == COMMAND
        await service.publish(REPORT)
        assert await take(orchestrator, REPORTS, "reports") == REPORT
        async with worker.subscribe(TOOLS, durable="workers") as commands:
            await commands.take_handoffs(lambda _: True)
            assert await orchestrator.hand_over(COMMAND, timeout_s=SOON_S) is HandoffAnswer.TAKEN
        await worker.publish(WAKEUP)
        assert await take(orchestrator, "cg.v1r4.acme.*.cmd.agent.*.wakeup", "wakeups") == WAKEUP


async def test_only_an_orchestrator_hands_commands_over(configured: ConfiguredServer) -> None:
    async with (
        open_bus(configured.place("acme", "worker")) as worker,
        worker.subscribe(TOOLS, durable="workers") as commands,
    ):
        await commands.take_handoffs(lambda _: True)
        for role in ("worker", "service"):
            async with open_bus(configured.place("acme", role)) as other:
                assert await other.hand_over(COMMAND) is HandoffAnswer.UNHEARD


def others(count: int, seed: int) -> list[str]:
    """Subjects of other projects than acme: real ones, alike ones, and those that a wildcard could make of them."""
    chance = random.Random(seed)
    letters = string.ascii_letters + string.digits + "_-"
    tails = (
        "cmd.tool.search",
        "cmd.sys.execution.report",
        "cmd.agent.ann.wakeup",
        "evt.agent.ann.step",
        "str.agent.a.b",
    )
    names = [
        "beta",
        "ACME",
        "acme2",
        "acm",
        "acme-",
        "*",
        "_",
        *("".join(chance.choices(letters, k=5)) for _ in range(9)),
    ]
    return [
        f"cg.{chance.choice(('v1r4', 'v1r4', 'v1r5', '*'))}.{chance.choice(names)}.public.{chance.choice(tails)}"
        for _ in range(count)
    ]


FILTERS = """
> * cg.> cg.v1r4.> cg.v1r4.*.> cg.*.acme.> cg.v1r4.beta.> *.v1r4.acme.> _INBOX.> $JS.> $SYS.>
""".split()


@pytest.mark.parametrize("role", ROLES)
async def test_T191_no_subject_of_another_project_is_reached(configured: ConfiguredServer, role: str) -> None:
    sent, wanted = others(60, 7), [*others(20, 8), *FILTERS]
    beta = nats_servers(configured.place("beta", "orchestrator"))
    async with raw(nats_servers(configured.place("acme", role))) as user, raw(beta) as victim:
        await victim.subscribe(["cg.v1r4.beta.>"])
        await user.publish(sent)
        await user.has(len(sent), refused=True)
        await user.subscribe(wanted)
        await user.has(len(sent) + len(wanted), refused=True)
        await victim.publish([str(Subject.tool("beta", "public", "search"))])
        await victim.has(1)
        await user.client.flush_all()
    assert victim.heard == [str(Subject.tool("beta", "public", "search"))]
    assert user.heard == []


async def test_T191_control_a_server_without_accounts_lets_all_through(tmp_path: Path) -> None:
    sent = [subject for subject in others(60, 7) if "*" not in subject]
    with running(tmp_path) as server:
        servers = NatsServers((server.url,))
        async with raw(servers) as user, raw(servers) as victim:
            await victim.subscribe(["cg.>"])
            await user.subscribe(["cg.v1r4.beta.>"])
            await user.publish(sent)
            await victim.publish([str(Subject.tool("beta", "public", "search"))])
            await victim.has(len(sent) + 1)
            await user.has(1)
    assert len(victim.heard) == len(sent) + 1
    assert str(Subject.tool("beta", "public", "search")) in user.heard
    assert user.refused == []


def consumer(name: str, **config: Any) -> bytes:
    body = {"durable_name": name, "name": name, "ack_policy": "explicit", **config}
    return json.dumps({"stream_name": "cg_cmd_v1r4", "config": body}).encode()


_CREATE = "$JS.API.CONSUMER.CREATE.cg_cmd_v1r4"
SPYING = {
    "worker": [
        (f"{_CREATE}.spy.{REPORTS}", consumer("spy", filter_subject=REPORTS)),
        (f"{_CREATE}.spy", consumer("spy", filter_subject=REPORTS)),
        (f"{_CREATE}.spy.{TOOLS}", consumer("spy", filter_subject=REPORTS)),
        (f"{_CREATE}.spy.{TOOLS}", consumer("spy", filter_subjects=[TOOLS, REPORTS])),
        ("$JS.API.CONSUMER.DURABLE.CREATE.cg_cmd_v1r4.spy", consumer("spy", filter_subject=REPORTS)),
        ("$JS.API.STREAM.MSG.GET.cg_cmd_v1r4", b'{"seq": 1}'),
        ("$JS.API.DIRECT.GET.cg_cmd_v1r4", b'{"seq": 1}'),
        ("$JS.API.STREAM.DELETE.cg_cmd_v1r4", b""),
        ("$JS.API.STREAM.PURGE.cg_cmd_v1r4", b""),
        ("$JS.API.STREAM.UPDATE.cg_cmd_v1r4", b"{}"),
    ],
    "service": [
        (f"{_CREATE}.service-search.{TOOLS}", consumer("service-search", filter_subject=TOOLS)),
        ("$JS.API.CONSUMER.MSG.NEXT.cg_cmd_v1r4.workers", b"1"),
        (f"{_CREATE}.other.{COMMAND.subject}", consumer("other", filter_subject=COMMAND.subject)),
    ],
}


async def made(client: SecureClient, subject: str, body: bytes) -> bool:
    """Whether a server did what a request asks for."""
    try:
        answer = json.loads((await client.request(subject, body, timeout=0.15)).data)
    except NatsTimeout:
        return False
    return "error" not in answer


@pytest.mark.parametrize("role", SPYING)
async def test_T192_a_role_cannot_read_or_remove_what_is_for_another_one(
    configured: ConfiguredServer, role: str
) -> None:
    async with raw(nats_servers(configured.place("acme", role))) as user:
        assert [request for request in SPYING[role] if await made(user.client, *request)] == []


async def test_T192_control_without_roles_a_worker_could(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        servers = NatsServers((server.url,))
        async with open_bus_at(servers, tmp_path), raw(servers) as user:
            assert [await made(user.client, *request) for request in SPYING["worker"][:2]] == [True, True]


@asynccontextmanager
async def open_bus_at(servers: NatsServers, folder: Path) -> AsyncIterator[Bus]:
    (folder / "toolwire.toml").write_text(f"[bus]\nkind = 'nats'\nurl = ['{servers.urls[0]}']\nstream_mb = 8\n")
    async with open_bus(ProjectFolder(folder, {}, load(folder, {"TOOLWIRE_TRUST": str(folder)}))) as bus:
        yield bus


@pytest.mark.parametrize(
    ("role", "message"), [("worker", PMO), ("service", COMMAND), ("service", WAKEUP)], ids=lambda one: str(one)[:9]
)
async def test_T192_a_role_cannot_send_what_another_one_sends(
    configured: ConfiguredServer, role: str, message: BusMessage
) -> None:
    async with raw(nats_servers(configured.place("acme", role))) as user:
        await user.publish([message.subject])
        await user.has(1, refused=True)


def test_a_check_says_what_is_there_and_why_not(configured: ConfiguredServer, tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.settings(configured.user("acme", "worker")["settings"])
    found = stage.run("nats", "check", "--json").json
    assert found["tls"] is True
    assert found["version"].startswith("2.")
    assert found["cg_cmd_v1r4"].endswith("1 replicas")
    assert stage.run("nats", "check").err == ""
    stage.settings(configured.user("acme", "worker")["settings"].replace("tls://127.0.0.1", "tls://localhost"))
    refused = stage.run("nats", "check")
    assert refused.code == 1
    assert "certificate is not accepted" in refused.err


async def test_what_a_user_may_not_do_is_said_to_be_denied(configured: ConfiguredServer) -> None:
    servers = nats_servers(configured.place("acme", "service"))
    async with nats_bus(servers, confirm_s=1.0) as bus:
        with pytest.raises(BusUnavailable, match="this user may not do that: permissions violation for publish"):
            await bus.publish(COMMAND)
        with pytest.raises(BusUnavailable, match="this user may not do that"):
            async with bus.subscribe(TOOLS, durable="worker-acme-shed"):
                pass


def test_keys_are_kept_and_only_their_owner_can_read_them(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    first = stage.run("nats", "config", "brk", "--project", "acme", "--json").json
    keys = {user["name"]: user["public_key"] for user in first["users"]}
    again = stage.run("nats", "config", "brk", "--project", "acme", "--project", "beta", "--json").json
    assert keys.items() <= {user["name"]: user["public_key"] for user in again["users"]}.items()
    secret = [file for file in (tmp_path / "brk").iterdir() if file.suffix in {".nk", ".key", ".conf"}]
    assert {file.stat().st_mode & 0o777 for file in secret} == {0o600}
    shown = (tmp_path / "brk" / "nats.conf").read_text()
    assert not any(file.read_text().strip() in shown for file in secret if file.suffix == ".nk")


def test_certificates_that_are_there_stay_and_without_the_authority_no_new_one_is_made(tmp_path: Path) -> None:
    stage, folder = Stage(tmp_path), tmp_path / "brk"
    assert stage.run("nats", "config", "brk").code == 0
    kept = {name: (folder / name).read_bytes() for name in ("ca.pem", "nats.pem", "nats.key")}
    (folder / "ca.key").unlink()
    assert stage.run("nats", "config", "brk", "--project", "beta").code == 0
    assert {name: (folder / name).read_bytes() for name in kept} == kept
    (folder / "nats.pem").unlink()
    refused = stage.run("nats", "config", "brk")
    assert (refused.code, "ca.key is missing" in refused.err) == (2, True)
    assert (folder / "ca.pem").read_bytes() == kept["ca.pem"]


def test_a_certificate_for_another_host_is_not_given_to_a_server(tmp_path: Path) -> None:
    stage, folder = Stage(tmp_path), tmp_path / "brk"
    assert stage.run("nats", "config", "brk", "--node", "Nats1.example:4222").code == 0
    assert stage.run("nats", "config", "brk", "--node", "nats1.example:4300").code == 0
    refused = stage.run("nats", "config", "brk", "--node", "127.0.0.1:4222")
    assert (refused.code, "nats.pem is for Nats1.example, not for 127.0.0.1; remove it" in refused.err) == (2, True)
    (folder / "nats.pem").unlink()
    (folder / "nats.key").unlink()
    assert stage.run("nats", "config", "brk", "--node", "127.0.0.1:4222").code == 0
    assert stage.run("nats", "config", "brk", "--node", "127.0.0.1:4222").code == 0
    (folder / "nats.pem").write_bytes(b"")
    refused = stage.run("nats", "config", "brk", "--node", "127.0.0.1:4222")
    assert (refused.code, "nats.pem holds no certificate" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--project", "a.b"), "letters, digits"),
        (("--project", ">"), "letters, digits"),
        (("--service", "*"), "letters, digits"),
        (("--node", "a:1", "--node", "b:1"), "two servers are no cluster"),
        (("--node", "a:1", "--node", "a:1", "--node", "b:1"), "the same address"),
        (("--node", "nats.example:4222", "--no-tls"), "only for servers on this machine"),
        (("--node", "127.0.0.1:99999"), "must be HOST:PORT"),
        (("--node", "a b:4222"), "must be HOST:PORT"),
        (("--node", "-a:4222"), "must be HOST:PORT"),
        (("--node", "::1"), "must be HOST:PORT"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    ran = Stage(tmp_path).run("nats", "config", "brk", *words)
    assert ran.code == 2
    assert sentence in ran.err
    assert not (tmp_path / "brk").exists()
