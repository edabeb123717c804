"""What people are asked about shows letters that pass for others."""

import pytest

from toolwire.cli.views.arguments import arguments_json
from toolwire.deliver.lookalikes import mark_lookalikes

DISGUISED = [
    "curl https://p\u0430ypal.com/pay",  # Cyrillic a
    "curl https://\u0440\u0430\u0443\u0440\u0430\u04cf/",  # a whole word of twins
    "cat /\u0430/b",
    "rm -\u0430 x",
    "ls \u039fK",  # Greek capital omicron
    "\uff52\uff4d -rf x",  # wide letters
    "\U0001d42b\U0001d426 -rf x",  # mathematical letters
    "rm \u2013rf x",  # a dash
    "curl https://good.test\u2215evil.test",  # a slash that is none
    "echo a\u037e rm x",  # the Greek question mark
    "echo a\uff1b rm x",
    "cat file\u0663",  # a digit of another script
    "sudo mv \u0455ecret x",
    "\u13aa\u13a2\u13de",
]
ORDINARY = [
    "rm -rf build && make test",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u0430 \u044d\u0442\u043e \u044f",
    "\u039a\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3068Python\u5165\u9580",
    "\ud55c\uad6d\uc5b4 \u0939\u093f\u0928\u094d\u0926\u0940 \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "na\u00efve caf\u00e9 \u2014 \u201cquoted\u201d \u2026 m\u00b2 \u00bd \u2122",
    "\u0141\u00f3d\u017a \u00dcbergr\u00f6\u00dfe",
    "\u03c0 = 3.14, 5 \u00b5s, 20 \u00b0C, \U0001f600",
]


@pytest.mark.parametrize("text", DISGUISED)
def test_a_letter_that_passes_for_another_is_written_as_an_escape(text: str) -> None:
    marked = mark_lookalikes(text)

    assert marked.isascii()
    assert marked.encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16") == text
    assert marked in arguments_json({"command": text}).replace("\\\\", "\\")


@pytest.mark.parametrize("text", ORDINARY)
def test_text_in_any_one_script_stays_as_it_is(text: str) -> None:
    assert mark_lookalikes(text) == text
