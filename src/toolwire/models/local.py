"""The embedded model as a chat model: trained to read a catalogue of tools, run in this process, with no key.

Whatever it writes is held by a grammar: calls that fit the schemas of the offered tools, or words.
"""

import asyncio
import json
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolwire.errors import ModelRefused
from toolwire.lazy import lazy_module
from toolwire.models import local_dialogue as dialogue
from toolwire.models.local_answers import outcome, untold
from toolwire.models.local_grammar import dialogue_grammar
from toolwire.models.local_repair import repair_text
from toolwire.protocol.calls import Problem, ToolCall
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
from toolwire.protocol.outcomes import Code
from toolwire.protocol.tools import Tool

if TYPE_CHECKING:
    from toolwire.models import local_engine, weights
    from toolwire.models.local_engine import GeneratedText, LocalEngine
else:
    # Loaded with the first question.
    local_engine = lazy_module("toolwire.models.local_engine")
    weights = lazy_module("toolwire.models.weights")

ADAPTERS = Path(__file__).parent / "adapters"
# What each model is made of: the base weights, and the adapter that was trained for them.
_MODELS = {"smollm2": ("smollm2", "smollm2-tools.gguf"), "smollm2-plain": ("smollm2", None)}
ANSWER_TOKENS = 256
MOST_ANSWER_TOKENS = 1024
MOST_TOOLS = 30
HOPELESS = frozenset({Code.PERMISSION_DENIED, Code.INVALID_PARAMS, Code.NOT_FOUND})


def open_local(model: str = "smollm2", *, adapter: Path | None = None, threads: int | None = None) -> ChatModel:
    """The embedded model of that name, with another adapter if one is given. Nothing is loaded until it is asked.

    `smollm2` is trained to call tools; `smollm2-plain` is what it was before. Raises ModelRefused.
    """
    if model not in _MODELS:
        raise ModelRefused(f"no local model is called {model[:40]!r}; known are {', '.join(_MODELS)}")
    base, own = _MODELS[model]
    trained = adapter or (ADAPTERS / own if own else None)
    return LocalChat(partial(_engine_of, base, trained, threads), model)


def _engine_of(base: str, adapter: Path | None, threads: int | None) -> "LocalEngine":
    return local_engine.shared_engine(weights.weights_of(base), adapter=adapter, threads=threads)


class LocalChat:
    """A small model that runs in this process, without key, cost or network."""

    most_tools = MOST_TOOLS
    window_tokens = dialogue.CONTEXT_TOKENS
    longest_question = dialogue.REQUEST_CHARS

    def __init__(self, open_engine: "Callable[[], LocalEngine]", model: str) -> None:
        self.name = f"local:{model}"
        self._open_engine = open_engine
        self._lease: weakref.finalize[[], LocalChat] | None = None

    @cached_property
    def engine(self) -> "LocalEngine":
        """What runs the model."""
        return self._open_engine()

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """Answer once; see ChatModel. Raises ModelError, and nothing else."""
        if self._lease is None:
            self.engine.acquire()
            self._lease = weakref.finalize(self, self.engine.release)
        loop = asyncio.get_running_loop()
        halt = threading.Event()
        failed: asyncio.Future[Reply] = loop.create_future()

        def deliver(delta: Delta) -> None:
            try:
                if on_delta is not None and not halt.is_set():
                    on_delta(delta)
            except Exception as error:  # the loop would only log it: the reader of a pipe went away, say
                halt.set()
                failed.set_exception(error)

        def show(delta: Delta) -> None:
            if not halt.is_set():
                loop.call_soon_threadsafe(deliver, delta)

        work = loop.run_in_executor(None, self._answer, request, show, halt.is_set)
        try:
            await asyncio.wait([work, failed], return_when=asyncio.FIRST_COMPLETED)
            return failed.result() if failed.done() else work.result()
        finally:
            halt.set()
            await asyncio.wait([work])  # the engine notices within one token, or one prompt
            work.exception()
            failed.cancel()

    async def close(self) -> None:
        """Let go of the engine, which is freed with its last user. Asked again, the model loads it again."""
        if self._lease is not None:
            lease, self._lease = self._lease, None
            await asyncio.to_thread(lease)

    def _answer(self, request: Request, show: Callable[[Delta], None], halted: Callable[[], bool]) -> Reply:
        """One turn of the model. A dialogue that is too long loses its oldest part, and the reply says so."""
        tools = () if request.tools_off else request.tools[: self.most_tools]
        messages, dropped = list(request.messages), 0
        while True:
            teller = _Teller(show, _Calls(request.messages, tools))
            try:
                written = self._write(messages, request, tools, teller, halted)
            except local_engine.TooLong:
                fewer = _shorter(messages)
                if len(fewer) == len(messages):
                    raise ModelRefused("the request does not fit the memory of the local model") from None
                dropped += len(messages) - len(fewer)
                messages = fewer
            else:
                return self._reply(written, request, teller, _problems(request, dropped))

    def _write(
        self,
        messages: Sequence[Message],
        request: Request,
        tools: Sequence[Tool],
        teller: "_Teller",
        halted: Callable[[], bool],
    ) -> "GeneratedText":
        return self.engine.write(
            dialogue.render(messages, tools),
            slot=-1,
            max_tokens=min(request.max_tokens or ANSWER_TOKENS, MOST_ANSWER_TOKENS),
            grammar=dialogue_grammar(tools, _known(messages)),
            temperature=request.temperature or 0.0,
            on_text=teller.hear,
            halted=halted,
        )

    def _reply(
        self, written: "GeneratedText", request: Request, teller: "_Teller", problems: tuple[Problem, ...]
    ) -> Reply:
        calls = teller.end()
        known: dict[str, Any] = {"usage": written.usage, "model": self.engine.weights.name, "problems": problems}
        if calls:
            reason = "length" if calls[-1].fault else "tool_calls"
            return Reply(calls=calls, finish_reason=reason, raw=written.text, **known)
        said, reason = ("", "stop") if written.text.startswith("@") else (written.text.strip(), written.finish_reason)
        last = request.messages[-1]
        results = last.results if isinstance(last, ResultsMessage) else ()
        if results and (more := untold(said, results) if said else outcome(results)):
            teller.add(more)
            said = f"{said} {more}".strip()
        return Reply(said, finish_reason=reason, raw=written.text, **known)


class _Calls:
    """Reads calls: slips put right, and none that was made in this turn already and cannot come out otherwise."""

    def __init__(self, messages: Sequence[Message], tools: Sequence[Tool]) -> None:
        self._schemas = {tool.name: tool.input_schema for tool in tools}
        self._heard = _heard(messages)
        self._made = _made(messages)

    def read(self, line: str) -> tuple[ToolCall, ...]:
        found = []
        for call in dialogue.calls_in(line):
            meant = repair_text(call, self._schemas.get(call.name, {}), self._heard)
            if (key := _key(meant)) not in self._made:
                self._made.add(key)
                found.append(meant)
        return tuple(found)


class _Teller:
    """Shows what is being written: words as they come, a call once its line is complete."""

    def __init__(self, show: Callable[[Delta], None], calls: _Calls) -> None:
        self._show = show
        self._calls = calls
        self._calling: bool | None = None
        self._line = ""
        self._found: list[ToolCall] = []

    def hear(self, text: str) -> None:
        if self._calling is None:
            self._calling = text.startswith("@")
        if not self._calling:
            self._show(TextDelta(text))
            return
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            self._tell(line)

    def end(self) -> tuple[ToolCall, ...]:
        """Every call that was made."""
        self._tell(self._line)
        self._line = ""
        return tuple(self._found)

    def add(self, text: str) -> None:
        self._show(TextDelta(text if self._calling else f" {text}"))

    def _tell(self, line: str) -> None:
        for call in self._calls.read(line):
            written = line.partition(" ")[2] if call.fault else json.dumps(dict(call.arguments), ensure_ascii=False)
            self._show(CallDelta(len(self._found), call.name, written))
            self._found.append(call)


def _key(call: ToolCall) -> str:
    return f"{call.name} {json.dumps(dict(call.arguments), sort_keys=True, default=str)}"


def _made(messages: Sequence[Message]) -> set[str]:
    """The calls since the last message that succeeded, or can never. A model this small that makes one again has
    lost its way."""
    latest = max((place for place, message in enumerate(messages) if isinstance(message, UserMessage)), default=0)
    came = [result for said in messages[latest:] if isinstance(said, ResultsMessage) for result in said.results]
    settled = {result.call_id for result in came if result.error is None or result.error.code in HOPELESS}
    called = (call for said in messages[latest:] if isinstance(said, Reply) for call in said.calls)
    return {_key(call) for call in called if call.id in settled}


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
