"""A device that makes its own keys: what is signed for it, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.edge.test_setup import plan
from toolwire.bus.certificates import new_request
from toolwire.edge.setup.files import FleetSetup
from toolwire.edge.setup.requests import ANSWER, accept_answer, read_request, sign_device, write_request
from toolwire.errors import SettingsError

TLS = FleetSetup("mqtts://127.0.0.1:8883")


class Exchange:
    """A request of one device, and the answer to it."""

    def __init__(self, folder: Path) -> None:
        self.device, self.desk = folder / "device", folder / "desk"
        self.written = write_request(self.device, plan("pi", inputs=("17",)))
        self.request: dict[str, Any] = json.loads(self.written.file.read_bytes())

    def signed(self) -> dict[str, Any]:
        written = sign_device(self.desk, TLS, read_request(json.dumps(self.request).encode(), "request.json"))
        answer: dict[str, Any] = json.loads((written.device / ANSWER).read_bytes())
        return answer

    def accept(self, answer: dict[str, Any]) -> Path:
        return accept_answer(self.device, json.dumps(answer).encode(), "answer.json")[0]


@pytest.fixture
def exchange(tmp_path: Path) -> Exchange:
    return Exchange(tmp_path)


def test_a_device_has_its_file_only_with_the_answer_and_nothing_is_overwritten(exchange: Exchange) -> None:
    assert not (exchange.written.device / "edge.toml").exists()
    config = exchange.accept(answer := exchange.signed())
    text = config.read_text()
    assert (f'orchestrators = ["{answer["orchestrator"]}"]' in text, 'inputs = ["17"]' in text) == (True, True)
    with pytest.raises(SettingsError, match="is not overwritten"):
        exchange.accept(answer)
    with pytest.raises(SettingsError, match="is not overwritten"):
        exchange.signed()
    with pytest.raises(SettingsError, match="is not overwritten"):
        write_request(exchange.device, plan("pi"))


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("kind", "another", "is not the request for a device"),
        ("name", "orchestrator", "cannot be the name of a device"),
        ("name", 7, "name must be a text"),
        ("key", "ed25519 AAAA", "a public key is written"),
        ("signature", "AAAA", "its signature is not of the key of 'pi'"),
        ("csr", new_request("pi").request.decode(), "its signature is not of the key of 'pi'"),
    ],
)
def test_T280_a_request_that_was_changed_on_its_way_is_not_signed(
    exchange: Exchange, field: str, value: Any, said: str
) -> None:
    exchange.request[field] = value
    with pytest.raises(SettingsError, match=said):
        exchange.signed()
    assert not (exchange.desk / "devices").exists()


def test_T280_a_certificate_has_the_name_that_the_orchestrator_reads_and_no_other(exchange: Exchange) -> None:
    """What the request itself says about names or uses does not count."""
    exchange.request["name"] = "hall"
    answer = exchange.signed()
    exchange.written.device.rename(exchange.written.device.with_name("hall"))
    assert exchange.accept(answer).parent.name == "hall"
    answer["name"] = "pi"
    (exchange.device / "devices" / "hall").rename(exchange.device / "devices" / "pi")
    (exchange.device / "devices" / "pi" / "edge.toml").unlink()
    with pytest.raises(SettingsError, match="the certificate is for 'hall', not for 'pi'"):
        exchange.accept(answer)


def test_T280_an_answer_to_another_device_or_of_another_authority_is_not_taken(
    exchange: Exchange, tmp_path: Path
) -> None:
    other = Exchange(tmp_path / "other")
    with pytest.raises(SettingsError, match="the certificate is for another key"):
        exchange.accept(other.signed())
    answer = exchange.signed()
    answer["ca"] = (
        other.accept(json.loads((other.desk / "devices/pi" / ANSWER).read_bytes())).with_name("ca.pem").read_text()
    )
    with pytest.raises(SettingsError, match="is not of the authority that comes with it"):
        exchange.accept(answer)


def test_T280_control_what_was_not_changed_is_signed_and_taken(exchange: Exchange) -> None:
    assert exchange.accept(exchange.signed()).exists()


def test_a_broker_without_tls_has_no_certificates_to_sign(exchange: Exchange) -> None:
    request = read_request(json.dumps(exchange.request).encode(), "request.json")
    with pytest.raises(SettingsError, match="certificates are for a broker with TLS"):
        sign_device(exchange.desk, FleetSetup("mqtt://127.0.0.1:1883"), request)
