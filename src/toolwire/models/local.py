"""The embedded model as a chat model: choose a tool or none, write its arguments, tell its result.

Each step is the model's own choice among what is possible there: tools are weighed by how readily it would name
them, arguments are written under a grammar made from the tool's schema, so that a call is always well formed.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolwire.errors import ModelError, ModelRefused
from toolwire.models import local_prompt as prompts
from toolwire.models.local_engine import Engine, TooLong, Written, find_weights, shared_engine
from toolwire.models.local_examples import PHRASES, Phrases
from toolwire.models.local_grammar import faithful_grammar, json_grammar, words_of
from toolwire.models.local_prompt import REQUEST_CHARS, RESULT_CHARS
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
    Usage,
    UserMessage,
)
from toolwire.protocol.tools import Tool

CHOOSE, FILL, TELL, TALK = range(4)
ARGUMENT_TOKENS = 160
ANSWER_TOKENS = 160
HISTORY_CHARS = 2400


@dataclass(frozen=True, slots=True)
class Manner:
    """How the model is led. `benchmarks/eval_local.py` measures what each part is worth; a trained adapter needs less.

    `even` takes away the model's general liking for some tool names; `copy` makes arguments from the words of the
    request; `phrases` are the worked examples of known tools.
    """

    even: bool = True
    copy: bool = True
    phrases: Phrases = field(default_factory=lambda: PHRASES)


def open_local(model: str = "smollm2", *, adapter: Path | None = None, threads: int | None = None) -> ChatModel:
    """The embedded model of that name. Nothing is loaded until the first question. Raises ModelRefused."""
    return LocalChat(shared_engine(find_weights(model), adapter=adapter, threads=threads), model)


class LocalChat:
    """A small model that runs in this process, without key, cost or network."""

    def __init__(self, engine: Engine, model: str = "smollm2", manner: Manner = Manner()) -> None:  # noqa: B008 - a frozen value
        self.engine = engine
        self.manner = manner
        self.name = f"local:{model}"
        self.usual: dict[prompts.Shots, list[float]] = {}

    async def ask(self, request: Request, on_delta: Callable[[Delta], None] | None = None) -> Reply:
        """Answer once; see ChatModel. Raises ModelError, and nothing else."""
        loop = asyncio.get_running_loop()
        halt = threading.Event()

        def show(delta: Delta) -> None:
            if on_delta is not None and not halt.is_set():
                loop.call_soon_threadsafe(on_delta, delta)

        work = loop.run_in_executor(None, _Asking(self, request, show, halt.is_set).reply)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            halt.set()
            await asyncio.wait([work])  # the engine notices within one token, or one prompt
            work.exception()
            raise

    async def close(self) -> None:
        """The engine is shared and stays until the process ends; there is nothing to let go of."""


class _Asking:
    """One request on its way through the model, in a worker thread."""

    def __init__(
        self, chat: LocalChat, request: Request, show: Callable[[Delta], None], halted: Callable[[], bool]
    ) -> None:
        self.engine = chat.engine
        self.manner = chat.manner
        self.usual = chat.usual
        self.request = request
        self.show = show
        self.halted = halted
        self.usage = Usage(cost_usd=0.0)
        self.problems: list[Problem] = []

    def reply(self) -> Reply:
        """Tell results if there are any, else call a tool if one fits, else talk."""
        try:
            return self._reply_to(*_open_question(self.request.messages))
        except TooLong:
            raise ModelRefused("the request does not fit the memory of the local model") from None

    def _reply_to(self, question: str, told: list[str]) -> Reply:
        self._note_cut("request", question, REQUEST_CHARS)
        if told:
            return self._tell(question, "; ".join(told) or "nothing")
        if self.request.tools and not self.request.tools_off:
            tool = self._choose(question)
            if tool is not None:
                return self._call(tool, question)
        return self._talk()

    def _choose(self, question: str) -> Tool | None:
        """The tool that this question makes likelier than requests usually do; None for no tool."""
        shots = prompts.choice_shots(self.request.tools, self.manner.phrases)
        scores = self._label_scores(shots, question)
        if self.manner.even:
            scores = [score - usual for score, usual in zip(scores, self._usual_scores(shots), strict=True)]
        best = scores.index(max(scores))
        return self.request.tools[best] if best < len(self.request.tools) else None

    def _usual_scores(self, shots: prompts.Shots) -> list[float]:
        """How likely each label is whatever is asked, by one request for each: small models favour some words."""
        if shots not in self.usual:
            latest = {label: text for text, label in shots}
            rows = [self._label_scores(shots, text) for text in latest.values()]
            self.usual[shots] = [sum(column) / len(rows) for column in zip(*rows, strict=True)]
        return self.usual[shots]

    def _label_scores(self, shots: prompts.Shots, question: str) -> list[float]:
        tools = self.request.tools
        labels = [f" {tool.name}\n" for tool in tools] + [f" {prompts.no_tool_label(tools)}\n"]
        if self.halted():
            raise ModelError("the question was withdrawn")
        scores, usage = self.engine.weigh(prompts.choice_prompt(shots, question), labels, slot=CHOOSE)
        self.usage += usage
        return scores

    def _call(self, tool: Tool, question: str) -> Reply:
        words = _own_words(question, tool) if self.manner.copy else ()
        grammar = json_grammar({"type": "object", **tool.input_schema}, words)
        prompt = prompts.arguments_prompt(tool, question, self.manner.phrases)
        written = self._write(prompt, slot=FILL, max_tokens=ARGUMENT_TOKENS, grammar=grammar)
        arguments, fault = _read_arguments(written.text)
        call = ToolCall(tool.name, arguments, format="local", raw=written.text, fault=fault)
        self.show(CallDelta(0, tool.name, written.text))
        return self._reply(written, calls=(call,), finish_reason="length" if fault else "tool_calls")

    def _tell(self, question: str, told: str) -> Reply:
        self._note_cut("result", told, RESULT_CHARS)
        prompt = prompts.result_prompt(question, told)
        grammar = faithful_grammar(f"{prompts.flat(question, REQUEST_CHARS)} {told}")
        written = self._write(prompt, slot=TELL, max_tokens=self._answer_tokens, grammar=grammar, aloud=True)
        return self._reply(written, content=written.text.strip())

    def _talk(self) -> Reply:
        written = self._write_talk(HISTORY_CHARS)
        return self._reply(written, content=written.text.strip())

    def _write_talk(self, budget: int) -> Written:
        """Speak with as much of the history as fits: characters are a guess at tokens, so a miss halves them."""
        messages = self.request.messages
        kept = _newest(messages, budget)
        try:
            prompt = prompts.chat_prompt(self.request.system, kept)
            written = self._write(prompt, slot=TALK, max_tokens=self._answer_tokens, aloud=True)
        except TooLong:
            if budget < REQUEST_CHARS:
                raise
            return self._write_talk(budget // 2)
        if len(kept) < len(messages):
            left = len(messages) - len(kept)
            self.problems.append(Problem("history_dropped", f"{left} older messages did not fit the model's memory"))
        return written

    def _note_cut(self, what: str, text: str, limit: int) -> None:
        if len(text) > limit:
            self.problems.append(
                Problem(f"{what}_cut", f"the middle of a {what} of {len(text)} characters was left out")
            )

    @property
    def _answer_tokens(self) -> int:
        return min(self.request.max_tokens or ANSWER_TOKENS, 1024)

    def _write(self, prompt: str, *, aloud: bool = False, **how: Any) -> Written:
        def say(text: str) -> None:
            self.show(TextDelta(text))

        written = self.engine.write(
            prompt,
            temperature=self.request.temperature or 0.0,
            on_text=say if aloud else None,
            halted=self.halted,
            **how,
        )
        self.usage += written.usage
        return written

    def _reply(self, written: Written, **parts: Any) -> Reply:
        known: dict[str, Any] = {"finish_reason": written.finish_reason, "usage": self.usage}
        return Reply(model=self.engine.weights.name, problems=tuple(self.problems), raw=written.text, **(known | parts))


def _open_question(messages: Sequence[Message]) -> tuple[str, list[str]]:
    """The last thing a person said, and what the results that have come since say."""
    calls: dict[str, ToolCall] = {}
    question = ""
    told: list[str] = []
    for message in messages:
        match message:
            case UserMessage(text):
                question, told = text, []
            case Reply():
                calls |= {call.id: call for call in message.calls}
            case ResultsMessage(results):
                told += [prompts.gist(calls.get(result.call_id), result) for result in results]
    return question, told


def _own_words(question: str, tool: Tool) -> tuple[str, ...]:
    """What arguments may be copied from: the request, and words (no numbers) that the tool's description knows."""
    known = (word for word in words_of(tool.description) if word.isalpha())
    return tuple(dict.fromkeys([*words_of(prompts.flat(question, REQUEST_CHARS)), *known]))


def _newest(messages: Sequence[Message], budget: int) -> list[Message]:
    """As many of the latest messages as the budget of characters holds; the last one always, cut if need be."""
    kept: list[Message] = []
    for message in reversed(messages):
        size = len(prompts.spoken(message))
        if size > budget:
            break
        budget -= size
        kept.append(message)
    if not kept and messages and isinstance(last := messages[-1], UserMessage):
        kept = [UserMessage(prompts.flat(last.text, budget))]
    return kept[::-1]


def _read_arguments(text: str) -> tuple[dict[str, Any], str]:
    """The arguments that the grammar let through; a fault when the model ran out of room in the middle."""
    try:
        arguments = json.loads(text)
    except ValueError:
        return {}, "the arguments were cut off before they were complete"
    return arguments, ""
