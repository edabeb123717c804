"""Which formats a model is spoken to in. The table is the specification."""

import pytest

from toolwire.errors import SettingsError
from toolwire.protocol.calls import Text, ToolCall, ToolResult
from toolwire.protocol.chat import Reply, Request, ResultsMessage, UserMessage
from toolwire.protocol.outcomes import Status
from toolwire.protocol.providers import PROVIDERS
from toolwire.protocol.tools import Tool
from toolwire.settings.schema import WireFormats
from toolwire.wire.encode.request import encode_request
from toolwire.wire.formats.negotiation import Formats, negotiate
from toolwire.wire.formats.preference import FormatChoice
from toolwire.wire.formats.registry import DIALECTS

CLOCK = Tool("clock", "Tell the time.")


@pytest.mark.feature("F079", "F080")
@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("openai", "gpt-4o", "openai"),
        ("OpenAI", "gpt-4o", "openai"),
        ("anthropic", "claude-sonnet-4-5", "anthropic"),
        ("ollama", "qwen3:8b", "ollama"),
        ("google", "gemini-2.5-pro", "gemini"),
        ("mistral", "mistral-large-latest", "mistral"),
        ("cohere", "command-a-03-2025", "cohere"),
        ("bedrock", "anthropic.claude-sonnet-4-5-v1:0", "bedrock"),
        ("openai_responses", "gpt-5", "openai_responses"),
        ("vllm", "Qwen/Qwen3-Coder-30B-A3B-Instruct", "openai"),
        ("openai-compatible", "anything", "openai"),
    ],
)
def test_the_provider_decides_whatever_its_model_is_called(provider: str, model: str, expected: str) -> None:
    found = negotiate(provider, model)

    assert (found.definition_format, found.call_parser, found.result_format) == (expected, expected, expected)
    assert provider.lower() in found.why


@pytest.mark.feature("F079", "F081")
@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("openrouter", "qwen/qwen3-coder", "openai"),
        ("openrouter", "anthropic/claude-sonnet-4.5", "openai"),
        ("ollama", "codellama:13b", "ollama"),
        ("ollama", "incept5/llama3.1-claude", "ollama"),
        ("lmstudio", "claude-3-opus-distilled-8b", "openai"),
        ("groq", "llama-3.3-70b-versatile", "openai"),
        ("somewhere", "codellama-34b", "openai"),
        ("somewhere", "llama3.1-claude", "openai"),
        ("somewhere", "claude-opus-4-1", "anthropic"),
        ("somewhere", "claudette-7b", "openai"),
        ("somewhere", "gemini-2.5-flash", "gemini"),
        ("somewhere", "gpt-4.1", "openai"),
        ("somewhere", "o3-mini", "openai"),
        ("somewhere", "mistral-small", "mistral"),
        ("somewhere", "not-mistral-small", "openai"),
        ("somewhere", "", "openai"),
        ("text", "Qwen/Qwen3-Coder-480B", "qwen_xml"),
        ("text", "qwen3-30b-a3b-coder", "qwen_xml"),
        ("text", "qwen2.5-coder-3b", "hermes"),
        ("text", "nemotron-3-nano", "qwen_xml"),
        ("text", "nemotron-nano-3b", "hermes"),
        ("text", "NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
        ("text", "smollm2:360m", "hermes"),
    ],
)
def test_a_name_is_read_by_its_first_words_and_never_by_a_part_of_them(
    provider: str, model: str, expected: str
) -> None:
    """Substring traps: qwen behind an OpenAI-style host, codellama, and local models named after Claude."""
    assert negotiate(provider, model).definition_format == expected


@pytest.mark.feature("F079", "F083")
def test_the_settings_of_a_profile_come_first() -> None:
    preference = WireFormats(definition_format="hermes", call_parser="text", result_format="hermes")

    found = negotiate("ollama", "qwen3:8b", preference)

    assert found == Formats("hermes", "text", "hermes", "the settings ask for hermes")
    assert found.dialect() is DIALECTS["hermes"]


def test_the_same_question_is_answered_once() -> None:
    """A settings file and a program that preference for the same get the very same answer."""
    first = negotiate("vllm", "qwen3-coder", FormatChoice("hermes"))

    assert negotiate("vLLM ", "qwen3-coder", WireFormats(definition_format="hermes")) is first
    assert negotiate("vllm", "qwen3-coder") is negotiate("vllm", "qwen3-coder")
    assert negotiate("vllm", "qwen3-coder") is not first


@pytest.mark.feature("F082")
def test_left_to_itself_a_prompted_form_is_read_with_every_text_form_known() -> None:
    assert negotiate("text", "qwen3-coder").provider == "text"
    assert negotiate("openai", "gpt-4o", FormatChoice(call_parser="auto")).provider == "openai"
    assert negotiate("openai", "gpt-4o", FormatChoice(call_parser="anthropic_xml")).provider == "text"


@pytest.mark.parametrize(
    ("provider", "preference", "sentence"),
    [
        ("anthropic", FormatChoice("openai"), "anthropic takes tools as 'anthropic'"),
        ("google", FormatChoice("hermes"), "google takes tools as 'gemini'"),
        ("openai", FormatChoice("xml"), "no format is called 'xml'"),
        ("openai", FormatChoice(result_format="anthropic"), "result_format 'anthropic' cannot follow"),
        ("anthropic", FormatChoice(result_format="hermes"), "result_format 'hermes' cannot follow"),
    ],
)
def test_a_preference_that_the_api_cannot_carry_is_refused_in_words(
    provider: str, preference: FormatChoice, sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence):
        negotiate(provider, "m", preference)


@pytest.mark.feature("F083")
def test_definitions_can_be_native_while_calls_and_results_are_told_in_text() -> None:
    dialect = negotiate("openai", "m", FormatChoice(result_format="hermes")).dialect("m")
    call = ToolCall("clock", {}, id="c1")
    answer = ToolResult("c1", "clock", Status.SUCCESS, (Text("noon"),))
    request = Request((UserMessage("go"), Reply(calls=(call,)), ResultsMessage((answer,))), (CLOCK,))

    body = encode_request(dialect, request, {})

    assert body["tools"][0]["function"]["name"] == "clock"
    assert "<tool_call>" in body["messages"][1]["content"]
    assert "<tool_response>" in body["messages"][2]["content"]


def test_every_provider_of_the_table_speaks_a_dialect_that_exists() -> None:
    assert {provider.format for provider in PROVIDERS.values()} - {""} <= DIALECTS.keys()
