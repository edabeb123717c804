"""Which addresses count as the public internet."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolwire.execute.egress.addresses import why_not_for_operators, why_not_public

PUBLIC = (
    "8.8.8.8 1.1.1.1 93.184.216.34 2606:2800:220:1:248:1893:25c8:1946 2a00:1450:4001:81b::200e 2001:4860:4860::8888"
)
NOT_PUBLIC = """
0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254 172.16.0.1
172.31.255.255 192.0.0.192 192.0.2.1 192.31.196.1 192.52.193.1 192.88.99.1 192.168.1.1 192.175.48.1 198.18.0.1
198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1
::ffff:127.0.0.1 ::ffff:8.8.8.8 64:ff9b::7f00:1 64:ff9b::808:808 64:ff9b:1::7f00:1 100::1 2001::1 2001:0:7f00:1::1
2001:2::1 2001:10::1 2001:20::1
2001:db8::1 2002:7f00:1:: 2002:808:808::1 2620:4f:8000::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254
fe80::1 fe80::1%1 febf::1 fec0::1 ff02::1 4000::1 2606:4700::5efe:7f00:1 2606:4700::200:5efe:a00:1
"""


@pytest.mark.parametrize("address", PUBLIC.split())
def test_a_public_address_is_public(address: str) -> None:
    assert why_not_public(ipaddress.ip_address(address)) == ""


@pytest.mark.parametrize("address", NOT_PUBLIC.split())
def test_T36_an_address_that_is_not_the_public_internet_is_named(address: str) -> None:
    assert why_not_public(ipaddress.ip_address(address)) != ""


def test_T36_the_control_the_standard_library_calls_some_of_these_global() -> None:
    fooled = [text for text in NOT_PUBLIC.split() if not ipaddress.ip_address(text).is_private]

    assert {"64:ff9b::7f00:1", "168.63.129.16", "2606:4700::5efe:7f00:1"} <= set(fooled)


def test_an_operator_may_name_this_machine_but_not_a_metadata_service() -> None:
    for local in "127.0.0.1 10.1.2.3 192.168.0.9 ::1 fd12::1 8.8.8.8 2606:4700::1".split():
        assert why_not_for_operators(ipaddress.ip_address(local)) == ""
    for (
        never
    ) in "169.254.169.254 fd00:ec2::254 100.100.100.200 ::ffff:169.254.169.254 0.0.0.0 :: 224.0.0.1 64:ff9b::1".split():
        assert why_not_for_operators(ipaddress.ip_address(never)) != ""


@given(st.ip_addresses(v=6))
def test_outside_of_the_assigned_range_nothing_is_public(address: ipaddress.IPv6Address) -> None:
    assert why_not_public(address) != "" or address in ipaddress.IPv6Network("2000::/3")


@given(st.ip_addresses(v=4))
def test_no_ipv4_address_that_the_standard_library_knows_as_special_is_public(address: ipaddress.IPv4Address) -> None:
    special = address.is_private or address.is_multicast or address.is_reserved or address.is_link_local
    assert why_not_public(address) != "" or not special
