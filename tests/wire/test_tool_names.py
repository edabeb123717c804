"""Names that are not exactly those of an offered tool: nearly right is read, anything else never vanishes."""

import pytest

from toolwire.protocol.chat import Reply, TextDelta
from toolwire.wire.replies.reply import StreamParser, parse_reply

from .leaks import all_calls, marked_calls, tool

TOOLS = [tool("Bash", "command", "path"), tool("read_file", "command", "path")]
NEARLY = [("bash", "Bash"), ("BASH", "Bash"), ("read-file", "read_file"), ("Read_File", "read_file")]
UNKNOWN = ["weather", "bas", "readfile", "Bash2", "read__file"]
FORMATS = sorted(all_calls(""))


def streamed(text: str, size: int) -> tuple[Reply, str]:
    parser = StreamParser(TOOLS)
    shown = [delta for at in range(0, len(text), size) for delta in parser.feed(text[at : at + size])]
    return parser.finish(), "".join(delta.text for delta in shown if isinstance(delta, TextDelta)).strip()


def codes(reply: Reply) -> set[str]:
    return {problem.code for problem in reply.problems}


@pytest.mark.parametrize(("written", "meant"), NEARLY)
@pytest.mark.parametrize("form", FORMATS)
def test_a_name_in_another_case_or_with_dashes_is_the_tool_and_reported(form: str, written: str, meant: str) -> None:
    text = all_calls(written)[form]
    reply = parse_reply(text, TOOLS)

    assert [(call.name, call.arguments) for call in reply.calls] == [(meant, {"command": "ls"})]
    assert codes(reply) == {"repaired"}
    assert reply.content == ""
    assert [streamed(text, size) for size in (1, 7)] == [(reply, "")] * 2


@pytest.mark.parametrize("form", FORMATS)
def test_the_exact_name_is_no_repair(form: str) -> None:
    assert codes(parse_reply(all_calls("read_file")[form], TOOLS)) == set()


@pytest.mark.parametrize("written", UNKNOWN)
@pytest.mark.parametrize("form", FORMATS)
def test_a_call_of_an_unknown_tool_stays_text(form: str, written: str) -> None:
    text = all_calls(written)[form]
    reply = parse_reply(text, TOOLS)

    assert reply.calls == ()
    assert reply.content in text
    assert written in reply.content
    if form in marked_calls(""):
        assert "unknown_tool" in codes(reply)
    for size in (1, 7):
        again, shown = streamed(text, size)
        assert again == reply
        assert reply.content.startswith(shown)


@pytest.mark.parametrize("form", FORMATS)
def test_a_name_that_two_tools_nearly_have_is_neither(form: str) -> None:
    reply = parse_reply(all_calls("Go-Out")[form], [tool("go_out", "command"), tool("go-out", "command")])

    assert reply.calls == ()
    assert "Go-Out" in reply.content


@pytest.mark.parametrize("form", FORMATS)
def test_of_two_names_that_differ_in_case_the_exact_one_is_called(form: str) -> None:
    reply = parse_reply(all_calls("Bash")[form], [tool("bash", "command"), tool("Bash", "command")])

    assert [call.name for call in reply.calls] == ["Bash"]


def test_html_that_looks_like_a_tool_in_another_case_stays_text() -> None:
    text = "Write <code>x</code>, <time/> and <Time></Time> there."

    assert parse_reply(text, [tool("Code", "command"), tool("TIME")]).content == text


@pytest.mark.parametrize("beside", ['{"name": "Bash", "arguments": {"command": "ls"}}'])
def test_an_unknown_call_beside_a_known_one_stays_text(beside: str) -> None:
    unknown = '{"name": "weather", "arguments": {"city": "Rome"}}'
    for text in (
        f"[TOOL_CALLS][{unknown}, {beside}]",
        f"<tool_call>{unknown}</tool_call><tool_call>{beside}</tool_call>",
    ):
        reply = parse_reply(text, TOOLS)

        assert [call.name for call in reply.calls] == ["Bash"]
        assert "weather" in reply.content
        assert "Rome" in reply.content


def test_a_marked_call_whose_arguments_are_no_object_is_refused_instead_of_lost() -> None:
    reply = parse_reply('<tool_call>{"name": "Bash", "arguments": "ls -l"}</tool_call>', TOOLS)

    assert [(call.name, bool(call.fault)) for call in reply.calls] == [("Bash", True)]
    assert codes(reply) == {"malformed"}


@pytest.mark.parametrize("times", [3_000, 100_000])
def test_T141_a_name_behind_thousands_of_namespaces_ends_nothing(times: int) -> None:
    name = "functions." * times + "nothing"
    native = {
        "message": {"tool_calls": [{"function": {"name": name, "arguments": "{}"}}]},
        "finish_reason": "tool_calls",
    }
    whole = parse_reply({"choices": [native]}, TOOLS, "openai")
    text = f'<tool_call>{{"name": "{name}", "arguments": {{"command": "ls"}}}}</tool_call>'

    assert "unknown_tool" in codes(whole) or [call.name for call in whole.calls] == [name]
    assert parse_reply(text, TOOLS).calls == ()
    assert streamed(text, 4096)[0].calls == ()


@pytest.mark.parametrize("written", ["functions.Bash", "default_api:Bash", "functions.tools.Bash", "Bash<|channel|>x"])
def test_T141_control_a_few_namespaces_are_left_out(written: str) -> None:
    text = f'<tool_call>{{"name": "{written}", "arguments": {{"command": "ls"}}}}</tool_call>'
    assert [call.name for call in parse_reply(text, TOOLS).calls] == ["Bash"]
