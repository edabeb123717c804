"""What a model said can be kept in a file and said again without the model."""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolwire.errors import ModelError, ModelRefused, ModelUnavailable, SettingsError
from toolwire.models.http_chat import HttpChat
from toolwire.models.recording import RecordingModel, ReplayModel
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import (
    CallDelta,
    Delta,
    ReasoningDelta,
    Reply,
    Request,
    ResultsMessage,
    TextDelta,
    Usage,
    UserMessage,
)
from toolwire.protocol.outcomes import Status

from .conftest import KEY, QUESTION, THERMOMETER, Client
from .provider import Provider, says

CALL = ToolCall("read_temperature", {"room": "kitchen"}, id="first-run", alias="call_1")
ASKS = Reply(
    content="Half a pair: \ud83d", calls=(CALL,), usage=Usage(10, 5, 0, 0.001), carry={"provider": "x", "items": []}
)
ENDS = Reply(content="21 °C.", reasoning="Read it.", model="m")
PIECES: list[Delta] = [ReasoningDelta("Read it."), CallDelta(0, "f", "{}"), TextDelta("21 °C.")]


class Says:
    """A model that says these things in turn, with the same pieces each time."""

    name = "test:says"

    def __init__(self, *sayings: Reply | ModelError) -> None:
        self.sayings = list(sayings)

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        for piece in PIECES if on_delta else ():
            on_delta and on_delta(piece)
        said = self.sayings.pop(0)
        if isinstance(said, ModelError):
            raise said
        return said

    async def close(self) -> None:
        """Nothing to let go of."""


def after(result: str, call_id: str) -> Request:
    """The second request of a turn whose ids are new in every run."""
    call = replace(CALL, id=call_id)
    answer = ToolResult(call_id, call.name, Status.SUCCESS, (Text(result),), elapsed_ms=len(call_id))
    return replace(QUESTION, messages=(*QUESTION.messages, replace(ASKS, calls=(call,)), ResultsMessage((answer,))))


async def recorded(path: Path, *sayings: Reply | ModelError, requests: list[Request], watched: bool = False) -> Path:
    model = RecordingModel(Says(*sayings), path)
    for request in requests:
        try:
            await model.ask(request, (lambda _: None) if watched else None)
        except ModelError:
            continue
    await model.close()
    return path


async def test_a_recorded_turn_is_said_again_although_ids_and_times_are_new(tmp_path: Path) -> None:
    requests = [QUESTION, after("21", "first-run")]
    replay = ReplayModel(await recorded(tmp_path / "r", ASKS, ENDS, requests=requests))

    first = await replay.ask(QUESTION)
    second = await replay.ask(after("21", "second-run"))

    assert replay.name == "test:says"
    assert first == ASKS
    assert second == ENDS


async def test_the_pieces_of_a_streamed_reply_are_shown_again(tmp_path: Path) -> None:
    replay = ReplayModel(await recorded(tmp_path / "r", ENDS, requests=[QUESTION], watched=True))
    shown: list[Delta] = []

    await replay.ask(QUESTION, shown.append)

    assert shown == PIECES


async def test_a_reply_recorded_while_nobody_watched_is_shown_at_once(tmp_path: Path) -> None:
    replay = ReplayModel(await recorded(tmp_path / "r", ENDS, requests=[QUESTION]))
    shown: list[Delta] = []

    await replay.ask(QUESTION, shown.append)

    assert shown == [TextDelta("21 °C.")]


@pytest.mark.parametrize(
    ("request_now", "told"),
    [
        (after("22", "x"), "message 3 was results '21' and is results '22'"),
        (replace(after("21", "x"), system="Be long."), "the system text is another"),
        (replace(after("21", "x"), tools=()), "missing tools: read_temperature"),
        (
            replace(after("21", "x"), tools=(replace(THERMOMETER, description="Other."),)),
            "changed tools: read_temperature",
        ),
        (replace(after("21", "x"), tools_off=True), "were [False, None, None] and are [True, None, None]"),
        (QUESTION, "it has 1 messages where 3 were recorded"),
    ],
)
async def test_a_request_that_was_not_recorded_is_refused_with_what_differs(
    tmp_path: Path, request_now: Request, told: str
) -> None:
    replay = ReplayModel(await recorded(tmp_path / "r", ENDS, requests=[after("21", "a")]))

    with pytest.raises(ModelRefused, match="request 1 is not the one in the recording") as raised:
        await replay.ask(request_now)
    assert told in str(raised.value)


async def test_questions_asked_side_by_side_find_their_own_answers(tmp_path: Path) -> None:
    other = replace(QUESTION, messages=(UserMessage("And outside?"),))
    replay = ReplayModel(await recorded(tmp_path / "r", ASKS, ENDS, requests=[QUESTION, other]))

    assert (await replay.ask(other)).content == "21 °C."
    assert (await replay.ask(QUESTION)).calls


async def test_a_recording_that_is_used_up_says_so(tmp_path: Path) -> None:
    replay = ReplayModel(await recorded(tmp_path / "r", ENDS, requests=[QUESTION]))
    await replay.ask(QUESTION)

    with pytest.raises(ModelRefused, match="has only 1 requests"):
        await replay.ask(QUESTION)


async def test_a_recorded_failure_fails_again(tmp_path: Path) -> None:
    replay = ReplayModel(await recorded(tmp_path / "r", ModelUnavailable("overloaded"), requests=[QUESTION]))

    with pytest.raises(ModelUnavailable, match="overloaded"):
        await replay.ask(QUESTION)


async def test_the_key_is_not_in_the_file(client: Client, model: HttpChat, provider: Provider, tmp_path: Path) -> None:
    recording = RecordingModel(model, tmp_path / "r")
    provider.will(client.whole, says({"error": {"message": f"bad key {KEY}"}}, status=401))

    await recording.ask(QUESTION)
    with pytest.raises(ModelRefused):
        await recording.ask(QUESTION)
    await recording.close()

    kept = (tmp_path / "r").read_text("utf-8")
    assert kept.count("\n") == 2
    assert KEY not in kept


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "7",
        "{}",
        "\x00",
        "[" * 5000,
        '{"model":"m","request":{},"deltas":[["what"]]}',
        '{"model":"m","request":3,"deltas":[]}',
        '{"model":"m","request":{},"deltas":[],"reply":[1]}',
        '{"model":"m","request":{},"deltas":[],"error":["KeyError","x"]}',
    ],
)
def test_a_file_that_is_no_recording_is_told_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "r").write_text(f"\n{line}\n")

    with pytest.raises(SettingsError, match=r"line 2 of .* is no recorded answer"):
        ReplayModel(tmp_path / "r")


def test_a_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot be read: No such file"):
        ReplayModel(tmp_path / "missing")
    with pytest.raises(SettingsError, match="cannot be written: Is a directory"):
        RecordingModel(Says(), tmp_path)
