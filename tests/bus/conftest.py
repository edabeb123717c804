from collections.abc import Iterator

import pytest

from tests.bus.servers import NatsServer, running


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One server for all tests of a module that do not kill it."""
    with running(tmp_path_factory.mktemp("nats")) as server:
        yield server
