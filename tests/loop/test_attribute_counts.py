"""Objects that every call goes through have few enough attributes to be quick."""

import pytest

from toolwire.define.toolbox import Toolbox
from toolwire.hub.runtime import Runtime
from toolwire.record.memory import MemoryStore

MOST = 29
"""CPython 3.11 keeps so many beside an object. With one more, all of them move to a dict that is slower."""


@pytest.mark.parametrize("shared", [MemoryStore(), Runtime(Toolbox.of(), MemoryStore())], ids=["store", "runtime"])
def test_what_every_call_goes_through_has_few_attributes(shared: object) -> None:
    """We chose it: one attribute too many took 1 % of a model call, and nothing else would tell."""
    assert len(vars(shared)) <= MOST
