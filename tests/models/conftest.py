"""A scripted provider, the three clients for it, and a world in which no time passes."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from toolwire.models.anthropic import AnthropicChat
from toolwire.models.endpoint import RequestPolicy, TimeSource
from toolwire.models.http_chat import HttpChat
from toolwire.models.ollama import OllamaChat
from toolwire.models.openai import OpenAIChat
from toolwire.protocol.chat import Request, UserMessage
from toolwire.protocol.tools import Tool

from .provider import Provider, Scripted, answer, provider_on_loopback

REPLIES = Path(__file__).parent.parent / "golden" / "replies"
KEY = "sk-test-0123456789abcdef"
NOON = 1_763_208_000.0  # 2025-11-15 12:00:00 UTC

THERMOMETER = Tool(
    "read_temperature",
    "Read the temperature of a room.",
    {"type": "object", "properties": {"room": {"type": "string"}}, "required": ["room"]},
)
QUESTION = Request((UserMessage("How warm is it?"),), (THERMOMETER,), "Be brief.", "talk")


@dataclass
class StillWorld:
    """Remembers how long it was asked to wait, and never does."""

    waits: list[float] = field(default_factory=list)

    async def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)

    def time_source(self) -> TimeSource:
        return TimeSource(self.sleep, lambda: NOON, lambda: 1.0)


@dataclass(frozen=True)
class Client:
    """One of the clients and the answers that its provider gives."""

    name: str
    make: Callable[..., HttpChat]
    base_path: str
    stream_file: str
    stream_kind: str

    def open(self, provider: Provider, still: StillWorld, request_policy: RequestPolicy | None = None) -> HttpChat:
        request_policy = request_policy or RequestPolicy()
        return self.make(
            "some-model",
            provider.url + self.base_path,
            KEY,
            request_policy=request_policy,
            time_source=still.time_source(),
        )

    @property
    def whole(self) -> Scripted:
        return answer((REPLIES / f"{self.name}.json").read_bytes())

    @property
    def stream_bytes(self) -> bytes:
        return (REPLIES / self.stream_file).read_bytes()

    @property
    def stream(self) -> Scripted:
        return answer(self.stream_bytes, kind=self.stream_kind)


CLIENTS = [
    Client("openai", OpenAIChat, "/v1", "openai.sse", "text/event-stream"),
    Client("anthropic", AnthropicChat, "", "anthropic.sse", "text/event-stream; charset=utf-8"),
    Client("ollama", OllamaChat, "", "ollama.ndjson", "application/x-ndjson"),
]


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with provider_on_loopback() as provider:
        yield provider


@pytest.fixture
def still() -> StillWorld:
    return StillWorld()


@pytest.fixture
async def model(client: Client, provider: Provider, still: StillWorld) -> AsyncIterator[HttpChat]:
    model = client.open(provider, still)
    yield model
    await model.close()
