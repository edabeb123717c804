"""How a name becomes a model: `open_model("provider:model")`, with keys and addresses from the usual variables."""

import difflib
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolwire.errors import ModelRefused, SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.chat import ChatModel, Reply, Request
from toolwire.protocol.providers import PROVIDERS, Provider, openable
from toolwire.protocol.turns import NO_MODEL
from toolwire.wire.formats.preference import NO_PREFERENCE, FormatPreference
from toolwire.wire.formats.tally import FormatTally

# Loaded when a model of that kind is opened: the HTTP client takes time to import, the local engine is an extra, and
# the coach knows every dialect, which only a model behind an API needs.
if TYPE_CHECKING:
    from toolwire.models import anthropic, local, ollama, openai
    from toolwire.wire.formats import coach
else:
    anthropic = lazy_module("toolwire.models.anthropic")
    local = lazy_module("toolwire.models.local")
    ollama = lazy_module("toolwire.models.ollama")
    openai = lazy_module("toolwire.models.openai")
    coach = lazy_module("toolwire.wire.formats.coach")


class NoModel:
    """Stands where a model would be, in work that needs none."""

    name = NO_MODEL

    async def ask(self, request: Request, on_delta: Any = None) -> Reply:  # noqa: ARG002 -- the contract's arguments
        raise ModelRefused("this command asks no model")

    async def close(self) -> None:
        """Nothing to let go of."""


def split_name(name: str) -> tuple[str, str]:
    """`provider:model` or `provider/model` as its two halves. Raises SettingsError when it is neither."""
    ends = [end for end in (name.find(":"), name.find("/")) if end > 0]
    if not ends or not name[min(ends) + 1 :].strip():
        raise SettingsError(f"a model is named provider:model, such as openai:gpt-4o-mini, not {name[:80]!r}")
    return name[: min(ends)].strip().lower(), name[min(ends) + 1 :].strip()


def provider_of(name: str) -> Provider:
    """The provider of the model that a string names. Raises SettingsError where there is none that can be asked."""
    provider = PROVIDERS.get(split_name(name)[0])
    if provider is None or not provider.api:
        raise SettingsError(_unknown(split_name(name)[0]))
    return provider


def is_local(name: str) -> bool:
    """Whether a model runs in this process: it is asked in its own format, whatever has worked for others."""
    provider = PROVIDERS.get(split_name(name)[0])
    return provider is not None and provider.api == "local"


def open_model(
    name: str,
    *,
    base_url: str | None = None,
    api_key: str | None = None,
    key_variable: str | None = None,
    environ: Mapping[str, str] = os.environ,
    preference: FormatPreference = NO_PREFERENCE,
    tallies: Iterable[FormatTally] = (),
) -> ChatModel:
    """The model that a string such as `anthropic:claude-sonnet-4-5` names. Nothing is sent yet.

    What is given here wins over the provider's own variables, and those over its defaults. Formats follow the
    `preference` and, where it leaves them open, what the `tallies` say has worked. Raises SettingsError for a name,
    address or preference that is wrong, ModelRefused where a key is missing.
    """
    provider, model = provider_of(name), split_name(name)[1]
    if provider.api == "local":
        return local.open_local(model)
    address = base_url or environ.get(provider.url_variable, "") or provider.base_url
    if not address:
        raise SettingsError(f"{provider.name} needs the address of its server: give a base URL such as http://host/v1")
    variable = key_variable or provider.key_variable
    key = api_key if api_key is not None else environ.get(variable, "")
    if not key and provider.needs_key and address == provider.base_url:
        raise ModelRefused(f"no key for {provider.name}: set {variable}")
    formats = coach.choose_formats(tallies, provider.name, model, preference)
    return _open_http(provider, model, address, key, variable, formats)


def _open_http(provider: Provider, model: str, address: str, key: str, variable: str, formats: Any) -> ChatModel:
    match provider.api:
        case "anthropic":
            return anthropic.AnthropicChat(model, address, key, key_variable=variable, formats=formats)
        case "ollama":
            return ollama.OllamaChat(model, address, key, formats=formats)
        case _:
            return openai.OpenAIChat(
                model,
                address,
                key,
                provider=provider.name,
                key_variable=variable,
                start_hint=provider.start_hint,
                price_list=provider.price_list if address == provider.base_url else "",
                formats=formats,
            )


def _unknown(name: str) -> str:
    if name in ("http", "https"):
        return "an address is not a model: write openai-compatible:MODEL, and give the address as --base-url"
    near = difflib.get_close_matches(name[:40], openable(), 3, 0.7)
    others = "any other that speaks the OpenAI API is openai-compatible:MODEL with --base-url"
    known = f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(openable())}; {others}"
    return f"no provider is called {name[:40]!r}; {known}"
