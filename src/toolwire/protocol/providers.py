"""The providers of models: the one table that model strings, formats, tools, `doctor` and the docs read.

A new provider is a row. Only a provider with an API of its own needs more: a client in `models/`, a format in `wire/`.
"""

from typing import Literal, get_args

from msgspec import Struct

ChatApi = Literal["openai", "anthropic", "ollama"]

CHAT_APIS: tuple[str, ...] = get_args(ChatApi)
"""The chat APIs that a model can be asked in, here and behind the gateway."""

OPENAI_URL = "https://api.openai.com/v1"
ANTHROPIC_URL = "https://api.anthropic.com"


class Provider(Struct, frozen=True):
    """One row of the table.

    - `api` is how its models are asked: a chat API, `local` for the embedded model, empty where only its format is
      known and models cannot be opened.
    - `format` is how it takes tools, a name in `wire/formats/registry.py`; empty where it carries text only.
    - Without a `base_url` an address must be given; `url_variable` may name another one.
    - `price_list` is its name in the price tables. A `free` provider charges nothing.
    - `tool` is the tool with which an agent asks its models.
    """

    name: str
    api: ChatApi | Literal["local", ""] = "openai"
    format: str = "openai"
    base_url: str = ""
    key_variable: str = ""
    url_variable: str = ""
    needs_key: bool = False
    price_list: str = ""
    start_hint: str = ""
    tool: str = ""
    free: bool = False


def _cloud(
    name: str, base_url: str, key_variable: str, price_list: str = "", *, form: str = "openai", tool: str = ""
) -> Provider:
    """A service that has the OpenAI API and needs a key."""
    return Provider(
        name, "openai", form, base_url, key_variable, needs_key=True, price_list=price_list or name, tool=tool
    )


def _format_only(name: str, form: str) -> Provider:
    return Provider(name, "", form)


PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            "openai", "openai", "openai", OPENAI_URL, "OPENAI_API_KEY", "OPENAI_BASE_URL",
            needs_key=True, price_list="openai",
        ),
        Provider(
            "anthropic", "anthropic", "anthropic", ANTHROPIC_URL, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL",
            needs_key=True, price_list="anthropic",
        ),
        Provider(
            "ollama", "ollama", "ollama", "http://127.0.0.1:11434", "OLLAMA_API_KEY", "OLLAMA_HOST",
            start_hint="is Ollama running? start it with `ollama serve`", tool="ollama_local", free=True,
        ),
        Provider("openai-compatible"),
        Provider("local", "local", ""),
        _cloud("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", tool="openrouter"),
        _cloud("venice", "https://api.venice.ai/api/v1", "VENICE_API_KEY", tool="venice"),
        _cloud("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _cloud("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        _cloud("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY", form="mistral"),
        _cloud("xai", "https://api.x.ai/v1", "XAI_API_KEY", "x-ai"),
        _cloud("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _cloud("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        Provider(
            "vllm", base_url="http://127.0.0.1:8000/v1", key_variable="VLLM_API_KEY",
            start_hint="is vLLM running? start it with `vllm serve MODEL`",
        ),
        Provider(
            "llamacpp", base_url="http://127.0.0.1:8080/v1", key_variable="LLAMA_API_KEY",
            start_hint="is llama.cpp running? start it with `llama-server -m FILE --jinja`",
        ),
        Provider(
            "lmstudio", base_url="http://127.0.0.1:1234/v1", key_variable="LMSTUDIO_API_KEY",
            start_hint="is LM Studio running? start its server with `lms server start`",
        ),
        _format_only("azure", "openai"),
        _format_only("litellm", "openai"),
        _format_only("openai_responses", "openai_responses"),
        _format_only("google", "gemini"),
        _format_only("gemini", "gemini"),
        _format_only("vertex", "gemini"),
        _format_only("cohere", "cohere"),
        _format_only("bedrock", "bedrock"),
        _format_only("text", ""),
    )
}  # fmt: skip


def openable() -> list[str]:
    """The providers that a model string may name."""
    return [provider.name for provider in PROVIDERS.values() if provider.api]


def tools_for_models() -> dict[str, Provider]:
    """The tools that ask another model, each with the provider that it asks."""
    return {provider.tool: provider for provider in PROVIDERS.values() if provider.tool}
