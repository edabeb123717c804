"""Spellings of places that no tool may reach. `{port}` is where the test listens."""

from collections.abc import Iterator, Mapping

# What a resolver might say about names that look harmless.
NAMES: Mapping[str, list[str]] = {
    "localhost": ["127.0.0.1"],
    "localhost.localdomain": ["127.0.0.1"],
    "ip6-localhost": ["::1"],
    "inner.example": ["10.0.0.5"],
    "router.example": ["192.168.0.1"],
    "loop.example": ["127.0.0.1"],
    "loop6.example": ["::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "compatible.example": ["::127.0.0.1"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "local-nat64.example": ["64:ff9b:1::7f00:1"],
    "six-to-four.example": ["2002:7f00:1::"],
    "teredo.example": ["2001:0:7f00:1::"],
    "isatap.example": ["2606:4700::5efe:7f00:1"],
    "mixed.example": ["93.184.216.34", "127.0.0.1"],
    "mixed6.example": ["2606:2800:220:1::1", "::1"],
    "zone.example": ["fe80::1%1"],
    "zero.example": ["0.0.0.0"],
    "any.example": ["::"],
    "broadcast.example": ["255.255.255.255"],
    "multicast.example": ["224.0.0.1"],
    "multicast6.example": ["ff02::1"],
    "cgnat.example": ["100.64.0.1"],
    "bench.example": ["198.18.0.1"],
    "docs.example": ["203.0.113.9"],
    "ula.example": ["fd00::1"],
    "site.example": ["fec0::1"],
    "metadata.google.internal": ["169.254.169.254"],
    "aws.example": ["169.254.169.254"],
    "aws6.example": ["fd00:ec2::254"],
    "azure.example": ["168.63.129.16"],
    "alibaba.example": ["100.100.100.200"],
    "oracle.example": ["192.0.0.192"],
    "127.0.0.1.nip.example": ["127.0.0.1"],
    "7f000001.hex.example": ["127.0.0.1"],
    "empty.example": [],
    "words.example": ["not an address"],
}

_V4 = """
127.0.0.1 127.0.0.2 127.1 127.0.1 127.255.255.254 0 0.0.0.0 0.0 00.0.0.0 0x0 2130706433 017700000001 0x7f000001
0x7F000001 0177.0.0.1 0177.0.0.01 0x7f.0.0.1 0x7f.0x0.0x0.0x1 0x7f.1 0177.1 127.0x0.1 127.00.00.01
127.000.000.001 00127.0.0.1 127.0.0.1. 127.1. 2130706433. 4294967297 0x17f000001 10.0.0.1 10.1 167772161
0xa000001 012.0.0.1 172.16.0.1 2886729729 192.168.0.1 192.168.1 3232235521 0xc0a80001 0300.0250.0.1
169.254.169.254 2852039166 0xa9fea9fe 0251.0376.0251.0376 0xa9.0xfe.0xa9.0xfe 169.254.43518 168.63.129.16
100.64.0.1 100.100.100.200 192.0.0.192 198.18.0.1 203.0.113.1 224.0.0.1 240.0.0.1 255.255.255.255
256.256.256.256 127.0.0.256 1.2.3.4.5 1.2.3 127.0.0.1.1 ①②⑦.⓪.⓪.① １２７.０.０.１ 127。0。0。1 127．0．0．1 127｡0｡0｡1
⑴.1
₁₂₇.0.0.1 ¹²⁷.0.0.1 127.0.0.１ ٱ127.0.0.1 ١٢٧.٠.٠.١
""".split()

_V6 = """
::1 :: 0:0:0:0:0:0:0:1 0000:0000:0000:0000:0000:0000:0000:0001 ::0001 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1
0:0:0:0:0:ffff:7f00:1 ::ffff:0:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:a9fe:a9fe
64:ff9b::127.0.0.1 64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b:1::7f00:1 64:ff9b:1:ffff::1 2002:7f00:1::
2002:a00:1::1 2002:a9fe:a9fe:: 2001:0:7f00:1:: 2001::1 2001:db8::1 2001:2::1 2001:10::1 3fff::1 100::1 fc00::1
fd00::1 fd00:ec2::254 fe80::1 fe80::1%25eth0 fe80::1%eth0 ::1%lo ::1%25lo fec0::1 feff::1 ff02::1 ff0e::1
5f00::1 4000::1 2606:4700::5efe:7f00:1 2606:4700::200:5efe:a00:1
""".split()

_WHOLE = """
http://good.example@127.0.0.1:{port}/ http://good.example:80@127.0.0.1:{port}/
http://127.0.0.1:{port}\\@good.example/ http://good.example\\@127.0.0.1:{port}/
http://127.0.0.1%00.good.example:{port}/ http://127.0.0.1%2f@good.example:{port}/
http://127.0.0.1:{port}#@good.example/ http://127.0.0.1:{port}?@good.example/ http://127%2e0%2e0%2e1:{port}/
http://%31%32%37.0.0.1:{port}/ http://%6c%6f%63%61%6c%68%6f%73%74:{port}/ http://ⓛocalhost:{port}/
http://LOCALHOST:{port}/ http://localhost.:{port}/ http://loc%61lhost:{port}/ http:/127.0.0.1:{port}/
http:127.0.0.1:{port} http:\\\\127.0.0.1:{port}/ //127.0.0.1:{port}/ http:///127.0.0.1:{port}/
http://127.0.0.1:{port}:80/ http://127.0.0.1:0{port}/ http://127.0.0.1:+{port}/ file:///etc/passwd
file://127.0.0.1/etc/passwd gopher://127.0.0.1:{port}/_x dict://127.0.0.1:{port}/ ftp://127.0.0.1:{port}/
ws://127.0.0.1:{port}/ unix:///run/docker.sock data:text/plain,hi jar:http://127.0.0.1:{port}!/
view-source:http://127.0.0.1:{port}/ http+unix://%2frun%2fdocker.sock/ https://127.0.0.1:{port}/
HTTP://127.0.0.1:{port}/ http://[127.0.0.1]:{port}/ http://[::1:{port}/ http://[::1]evil.example:{port}/
http://::1:{port}/ http://0:{port}/ http://127.0.0.1\u200b:{port}/ http://127.0.0.1\u3000:{port}/
""".split()


def urls(port: int) -> Iterator[str]:
    """Every spelling, for a listener on that port."""
    yield from (f"http://{name}:{port}/" for name in NAMES)
    yield from (f"http://{spelling}:{port}/" for spelling in _V4)
    yield from (f"http://[{spelling}]:{port}/" for spelling in _V6)
    yield from (url.replace("{port}", str(port)) for url in _WHOLE)
