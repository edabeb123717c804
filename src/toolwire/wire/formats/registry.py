"""Every format by its name: the one table that settings, the choice of a format, costs and the docs read.

A new format is one module and one row. A provider's own format also needs a reader in `wire/native/detect.py`.
"""

from toolwire.wire.encode import anthropic, bedrock, cohere, gemini, mistral, ollama, openai_chat, openai_responses
from toolwire.wire.encode.request import Dialect
from toolwire.wire.prompted import compact, grammar, hermes, qwen_xml, rcrt

DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect
    for dialect in (
        openai_chat.DIALECT,
        openai_chat.STRICT,
        openai_responses.DIALECT,
        anthropic.DIALECT,
        gemini.DIALECT,
        ollama.DIALECT,
        mistral.DIALECT,
        cohere.DIALECT,
        bedrock.DIALECT,
        hermes.DIALECT,
        qwen_xml.DIALECT,
        rcrt.DIALECT,
        compact.DIALECT,
        grammar.DIALECT,
    )
}


def dialect_of(name: str, model: str = "") -> Dialect:
    """The dialect of that name, as this model wants it. Raises KeyError for an unknown name."""
    return gemini.dialect_for(model) if name == gemini.DIALECT.name else DIALECTS[name]
