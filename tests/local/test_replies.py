"""What becomes of the text that the embedded model writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from toolwire.models.local import LocalChat
from toolwire.models.local_engine import GeneratedText
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import (
    CallDelta,
    Delta,
    Message,
    Reply,
    Request,
    ResultsMessage,
    TextDelta,
    Usage,
    UserMessage,
)
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.tools import Tool

LOCK = Tool("lock", "Lock a door", {"type": "object", "properties": {"door": {"type": "string"}}})
CALL = ToolCall("lock", {"door": "Zeedijk"}, id="1")


class Pen:
    """An engine that writes what it was given, in pieces of three letters."""

    weights = Path("pen.gguf")

    def __init__(self, text: str) -> None:
        self.text = text

    def acquire(self) -> None: ...

    def release(self) -> None: ...

    def write(self, prompt: str, *, on_text: Callable[[str], None], **given: Any) -> GeneratedText:
        for start in range(0, len(self.text), 3):
            on_text(self.text[start : start + 3])
        return GeneratedText(self.text, "stop", Usage(1, 1))


async def written(text: str, *messages: Message) -> tuple[Reply, list[Delta]]:
    shown: list[Delta] = []
    reply = await LocalChat(lambda: Pen(text), "pen").ask(Request(messages, (LOCK,)), shown.append)  # type: ignore[arg-type,return-value]
    return reply, shown


def turn(result: ToolResult) -> tuple[Message, ...]:
    return UserMessage("lock Zeedijk"), Reply(calls=(CALL,)), ResultsMessage((result,))


def came(**fields: Any) -> ToolResult:
    return ToolResult("1", "lock", Status.SUCCESS, (Text(""),), structured=fields)


def words(shown: list[Delta]) -> str:
    return "".join(delta.text for delta in shown if isinstance(delta, TextDelta))


async def test_a_call_that_was_made_and_answered_is_not_made_again() -> None:
    reply, shown = await written('@lock {"door": "Zeedijk"}', *turn(came(bolt="shut")))
    assert not reply.calls
    assert reply.content == words(shown) == "lock: bolt shut"
    assert not [delta for delta in shown if isinstance(delta, CallDelta)]


async def test_a_call_that_failed_may_be_made_again() -> None:
    failed = ToolResult.failed(CALL, Code.EXECUTION_FAILED, "busy, call once more")
    reply, _ = await written('@lock {"door": "Zeedijk"}', *turn(failed))
    assert [call.name for call in reply.calls] == ["lock"]


async def test_a_call_that_was_refused_is_not_made_again() -> None:
    refused = ToolResult.failed(
        CALL, Code.PERMISSION_DENIED, "The policy says so. Tell the user that it is not allowed."
    )
    reply, shown = await written('@lock {"door": "Zeedijk"}', *turn(refused))
    assert not reply.calls
    assert reply.content == words(shown) == "I couldn't do that: The policy says so."


async def test_a_call_may_be_made_again_when_somebody_asks_again() -> None:
    before = *turn(came(bolt="shut")), Reply("It is shut.")
    reply, _ = await written('@lock {"door": "Zeedijk"}', *before, UserMessage("once more: Zeedijk"))
    assert [call.name for call in reply.calls] == ["lock"]


async def test_the_same_call_twice_in_a_reply_is_made_once() -> None:
    text = '@lock {"door": "Zeedijk"}\n@lock {"door": "Zeedijk"}\n@lock {"door": "shed"}'
    reply, _ = await written(text, UserMessage("lock Zeedijk and shed"))
    assert [call.arguments["door"] for call in reply.calls] == ["Zeedijk", "shed"]


async def test_what_is_shown_while_it_writes_is_what_the_reply_holds() -> None:
    reply, shown = await written('@lock {"door": "Zedijk"}', UserMessage("lock Zeedijk"))
    deltas = [delta for delta in shown if isinstance(delta, CallDelta)]
    assert reply.calls[0].arguments == {"door": "Zeedijk"}
    assert [delta.arguments for delta in deltas] == ['{"door": "Zeedijk"}']


async def test_an_answer_that_tells_nothing_is_followed_by_the_result() -> None:
    reply, shown = await written("It worked.", *turn(came(bolt="shut")))
    assert reply.content == words(shown) == "It worked. lock: bolt shut"
