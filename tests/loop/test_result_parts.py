"""The end of a call's journey by itself: which results the model sees as they are, and where work on them is done."""

import threading

import pytest

from toolwire import Limits, MemoryStore, Toolbox, tool
from toolwire.deliver.secrets import Secrets
from toolwire.hub.results import is_plain, show_result, without_secrets
from toolwire.hub.services import Services
from toolwire.protocol.calls import Allowed, Block, Image, Text, ToolCall, ToolResult
from toolwire.protocol.outcomes import Code, Status

CALL = ToolCall("look", {}, "c")


@tool
def look() -> str:
    """Look."""
    return ""


def gave(*content: Block, name: str = "look", stderr: str = "") -> ToolResult:
    return ToolResult("c", name, Status.SUCCESS, content, stderr=stderr)


@pytest.mark.parametrize(
    ("result", "plain"),
    [
        (gave(Text("x" * 100)), True),
        (gave(Text("x" * 101)), False),
        (gave(Text("größer\n")), True),
        (gave(Text("\x1b[31mred")), False),
        (gave(Text("one"), Text("two")), True),
        (gave(Text("one"), Text("\x1b[31mred")), False),
        (gave(), True),
        (gave(Image("AAAA")), True),
        (gave(Text("fine"), stderr="\x1b[31mred"), False),
        (gave(Text("fine"), name="bash"), True),
        (ToolResult.failed(CALL, Code.EXECUTION_FAILED, "no"), False),
    ],
)
async def test_a_plain_result_is_shown_as_it_is(result: ToolResult, plain: bool) -> None:
    limits = Limits(result_chars=100, envelope=False)
    assert is_plain(result, limits) is plain
    shown = await show_result(Services(Toolbox(), MemoryStore()), limits, Allowed(CALL, look, {}, 1.0), result)
    if plain:
        assert shown is result


def test_what_a_command_gave_is_not_plain_where_it_gets_an_envelope() -> None:
    limits = Limits(envelope=True)
    assert is_plain(gave(Text("fine"), name="bash"), limits) is False
    assert is_plain(gave(Text("fine")), limits) is True


async def test_a_result_that_was_cleansed_and_is_too_long_is_kept_whole() -> None:
    store = MemoryStore()
    limits = Limits(result_chars=300, envelope=False)
    for count, is_cut in ((100, False), (5_000, True)):
        result = gave(Text("\x1b[31m" + "x" * count))
        shown = await show_result(Services(Toolbox(), store), limits, Allowed(CALL, look, {}, 1.0), result)
        assert ("x" * count in shown.text, "\x1b" in shown.text, shown.truncated) == (not is_cut, False, is_cut)
        assert shown.handle is not None
        assert (await store.fetch(shown.handle)) == result.text.encode()


class Noting(Secrets):
    """Notes the thread in which results are cleaned."""

    thread = ""

    def scrubbed(self, result: ToolResult) -> ToolResult:
        self.thread = threading.current_thread().name
        return super().scrubbed(result)


@pytest.mark.parametrize("large", [False, True])
async def test_only_large_results_are_worked_on_in_a_thread(large: bool) -> None:
    secrets = Noting({})
    services = Services(Toolbox(), MemoryStore(), secrets=secrets)
    result = gave(Text("x" * ((1 << 20) + 1 if large else 10)))
    assert await without_secrets(services, result) == result
    assert (secrets.thread != threading.current_thread().name) is large
