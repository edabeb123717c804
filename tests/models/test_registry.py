"""How names become models: providers, addresses, keys and profiles."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from toolwire.cli.entry.exits import Exit
from toolwire.errors import ModelRefused, SettingsError
from toolwire.models.http_chat import HttpChat
from toolwire.models.opening import open_model
from toolwire.protocol.providers import PROVIDERS

from .conftest import KEY, QUESTION, Client
from .provider import Provider

KEYS = {provider.key_variable: KEY for provider in PROVIDERS.values() if provider.key_variable}


def opened(name: str, **given: Any) -> HttpChat:
    model = open_model(name, **({"environ": KEYS} | given))
    assert isinstance(model, HttpChat)
    return model


@pytest.mark.parametrize("provider", [each for each in PROVIDERS.values() if each.base_url], ids=lambda each: each.name)
def test_every_provider_opens_at_its_usual_address_with_its_usual_key(provider: Any) -> None:
    model = opened(f"{provider.name}:some-model")

    assert model.name == f"{provider.name}:some-model"
    assert model.site.base_url == provider.base_url
    assert model.site.api_key == KEY


@pytest.mark.parametrize(
    ("name", "known_as"),
    [
        ("openrouter/openai/gpt-4o", "openrouter:openai/gpt-4o"),
        ("openrouter:openai/gpt-4o", "openrouter:openai/gpt-4o"),
        ("ollama:qwen3:8b", "ollama:qwen3:8b"),
        ("ollama/qwen3:8b", "ollama:qwen3:8b"),
        (" OpenAI : gpt-4o ", "openai:gpt-4o"),
    ],
)
def test_the_first_colon_or_slash_ends_the_provider(name: str, known_as: str) -> None:
    assert opened(name).name == known_as


@pytest.mark.parametrize("name", ["gpt-4o", "openai:", ":gpt", "", "openai: "])
def test_a_name_without_both_halves_is_told(name: str) -> None:
    with pytest.raises(SettingsError, match="provider:model"):
        opened(name)


def test_an_unknown_provider_is_answered_with_the_nearest_names() -> None:
    with pytest.raises(SettingsError, match="did you mean anthropic"):
        opened("antropic:claude")
    with pytest.raises(SettingsError, match="known are openai, anthropic"):
        opened("zzzzzz:model")


def test_a_missing_key_names_its_variable() -> None:
    with pytest.raises(ModelRefused, match="no key for anthropic: set ANTHROPIC_API_KEY"):
        opened("anthropic:claude", environ={})


@pytest.mark.parametrize(
    ("name", "variable", "value", "address"),
    [
        ("openai:m", "OPENAI_BASE_URL", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1"),
        ("anthropic:m", "ANTHROPIC_BASE_URL", "http://127.0.0.1:9/v1", "http://127.0.0.1:9"),
        ("ollama:m", "OLLAMA_HOST", "0.0.0.0:9", "http://127.0.0.1:9"),
        ("ollama:m", "OLLAMA_HOST", "box", "http://box:11434"),
        ("ollama:m", "OLLAMA_HOST", "https://box.example/ollama/", "https://box.example/ollama"),
        ("ollama:m", "OLLAMA_HOST", "[::1]:9", "http://[::1]:9"),
        ("ollama:m", "OLLAMA_HOST", ":9", "http://127.0.0.1:9"),
    ],
)
def test_the_usual_variables_move_a_provider_and_then_no_key_is_needed(
    name: str, variable: str, value: str, address: str
) -> None:
    assert opened(name, environ={variable: value}).site.base_url == address


def test_a_compatible_server_needs_its_address_and_gets_no_other_providers_key() -> None:
    with pytest.raises(SettingsError, match="give a base URL"):
        opened("openai-compatible:m")

    assert opened("openai-compatible:m", base_url="http://127.0.0.1:9/v1").site.api_key == ""


@pytest.mark.feature("F235")
async def test_a_profile_of_provider_model_url_and_key_variable_opens_and_is_asked(
    client: Client, provider: Provider
) -> None:
    profile = {"base_url": provider.url + client.base_path, "key_variable": "MY_KEY"}
    provider.will(client.whole)
    model = opened(f"{client.name}:house-model", **profile, environ={"MY_KEY": KEY, **dict.fromkeys(KEYS, "wrong")})

    reply = await model.ask(QUESTION)

    assert reply.content == "Let me look."
    assert provider.bodies[0]["model"] == "house-model"
    assert KEY in " ".join(provider.asked[0].headers.values())
    await model.close()


def test_the_embedded_model_without_its_extra_says_how_to_get_it(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['xllamacpp'] = None; sys.argv[1:] = ['ask', 'Hi', '--model', 'local:smollm2']\n"
        "from toolwire.cli import main\n"
        "main()"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=tmp_path)

    assert said.returncode == Exit.MODEL
    assert 'pip install "toolwire[local]"' in said.stderr


def test_the_registry_loads_no_client_before_a_model_is_opened() -> None:
    program = "import sys, toolwire.models.opening; print({'httpx2', 'xllamacpp', 'genai_prices'} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    assert said.stdout.strip() == "set()"
