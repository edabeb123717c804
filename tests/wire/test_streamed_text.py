"""What was streamed is the final text: for every case of the corpus, however it is cut."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.gateway.clients import CHAT, KINDS, Kind
from tests.gateway.test_corpus import calls_and_text, streamed, whole
from tests.models.provider import Provider, provider_on_loopback
from toolwire.models.openai import OpenAIChat
from toolwire.protocol.chat import Delta, Request, TextDelta, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.replies.reply import StreamParser, parse_reply
from toolwire.wire.replies.unsent import unsent

from .cases import CASES, text_of, wrong
from .leaks import all_calls, tool

TOOLS = [tool("Bash", "command", "path"), tool("read_file", "path")]
CALL = '{"name": "Bash", "arguments": {"command": "ls"}}'
ODD = [
    f"Use `<tool_call>{CALL}</tool_call>` to list files. Then more words follow.",
    f"Use `<tool_call>{CALL}</tool_call>` or `[TOOL_CALLS][{CALL}]`.\nNext line.",
    f"An open `<tool_call>{CALL}</tool_call>\nis no code.",
    f"Here `{CALL}` is inline.\nNext line.",
    "Write ``<tool_call>`` and '<tool_call>' first.",
    f"> <tool_call>{CALL}</tool_call>\n\nThat was a quotation.",
    '{"a": 1} is how this line begins.\nAnd it goes on.',
    'Result:\n{"temperature": 5, "unit": "C"}\nThat is it.',
    '{"temperature": 5, "unit": "C"}',
    '[1, 2, 3]\n["Bash"]\n',
    "[1] is a footnote.\n[2] too.",
    "Bash\nis a shell.\nBash (command) too.\nread_file",
    "<tool_call>\n<function=Bash>\n<parameter=command>\nx </parameter> y\n</parameter>\n</function>\n</tool_call>\nSo.",
    "Action: none\nObservation: x\n",
    "<b>bold</b> <bash>ls</bash> <Bash/>",
    *all_calls("Bash").values(),
    *all_calls("bash").values(),
    *all_calls("weather").values(),
]
CUTS = ("whole", "letters", "random")


def texts(*, of_corpus: bool = True) -> Iterator[tuple[str, list[Any], str]]:
    """A name, the tools and the text of every case that is text."""
    for case in CASES if of_corpus else ():
        if text := text_of(case):
            yield case["id"], case["tools"], text
    for at, text in enumerate(ODD):
        yield f"odd {at}", TOOLS, text


def cut(text: str, how: str) -> list[str]:
    if how == "whole":
        return [text]
    if how == "letters":
        return list(text)
    chance, at, pieces = random.Random(how), 0, []
    while at < len(text):
        size = chance.choice((1, 2, 3, 5, 8, 13, 40))
        pieces.append(text[at : at + size])
        at += size
    return pieces


def said(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@pytest.mark.parametrize("how", CUTS)
def test_a_stream_shows_only_what_the_final_text_has(how: str) -> None:
    """Letter by letter only what is not in the corpus: `test_streaming` cuts the corpus so, and asks the same."""
    failed = []
    for name, tools, text in texts(of_corpus=how != "letters"):
        parser = StreamParser(tools)
        shown = said([delta for piece in cut(text, how) for delta in parser.feed(piece)])
        reply = parser.finish()
        if reply != parse_reply(text, tools) or wrong(shown + unsent(shown, reply.content), reply.content, text):
            failed.append(name)
    assert failed == []


def test_the_check_notices_text_that_is_shown_twice_or_not_at_all() -> None:
    assert wrong("Hello.Hello.", "Hello.", "Hello.")
    assert wrong("Hello", "Hello.", "Hello.")
    assert not wrong("Hello \n.", "Hello.", "Hello.")


@pytest.mark.parametrize("how", CUTS)
async def test_whoever_watches_a_model_sees_the_final_text(how: str) -> None:
    async with provider_on_loopback() as provider:
        model = OpenAIChat("m", f"{provider.url}/v1")
        failed = [name async for name in _watched(provider, model, how)]
        await model.close()
    assert failed == []


async def _watched(provider: Provider, model: OpenAIChat, how: str) -> Any:
    """All of the texts in one event, and some of them cut: for the parser alone all are cut so."""
    for name, tools, text in list(texts())[:: {"whole": 1, "random": 3, "letters": 12}[how]]:
        provider.will(CHAT.streams(cut(text, how)))
        seen: list[Delta] = []
        offered = tuple(Tool(one["function"]["name"], "", one["function"]["parameters"]) for one in tools)
        reply = await model.ask(Request((UserMessage("?"),), offered), seen.append)
        if wrong(said(seen), reply.content, text):
            yield name


@pytest.mark.parametrize("how", CUTS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_client_of_the_gateway_gets_the_text_of_the_whole_answer(kind: Kind, how: str) -> None:
    """Texts that are cut are shared among the kinds: a kind has to do with frames, and a parser with cuts."""
    apart = {"whole": 1, "random": len(KINDS), "letters": 4 * len(KINDS)}[how]
    failed = []
    for name, tools, text in list(texts())[KINDS.index(kind) % apart :: apart]:
        expected, final = calls_and_text(kind, whole(kind, text, tools))
        calls, shown = calls_and_text(kind, streamed(kind, cut(text, how), tools))
        if calls != expected or wrong(shown, final, text):
            failed.append(name)
    assert failed == []
