"""The embedded model as a chat model: trained to read a catalogue of tools, run in this process, with no key.

Whatever it writes is held by a grammar: calls that fit the schemas of the offered tools, or words.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolwire.errors import ModelRefused
from toolwire.models import local_dialogue as dialogue
from toolwire.models.local_answers import untold
from toolwire.models.local_engine import Engine, TooLong, Written, find_weights, shared_engine
from toolwire.models.local_grammar import dialogue_grammar
from toolwire.models.local_mending import mended
from toolwire.protocol.calls import Problem
from toolwire.protocol.chat import (
    CallDelta,
    ChatModel,
    Delta,
    Message,
    Reply,
    Request,
    ResultsMessage,
    TextDelta,
    UserMessage,
)
from toolwire.protocol.tools import Tool

ADAPTERS = Path(__file__).parent / "adapters"
# What each model is made of: the base weights, and the adapter that was trained for them.
_MODELS = {"smollm2": ("smollm2", "smollm2-tools.gguf"), "smollm2-plain": ("smollm2", None)}
ANSWER_TOKENS = 256
MOST_ANSWER_TOKENS = 1024
MOST_TOOLS = 30


def open_local(model: str = "smollm2", *, adapter: Path | None = None, threads: int | None = None) -> ChatModel:
    """The embedded model of that name, with another adapter if one is given. Nothing is loaded until it is asked.

    `smollm2` is trained to call tools; `smollm2-plain` is what it was before. Raises ModelRefused.
    """
    if model not in _MODELS:
        raise ModelRefused(f"no local model is called {model[:40]!r}; known are {', '.join(_MODELS)}")
    base, own = _MODELS[model]
    trained = adapter or (ADAPTERS / own if own else None)
    return LocalChat(shared_engine(find_weights(base), adapter=trained, threads=threads), model)


class LocalChat:
    """A small model that runs in this process, without key, cost or network."""

    most_tools = MOST_TOOLS

    def __init__(self, engine: Engine, model: str) -> None:
        self.engine = engine
        self.name = f"local:{model}"

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """Answer once; see ChatModel. Raises ModelError, and nothing else."""
        loop = asyncio.get_running_loop()
        halt = threading.Event()

        def show(delta: Delta) -> None:
            if on_delta is not None and not halt.is_set():
                loop.call_soon_threadsafe(on_delta, delta)

        work = loop.run_in_executor(None, self._answer, request, show, halt.is_set)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            halt.set()
            await asyncio.wait([work])  # the engine notices within one token, or one prompt
            work.exception()
            raise

    async def close(self) -> None:
        """The engine is shared and stays until the process ends; there is nothing to let go of."""

    def _answer(self, request: Request, show: Callable[[Delta], None], halted: Callable[[], bool]) -> Reply:
        """One turn of the model. A dialogue that is too long loses its oldest part, and the reply says so."""
        tools = () if request.tools_off else request.tools[: self.most_tools]
        messages, dropped = list(request.messages), 0
        while True:
            try:
                written = self._write(messages, request, tools, show, halted)
            except TooLong:
                fewer = _shorter(messages)
                if len(fewer) == len(messages):
                    raise ModelRefused("the request does not fit the memory of the local model") from None
                dropped += len(messages) - len(fewer)
                messages = fewer
            else:
                return self._reply(written, request, tools, _problems(request, dropped))

    def _write(
        self,
        messages: Sequence[Message],
        request: Request,
        tools: Sequence[Tool],
        show: Callable[[Delta], None],
        halted: Callable[[], bool],
    ) -> Written:
        teller = _Teller(show)
        written = self.engine.write(
            dialogue.render(messages, tools),
            slot=-1,
            max_tokens=min(request.max_tokens or ANSWER_TOKENS, MOST_ANSWER_TOKENS),
            grammar=dialogue_grammar(tools, _known(messages)),
            temperature=request.temperature or 0.0,
            on_text=teller.hear,
            halted=halted,
        )
        teller.end()
        return self._completed(written, messages, show)

    def _completed(self, written: Written, messages: Sequence[Message], show: Callable[[Delta], None]) -> Written:
        """What was written, and what came back if that tells nothing of it."""
        if not isinstance(messages[-1], ResultsMessage) or written.text.startswith("@"):
            return written
        if more := untold(written.text, messages[-1].results):
            show(TextDelta(f" {more}"))
            return replace(written, text=f"{written.text.rstrip()} {more}")
        return written

    def _reply(self, written: Written, request: Request, tools: Sequence[Tool], problems: tuple[Problem, ...]) -> Reply:
        calls = dialogue.calls_in(written.text)
        if calls:
            schemas, heard = {tool.name: tool.input_schema for tool in tools}, _heard(request.messages)
            calls = tuple(mended(call, schemas.get(call.name, {}), heard) for call in calls)
        known: dict[str, Any] = {"usage": written.usage, "model": self.engine.weights.name, "problems": problems}
        if calls:
            reason = "length" if calls[-1].fault else "tool_calls"
            return Reply(calls=calls, finish_reason=reason, raw=written.text, **known)
        return Reply(written.text.strip(), finish_reason=written.finish_reason, raw=written.text, **known)


class _Teller:
    """Shows what is being written: words as they come, a call once its line is complete."""

    def __init__(self, show: Callable[[Delta], None]) -> None:
        self._show = show
        self._calling: bool | None = None
        self._line = ""
        self._told = 0

    def hear(self, text: str) -> None:
        if self._calling is None:
            self._calling = text.startswith("@")
        if not self._calling:
            self._show(TextDelta(text))
            return
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._tell(line)

    def end(self) -> None:
        if self._line:
            self._tell(self._line)

    def _tell(self, line: str) -> None:
        for call in dialogue.calls_in(line):
            written = line.partition(" ")[2] if call.fault else json.dumps(dict(call.arguments), ensure_ascii=False)
            self._show(CallDelta(self._told, call.name, written))
            self._told += 1


def _heard(messages: Sequence[Message]) -> str:
    """What people and tools have said: the words that arguments are copied from."""
    return "\n".join(text for role, text in dialogue.turns(messages, ()) if role in {"user", "tool"})


def _known(messages: Sequence[Message]) -> str | None:
    """What the numbers of an answer may come from, once a tool has spoken; before that, nothing holds them."""
    if not isinstance(messages[-1], ResultsMessage):
        return None
    return "\n".join(text for _, text in dialogue.turns(messages, ()))


def _shorter(messages: list[Message]) -> list[Message]:
    """Without the older half of what came before the last request."""
    latest = max((place for place, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
    keep_from = (latest + 1) // 2
    while keep_from < latest and not isinstance(messages[keep_from], UserMessage):
        keep_from += 1
    return messages[keep_from:]


def _problems(request: Request, dropped: int) -> tuple[Problem, ...]:
    found = []
    if dropped:
        found.append(Problem("history_dropped", f"{dropped} older messages did not fit the model's memory"))
    question = next((m.text for m in reversed(request.messages) if isinstance(m, UserMessage)), "")
    if len(question) > dialogue.REQUEST_CHARS:
        cut = f"the middle of a request of {len(question)} characters was left out"
        found.append(Problem("request_cut", cut))
    return tuple(found)
