"""Names that a provider would refuse travel under another one and come back as themselves."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.protocol.chat import Reply, Request, UserMessage
from toolwire.protocol.tools import Tool
from toolwire.wire.encode import anthropic, bedrock, cohere, gemini, mistral, ollama, openai_chat, openai_responses
from toolwire.wire.encode.request import Dialect, encode_request
from toolwire.wire.encode.tool_names import NameMap
from toolwire.wire.replies.reply import parse_reply

TAKEN = {
    anthropic.DIALECT: r"[a-zA-Z0-9_-]{1,64}",
    bedrock.DIALECT: r"[a-zA-Z0-9_-]{1,64}",
    cohere.DIALECT: r"[a-zA-Z_][a-zA-Z0-9_]{0,63}",
    gemini.DIALECT: r"[a-zA-Z_][a-zA-Z0-9_.-]{0,63}",
    mistral.DIALECT: r"[a-zA-Z0-9_-]{1,64}",
    ollama.DIALECT: r"[a-zA-Z0-9_-]{1,64}",
    openai_chat.DIALECT: r"[a-zA-Z0-9_-]{1,64}",
    openai_responses.DIALECT: r"[a-zA-Z0-9_-]{1,64}",
}
ODD = (
    "files.read", "files_x2e_read", "files/read", "Käse", "", ".", "..", "_x_", "_x", "x" * 64, "x" * 65, "x" * 200,
    "x" * 199 + "y", "7th", "_h" + "0" * 32, ".h" + "0" * 32, "a_.x2e_", "a\n", "\ud83d", "tool name", "_x2e_", "_x2e.",
)  # fmt: skip

every_dialect = pytest.mark.parametrize("dialect", TAKEN, ids=lambda dialect: dialect.name)


@every_dialect
def test_odd_names_are_sent_in_letters_that_the_provider_takes_and_never_meet(dialect: Dialect) -> None:
    sent = [dialect.wire_name(name) for name in ODD]

    assert all(re.fullmatch(TAKEN[dialect], name) for name in sent)
    assert len(set(sent)) == len(ODD)


@every_dialect
def test_usual_names_are_sent_as_they_are(dialect: Dialect) -> None:
    assert [dialect.wire_name(name) for name in ("read_file", "a", "Get_2")] == ["read_file", "a", "Get_2"]


@given(st.lists(st.text(st.sampled_from("_xh.2e0é-a"), max_size=90), unique=True, max_size=30))
def test_no_two_names_become_one(names: list[str]) -> None:
    for dialect in TAKEN:
        assert len({dialect.wire_name(name) for name in names}) == len(names)


def test_a_call_under_the_name_on_the_wire_is_a_call_of_the_tool_that_was_offered() -> None:
    tools = (Tool("files.read", "Read."), Tool("clock", "Tell the time."))
    body = encode_request(openai_chat.DIALECT, Request((UserMessage("hi"),), tools), {})
    names = [tool["function"]["name"] for tool in body["tools"]]
    calls = [{"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": "{}"}}
             for n, name in enumerate(names)]  # fmt: skip
    answer = {"choices": [{"message": {"content": None, "tool_calls": calls}, "finish_reason": "tool_calls"}]}

    known = NameMap.of(tools, openai_chat.DIALECT.wire_name)
    reply = known.restore(parse_reply(answer, known.tools, "openai"))

    assert names == ["files_x2e_read", "clock"]
    assert [call.name for call in reply.calls] == ["files.read", "clock"]
    assert reply.problems == ()


def test_tools_whose_names_all_fit_are_handed_on_as_they_are() -> None:
    tools = (Tool("clock", "Tell the time."),)
    known = NameMap.of(tools, openai_chat.DIALECT.wire_name)
    reply = Reply("hi")

    assert known.tools is tools
    assert known.restore(reply) is reply
