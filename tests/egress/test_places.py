"""How a URL is read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.execute.egress.places import BadUrl, WebAddress, read_url

CONFUSING = [
    "http://good.test\\@evil.test/",
    "http://good.test\\.evil.test/",
    "http://user@good.test/",
    "http://user:word@good.test/",
    "http://good.test@evil.test/",
    "http://good.test:80@evil.test/",
    "http://evil.test%00.good.test/",
    "http://evil.test%2f.good.test/",
    "http://evil.test\x00.good.test/",
    "http://evil.test\r\n.good.test/",
    "http://good.test\t.evil.test/",
    "http://good.test .evil.test/",
    "http://good．test/",
    "http://good。test/",
    "http://ⓔvil.test/",
    "http://good..test/",
    "http://.good.test/",
    "http://good.test:/",
    "http://good.test:0/",
    "http://good.test:65536/",
    "http://good.test:80:90/",
    "http://good.test:８０/",
    "http://good.test:+80/",
    "http://[::1/",
    "http://::1/",
    "http://[::1]evil.test/",
    "http://[fe80::1%25eth0]/",
    "http://",
    "http:///path",
    "http:/good.test/",
    "http:good.test",
    "//good.test/",
    "good.test",
    "ftp://good.test/",
    "file:///etc/passwd",
    "gopher://good.test/",
    "javascript://good.test/%0aalert(1)",
    "data:text/html,hi",
    "http://-good.test/",
    "http://good-.test/",
    "http://go_od.test/",
    "http://good.test\u202e/",
    "http://go\u200bod.test/",
    "http://xn--/",
    "http://xn--a.test/",
    f"http://{'a' * 64}.test/",
    f"http://{'a.' * 130}test/",
    "http://good.test/" + "a" * 9000,
    "http://good.test\ud800/",
    "",
]


@pytest.mark.parametrize("url", CONFUSING)
def test_T39_a_url_that_programs_read_differently_is_refused(url: str) -> None:
    with pytest.raises(BadUrl):
        read_url(url)


def test_T39_the_control_a_fragment_or_query_with_an_at_sign_does_not_change_the_host() -> None:
    assert read_url("http://good.test#@evil.test/").host.name == "good.test"
    assert read_url("http://good.test?@evil.test/").host.name == "good.test"
    assert read_url("http://good.test/@evil.test").host.name == "good.test"
    assert read_url("http://good.test/\\@evil.test").host.name == "good.test"


def test_a_url_is_read_into_its_canonical_parts() -> None:
    place = read_url("HTTPS://Bücher.Example.:8443/a b?q=é#part".replace(" ", "%20").replace("B", "b"))

    assert (place.scheme, place.host.name, place.port) == ("https", "xn--bcher-kva.example", 8443)
    assert place.target == "/a%20b?q=%C3%A9"
    assert place.url == "https://xn--bcher-kva.example:8443/a%20b?q=%C3%A9"


@pytest.mark.parametrize(
    ("location", "url"),
    [
        ("/other?x=1", "http://good.test:8080/other?x=1"),
        ("other", "http://good.test:8080/a/other"),
        ("?y=2", "http://good.test:8080/a/b?y=2"),
        ("#part", "http://good.test:8080/a/b?q=1"),
        ("//else.test/x", "http://else.test/x"),
        ("https://else.test", "https://else.test/"),
        ("/to?next=http://else.test", "http://good.test:8080/to?next=http://else.test"),
    ],
)
def test_a_relative_address_is_read_from_its_base(location: str, url: str) -> None:
    assert read_url(location, read_url("http://good.test:8080/a/b?q=1")).url == url


@pytest.mark.parametrize(
    "location", ["\\\\evil.test", "/\\evil.test", "javascript:alert(1)", "mailto:x@y", "//u@e.test"]
)
def test_T39_a_confusing_relative_address_is_refused(location: str) -> None:
    with pytest.raises(BadUrl):
        read_url(location, read_url("http://good.test/"))


@given(st.text(max_size=100), st.booleans())
def test_what_is_read_reads_the_same_again(text: str, relative: bool) -> None:
    base = read_url("http://good.test/a") if relative else None
    try:
        place = read_url(text, base)
    except BadUrl:
        return
    assert read_url(place.url) == place
    assert isinstance(place, WebAddress)
    assert place.url.isascii()
    assert place.url.isprintable()
