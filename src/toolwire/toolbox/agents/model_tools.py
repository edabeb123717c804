"""Asking another model, as a tool: `openrouter`, `venice` and `ollama_local` are one tool, one for each provider.

Which provider is asked, where, with which key and for which agent is the operator's configuration. A call brings words
and, where several models are configured, the name of one of them; no address, no key and no configuration of another.
A configuration record that is bound to the tool and its agent takes the place of what the settings say.
"""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

from msgspec import Struct
from msgspec.structs import replace

from toolwire.define.fields import Field
from toolwire.define.functions import tool
from toolwire.errors import ModelError, ModelUnavailable, SettingsError, ToolFailure
from toolwire.models.opening import open_model
from toolwire.protocol.chat import ChatModel, Message, Reply, Request, Usage, UserMessage
from toolwire.protocol.context import Context
from toolwire.protocol.outcomes import Code
from toolwire.protocol.providers import tools_for_models
from toolwire.protocol.tools import Effect, Tier, Tool, limits_of

LONGEST_MESSAGE = 200_000
MOST_MESSAGES = 200
ANYONE = "*"


@dataclass(frozen=True, slots=True)
class Configured:
    """What one agent may ask with one tool: `model` unless a call names another of `models`.

    `provider` is the one before the colon of a model string. A model that costs nothing is `free`.
    """

    provider: str
    model: str
    models: tuple[str, ...] = ()
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    key_variable: str | None = None
    free: bool = False


def configure(name: str, model: str, *models: str, **more: Any) -> Configured:
    """What a tool of this name asks: its provider's models, with the key of its provider's variable unless given."""
    provider = tools_for_models()[name]
    return Configured(provider.name, model, models, **({"free": provider.free} | more))


def configured_by_lines(name: str, lines: Iterable[str]) -> dict[str, Configured]:
    """What lines such as "openrouter vendor/model" or "ollama_local qwen3 at http://host:11434" say about one tool.

    The first line that names the tool says its usual model, further ones what else may be asked for.
    """
    models, address = [], ""
    for line in lines:
        match line.split():
            case [tool, model] if tool == name:
                models.append(model)
            case [tool, model, "at", url] if tool == name:
                models.append(model)
                address = url
    return {ANYONE: configure(name, *models, **({"base_url": address} if address else {}))} if models else {}


def configured_by_record(name: str, config: Mapping[str, Any], usual: Configured | None) -> Configured:
    """What a `tool.config.v1` record says about a tool; what it leaves open is as usual. Raises ToolFailure."""
    said = {key: value for key, value in config.items() if isinstance(value, str) and value}
    model = said.get("defaultModel") or said.get("model") or (usual.model if usual else "")
    if not model:
        raise ToolFailure("this configuration names no defaultModel", code=Code.UNAVAILABLE)
    listed = config.get("models")
    models = tuple(one for one in listed if isinstance(one, str)) if isinstance(listed, list) else ()
    address = said.get("baseUrl") or said.get("ollamaHost")
    # The key of the settings is for the address of the settings, and no other address is sent it.
    key = said.get("apiKey") or ("" if address else usual.api_key if usual else None)
    return configure(
        name, model, *(models or (usual.models if usual else ())),
        base_url=address or (usual.base_url if usual else None), api_key=key,
        key_variable=usual.key_variable if usual else None,
    )  # fmt: skip


def _number(config: Mapping[str, Any], key: str) -> float | None:
    value = config.get(key)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(config: Mapping[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


class ReplyCost(Struct, frozen=True):
    """What one reply consumed, and for whom."""

    tool: str
    agent: str
    turn_id: str
    model: str
    usage: Usage


class ModelSpending:
    """Adds up what tools spend on models. Where no price is known, tokens count and dollars are not guessed."""

    def __init__(self) -> None:
        self.spent: list[ReplyCost] = []

    def __call__(self, spent: ReplyCost) -> None:
        self.spent.append(spent)

    def by_tool(self) -> dict[str, Usage]:
        """The sum for each tool."""
        sums: dict[str, Usage] = {}
        for one in self.spent:
            sums[one.tool] = sums[one.tool] + one.usage if one.tool in sums else one.usage
        return sums

    def unpriced(self) -> Counter[str]:
        """How many replies of each model have no known price, so that a sum is known to be too low."""
        return Counter(one.model for one in self.spent if one.usage.cost_usd is None)


class AskMessage(TypedDict):
    role: Annotated[Literal["system", "user", "assistant"], Field(description="Who says it.")]
    content: Annotated[str, Field(max_length=LONGEST_MESSAGE, description="The words.")]


class UsageOutput(TypedDict):
    prompt_tokens: Annotated[int, Field(description="Tokens that were read.")]
    completion_tokens: Annotated[int, Field(description="Tokens that were written.")]
    total_tokens: Annotated[int, Field(description="All tokens.")]


class AskOutput(TypedDict):
    content: Annotated[str, Field(description="What the model answered.")]
    model: Annotated[str, Field(description="The model that answered.")]
    usage: Annotated[UsageOutput, Field(description="How many tokens it took.")]
    cost_estimate: Annotated[float | None, Field(description="What it cost in US dollars; null if no price is known.")]


def ask_model_tool(
    name: str,
    configured: Configured | Mapping[str, Configured],
    *,
    open_model: Callable[..., ChatModel] = open_model,
    spent: Callable[[ReplyCost], None] | None = None,
) -> Tool:
    """The tool that asks another model. A mapping configures each agent by its name, `*` standing for all others."""
    for_agents = {ANYONE: configured} if isinstance(configured, Configured) else dict(configured)

    @tool(
        name=name,
        description=f"Ask another language model ({name}) and get its answer. Give the whole conversation as messages.",
        tier=Tier.WALK,
        effect=Effect.IDEMPOTENT,
        category="llm",
        needs={"network"},
        timeout_s=60.0,
        max_timeout_s=300.0,
        examples=({"messages": [{"role": "user", "content": "Name three teas."}]},),
    )
    async def ask(
        context: Context,
        messages: Annotated[list[AskMessage], Field(min_length=1, max_length=MOST_MESSAGES)],
        model: Annotated[str, Field(max_length=200)] = "",
        temperature: Annotated[float, Field(ge=0, le=2)] | None = None,
        max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None,
    ) -> AskOutput:
        """Ask another model.

        Args:
            messages: The conversation, the question last.
            model: Which of the configured models to ask; the usual one if left out.
            temperature: How freely to answer, from 0 to 2.
            max_tokens: How many tokens the answer may have.
        """
        if limits_of(context.grant.network):
            raise ToolFailure("a secret is never sent to another model", code=Code.PERMISSION_DENIED)
        chosen = for_agents.get(context.agent) or for_agents.get(ANYONE)
        if context.config is not None:
            chosen = configured_by_record(name, context.config, chosen)
            temperature = temperature if temperature is not None else _number(context.config, "temperature")
            max_tokens = max_tokens or _whole(context.config, "maxTokens")
        if chosen is None:
            raise ToolFailure(
                f"{name} is not configured for this agent; an operator can set tools.models",
                code=Code.PERMISSION_DENIED,
            )
        request = replace(_request(messages), temperature=temperature, max_tokens=max_tokens)
        async with opened_model(chosen, _allowed_model(chosen, model), open_model) as opened:
            reply = await opened.ask(request)
        usage = replace(reply.usage, cost_usd=_cost(chosen, reply))
        if spent is not None:
            spent(ReplyCost(name, context.agent, context.turn_id, reply.model, usage))
        return _output(reply, usage)

    return ask


def _allowed_model(chosen: Configured, wanted: str) -> str:
    if not wanted or wanted == chosen.model:
        return chosen.model
    if wanted in chosen.models:
        return wanted
    known = ", ".join((chosen.model, *chosen.models))
    raise ToolFailure(f"the model {wanted[:80]!r} is not configured; there is {known}", code=Code.INVALID_PARAMS)


def _request(messages: list[AskMessage]) -> Request:
    system = "\n\n".join(said["content"] for said in messages if said["role"] == "system")
    rest: list[Message] = [
        UserMessage(said["content"]) if said["role"] == "user" else Reply(said["content"])
        for said in messages
        if said["role"] != "system"
    ]
    if not any(isinstance(message, UserMessage) for message in rest):
        raise ToolFailure("messages need at least one of the role user", code=Code.INVALID_PARAMS)
    return Request(tuple(rest), system=system)


@asynccontextmanager
async def opened_model(
    chosen: Configured, model: str, opening: Callable[..., ChatModel] = open_model
) -> AsyncIterator[ChatModel]:
    """A configured model, closed at the end. What goes wrong with it is a ToolFailure."""
    try:
        opened = opening(
            f"{chosen.provider}:{model}",
            base_url=chosen.base_url,
            api_key=chosen.api_key,
            key_variable=chosen.key_variable,
        )
        try:
            yield opened
        finally:
            await opened.close()
    except (ModelUnavailable, SettingsError) as lost:
        raise ToolFailure(str(lost), code=Code.UNAVAILABLE) from None
    except ModelError as refused:
        raise ToolFailure(str(refused)) from None


def _cost(chosen: Configured, reply: Reply) -> float | None:
    """What the provider says it cost, or the price list, or nothing where nothing is charged."""
    if chosen.free:
        return 0.0
    match reply.raw:
        case {"usage": {"cost": int() | float() as said}} if not isinstance(said, bool) and 0 <= said < 1e6:
            return float(said)
        case _:
            return reply.usage.cost_usd


def _output(reply: Reply, usage: Usage) -> AskOutput:
    counts: UsageOutput = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    return {"content": reply.content, "model": reply.model, "usage": counts, "cost_estimate": usage.cost_usd}
