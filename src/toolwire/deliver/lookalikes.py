"""Letters and marks that look like others, made visible: `p\\u0430ypal` for a word with a Cyrillic letter. Pure.

Words of one script stay as they are, in whatever language. What is written as an escape: a letter of another alphabet
in a word that has Latin ones, a word of which every letter has a Latin twin, the wide and ornamental forms of ASCII,
and marks that pass for a dash, slash, colon or bar where a command would give them a meaning.
"""

import re
import unicodedata
from functools import lru_cache

from toolwire.lazy import lazy_pattern

_TWINS = frozenset(
    "аԁеһіјӏоԛрѕсѵѡхуүАВЕЅІЈКМНОРСТУХԜ"  # Cyrillic
    "αγικνορτυχΑΒΕΖΗΙΚΜΝΟΡΤΥΧϲϳ"  # Greek
    "օսցհոզгքՕՍԼ"  # Armenian
    "ᎪᏴᏟᎠᎬᏀᎻᎥᎫᏦᏞᎷᏢᎡᏚᎢᏙᎳᏃ"  # Cherokee
    "ıȷɑɡɩɪʏᴄᴏᴠᴡᴢꜱ"  # Latin beyond ASCII
)
_SIMILAR_ALPHABETS = ("CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "LISU", "DESERET", "GOTHIC")
_ORNAMENTAL = ("<wide>", "<narrow>", "<font>", "<circle>", "<square>")
_PASSES_FOR_ASCII = frozenset(
    "\u037e\u2215\u2044\u29f8\u27cb\u2236\u02d0\ua789\u2223\u01c0\u2024\ufe68\u2216\u29f5\uff3f"
)
_DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d"
_WORD = lazy_pattern(r"[^\W_]+")
_OPTION = lazy_pattern(rf"(?<!\S)[{_DASHES}]+(?=[A-Za-z0-9\-{_DASHES}])")


def mark_lookalikes(text: str) -> str:
    """The text with an escape in place of each character that passes for another one."""
    if text.isascii():
        return text
    text = _WORD.sub(lambda word: _marked_word(word, text), text)
    text = _OPTION.sub(lambda dashes: escape(dashes[0]), text)
    return "".join(escape(char) if _is_disguised(char) else char for char in text)


def escape(text: str) -> str:
    """Every character as JSON writes it when it may not stand for itself."""
    units = text.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _marked_word(found: re.Match[str], text: str) -> str:
    word = found[0]
    if word.isascii():
        return word
    if any("a" <= char.lower() <= "z" for char in word):
        return "".join(escape(char) if _is_foreign(char) or char in _TWINS else char for char in word)
    is_alone = len(word) == 1 and not _touches_ascii(found, text)
    return word if is_alone or not _TWINS.issuperset(word) else escape(word)


def _touches_ascii(found: re.Match[str], text: str) -> bool:
    """Whether a mark of ASCII, such as a slash, stands right beside a word. Those of sentences do not count."""
    around = text[max(found.start() - 1, 0) : found.start()] + text[found.end() : found.end() + 1]
    return any("!" <= char <= "~" and char not in ".,;:!?\"'()" for char in around)


@lru_cache(4096)
def _is_foreign(char: str) -> bool:
    """Whether a letter is of an alphabet that resembles the Latin one, or a digit of another script."""
    return not char.isascii() and (char.isdecimal() or unicodedata.name(char, "").startswith(_SIMILAR_ALPHABETS))


@lru_cache(4096)
def _is_disguised(char: str) -> bool:
    """Whether a character is ASCII in another form, or passes for a mark of it."""
    if char.isascii():
        return False
    if char in _PASSES_FOR_ASCII:
        return True
    form = unicodedata.decomposition(char)
    plain = unicodedata.normalize("NFKC", char)
    if not plain.isascii() or not plain.strip():
        return False
    is_letters = form.startswith("<compat>") and unicodedata.category(char)[0] in "LN"
    return form.startswith(_ORNAMENTAL) or is_letters or not form.startswith("<")
