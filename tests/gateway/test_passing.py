"""The same API on both sides: everything passes, and calls that leaked into text become calls."""

from typing import Any

import pytest

from tests.gateway.clients import KINDS, Kind
from tests.gateway.stand import NAME, Stand
from tests.models.provider import Provider

KITCHEN = (NAME, {"room": "kitchen"})
LEAKED = 'Let me look.\n<tool_call>\n{"name": "read_temperature", "arguments": {"room": "kitchen"}}\n</tool_call>'
NATIVE = ("call_1", NAME, '{"room": "kitchen"}')

each_api = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
whole_and_streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def cut(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def will(upstream: Provider, kind: Kind, stream: bool, text: str, calls: Any = (), ending: str = "stop") -> None:
    upstream.will(kind.streams(cut(text), calls, ending) if stream else kind.says(text, calls, ending))


@each_api
@whole_and_streamed
async def test_a_call_that_leaked_into_text_reaches_the_client_as_a_call(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, LEAKED)

    got = await kind.ask(await stand.gate(), stream=stream)

    assert got.calls == [KITCHEN]
    assert got.text.strip() == "Let me look."
    assert got.ending == kind.endings["calls"]
    assert len(got.ids[0]) == 9
    assert got.tokens == 27


@each_api
@whole_and_streamed
async def test_a_native_call_passes_with_its_own_id(stand: Stand, upstream: Provider, kind: Kind, stream: bool) -> None:
    will(upstream, kind, stream, "I look.", [NATIVE], "calls")

    got = await kind.ask(await stand.gate(), stream=stream)

    assert (got.text, got.calls, got.ids) == ("I look.", [KITCHEN], ["call_1"])
    assert got.ending == kind.endings["calls"]


@each_api
@whole_and_streamed
async def test_text_that_only_looks_like_a_call_stays_text_where_no_tools_are_offered(
    stand: Stand, upstream: Provider, kind: Kind, stream: bool
) -> None:
    will(upstream, kind, stream, LEAKED)

    got = await kind.ask(await stand.gate(), stream=stream, tools=False)

    assert (got.text, got.calls) == (LEAKED, [])
    assert got.ending == kind.endings["stop"]
