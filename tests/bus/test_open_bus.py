"""The bus that the settings name: how to log in, TLS, and what is said when it cannot be reached."""

import datetime
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from tests.bus.servers import NatsServer, running
from toolwire.assemble.buses import open_bus
from toolwire.assemble.project import ProjectFolder
from toolwire.bus.in_process import InProcessBus
from toolwire.bus.nkeys import UserKey
from toolwire.errors import BusUnavailable, SettingsError
from toolwire.protocol.bus import BusMessage
from toolwire.protocol.subjects import Subject
from toolwire.settings import load

MESSAGE = BusMessage(str(Subject.tool("acme", "public", "search")), b"1")
PATTERN = "cg.v1r4.acme.*.cmd.tool.>"
PASSWORD = "a-password-that-is-not-shown"
KEY = UserKey.new()
LOGINS = f"""
authorization {{
  users: [
    {{ user: ann, password: "{PASSWORD}" }}
    {{ nkey: {KEY.public} }}
  ]
}}
"""


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A server that wants a login."""
    with running(tmp_path_factory.mktemp("nats"), more=LOGINS) as server:
        yield server


def project(folder: Path, text: str, **environ: str) -> ProjectFolder:
    (folder / "toolwire.toml").write_text(f"[bus]\n{text}\n")
    return ProjectFolder(folder, environ, load(folder, {"TOOLWIRE_TRUST": str(folder), **environ}))


def nats(server: NatsServer, *lines: str) -> str:
    return "\n".join(('kind = "nats"', f'url = ["{server.url}"]', *lines))


async def carries_a_message(place: ProjectFolder) -> bool:
    async with open_bus(place) as bus, bus.subscribe(PATTERN, durable="workers") as subscription:
        await bus.publish(MESSAGE)
        delivered = await anext(subscription)
        await delivered.ack()
        return delivered.message == MESSAGE


async def refusal(place: ProjectFolder) -> str:
    with pytest.raises((BusUnavailable, SettingsError)) as refused:
        async with open_bus(place, connect_s=1.0):
            pass
    return str(refused.value)


async def test_without_settings_messages_stay_in_the_process(tmp_path: Path) -> None:
    async with open_bus(project(tmp_path, "")) as bus:
        assert isinstance(bus, InProcessBus)


async def test_a_password_in_a_variable_logs_in(closed: NatsServer, tmp_path: Path) -> None:
    said = nats(closed, 'user = "ann"', 'token_env = "NATS_PASSWORD"')
    assert await carries_a_message(project(tmp_path, said, NATS_PASSWORD=PASSWORD))


async def test_a_key_in_a_file_beside_the_settings_logs_in(closed: NatsServer, tmp_path: Path) -> None:
    (tmp_path / "ann.nk").write_text(f"{KEY.seed}\n")
    assert await carries_a_message(project(tmp_path, nats(closed, 'credentials = "ann.nk"')))


async def test_a_wrong_password_is_refused_at_once_and_not_shown(closed: NatsServer, tmp_path: Path) -> None:
    said = nats(closed, 'user = "ann"', 'token_env = "NATS_PASSWORD"')
    sentence = await refusal(project(tmp_path, said, NATS_PASSWORD="another-secret"))
    assert "refused the credentials" in sentence
    assert "bus.token_env" in sentence
    assert "another-secret" not in sentence


async def test_another_key_is_refused_and_not_shown(closed: NatsServer, tmp_path: Path) -> None:
    seed = UserKey.new().seed
    (tmp_path / "ann.nk").write_text(seed)
    sentence = await refusal(project(tmp_path, nats(closed, 'credentials = "ann.nk"')))
    assert "refused the credentials" in sentence
    assert "bus.credentials" in sentence
    assert seed not in sentence


async def test_a_server_that_is_not_there_is_named_within_seconds(tmp_path: Path) -> None:
    said = 'kind = "nats"\nurl = ["nats://127.0.0.1:1", "nats://127.0.0.1:2"]'
    sentence = await refusal(project(tmp_path, said))
    assert "127.0.0.1:1, 127.0.0.1:2: connection refused" in sentence
    assert "bus.url" in sentence


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ('kind = "nats"', "set bus.url"),
        ('kind = "nats"\nurl = ["nats://h"]\nuser = "ann"', "bus.token_env"),
        ('kind = "nats"\nurl = ["nats://h"]\ntoken_env = "UNSET"', "the variable UNSET is not set"),
        ('kind = "nats"\nurl = ["nats://h"]\ncredentials = "none.nk"', "none.nk cannot be read: No such file"),
        ('kind = "nats"\nurl = ["nats://h"]\ncredentials = "toolwire.toml"', "holds no key of a NATS user"),
        ('kind = "nats"\nurl = ["nats://h"]\ncredentials = "x"\nuser = "ann"', "keep one of them"),
        ('kind = "nats"\nurl = ["nats://h"]\nca = "none.pem"', "bus.ca: there is no file"),
        ('kind = "nats"\nurl = ["nats://h"]\nca = "toolwire.toml"', "holds no certificates"),
        ('kind = "nats"\nurl = ["nats://h"]\ncert = "toolwire.toml"', "set bus.key"),
    ],
)
async def test_settings_that_cannot_be_right_say_which_key(tmp_path: Path, said: str, sentence: str) -> None:
    assert sentence in await refusal(project(tmp_path, said))


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ('url = ["nats://ann:secret@h"]', "must not contain a user name or password"),
        ('url = ["nats://secret@h"]', "must not contain a user name or password"),
        ('url = ["http://h"]', "must be addresses of NATS servers"),
        ('url = ["nats://h/secret"]', "must be addresses of NATS servers"),
        ('command_stream = "a.secret"', "must be 1 to 64 letters"),
        ("replicas = 6", "at most 5"),
    ],
)
def test_wrong_values_are_refused_and_no_password_is_shown(tmp_path: Path, said: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        project(tmp_path, said)
    assert sentence in str(refused.value)
    assert "secret" not in str(refused.value)


class Certificates:
    """An authority, and certificates that it signed for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(folder / "ca.pem")
        self.issue("server")
        self.issue("expired", datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC))

    def issue(self, name: str, until: datetime.datetime | None = None) -> None:
        made = self._authority.issue_cert("127.0.0.1", "localhost", not_after=until)
        made.private_key_pem.write_to_path(self.folder / f"{name}.key")
        made.cert_chain_pems[0].write_to_path(self.folder / f"{name}.pem")

    def section(self, name: str) -> str:
        return f'\ntls {{ cert_file: "{self.folder / name}.pem", key_file: "{self.folder / name}.key" }}\n'


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def secured(server: NatsServer, certificates: Certificates) -> str:
    return nats(server, f'ca = "{certificates.folder / "ca.pem"}"')


async def test_a_server_with_a_certificate_of_the_authority_is_accepted_and_of_no_other(
    certificates: Certificates, tmp_path: Path
) -> None:
    with running(tmp_path, more=certificates.section("server")) as server:
        assert await carries_a_message(project(tmp_path, secured(server, certificates)))
        trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
        sentence = await refusal(project(tmp_path, nats(server, 'ca = "other.pem"')))
    assert "certificate is not accepted" in sentence
    assert "bus.ca" in sentence


async def test_an_expired_certificate_is_said_to_be_expired(certificates: Certificates, tmp_path: Path) -> None:
    with running(tmp_path, more=certificates.section("expired")) as server:
        assert "certificate has expired" in await refusal(project(tmp_path, secured(server, certificates)))


async def test_T190_nothing_is_sent_to_a_server_without_TLS_where_it_is_demanded(
    closed: NatsServer, certificates: Certificates, tmp_path: Path
) -> None:
    """One who sits between could say that the server has no TLS, and would be told the password."""
    login = ('user = "ann"', 'token_env = "NATS_PASSWORD"')
    by_scheme = nats(closed, *login).replace("nats://", "tls://")
    by_ca = nats(closed, *login, f'ca = "{certificates.folder / "ca.pem"}"')
    for said in (by_scheme, by_ca):
        assert "offers no TLS" in await refusal(project(tmp_path, said, NATS_PASSWORD=PASSWORD))


async def test_T190_control_the_same_login_is_taken_where_TLS_is_not_demanded(
    closed: NatsServer, tmp_path: Path
) -> None:
    said = nats(closed, 'user = "ann"', 'token_env = "NATS_PASSWORD"')
    assert await carries_a_message(project(tmp_path, said, NATS_PASSWORD=PASSWORD))


async def test_a_server_without_JetStream_is_told_from_one_that_is_not_there(tmp_path: Path) -> None:
    with running(tmp_path, jetstream=False) as server:
        assert "JetStream is not enabled" in await refusal(project(tmp_path, nats(server)))
