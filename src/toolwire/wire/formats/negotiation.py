"""Which formats a model is spoken to in: first the settings' word, then the provider's API, then the model's name.

The provider decides before the model, because a request goes through its API whatever the model is called. A model's
name is read by whole words from its beginning: `codellama` is no Llama, and `llama3-claude` is no Claude.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from toolwire.errors import SettingsError
from toolwire.protocol.providers import PROVIDERS
from toolwire.wire.encode.request import Dialect
from toolwire.wire.formats.preference import AUTO, NO_PREFERENCE, FormatPreference
from toolwire.wire.formats.registry import DIALECTS, dialect_of

DEFAULT = "openai"
KEPT_ANSWERS = 256

FAMILIES: Mapping[str, str] = {
    "claude": "anthropic",
    "gpt": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "gemini": "gemini",
    "mistral": "mistral",
    "magistral": "mistral",
    "ministral": "mistral",
    "codestral": "mistral",
    "devstral": "mistral",
    "command": "cohere",
}
"""The API of a model family, for a provider that is not in the table."""

TEXT_FORMS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("qwen", "3", "coder"), "qwen_xml"),
    (("nemotron", "3"), "qwen_xml"),
    (("qwen",), "hermes"),
    (("qwq",), "hermes"),
    (("hermes",), "hermes"),
    (("granite",), "hermes"),
    (("smollm",), "hermes"),
)
"""The form that a model family was trained on, first match; the words stand at the beginning of its name, in order."""

TEXT_DEFAULT = "hermes"
_WORD = re.compile(r"[a-z]+|\d+")


class Formats(Struct, frozen=True):
    """The formats of one conversation and, in a sentence, why these."""

    definition_format: str
    call_parser: str
    result_format: str
    why: str = ""

    @property
    def provider(self) -> str:
        """The word for `parse_reply`: a provider's own format, else text in which every form is known."""
        return self.call_parser if self.call_parser == AUTO or _native(self.call_parser) else "text"

    def dialect(self, model: str = "") -> Dialect:
        """How requests are written: tools as the definition format wants them, calls and results as the other does."""
        telling = dialect_of(self.definition_format, model)
        if self.result_format == self.definition_format:
            return telling
        history = dialect_of(self.result_format, model)
        return replace(telling, encode_message=history.encode_message, id_fits=history.id_fits, bridge=history.bridge)


def negotiate(provider: str, model: str, preference: FormatPreference = NO_PREFERENCE) -> Formats:
    """The formats for this model, the same value for the same question.

    Raises SettingsError for a preference that the provider's API cannot carry.
    """
    return _settled(
        provider.strip().lower(), model, preference.definition_format, preference.call_parser, preference.result_format
    )


@lru_cache(maxsize=KEPT_ANSWERS)
def _settled(provider: str, model: str, wanted: str, parser: str, results: str) -> Formats:
    definition, why = _definition(provider, model, wanted)
    results = definition if results == AUTO else results
    if results != definition and not _can_follow(results, definition):
        raise SettingsError(f"result_format {results!r} cannot follow definition_format {definition!r}")
    if parser == AUTO:
        parser = definition if _native(definition) else "text"
    return Formats(definition, parser, results, why)


def _definition(provider: str, model: str, wanted: str) -> tuple[str, str]:
    usual, why = _usual(provider, model)
    if wanted == AUTO:
        return usual, why
    if wanted not in DIALECTS:
        raise SettingsError(f"no format is called {wanted[:40]!r}; known are {', '.join(DIALECTS)}")
    row = PROVIDERS.get(provider)
    if row and row.format and not _can_carry(usual, wanted):
        raise SettingsError(f"{provider} takes tools as {usual!r}; definition_format {wanted!r} cannot be sent there")
    return wanted, f"the settings ask for {wanted}"


def _can_carry(usual: str, wanted: str) -> bool:
    """Prompted forms are ordinary chat messages; a native form needs the API that it belongs to."""
    owner = DIALECTS[usual].owner
    return wanted == usual or _can_follow(wanted, usual) or (owner != "" and owner == DIALECTS[wanted].owner)


def _can_follow(results: str, definition: str) -> bool:
    return results in DIALECTS and DIALECTS[results].prompted and DIALECTS[definition].chat


def _native(name: str) -> bool:
    return name in DIALECTS and not DIALECTS[name].prompted


def _usual(provider: str, model: str) -> tuple[str, str]:
    row = PROVIDERS.get(provider)
    if row and row.format:
        return row.format, f"{provider} takes tools as {row.format}"
    words = name_words(model)
    if row:
        form = next((form for family, form in TEXT_FORMS if _begins(words, family)), TEXT_DEFAULT)
        return form, f"{provider} carries text only, and {model[:80] or 'this model'} reads {form}"
    family = words[0] if words else ""
    family = family if family in FAMILIES else "".join(words[:2])
    found = FAMILIES.get(family, DEFAULT)
    known = f"models of the family {family} take" if family in FAMILIES else "most servers take"
    return found, f"the provider is not known, and {known} tools as {found}"


def name_words(model: str) -> tuple[str, ...]:
    """The words of a model's name, without its publisher and its tag: letters and numbers apart."""
    name = model[:200].lower().rpartition("/")[2].partition(":")[0]
    return tuple(_WORD.findall(name))


def _begins(words: tuple[str, ...], family: tuple[str, ...]) -> bool:
    """Whether a name begins with these words; before the last of them, if it is no number, a size or date may stand."""
    *first, last = family
    if words[: len(first)] != tuple(first):
        return False
    rest = words[len(first) :]
    return last in rest if first and last.isalpha() else rest[:1] == (last,)
