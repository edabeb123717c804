"""Text as it may be shown: its words, and nothing that acts on a terminal or hides from eyes.

Escape sequences, control characters, marks that turn text around and characters that show nothing are taken out.
Line ends and tabs stay; a carriage return that would write over a line becomes a line end.
"""

from collections.abc import Iterator

from toolwire.lazy import lazy_pattern

# Marks of direction, zero width, fillers, tags and selectors: what text can carry without anyone seeing it. A list,
# since asking for the category of a million characters would take longer than all else that is done at start.
_UNSEEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0d\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff"
_ENDS_A_LINE = "\u2028\u2029\x85"
_LONE_RETURN = r"\r(?!\n)"
# No part can be read in two ways and each ends at the next ESC, so that the whole is one pass over the text.
_SEQUENCE = lazy_pattern(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]?"  # CSI: colours, cursor, modes
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*+(?:\x07|\x1b\\|\x9c)"  # OSC, DCS and other strings
    r"|\x1b[ -/]*+[0-~]?"  # anything else that ESC begins, or a lone ESC
    rf"|[{_CONTROLS}{_UNSEEN}]+"
)
# One of them chooses between text and picture; a row of them can only carry something unseen.
_SELECTORS = lazy_pattern(r"(?<=[\ufe0e\ufe0f])[\ufe0e\ufe0f]+")
_SUSPECT = lazy_pattern(rf"[{_CONTROLS}{_UNSEEN}{_ENDS_A_LINE}\ufe0e\ufe0f]|{_LONE_RETURN}")
_LINE_END = lazy_pattern(rf"[{_ENDS_A_LINE}]|{_LONE_RETURN}")


_LONG_CHARS = 1 << 20
_PIECE_CHARS = 1 << 18
# A sequence ends before a line end, and before the ESC of the next one; ESC with a backslash ends it.
_SAFE_CUT = lazy_pattern(r"(?<=\n)|(?=\x1b[^\\])")


def visible(text: str) -> str:
    """The text as it may be shown. A text with nothing to take out comes back as it is."""
    if len(text) <= _LONG_CHARS:
        return _visible(text)
    pieces = list(_pieces(text))
    shown = list(map(_visible, pieces))
    return text if all(after is before for before, after in zip(pieces, shown, strict=True)) else "".join(shown)


def _pieces(text: str) -> Iterator[str]:
    """A long text in pieces that can be made visible one by one: one pass over all of it lets no other thread run."""
    begin = 0
    while begin < len(text):
        end = begin + _PIECE_CHARS
        piece = text[begin:end]
        if end < len(text) and not _is_plain(piece) and _SUSPECT.search(text, begin, end + 1) is not None:
            cut = _SAFE_CUT.search(text, end)
            end = cut.start() if cut else len(text)
            piece = text[begin:end]
        yield piece
        begin = end


def _visible(text: str) -> str:
    if _is_plain(text) or _SUSPECT.search(text) is None:
        return text
    return _SELECTORS.sub("", _SEQUENCE.sub("", _LINE_END.sub("\n", text)))


def _is_plain(text: str) -> bool:
    """Whether a text is ASCII without control characters: a quick look that spares most texts the thorough one."""
    return text.isascii() and (text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable())
