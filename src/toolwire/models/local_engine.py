"""The llama.cpp engine inside this process: loaded when first needed, shared, and reached by no network."""

import os
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from toolwire.errors import ModelError, ModelRefused, ModelUnavailable
from toolwire.lazy import lazy_module
from toolwire.models.local_dialogue import CONTEXT_TOKENS
from toolwire.models.weights import Weights
from toolwire.protocol.chat import Usage

# The engine's threads meet after every step, and by default wait spinning: when another process holds the core of one
# of them, all burn time. Asleep they cost little on an idle machine. Read by the library when it is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
if TYPE_CHECKING:
    import xllamacpp  # type: ignore[import-untyped,unused-ignore]  # compiled, without type information
else:
    xllamacpp = lazy_module("xllamacpp")  # loaded with the first question

SLOTS = 4
SEED = 7

_NEEDS_EXTRA = 'the local model needs an extra: pip install "toolwire[local]"'


class TooLong(Exception):
    """The prompt does not fit the context window."""


class GeneratedText(Struct, frozen=True):
    """What the model wrote, why it stopped, and what it took."""

    text: str
    finish_reason: str
    usage: Usage


class LocalEngine:
    """One loaded model. Safe to use from several threads; `load_s` says how long loading took, once it has.

    Each chat model that uses it acquires it and releases it again. With the last release its memory is given back; who
    asks it later loads it again.
    """

    def __init__(self, weights: Path | Weights, *, adapter: Path | None = None, threads: int | None = None) -> None:
        self.weights = weights
        self.adapter = adapter
        # Writing is many small steps, in which half of the cores is as quick as all of them; reading a prompt is a few
        # large ones.
        self.cores = threads or min(os.cpu_count() or 1, 16)
        self.threads = threads or max(1, self.cores // 2)
        self.load_s: float | None = None
        self._server: Any = None
        self._users = 0
        self._lock = threading.Lock()

    def load(self) -> Any:
        """Read the weights unless that has been done. Raises ModelRefused or ModelUnavailable.

        Gives back what answers, so that one who is being answered keeps it while another lets go of the engine.
        """
        with self._lock:
            if self._server is None:
                began = time.perf_counter()
                self._server = self._start()
                self.load_s = time.perf_counter() - began
            return self._server

    @property
    def is_loaded(self) -> bool:
        return self._server is not None

    def acquire(self) -> None:
        with self._lock:
            self._users += 1

    def release(self) -> None:
        """Stop using the engine. The last one to do so frees its memory."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._server = None

    def write(
        self,
        prompt: str,
        *,
        slot: int,
        max_tokens: int,
        grammar: str = "",
        stop: Sequence[str] = (),
        temperature: float = 0.0,
        on_text: Callable[[str], None] | None = None,
        halted: Callable[[], bool] = lambda: False,
    ) -> GeneratedText:
        """Continue the prompt. Ends early, with what there is, once `halted` says so. Raises ModelError, TooLong."""
        body = self._body(prompt, slot, max_tokens) | {"temperature": temperature, "stop": list(stop)}
        if grammar:
            body["grammar"] = grammar
        return self._stream(body, on_text, halted)

    def _body(self, prompt: str, slot: int, max_tokens: int) -> dict[str, Any]:
        readable = prompt.encode("utf-8", "replace").decode()  # half a surrogate cannot be handed over
        return {"prompt": readable, "id_slot": slot, "max_tokens": max_tokens, "cache_prompt": True, "seed": SEED}

    def _stream(
        self, body: dict[str, Any], on_text: Callable[[str], None] | None, halted: Callable[[], bool]
    ) -> GeneratedText:
        server = self.load()
        chunks: list[dict[str, Any]] = []

        def take(chunk: dict[str, Any]) -> bool:
            chunks.append(chunk)
            if on_text and (text := _text(chunk)):
                on_text(text)
            return halted()

        server.handle_completions(body | {"stream": True, "stream_options": {"include_usage": True}}, take)
        for chunk in chunks:
            _raise_error(chunk)
        reasons = [
            choice["finish_reason"] for chunk in chunks for choice in chunk["choices"] if choice["finish_reason"]
        ]
        usage = next((_usage(chunk) for chunk in reversed(chunks) if chunk.get("usage")), Usage(cost_usd=0.0))
        return GeneratedText("".join(map(_text, chunks)), reasons[-1] if reasons else "canceled", usage)

    def _start(self) -> Any:
        try:
            make_server = xllamacpp.Server
        except ImportError:
            raise ModelRefused(_NEEDS_EXTRA) from None
        # The engine always brings up its own server. Bound to a socket file behind a random key, in a folder that
        # is gone before the first question, nothing on this machine or beyond can reach it.
        with tempfile.TemporaryDirectory(prefix="toolwire-") as folder:
            weights = self.weights if isinstance(self.weights, Path) else self.weights.fetch()
            try:
                return make_server(self._parameters(weights, folder))
            except (RuntimeError, ValueError) as error:
                what = f"{weights.name}{f' with {self.adapter.name}' if self.adapter else ''}"
                raise ModelUnavailable(f"the local model {what} could not be loaded: {error}") from error

    def _parameters(self, weights: Path, folder: str) -> Any:
        given = xllamacpp.CommonParams()
        given.model.path = str(weights)
        given.n_ctx, given.n_parallel, given.kv_unified = CONTEXT_TOKENS, SLOTS, True
        given.cpuparams.n_threads, given.cpuparams_batch.n_threads = self.threads, self.cores
        given.warmup = given.ui = given.endpoint_slots = False
        given.offline = True
        given.verbosity = 0
        given.cache_ram_mib = 0
        if os.name == "posix":
            given.hostnames = [str(Path(folder) / "engine.sock")]
        given.api_keys = [secrets.token_hex(16)]
        if self.adapter is not None:
            given.lora_adapters = [xllamacpp.CommonAdapterLoraInfo(str(self.adapter), 1.0)]
        return given


_engines: dict[tuple[Path | Weights, Path | None, int | None], LocalEngine] = {}
_engines_lock = threading.Lock()


def shared_engine(weights: Path | Weights, *, adapter: Path | None = None, threads: int | None = None) -> LocalEngine:
    """The one engine of this process for these weights. Nothing is loaded yet."""
    with _engines_lock:
        key = (weights, adapter, threads)
        if key not in _engines:
            _engines[key] = LocalEngine(weights, adapter=adapter, threads=threads)
        return _engines[key]


def _text(chunk: dict[str, Any]) -> str:
    return "".join(str(choice.get("text") or "") for choice in chunk.get("choices", ()))


def _usage(answer: dict[str, Any]) -> Usage:
    counted = answer.get("usage") or {}
    cached = (counted.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Usage(counted.get("prompt_tokens", 0), counted.get("completion_tokens", 0), cached, 0.0)


def _raise_error(answer: dict[str, Any]) -> None:
    error = answer.get("error")
    if error is None:
        return
    if error.get("type") == "exceed_context_size_error":
        raise TooLong
    raise ModelError(f"the local model could not answer: {error.get('message', error)}")
