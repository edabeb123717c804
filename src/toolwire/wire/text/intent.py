"""How likely a call in a text is meant, by the words around it: a small trained model, for what structure leaves open.

It looks at the last two sentences before a call, at the first three behind it and at how the call stands there. Each
word, each pair of words, four letters each in a row, how sentences begin and end, and the endings of words that were
never seen are features, and so are the words of all sentences nearby; the sum of their weights is the score. The
weights are in `intent_weights`, found by a hash of the feature, and `training.intent` makes them. The work is linear
in a few hundred characters, whatever comes.
"""

import re
from base64 import b85decode
from functools import lru_cache
from math import exp
from zlib import crc32, decompress

from msgspec import Struct

from toolwire.wire.text.intent_weights import BUCKETS, PACKED, SCALE

_LONGEST = 360
_WORDS = 40
_SENTENCES_BEHIND = 3
_LETTERS, _LETTERED = 4, 200
_SURE = 30.0
_CONTRACTED = re.compile(r"(?:\b(?:wo|ca)n't|n't|'(?:ll|m|re|ve|d|s))(?!\w)|\bcannot\b")
_SPELLED_OUT = {
    "won't": "will not", "can't": "can not", "cannot": "can not", "n't": " not", "'ll": " will", "'m": " am",
    "'re": " are", "'ve": " have", "'d": " would", "'s": " is",
}  # fmt: skip
_CODE = re.compile(r"```[^`]*+(?:```)?|`([^`\n]{0,200})`")
_LEFT_OUT = re.compile(r"[\[({]++\"[^\n]*+|\([^()\n]{0,200}\)|（[^（）\n]{0,200}）|[*#>~]++")
_QUOTED = re.compile(r"“[^”\n]{0,200}”|\"[^\"\n]{0,200}\"|«[^»\n]{0,200}»|„[^“”\n]{0,200}[“”]|「[^」\n]{0,200}」")
_NAME = re.compile(r"(?<![\w~@./-])(?:https?:/)?[./]*+[\w~@-]++(?>[./:][\w~@-]++)++")
_END = re.compile(r"[.!?…]++[\"')]*+(?=\s|$)|[。！？؟।]|\n++")
_CLAUSE = re.compile(r"[,;—–،、，；]|\s-\s|:\s|\s(?=(?:but|so|and|then|therefore|aber|also|mais|donc|pero|así)\s)")
_WORD = re.compile(r"\w++(?:'\w++)?")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u2e80-\u9fff\uac00-\ud7af]++")
_ITEM = r"[ \t]*(?:(?:[-*+•–]|\d{1,3}[.)])[ \t]|[・·])[^\n]*+"
_LIST = re.compile(rf"(?:\A|\n){_ITEM}(?>\n++{_ITEM})++\Z")
_HEADING = re.compile(
    r"[ \t]*(?:#{1,6} |\*\*[^*\n]++\*\*:?[ \t]*\Z|(?:\*\*)?\w{0,12} ?\d{1,2}(?: ?/ ?\d{1,2})?[.:)：])"
)
_ASIDE = re.compile(r"[*_]*+[(（\[]([^()（）\[\]\n]{1,200}+)[)）\]][*_]*+\Z")
_VERDICTS = frozenset("❌✅🚫⛔👎👍✔✗✘✓❎☑")
_FREQUENT = frozenset(
    "will would could should might have this that these here what when then than with your they them been being were "
    "does from like just only never which there where first next before after again also instead into must".split()
)


class Surroundings(Struct, frozen=True):
    """The words before and behind a call; how it stands; whether the words behind lead to another call."""

    before: str
    behind: str
    form: str
    leads_on: bool = False
    traits: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def _weights() -> memoryview:
    return memoryview(decompress(b85decode(PACKED.replace("\n", "")))).cast("b")


@lru_cache(maxsize=128)  # a stream is read again while it grows
def chance(surroundings: Surroundings) -> float:
    """How likely a call with these surroundings is meant, from 0 to 1."""
    weights = _weights()
    return likelihood(sum(weights[bucket] for bucket in buckets(surroundings)) / SCALE)


def likelihood(score: float) -> float:
    """What a score says, from 0 to 1."""
    return 1 / (1 + exp(-max(-_SURE, min(_SURE, score))))


def buckets(surroundings: Surroundings, count: int = BUCKETS) -> set[int]:
    """Where the weights of all features are."""
    return {crc32(feature.encode()) % count for feature in features(surroundings)}


def features(surroundings: Surroundings) -> set[str]:
    """What the model weighs."""
    out = {"*", f"form {surroundings.form}", *surroundings.traits}
    _see_before(surroundings, out)
    _see_behind(surroundings, out)
    return out


def _see_before(around: Surroundings, out: set[str]) -> None:
    text = around.before[-_LONGEST:].rstrip()
    if (items := _LIST.search(text)) is not None and around.before.endswith("\n"):
        out.add("after list")
        text = text[: items.start()].rstrip()
    if not text:
        out.update(("before none", f"before none {around.form}"))
        return
    end = ending(text)
    line = "" if around.before.rstrip(" \t").endswith("\n") else "line "
    out.update((f"end {end}", f"end {end} {around.form}", f"end {line}{end}"))
    last = text[text.rfind("\n") + 1 :]
    if last.lstrip(" *_#>-")[:1] in _VERDICTS:
        out.add("verdict")
    if _HEADING.match(last):
        out.add("heading")
    sentences = _sentences(text)
    if not sentences:
        return
    _see_all("B", sentences, out)
    _see_letters("G", sentences[-1], out)
    _see_last(sentences[-1], end, out)
    if len(sentences) > 1:
        out.add("before many")
        _see_sentence("p", _words(sentences[-2]), out)


def _see_last(sentence: str, end: str, out: set[str]) -> None:
    """The last sentence before the call, and its last clause, which says most."""
    words = _words(sentence)
    clauses = [clause for clause in map(_words, _CLAUSE.split(sentence)) if clause]
    clause = clauses[-1] if clauses else words
    _see_sentence("l", words, out)
    _see_start("c", clause, out)
    if len(clauses) > 1:
        out.update("c " + word for word in clause)
    out.update("k " + _kind(word) for word in clause)
    out.update((f"length {min(len(words) // 3, 6)} {end}", f"close {' '.join(words[-2:])} {end}"))
    out.update((f"close {words[-1]} {end}", f"close /{_kind(words[-1])} {end}"))


def _see_behind(around: Surroundings, out: set[str]) -> None:
    text = around.behind[:_LONGEST].strip()
    if not text:
        out.update(("behind none", f"behind none {around.form}"))
        return
    if (aside := _ASIDE.match(text)) is not None:
        out.add("behind aside")
        text = aside[1]
    near = _sentences(text)
    sentences = [_words(sentence) for sentence in near[:_SENTENCES_BEHIND]]
    if around.leads_on:
        out.add("leads on")
        for words in sentences[-1:]:
            _see_sentence("l", words, out)
            _see_start("c", words, out)
        return
    goes_on = "on" if text[0].islower() or text[0] in ",;:)." else "new"
    out.update((f"behind {goes_on}", f"behind {goes_on} {around.form}", f"behind length {min(len(text) // 40, 5)}"))
    if any(mark in text for mark in "?？؟"):
        out.add("behind asks")
    _see_all("A", near, out)
    _see_letters("H", " ".join(near[:_SENTENCES_BEHIND])[:_LETTERED], out)
    for place, words in zip("fgg", sentences, strict=False):
        _see_sentence(place, words, out)


def _see_all(place: str, sentences: list[str], out: set[str]) -> None:
    """The words, wherever they stand."""
    out.update(f"{place} {word}" for sentence in sentences for word in _words(sentence))


def _see_letters(place: str, text: str, out: set[str]) -> None:
    """Letters in a row, which words of one root have in common."""
    row = f" {' '.join(_WORD.findall(text))} "[-_LETTERED:]
    out.update(place + row[at : at + _LETTERS] for at in range(len(row) - _LETTERS + 1))


def _see_sentence(place: str, words: list[str], out: set[str]) -> None:
    before = "^"
    for word in words:
        out.add(f"{place} {word}")
        out.add(f"{place} {before} {word}")
        before = word
    _see_start(place + "^", words, out)


def _see_start(place: str, words: list[str], out: set[str]) -> None:
    """How a sentence or a clause begins: its first words, and their kinds for words that were never seen."""
    one, *rest = map(_kind, words[:4])
    out.update((f"{place} {words[0]}", f"{place} {' '.join(words[:2])}", f"{place} {' '.join(words[:3])}"))
    kinds = f"{place} /{one}"
    out.add(kinds)
    for kind in rest:
        kinds += " " + kind
        out.add(kinds)


def _kind(word: str) -> str:
    """A short or frequent word as it is, any other by its end."""
    if len(word) < 4 or word in _FREQUENT:
        return word
    if word.endswith(("ing", "ndo")):
        return "-" + word[-3:]
    return "-" + word[-1 if word.isascii() and not word.endswith("ed") else -2 :]


def ending(text: str) -> str:
    """What a text ends with: a colon, a question mark, a full stop or the like, or nothing."""
    last = text.rstrip("*_ \t\n\"'”»)")[-1:]
    if last in ":：":
        return ":"
    if last in "?？؟":
        return "?"
    return "none" if last.isalnum() or last in ",;，、`" else "."


def _sentences(text: str) -> list[str]:
    """The sentences in lower case, without code, asides and markup, and with F and Q for names and quotations."""
    plain = _CODE.sub(lambda code: " Q " if code[1] else " ", text.lower().replace("’", "'"))
    plain = _LEFT_OUT.sub(" ", plain)
    if "'" in plain or "cannot" in plain:
        plain = _CONTRACTED.sub(lambda short: _SPELLED_OUT[short[0]], plain)
    plain = _NAME.sub(" F ", _QUOTED.sub(" Q ", plain))
    return [part for part in _END.split(plain) if _WORD.search(part)]


def _words(text: str) -> list[str]:
    out: list[str] = []
    for word in _WORD.findall(text):
        if word.isascii():
            out.append("0" if word[0].isdigit() else "F" if "_" in word else word)
        elif (run := _UNSPACED.search(word)) is not None:
            written = run[0]
            out.extend(written[at : at + 2] for at in range(max(1, len(written) - 1)))
        else:
            out.append(word)
        if len(out) >= _WORDS:
            break
    return out
