"""Fixtures that every test may use."""

import gc
from collections.abc import Iterator

import pytest

from tests import cpu_table

pytest_addoption = cpu_table.pytest_addoption
pytest_configure = cpu_table.pytest_configure


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import stay to the end, so no look for garbage need go over them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True, scope="session")
def own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The key with which state folders are signed is made for the tests, and not in the home of who runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield
