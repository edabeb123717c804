"""The same stores as the suite of the store has."""

from tests.record.conftest import store as store
