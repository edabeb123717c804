"""Reading the server name out of a ClientHello."""

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.execute.egress.hello import Incomplete, NotTls, server_name


def hello(name: str | None) -> bytes:
    """What this machine's own TLS says first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


def records(data: bytes, size: int) -> bytes:
    """The same handshake cut into small records."""
    body = data[5:]
    pieces = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(data[:3] + len(piece).to_bytes(2) + piece for piece in pieces)


def test_the_name_is_found() -> None:
    assert server_name(hello("good.example")) == "good.example"
    assert server_name(hello(None)) is None


def test_the_name_is_found_when_the_hello_comes_in_many_records() -> None:
    assert server_name(records(hello("good.example"), 16)) == "good.example"


def test_every_beginning_of_a_hello_is_incomplete() -> None:
    whole = hello("good.example")
    for end in range(len(whole)):
        with pytest.raises(Incomplete):
            server_name(whole[:end])


def test_a_second_name_is_refused() -> None:
    whole = hello("good.example")
    name = b"good.example"
    extension = (
        b"\0\0" + (len(name) + 5).to_bytes(2) + (len(name) + 3).to_bytes(2) + b"\0" + len(name).to_bytes(2)
    ) + name
    assert extension in whole
    body = bytearray(whole.replace(extension, extension + extension))
    grown = len(extension)
    at = 5 + 4 + 2 + 32
    at += 1 + body[at]
    at += 2 + int.from_bytes(body[at : at + 2])
    at += 1 + body[at]
    for place, width in ((3, 2), (6, 3), (at, 2)):
        longer = int.from_bytes(body[place : place + width]) + grown
        body[place : place + width] = longer.to_bytes(width)

    with pytest.raises(NotTls, match="twice"):
        server_name(bytes(body))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        name = server_name(data)
    except (Incomplete, NotTls):
        return
    assert name is None or name.isascii()


@given(st.data())
def test_a_damaged_hello_is_read_or_refused(data: st.DataObject) -> None:
    whole = bytearray(hello("good.example"))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        server_name(bytes(whole))
    except (Incomplete, NotTls):
        return
