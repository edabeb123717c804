"""Fixtures that every test may use."""

import gc

import pytest


def pytest_collection_finish() -> None:
    """Thousands of tests and all that they import stay to the end, so no look for garbage need go over them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
