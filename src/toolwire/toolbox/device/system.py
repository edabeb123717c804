"""What the machine is and what runs on it: system, network interfaces, processes."""

import os
import platform
import socket
from typing import Annotated, Literal, TypedDict

from toolwire.define.fields import Field
from toolwire.protocol.tools import Tool
from toolwire.toolbox.device.addresses import interface_addresses
from toolwire.toolbox.device.host import HostTree
from toolwire.toolbox.device.kinds import sensing

MOST_PROCESSES = 200
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class SystemOutput(TypedDict):
    hostname: Annotated[str, Field(description="The machine's name.")]
    model: Annotated[str, Field(description="The kind of board or machine; empty if it does not say.")]
    os: Annotated[str, Field(description="The operating system and its version.")]
    kernel: Annotated[str, Field(description="The version of the kernel.")]
    architecture: Annotated[str, Field(description="The kind of processor.")]
    cores: Annotated[int, Field(description="How many cores it has.")]
    uptime_s: Annotated[float, Field(description="Seconds since it was started.")]


class NetworkInterface(TypedDict):
    name: Annotated[str, Field(description="The interface, such as eth0 or wlan0.")]
    state: Annotated[str, Field(description="up, down or unknown.")]
    mac: Annotated[str, Field(description="Its hardware address; empty if it has none.")]
    addresses: Annotated[list[str], Field(description="Its IP addresses.")]
    received_bytes: Annotated[int, Field(description="Bytes received since the start.")]
    sent_bytes: Annotated[int, Field(description="Bytes sent since the start.")]


class NetworkOutput(TypedDict):
    hostname: Annotated[str, Field(description="The machine's name.")]
    interfaces: Annotated[list[NetworkInterface], Field(description="The network interfaces.")]


class ProcessRow(TypedDict):
    pid: Annotated[int, Field(description="The number of the process.")]
    name: Annotated[str, Field(description="The program; its arguments are not shown, since they may hold secrets.")]
    state: Annotated[str, Field(description="R is running, S sleeping, D waiting for a device, Z ended, T stopped.")]
    cpu_s: Annotated[float, Field(description="Seconds of processor time that it has used.")]
    cpu_percent: Annotated[float, Field(description="Share of one core since it was started, in percent.")]
    memory_bytes: Annotated[int, Field(description="Memory that it uses now.")]


class ProcessesOutput(TypedDict):
    processes: Annotated[list[ProcessRow], Field(description="The processes, those that use most first.")]
    total: Annotated[int, Field(description="How many there are.")]


def system_info_tool(host: HostTree) -> Tool:
    """The tool that tells what machine this is."""

    @sensing(name="system_info")
    def system_info() -> SystemOutput:
        """Tell this machine's name, model, operating system, processor, and how long it has been up."""
        release = dict(line.partition("=")[::2] for line in host.line("etc/os-release").splitlines())
        uptime = host.line("proc/uptime", "0").split()[0]
        return {
            "hostname": _hostname(host),
            "model": host.line("sys/firmware/devicetree/base/model") or host.line("sys/class/dmi/id/product_name"),
            "os": release.get("PRETTY_NAME", platform.system()).strip('"'),
            "kernel": host.line("proc/sys/kernel/osrelease", platform.release()),
            "architecture": platform.machine(),
            "cores": os.cpu_count() or 1,
            "uptime_s": float(uptime),
        }

    return system_info


def _hostname(host: HostTree) -> str:
    return host.line("proc/sys/kernel/hostname") or socket.gethostname()


def network_info_tool(host: HostTree) -> Tool:
    """The tool that tells what network interfaces there are."""

    @sensing(name="network_info")
    def network_info() -> NetworkOutput:
        """List this machine's network interfaces with their state, addresses and traffic."""
        addresses = interface_addresses(host)
        found: list[NetworkInterface] = [
            {
                "name": name,
                "state": host.line(f"{path}/operstate", "unknown"),
                "mac": host.line(f"{path}/address"),
                "addresses": addresses.get(name, []),
                "received_bytes": host.number(f"{path}/statistics/rx_bytes") or 0,
                "sent_bytes": host.number(f"{path}/statistics/tx_bytes") or 0,
            }
            for name, path in host.folders("sys/class/net")
            if host.line(f"{path}/operstate")
        ]
        return {"hostname": _hostname(host), "interfaces": found}

    return network_info


def list_processes_tool(host: HostTree) -> Tool:
    """The tool that lists processes."""

    @sensing(name="list_processes", examples=({}, {"sort_by": "memory", "limit": 5}))
    def list_processes(
        sort_by: Literal["cpu", "memory"] = "cpu", limit: Annotated[int, Field(ge=1, le=MOST_PROCESSES)] = 10
    ) -> ProcessesOutput:
        """List the processes on this machine that use most of the processor or most memory.

        Args:
            sort_by: What counts: cpu or memory.
            limit: How many to list at most.
        """
        uptime_s = float(host.text("proc/uptime").split()[0])
        found = [row for name, path in host.folders("proc", "[0-9]*") if (row := _process(host, name, path, uptime_s))]
        found.sort(key=lambda row: row["memory_bytes" if sort_by == "memory" else "cpu_percent"], reverse=True)
        return {"processes": found[:limit], "total": len(found)}

    return list_processes


def _process(host: HostTree, pid: str, path: str, uptime_s: float) -> ProcessRow | None:
    """One process; None where it ended meanwhile."""
    # The name stands in brackets and may hold any character, so the fields are counted from its last bracket.
    name, _, rest = host.line(f"{path}/stat").partition("(")[2].rpartition(")")
    words = rest.split()
    if len(words) < 22:
        return None
    cpu_s = (int(words[11]) + int(words[12])) / _TICKS_PER_S
    lived_s = uptime_s - int(words[19]) / _TICKS_PER_S
    return {
        "pid": int(pid),
        "name": name,
        "state": words[0],
        "cpu_s": round(cpu_s, 2),
        "cpu_percent": round(100 * cpu_s / lived_s, 1) if lived_s > 0 else 0.0,
        "memory_bytes": int(words[21]) * _PAGE,
    }
