from collections.abc import Iterator

import pytest

from tests.edge.brokers import KINDS, AnyBroker, running
from tests.edge.house import House, furnished


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyBroker]:
    with running("mosquitto", tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


@pytest.fixture(scope="session")
def nats_mqtt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyBroker]:
    with running("nats", tmp_path_factory.mktemp("nats-mqtt")) as broker:
        yield broker


@pytest.fixture(params=KINDS)
def broker(request: pytest.FixtureRequest) -> AnyBroker:
    """Each of the brokers that devices use; shared by all tests that do not kill it."""
    found: AnyBroker = request.getfixturevalue("mosquitto" if request.param == "mosquitto" else "nats_mqtt")
    return found


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """A project with one real device; shared by all tests that leave it as it is."""
    with furnished(tmp_path_factory.mktemp("house")) as house:
        yield house
