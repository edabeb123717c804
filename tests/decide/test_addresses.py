"""Every spelling of an address is brought to one."""

import pytest

from toolwire.decide.addresses import canonical

SPELLED = {
    "http://good.test:80/a": "http://good.test/a", "https://good.test:443": "https://good.test",
    "http://good.test:443/a": "http://good.test:443/a", "ftp://x/a": "ftp://x/a", "ftp://x:21/a": "ftp://x:21/a",
    "http://[::1]/": "http://[::1]/", "http://[0:0::1]:8/": "http://[::1]:8/",
    "http://[::ffff:1.2.3.4]/": "http://1.2.3.4/", "http://[x/": "http://[x/", "http://x]/": "http://x]/",
    "http://[::x]/": "http://[::x]/", "http://127.1/": "http://127.0.0.1/", "http://0x7f.0.0.1/": "http://127.0.0.1/",
    "http://2130706433/": "http://127.0.0.1/", "http://0177.0.0.1/": "http://127.0.0.1/",
    "http://1.2.3.4.5/": "http://1.2.3.4.5/", "http://256.1.1.1/": "http://256.1.1.1/",
    "http://255.1.1.1/": "http://255.1.1.1/", "http://1.2.3.256/": "http://1.2.3.256/",
    "http://1.2.65535/": "http://1.2.255.255/", "http://1.2.65536/": "http://1.2.65536/", "http://0.0.0.0/":
    "http://0.0.0.0/", "http://4294967295/": "http://255.255.255.255/", "http://4294967296/": "http://4294967296/",
    "http://255.255.255.255/": "http://255.255.255.255/", "http://1.2.3.8/": "http://1.2.3.8/", "http://255.1/":
    "http://255.0.0.1/", "http://256.1/": "http://256.1/", "http://1.-2/": "http://1.-2/", "http://8/": "http://0.0.0.8/",
    "http://0/": "http://0.0.0.0/", "http://1.1_1/": "http://1.1_1/", "http://\u0661.1/": "http://xn--9hb.1/",
    "http://a]/": "http://a]/", "http://[1.2.3.4/": "http://[1.2.3.4/", "http://x": "http://x",
    "http://x/": "http://x/", "http://x/a/.": "http://x/a/", "http://x/..": "http://x/",
    "http://x/a/b/../c": "http://x/a/c", "http://x/a?b=%2F": "http://x/a?b=/", "http://x?q": "http://x?q",
    "plain words": "plainwords", "http://x/a#b": "http://x/a", "http://b\u00fccher.test": "http://xn--bcher-kva.test",
    "http://x/%25252561": "http://x/%61", "http://x/%252561": "http://x/a",
}  # fmt: skip


@pytest.mark.parametrize("text", SPELLED)
def test_an_address_has_one_spelling(text: str) -> None:
    assert canonical(text) == SPELLED[text]


@pytest.mark.parametrize(
    ("text", "port"),
    [("http://x/a", "http://x:80/a"), ("https://x:8/a", "https://x:8/a"), ("ftp://x/a", "ftp://x/a")],
)
def test_the_port_that_is_usual_is_said_on_demand(text: str, port: str) -> None:
    assert canonical(text, says_port=True) == port
