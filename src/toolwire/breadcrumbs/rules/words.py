"""The words by which a record is found, the same in every store.

A store keeps one line of words with each record and answers one question about them: which records have all of these
words and one of each of those groups, the newest first? Filters are asked in the same way. What a record can be
filtered by (its schema, tags, author, who may read it) stands among its words as *facets*, which begin with a character
that no word of a text can have. So a filter, a text and both together are one intersection inside the index, and no
combination of them walks through a million rows.

An index narrows down; it does not decide. Facets are short hashes, so what was found is checked against the query
itself before anybody sees it.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

from msgspec import Struct

from toolwire.lazy import lazy_pattern
from toolwire.protocol.breadcrumbs import Record, RecordQuery, Sensitivity, Visibility

MOST_TEXT = 65_536
"""Characters of a record that are indexed. The rest of a longer one is kept and read, but not found by its words."""
MOST_WORDS = 4_000
"""Distinct words of a record that are indexed."""
MOST_QUERY_TEXT = 8_192
"""Characters of a query that are read."""
MOST_QUERY_WORDS = 16
LONGEST_WORD = 40
TITLE_END = "|"
"""Stands behind the words of the title, in the line of words that is kept; it is no word itself."""

_FACET = "§"
_NORMAL = "not pii"  # as it stands in the indexes of stores: under another name, none of their records would be found
_STRIPPED = lazy_pattern("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]+")
_HUMP = lazy_pattern(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# Scripts that are written without spaces: Thai to Burmese, Khmer, kana, Han.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
)
_IS_UNSPACED = lazy_pattern(f"[{_UNSPACED}]")
_SAYS_NOTHING = frozenset(
    "a about all also am an and any are as at be been but by can could did do does for from get had has have he her "
    "his how i if in into is it its just may me might more most must my no not of on one or our she should so some "
    "such than that the their them then there these they this to too up us was we were what when where which who whom "
    "why will with would you your".split()
)
_ASCII_RUN = lazy_pattern("[A-Za-z0-9]+")
_SYMBOL = "\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff"


class WordMatch(Struct, frozen=True):
    """Records of a project that have every word of `every`, and of each group at least one.

    `match_of` makes one that has facets of the project; what is added to it only narrows it further.
    """

    project: str
    every: tuple[str, ...] = ()
    groups: tuple[tuple[str, ...], ...] = ()


def query_words(text: str) -> tuple[str, ...]:
    """The distinct words that a text asks for, in its order."""
    found = (word for run in _runs(text[:MOST_QUERY_TEXT]) for word in _words_asked(run))
    return tuple(islice(dict.fromkeys(found), MOST_QUERY_WORDS))


def search_words(text: str) -> tuple[str, ...]:
    """The same for a search: without the ending of a plural, and without words that say nothing unless all are such."""
    words = dict.fromkeys(map(_singular, query_words(text)))
    return tuple(word for word in words if word not in _SAYS_NOTHING) or tuple(words)


def record_words(record: Record) -> str:
    """The line of words that a store keeps: those of the title, a mark, other words, and the facets.

    Content that is personal or secret is not indexed, its title and tags included. Where uses are counted, the context
    is not: finding a record by a word says that it has that word, and is no use.
    """
    facets = tuple(_facets(record))
    if not is_found(record):
        return " ".join((TITLE_END, *facets))
    title = dict.fromkeys(_words_kept(record.title[:MOST_TEXT]))
    texts = _bounded(chain(record.tags, _texts(_found_by(record), keys=True)), MOST_TEXT)
    others = dict.fromkeys(word for text in texts for word in _words_kept(text) if word not in title)
    return " ".join((*islice(title, MOST_WORDS), TITLE_END, *islice(others, MOST_WORDS), *facets))


def is_found(record: Record) -> bool:
    """Whether a record is found by what it says."""
    return record.sensitivity is Sensitivity.NORMAL


def record_text(record: Record, most: int) -> str:
    """The beginning of what a record says, for an embedding: title, values and tags."""
    return "\n".join(_bounded(chain([record.title], _texts(_found_by(record), keys=False), record.tags), most))


def _found_by(record: Record) -> Mapping[str, Any]:
    return record.context if record.uses_left is None else {}


def match_of(query: RecordQuery, project: str) -> WordMatch:
    """What a query asks of the index. The times of a query are not in it."""
    words = query_words(query.text)
    every = [_facet(project, "tag", tag) for tag in query.all_tags]
    every += [_facet(project, "schema", query.schema_name)] if query.schema_name else []
    every += [_facet(project, "author", query.created_by)] if query.created_by else []
    every += [_facet(project, _NORMAL)] if query.without_sensitive else []
    groups = [tuple(_facet(project, "tag", tag) for tag in query.any_tags)] if query.any_tags else []
    if query.public_only:
        every.append(_facet(project, "public"))
    elif query.reader is not None:
        groups.append((_facet(project, "shared"), _facet(project, "private", query.reader)))
    if not every and not groups:
        every.append(_facet(project))
    if not words and query.text.strip():
        every.append(_FACET)  # a text without a word is in no record
    return WordMatch(project, tuple(dict.fromkeys((*words, *every))), tuple(groups))


def narrowed(match: WordMatch, words: Iterable[str] = (), any_of: Sequence[str] = ()) -> WordMatch:
    """The same match for records that also have all of these words, and one of those."""
    groups = (*match.groups, tuple(any_of)) if any_of else match.groups
    return WordMatch(match.project, (*words, *match.every), groups)


def matches(words: Collection[str], match: WordMatch) -> bool:
    """Whether a record with these words is meant."""
    return all(word in words for word in match.every) and all(
        any(word in words for word in group) for group in match.groups
    )


def _facets(record: Record) -> Iterator[str]:
    yield _facet(record.project)
    yield _facet(record.project, "schema", record.schema_name)
    yield _facet(record.project, "author", record.created_by)
    if record.visibility is Visibility.PRIVATE:
        yield _facet(record.project, "private", record.created_by)
    else:
        yield _facet(record.project, "shared")
    if record.visibility is Visibility.PUBLIC:
        yield _facet(record.project, "public")
    if record.sensitivity is Sensitivity.NORMAL:
        yield _facet(record.project, _NORMAL)
    for tag in dict.fromkeys(record.tags):
        yield _facet(record.project, "tag", tag)


def _facet(*parts: str) -> str:
    named = "".join(f"{len(part)}:{part}" for part in parts)
    return _FACET + blake2b(named.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def _texts(value: Any, *, keys: bool) -> Iterator[str]:
    """The texts and numbers in a tree, in its order. It may be nested as deep as it likes."""
    left = [value]
    while left:
        match left.pop():
            case str(text):
                yield text
            case bool() | None:
                pass
            case int() | float() as number:
                yield str(number)
            case Mapping() as tree:
                for name, inner in reversed(list(tree.items())):
                    left.append(inner)
                    left += [str(name)] if keys else []
            case Sequence() as items if not isinstance(items, (bytes, bytearray)):
                left += reversed(items)


def _bounded(texts: Iterable[str], most: int) -> Iterator[str]:
    """Texts up to so many characters of all of them."""
    for text in texts:
        if most <= 0:
            return
        if text:
            yield text[:most]
            most -= len(text)


def _runs(text: str) -> list[str]:
    """Letters, digits and marks that stand together, symbols one by one; as they are written, accents aside."""
    if text.isascii():
        return _ASCII_RUN.findall(text)
    plain = unicodedata.normalize("NFC", _STRIPPED.sub("", unicodedata.normalize("NFKD", text)))
    return _run_pattern().findall(plain)


@cache
def _run_pattern() -> re.Pattern[str]:
    # Vowel signs are marks in many scripts. Python's \w leaves them out, and words would be cut at each of them.
    marks = "".join(chr(code) for code in range(0x900, 0x10000) if unicodedata.category(chr(code)) in ("Mn", "Mc"))
    return re.compile(f"[{_SYMBOL}]|[{_UNSPACED}]+|(?:(?![{_UNSPACED}{_SYMBOL}])[^\\W_][{re.escape(marks)}]*)+")


def _words_asked(run: str) -> Iterator[str]:
    if run.isascii() or not _IS_UNSPACED.match(run):
        yield run.casefold()[:LONGEST_WORD]
    elif len(run) == 1:
        yield run
    else:
        yield from (run[at : at + 2] for at in range(len(run) - 1))


def _singular(word: str) -> str:
    """An English word without the ending of its plural. Other words lose no more than an s, wherever they stand."""
    if len(word) < 4 or word[-1] != "s" or word[-2] in "su":
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


def _words_kept(text: str) -> Iterator[str]:
    """What may be asked for: a word as a whole and the parts of a `camelCase` one, of unspaced scripts all pairs."""
    for run in _runs(text):
        if run.islower() and run.isascii():
            word = run[:LONGEST_WORD]
            yield word
            if word[-1] == "s":
                yield _singular(word)
            continue
        yield from map(_singular, _words_asked(run))
        yield from _words_asked(run)
        if _IS_UNSPACED.match(run):
            yield from run
        elif len(parts := _HUMP.split(run)) > 1:
            yield from (part.casefold()[:LONGEST_WORD] for part in parts)
