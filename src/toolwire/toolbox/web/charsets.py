"""The text of a page, whatever character set it was written in."""

import codecs

# Python's other codecs are no character sets of pages, and some take very long over hostile bytes.
_CHARSETS = frozenset(
    "utf-8 utf-16 utf-16-le utf-16-be ascii cp1250 cp1251 cp1252 cp1253 cp1254 cp1255 cp1256 cp1257 cp1258 cp874 "
    "iso8859-1 iso8859-2 iso8859-3 iso8859-4 iso8859-5 iso8859-6 iso8859-7 iso8859-8 iso8859-10 iso8859-13 iso8859-14 "
    "iso8859-15 iso8859-16 koi8-r koi8-u mac-roman shift_jis cp932 euc_jp gb2312 gbk gb18030 big5 euc_kr cp949".split()
)
_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_ENDS_NAME = str.maketrans(dict.fromkeys("\"';>/,", " "))


def decode_page(body: bytes, content_type: str) -> str:
    """The text, by its byte order mark, what the server says, what the page says, or UTF-8."""
    for mark, charset in _MARKS:
        if body.startswith(mark):
            return body[len(mark) :].decode(charset, "replace")
    said = _charset(content_type) or _charset(body[:1024].decode("latin-1"))
    if said:
        return body.decode(said, "replace")
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as wrong:
        # Where only the last character was cut off, it is UTF-8 all the same.
        charset = "utf-8" if wrong.reason == "unexpected end of data" else "cp1252"
        return body.decode(charset, "replace")


def _charset(said: str) -> str:
    """The character set that is named after `charset=`, if it is one of those that pages use."""
    after = said.lower().partition("charset=")[2].lstrip("\"' ")[:40]
    name = after.translate(_ENDS_NAME).partition(" ")[0]
    try:
        known = codecs.lookup(name).name if name.isascii() and name.isprintable() and name else ""
    except (LookupError, ValueError):
        known = ""
    return known if known in _CHARSETS else ""
