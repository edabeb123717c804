"""Every outbound dialect by its name. A new provider is one module and one word here."""

from toolwire.wire.encode import anthropic, bedrock, cohere, gemini, mistral, ollama, openai_chat, openai_responses
from toolwire.wire.encode.request import Dialect
from toolwire.wire.prompted import grammar, hermes, qwen_xml, rcrt

_NATIVE = (openai_chat, openai_responses, anthropic, gemini, ollama, mistral, cohere, bedrock)
_PROMPTED = (hermes, qwen_xml, rcrt, grammar)

NATIVE: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (*(module.DIALECT for module in _NATIVE), openai_chat.STRICT)
}
PROMPTED: dict[str, Dialect] = {module.DIALECT.name: module.DIALECT for module in _PROMPTED}
DIALECTS: dict[str, Dialect] = NATIVE | PROMPTED


def dialect_of(name: str, model: str = "") -> Dialect:
    """The dialect of that name, as this model wants it. Raises KeyError for a name that nobody speaks."""
    return gemini.dialect_for(model) if name == gemini.DIALECT.name else DIALECTS[name]
