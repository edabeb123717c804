"""Secrets: in no card, no event and no result, wherever a tool puts them."""

import base64
import codecs
import html
import json
import textwrap
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire import Agent, Context, MemoryStore, ToolResult, tool
from toolwire.deliver.secrets import Secret, Secrets
from toolwire.protocol.calls import Text, ToolCall
from toolwire.protocol.outcomes import Status
from toolwire.testing import ScriptedModel, call

VALUE = "hunter2/öl+?="
SECRETS = Secrets({"PASSWORD": Secret(VALUE, frozenset({"login"})), "OTHER": Secret("swordfish", frozenset({"fish"}))})


def cleaned(text: str, structured: Any = None) -> ToolResult:
    return SECRETS.scrubbed(ToolResult("c", "login", Status.SUCCESS, (Text(text),), structured))


async def test_T67_only_the_tool_gets_the_value() -> None:
    given: list[str] = []
    seen: list[object] = []

    @tool
    def login(password: str, headers: dict[str, str], context: Context) -> dict[str, str]:
        """Log in."""
        given.append(password + headers["Authorization"])
        context.progress(f"trying {password}")
        return {"said": f"welcome {password}", "token": base64.b64encode(password.encode()).decode()}

    asked = call("login", password="{{secret:PASSWORD}}", headers={"Authorization": "Bearer {{secret:PASSWORD}}"})
    store = MemoryStore()
    model = ScriptedModel(asked, "in")
    answer = await Agent(model, [login], store=store, secrets=SECRETS).ask("log in", on_event=seen.append)
    assert given == [f"{VALUE}Bearer {VALUE}"]
    everything = repr((answer, seen, await store.calls(), await store.audit_log(), model.requests))
    assert "welcome [secret PASSWORD]" in everything
    assert VALUE not in everything
    assert base64.b64encode(VALUE.encode()).decode() not in everything


async def test_T67_a_failing_tool_does_not_give_it_away() -> None:
    @tool
    def login(password: str) -> str:
        """Log in."""
        raise RuntimeError(f"cannot use {password}")

    store = MemoryStore()
    asked = call("login", password="{{secret:PASSWORD}}")
    answer = await Agent(ScriptedModel(asked, "no"), [login], store=store, secrets=SECRETS).ask("log in")
    assert "cannot use [secret PASSWORD]" in repr(answer)
    assert VALUE not in repr((answer, await store.calls()))


@pytest.mark.parametrize("name", ["OTHER", "NOTHING"])
async def test_a_tool_gets_only_its_own_secrets(name: str) -> None:
    @tool
    def login(password: str) -> str:
        """Log in."""
        return password

    asked = call("login", password="{{secret:" + name + "}}")
    answer = await Agent(ScriptedModel(asked, "no"), [login], secrets=SECRETS).ask("log in")
    assert f"may not have the secret {name!r}; it may have: PASSWORD" in repr(answer)


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        f"x={VALUE}&y",
        quote(VALUE, safe=""),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        *(base64.b64encode(b"x" * n + VALUE.encode() + b"y" * m).decode() for n in range(3) for m in range(3)),
        base64.urlsafe_b64encode(VALUE.encode()).decode(),
    ],
)
def test_T67_no_spelling_of_a_secret_comes_through(text: str) -> None:
    result = cleaned(f"before {text} after", {"deep": [{text: text}]})
    assert "[secret PASSWORD]" in result.text
    for form in (VALUE, quote(VALUE, safe=""), VALUE.encode().hex(), base64.b64encode(VALUE.encode()).decode()[4:-4]):
        assert form not in repr(result)


KEY = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASC\nBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\n-----END KEY-----\n"
ODD = 'p"ä\\ss/w<o>rd&1'
TOKEN = "sk-" + "Zx9" * 30
MANY = Secrets({"KEY": Secret(KEY), "ODD": Secret(ODD), "TOKEN": Secret(TOKEN)})


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ODD),
        json.dumps(ODD, ensure_ascii=False),
        repr(ODD),
        html.escape(ODD),
        quote(ODD, safe="/"),
        quote(ODD, safe="").lower(),
        KEY.strip(),
        KEY.splitlines()[1],
        KEY.replace("\n", "\r\n"),
        textwrap.indent(KEY, "    "),
        json.dumps(KEY),
        base64.encodebytes(TOKEN.encode()).decode(),
        base64.b32encode(TOKEN.encode()).decode(),
        TOKEN[:40] + "\n" + TOKEN[40:],
        TOKEN.encode().hex(" "),
        TOKEN.encode().hex(":"),
        " ".join(TOKEN),
        "\u200b".join(TOKEN),
        "\n".join(TOKEN[at : at + 16] for at in range(0, len(TOKEN), 16)),
        TOKEN[::-1],
        ODD[::-1],
        codecs.encode(TOKEN, "rot13"),
        TOKEN.encode("utf-16").decode("utf-8", "replace"),
        ODD.encode("utf-16-le").decode("utf-8", "replace"),
        ODD.encode("utf-16-be").decode("utf-8", "replace"),
        ODD.encode("utf-32-le").decode("utf-8", "replace"),
    ],
)
def test_T67_a_secret_is_found_where_it_was_quoted_wrapped_or_taken_apart(text: str) -> None:
    said = MANY.clean(f"before {text} after")
    assert "[secret " in said
    assert said.startswith("before ")
    assert said.endswith(" after")
    known = (*KEY.splitlines()[1:3], ODD, TOKEN, TOKEN[:16])
    assert not any(part in said.replace("\0", "") for line in known for part in (line, line[::-1]))


async def test_T67_wide_characters_do_not_carry_a_secret_past_what_takes_out_their_zeros() -> None:
    """Both are done to what a tool says; either alone would leave it there."""

    @tool
    def dump() -> str:
        """Say what a program printed."""
        return f"key: {ODD.encode('utf-16-le').decode('utf-8', 'replace')}."

    answer = await Agent(ScriptedModel(call("dump"), "done"), [dump], secrets=MANY).ask("dump it")
    assert "key: [secret ODD]" in repr(answer)


def coded(pattern: str, between: str = " ") -> str:
    return between.join(pattern.format(byte) for byte in TOKEN.encode())


SEPARATED = {
    "capitals": TOKEN.upper(),
    "small letters": TOKEN.lower(),
    "capitals of the text backwards": TOKEN[::-1].upper(),
    **{f"{mark!r} between letters": mark.join(TOKEN) for mark in ("-", "_", ".", ", ", "|", " * ", "\u00b7", "\t\n")},
    "far apart": (" " * 50).join(TOKEN),
    "quoted one by one": ", ".join(map(repr, TOKEN)),
    "decimal": coded("{}"),
    "decimal in a list": coded("{}", ", "),
    "decimal in HTML": coded("&#{};", ""),
    "three decimal digits": coded("{:03d}", ""),
    "octal": coded("{:o}"),
    "octal escapes": coded("\\{:03o}", ""),
    "octal in Python": coded("0o{:o}", ", "),
    "octal in C": coded("0{:o}", ", "),
    "hexadecimal in C": coded("0x{:02X}", ", "),
    "hexadecimal escapes": coded("\\x{:02x}", ""),
    "hexadecimal in HTML": coded("&#x{:x};", ""),
    "unicode escapes": coded("\\u{:04x}", ""),
    "code points": coded("U+{:04X}"),
    "binary": coded("{:08b}"),
    "with a letter that grows in lower case": f"\u0130 {TOKEN.upper()}",
}


@pytest.mark.parametrize("text", SEPARATED.values(), ids=SEPARATED)
def test_T67_a_secret_is_found_in_capitals_between_separators_and_in_numeric_codes(text: str) -> None:
    said = MANY.clean(f"before: {text} -- after")

    assert "[secret TOKEN]" in said
    assert said.startswith("before: ")
    assert said.endswith(" -- after")
    assert not any(char in said for char in "97zZx")


@pytest.mark.parametrize(
    "text",
    [
        "x = [115, 107, 45, 1, 2, 3]; sk- is how keys begin",
        "Zx9 is a cell; zx9-zx9-zx9 a range",
        "SK-ZX9",
        " ".join(str(number) for number in range(2000)),
    ],
)
def test_ordinary_text_that_resembles_a_part_of_a_secret_stays(text: str) -> None:
    assert MANY.clean(text) == text


def test_a_short_secret_is_not_looked_for_across_words() -> None:
    assert Secrets({"WORD": Secret("is that")}).clean("isthat is  that") == "isthat is  that"


@given(st.text(max_size=50))
def test_a_result_without_a_secret_stays_as_it_is(text: str) -> None:
    result = ToolResult("c", "login", Status.SUCCESS, (Text(text),), {"a": [text]})
    assert SECRETS.scrubbed(result) is result


def test_a_value_too_short_to_be_told_from_text_is_not_looked_for() -> None:
    short = Secrets({"PIN": Secret("1234", frozenset({"x"}))})
    assert short.clean("1234") == "1234"


def test_a_secret_does_not_show_in_its_own_description() -> None:
    assert VALUE not in repr(Secret(VALUE))
    assert ToolCall("login", {}).name == "login"


def nested(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = {"in": [value]}
    return value


async def kept(levels: int, value: str) -> str:
    """What the record has of a result that nests a value so deep."""

    @tool
    def dig() -> dict[str, Any]:
        """Dig."""
        return dict(nested({"found": value}, levels))

    store = MemoryStore()
    answer = await Agent(ScriptedModel(call("dig"), "Done."), [dig], secrets=SECRETS, store=store).ask("Dig!")
    [card] = await store.calls(turn_id=answer.turn.id)
    assert card.result is not None
    assert card.result.ok
    return str(card.result)


@pytest.mark.parametrize("levels", [1, 31, 32, 33, 64, 100])
async def test_T142_a_secret_is_found_however_deep_it_lies_in_a_result(levels: int) -> None:
    assert "swordfish" not in await kept(levels, "swordfish")


@pytest.mark.parametrize("levels", [1, 33, 100])
async def test_T142_control_an_ordinary_value_is_kept_however_deep_it_lies(levels: int) -> None:
    assert "haddock" in await kept(levels, "haddock")
