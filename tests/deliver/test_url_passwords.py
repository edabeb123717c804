"""A password in an address reaches the tool and is kept nowhere."""

from pathlib import Path

import pytest

from toolwire import Agent, SqliteStore, Tool, tool
from toolwire.deliver.url_passwords import withhold
from toolwire.protocol.chat import Reply, ResultsMessage
from toolwire.protocol.outcomes import Status
from toolwire.testing import ScriptedModel, call

PASSWORD = "hunter-2-swordfish"
ADDRESSES = [
    f"https://ann:{PASSWORD}@example.test/a?b=c",
    f"http://:{PASSWORD}@example.test",
    f"http://ann:p@ss:{PASSWORD}@x@example.test/a",
    f"postgres://ann:{PASSWORD}@example.test:5432/db",
    f"HTTPS://x-access-token:{PASSWORD}@example.test/repo.git",
    f"https://{PASSWORD}-ghp_0123456789@example.test/repo.git",
]


def dialler(seen: list[str]) -> Tool:
    @tool
    def dial(url: str) -> str:
        """Dial an address."""
        seen.append(url)
        return f"reached {url}"

    return dial


def kept_in(folder: Path) -> str:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file()).decode("latin-1")


@pytest.mark.parametrize("url", ADDRESSES)
async def test_T67_a_password_in_an_address_is_on_no_record(tmp_path: Path, url: str) -> None:
    seen: list[str] = []
    events: list[object] = []
    async with Agent(
        ScriptedModel(call("dial", url=url), "done"), [dialler(seen)], store=await SqliteStore.at(tmp_path)
    ) as agent:
        answer = await agent.ask("dial", on_event=events.append)
        direct = await agent.call("dial", {"url": url})

    assert seen == [url, url]
    for place in (repr(answer), repr(direct), repr(events), kept_in(tmp_path)):
        assert PASSWORD not in place
    assert "{{secret:URL_PASSWORD_" in repr(answer)


async def test_T67_control_a_word_of_a_path_is_kept_as_it_is(tmp_path: Path) -> None:
    """The store does keep what stands elsewhere, so the test above would notice."""
    url = f"https://example.test/{PASSWORD}"
    async with Agent(
        ScriptedModel(call("dial", url=url), "done"), [dialler([])], store=await SqliteStore.at(tmp_path)
    ) as agent:
        await agent.ask("dial")

    assert PASSWORD in kept_in(tmp_path)


async def test_the_same_address_twice_is_the_same_call() -> None:
    seen: list[str] = []
    twice = [call("dial", url=ADDRESSES[0]), call("dial", url=ADDRESSES[0])]
    answer = await Agent(ScriptedModel(*twice, "done"), [dialler(seen)]).ask("dial")

    calls = [call for message in answer.turn.messages if isinstance(message, Reply) for call in message.calls]
    assert len(calls) == 2
    assert len({call.arguments["url"] for call in calls}) == 1


async def test_another_tool_or_process_cannot_have_the_password() -> None:
    seen: list[str] = []
    first = Agent(ScriptedModel(), [dialler(seen)])
    await first.call("dial", {"url": ADDRESSES[0]})
    [card] = await first.store.calls()

    again = await Agent(ScriptedModel(), [dialler(seen)]).call("dial", dict(card.call.arguments))

    assert "was not kept on record; make the call again with it" in again.text
    assert seen == [ADDRESSES[0]]


@pytest.mark.parametrize(
    "text",
    [
        "https://example.test/@ann",
        "ssh://git@example.test/repo.git",
        "mail ann@example.test, see https://example.test",
        "https://example.test/a:b@c",
        "https://ann:{{secret:KEY}}@example.test",
    ],
)
def test_an_address_without_a_password_stays_as_it_is(text: str) -> None:
    assert withhold({"url": text}, "dial", b"x") == ({"url": text}, [])


def nested(depth: int) -> list[object]:
    inner: list[object] = ["https://ann:sesame@example.test"]
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("depth", [100, 1_000, 5_000])
async def test_arguments_nested_too_deeply_are_refused_by_call_and_by_reply(depth: int) -> None:
    @tool
    def take(value: list[object]) -> str:
        """Take anything."""
        return "taken"

    result = await Agent(ScriptedModel(), [take]).call("take", {"value": nested(depth)})
    answer = await Agent(ScriptedModel(call("take", value=nested(depth)), "done"), [take]).ask("go")

    [told] = [one for message in answer.turn.messages if isinstance(message, ResultsMessage) for one in message.results]
    for one in (result, told):
        assert one.status is Status.FAILED
        assert "64 levels" in one.text


async def test_a_huge_number_among_arguments_is_no_password() -> None:
    @tool
    def count(number: int) -> str:
        """Count."""
        return "counted"

    assert (await Agent(ScriptedModel(), [count]).call("count", {"number": 10**5000})).text
