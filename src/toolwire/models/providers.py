"""The providers that a model string may name: where each is served and which variable holds its key."""

from toolwire.errors import SettingsError
from toolwire.protocol.values import dataclass


@dataclass(frozen=True, slots=True)
class Provider:
    """One row of the table. `speaks` is its API; a provider without a base URL must be given one.

    `url_variable` may name another address; `price_list` is the provider's name in the price tables.
    """

    name: str
    speaks: str = "openai"
    base_url: str = ""
    key_variable: str = ""
    url_variable: str = ""
    needs_key: bool = False
    price_list: str = ""
    start_hint: str = ""


def _cloud(name: str, base_url: str, key_variable: str, price_list: str = "") -> Provider:
    return Provider(name, "openai", base_url, key_variable, needs_key=True, price_list=price_list or name)


PROVIDERS: dict[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            "openai",
            "openai",
            "https://api.openai.com/v1",
            "OPENAI_API_KEY",
            "OPENAI_BASE_URL",
            needs_key=True,
            price_list="openai",
        ),
        Provider(
            "anthropic",
            "anthropic",
            "https://api.anthropic.com",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_BASE_URL",
            needs_key=True,
            price_list="anthropic",
        ),
        Provider("ollama", "ollama", "http://127.0.0.1:11434", "OLLAMA_API_KEY", "OLLAMA_HOST"),
        Provider("openai-compatible"),
        Provider("local", "local"),
        _cloud("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        _cloud("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        _cloud("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        _cloud("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        _cloud("xai", "https://api.x.ai/v1", "XAI_API_KEY", "x-ai"),
        _cloud("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
        _cloud("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
        Provider(
            "vllm",
            base_url="http://127.0.0.1:8000/v1",
            key_variable="VLLM_API_KEY",
            start_hint="is vLLM running? start it with `vllm serve MODEL`",
        ),
        Provider(
            "llamacpp",
            base_url="http://127.0.0.1:8080/v1",
            key_variable="LLAMA_API_KEY",
            start_hint="is llama.cpp running? start it with `llama-server -m FILE --jinja`",
        ),
        Provider(
            "lmstudio",
            base_url="http://127.0.0.1:1234/v1",
            key_variable="LMSTUDIO_API_KEY",
            start_hint="is LM Studio running? start its server with `lms server start`",
        ),
    )
}


def split_name(name: str) -> tuple[str, str]:
    """`provider:model` or `provider/model` as its two halves. Raises SettingsError when it is neither."""
    ends = [end for end in (name.find(":"), name.find("/")) if end > 0]
    if not ends or not name[min(ends) + 1 :].strip():
        raise SettingsError(f"a model is named provider:model, such as openai:gpt-4o-mini, not {name[:80]!r}")
    return name[: min(ends)].strip().lower(), name[min(ends) + 1 :].strip()
