"""What models and people see of results: their words, whole or visibly cut, and nothing that acts."""

import hashlib
import re
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deliver.escapes import PAYLOADS
from toolwire import Agent, MemoryStore, SqliteStore, Toolbox, tool
from toolwire.deliver.old_form import old_form
from toolwire.deliver.visible import visible
from toolwire.hub.runtime import Runtime
from toolwire.protocol.calls import ErrorText, Image, Resource, Text, ToolCall, ToolOutput, ToolResult
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Tool
from toolwire.protocol.turns import Limits, Turn
from toolwire.record.contract import Store
from toolwire.testing import ScriptedModel, call
from toolwire.toolbox import from_store, more_tool

_ACTS = {"Cc", "Cf", "Cs"}


def acts(text: str) -> list[str]:
    """The characters of a text that could act on a terminal or that nobody sees."""
    return [
        char for char in text if char not in "\t\n" and (unicodedata.category(char) in _ACTS or char in "\u3164\u115f")
    ]


def saying(value: Any) -> Tool:
    @tool
    def speak() -> Any:
        """Say what it was told to say."""
        return value

    return speak


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    store = MemoryStore()
    yield store
    await store.close_store()


async def said(store: Store, value: Any, *more: Tool, result_chars: int = 20_000) -> ToolResult:
    runtime = Runtime(Toolbox.of(saying(value), *more), store)
    turn = Turn("turn", limits=Limits(result_chars=result_chars))
    return await runtime.execute(ToolCall("speak", {}, id="call"), turn)


SHAPES: dict[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "a value": lambda text: {"name": text, "inner": [text, {text: 1}]},
    "blocks": lambda text: [Text(text), ErrorText(text)],
    "an output": lambda text: ToolOutput((Text(text),), {"text": text}),
    "an output beside harmless JSON": lambda text: ToolOutput((Text('{"before": 1}'),), {"text": text}),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_T31_nothing_that_acts_on_a_terminal_or_hides_reaches_model_or_person(store: Store, shape: str) -> None:
    assert len(PAYLOADS) >= 150
    for number, payload in enumerate(PAYLOADS):
        value = SHAPES[shape](f"before{payload}after")
        runtime = Runtime(Toolbox.of(saying(value)), store)
        result = await runtime.execute(ToolCall("speak", {}, id=f"{shape}-{number}"), Turn(f"turn-{number}"))
        seen = f"{result.text} {_leaves(result.structured)}"
        assert acts(seen) == [], repr(payload)
        assert "evil" not in seen or "never ends" in payload, repr(payload)
        assert "before" in seen
        assert result.handle is not None, repr(payload)
        raw = (await store.fetch(result.handle)).decode()
        assert raw == value if shape == "text" else "before" in raw, repr(payload)
        assert result.content[-1] != Text(raw)


def _leaves(value: Any) -> str:
    match value:
        case dict():
            return " ".join(f"{key} {_leaves(inner)}" for key, inner in value.items())
        case list():
            return " ".join(map(_leaves, value))
        case _:
            return str(value)


@pytest.mark.control("T31")
def test_T31_without_the_defence_every_payload_is_there() -> None:
    """The control: each payload is one, and ordinary text is left alone."""
    assert all(
        acts(payload) or set(payload) & set("\u034f\u1160\u17b4\u17b5\ufe00\ufe01\uffa0\ufe0f\U000e0100")
        for payload in PAYLOADS
    )
    for text in ("plain", "two\nlines\tand a tab", "Grüße, 世界, नमस्ते, עברית, العربية", "👍🏽 ☀️ 1\ufe0f", "a\r\nb"):
        assert visible(text) is text or visible(text) == text


# Signs that Unicode calls format characters although they are drawn: around numbers, the end of a verse.
_DRAWN = set("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
# Fillers and joiners that are letters or marks to Unicode and are not drawn, and selectors of a drawing.
_BLANK = "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0d\uffa0\U000e0100-\U000e01ef]"


def test_of_all_characters_the_invisible_ones_are_removed_and_all_others_stay() -> None:
    every = [chr(code) for code in range(sys.maxunicode + 1)]
    hidden = {one for one in every if unicodedata.category(one) in _ACTS | {"Zl", "Zp"}} - _DRAWN - set("\t\n")
    drawn = [one for one in every if unicodedata.category(one) != "Cn" and one not in hidden]

    assert [one for one in hidden if one in visible(f"a{one}b")] == []
    text = "a".join(one for one in drawn if not re.match(_BLANK, one))
    assert visible(text) == text
    assert re.search(_BLANK, visible("a".join(drawn))) is None


async def test_an_ordinary_result_is_shown_as_it_is_and_nothing_is_kept(store: Store) -> None:
    result = await said(store, {"text": "Grüße\n", "n": 1})
    assert result.structured == {"text": "Grüße\n", "n": 1}
    assert result.handle is None
    assert len(result.content) == 1


async def test_what_was_taken_out_is_said_and_the_raw_output_is_kept(store: Store) -> None:
    result = await said(store, "\x1b[31mred\x1b[0m and\rover")
    assert result.text.startswith("red and\nover\n[control sequences or invisible characters were taken out")
    assert result.handle is not None
    assert result.handle in result.text
    assert await store.fetch(result.handle) == b"\x1b[31mred\x1b[0m and\rover"


async def test_a_failure_is_cleaned_too(store: Store) -> None:
    @tool
    def fail() -> str:
        """Fail with an escape."""
        raise ValueError("bad \x1b]0;evil\x07 \u202efile")

    result = await Runtime(Toolbox.of(fail), store).execute(ToolCall("fail", {}, id="c"), Turn("t"))
    assert result.error is not None
    assert acts(result.text + result.error.message) == []
    assert result.error.code is Code.EXECUTION_FAILED


@given(st.text(st.sampled_from("\x1b[]0;m\x07\\\x9b\x9c\r\n a\u202e\ufe0f"), max_size=60))
def test_cleaning_leaves_nothing_that_acts_and_is_done_after_once(text: str) -> None:
    once = visible(text)
    assert acts(once.replace("\ufe0f", "").replace("\r\n", "\n")) == []
    assert visible(once) == once


@pytest.mark.parametrize("piece", ["\x1b]", "\x1b[", "\x1b[1;", "\x1b", "\x1bP a", "\u200b", "\r", "\x9d", "\ufe0f"])
def test_cleaning_takes_one_pass_whatever_the_text(piece: str) -> None:
    """A million broken beginnings: with anything but one pass this would not end."""
    assert len(visible(piece * 1_000_000)) <= 2_000_000


@pytest.mark.feature("F164")
@pytest.mark.feature("F216")
async def test_a_long_result_shows_head_and_tail_and_says_how_much_is_missing(store: Store) -> None:
    body = "begin " + "ä" * 300_000 + " end"
    result = await said(store, body)
    digest = hashlib.sha256(body.encode()).hexdigest()
    assert len(result.text) < 20_400
    assert result.truncated
    assert result.text.startswith("begin ")
    assert result.text.endswith(" end")
    marker = re.search(r"\[… ([\d,]+) of ([\d,]+) bytes left out, ([\d,]+) shown, sha256 (\w+); (.*) …\]", result.text)
    assert marker is not None
    missing, seen, shown = (int(number.replace(",", "")) for number in marker.groups()[:3])
    assert seen == len(body.encode())
    assert missing + shown == seen
    assert marker[4] == digest
    assert result.handle == f"sha256:{digest}"
    assert await store.fetch(result.handle) == body.encode()


@pytest.mark.feature("F216")
async def test_the_rest_of_a_long_result_is_read_page_by_page_in_another_process_too(tmp_path: Path) -> None:
    """The store is closed and opened again in between, as if the process had ended."""
    body = "".join(f"{number}: Grüße an alle\n" for number in range(20_000))

    def flood() -> str:
        """Say much."""
        return body

    async with await SqliteStore.at(tmp_path / "home") as store:
        answer = await Agent(ScriptedModel(call("flood"), "ok"), [flood], store=store).ask("go")
        handle = answer.turn.messages[-2].results[0].handle  # type: ignore[union-attr]
    assert handle is not None

    async with await SqliteStore.at(tmp_path / "home") as store:
        runtime = Runtime(Toolbox.of(more_tool(from_store(store))), store)
        pages: list[str] = []
        offset: int | None = 0
        while offset is not None:
            page = ToolCall("more", {"handle": handle, "offset": offset, "limit": 59_999}, id=f"page-{offset}")
            result = await runtime.execute(page, Turn("later", limits=Limits(result_chars=1_000_000)))
            assert result.ok, result.text
            pages.append(result.structured["text"])
            offset = result.structured["next_offset"]
        assert "".join(pages) == body
        assert len(pages) > 5
        missing = await runtime.execute(ToolCall("more", {"handle": "sha256:" + "0" * 64}, id="x"), Turn("later"))
        assert missing.error is not None
        assert missing.error.code is Code.NOT_FOUND


async def test_a_page_that_begins_inside_a_character_begins_at_the_next_one() -> None:
    async def fetch(handle: str, offset: int, length: int) -> bytes:
        return ("ä" * 500).encode()[offset : offset + length]

    page = await more_tool(fetch)("sha256:x", 1, 101)
    assert page.structured == {"handle": "sha256:x", "text": "ä" * 50, "offset": 2, "next_offset": 102}
    assert page.content[0].text.endswith("there is more at offset 102]")


async def test_a_page_shows_nothing_that_acts() -> None:
    async def fetch(handle: str, offset: int, length: int) -> bytes:
        return b"\x1b]0;evil\x07words\x9b\xff"

    page = await more_tool(fetch)("sha256:x")
    assert acts(page.content[0].text) == []
    assert page.structured["text"].startswith("words")


@pytest.mark.feature("F160")
async def test_a_tool_returns_text_an_image_an_error_and_a_pointer_beside_its_value(store: Store) -> None:
    blocks = (Text("a chart"), Image("aGk=", "image/png"), ErrorText("one row was bad"), Resource("file:x", "the data"))
    result = await said(store, ToolOutput(blocks, {"rows": 3}))
    assert result.content == blocks
    assert result.structured == {"rows": 3}
    assert result.text == "a chart\n[image image/png]\none row was bad\n[the data: file:x]"
    for odd in (ToolOutput(("text",)), ToolOutput((Text(3),)), ToolOutput(Text("x"))):  # type: ignore[arg-type]
        assert (await said(MemoryStore(), odd)).status is Status.FAILED


@pytest.mark.feature("F161")
def test_a_result_is_written_in_the_old_form() -> None:
    fine = ToolResult("c", "bash", Status.SUCCESS, (Text("temp=45.6"),), exit_code=0, elapsed_ms=123.4)
    assert old_form(fine) == {
        "status": "success",
        "tool": "bash",
        "result": "temp=45.6",
        "stderr": "",
        "exit_code": 0,
        "elapsed_ms": 123,
    }
    slow = ToolResult.failed(ToolCall("bash", {}, id="c"), Code.TIMEOUT, "Command timed out after 30000ms")
    assert old_form(slow) == {
        "status": "error",
        "tool": "bash",
        "error": "Command timed out after 30000ms",
        "error_type": "timeout",
    }
    broken = ToolResult.failed(ToolCall("bash", {}, id="c"), Code.EXECUTION_FAILED, "no", exit_code=2, stderr="why")
    assert old_form(broken)["error_type"] == "execution_failed"
    assert (old_form(broken)["exit_code"], old_form(broken)["stderr"]) == (2, "why")
