"""The IP addresses of this machine's interfaces, as the kernel lists them."""

import fcntl
import ipaddress
import socket
import struct

from toolwire.toolbox.device.host import HostTree

_SIOCGIFADDR = 0x8915
_NAME_BYTES = 15


def interface_addresses(host: HostTree) -> dict[str, list[str]]:
    """Addresses by interface. IPv4 ones are asked of the kernel, which has no file that names their interfaces."""
    found: dict[str, list[str]] = {}
    for name, _ in host.folders("sys/class/net"):
        if address := _ipv4_address(name):
            found.setdefault(name, []).append(address)
    for line in host.line("proc/net/if_inet6").splitlines():
        digits, *_, name = line.split()
        found.setdefault(name, []).append(str(ipaddress.IPv6Address(int(digits, 16))))
    return found


def _ipv4_address(name: str) -> str:
    """The address of an interface; empty where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plug:
        request = struct.pack("256s", name.encode()[:_NAME_BYTES])
        try:
            answer = fcntl.ioctl(plug.fileno(), _SIOCGIFADDR, request)
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])
