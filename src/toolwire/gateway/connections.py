"""Who holds a place: connections that have shown a request hold one, those that have not never stand in their way.

A connection is *waiting* until its request counts: with a token of the gateway when the headers are read, without
tokens when the whole body is there. Waiting connections take no place. They have seconds to send their headers, and
when there are too many, the oldest of the peer that has the most of them is ended. Admitted connections take places;
where all are taken, a caller who has less than an equal share still gets one.
"""

import asyncio
import ipaddress
import resource
import socket
import struct
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from toolwire.gateway.faults import Fault, Rejected
from toolwire.gateway.settings import ConnectionLimits

HELD = "toolwire.connection"
"""Where a request's scope holds its connection."""
_OWN_FILES = 128  # descriptors of the process itself: libraries, the store, standard streams
_AT_ONCE = struct.pack("ii", 1, 0)
_LEAST_READ = 16 * 1024  # bytes that a client reads of its answer in `write_s`
_IPV6_NETWORK = 64  # a single client can usually take any address of such a network


def affordable(places: ConnectionLimits) -> ConnectionLimits:
    """These places, fewer where the process may not open so many files. Raises its limit as far as it may."""
    wanted = _OWN_FILES + places.waiting + 2 * places.at_once  # an admitted request may hold a connection upstream
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return places
    room = max(16, soft - _OWN_FILES)
    return ConnectionLimits(
        min(places.at_once, room // 4), min(places.waiting, room // 2), places.header_s, places.write_s
    )


class Register:
    """All connections of one server: those that wait, by peer and oldest first, and how many places each caller has."""

    def __init__(self, places: ConnectionLimits) -> None:
        self.places = places
        self._waiting: dict[str, dict[GuardedProtocol, None]] = {}
        self._waiting_count = 0
        self._admitted: dict[GuardedProtocol, str] = {}
        self._by_caller: Counter[str] = Counter()

    def arrive(self, connection: "GuardedProtocol") -> None:
        """Let a connection wait; ends the oldest of the peer with the most waiting ones when there are too many."""
        self._waiting.setdefault(connection.peer, {})[connection] = None
        self._waiting_count += 1
        if self._waiting_count > self.places.waiting:
            most = max(self._waiting.values(), key=len)
            oldest = next(iter(most))
            self.leave(oldest)
            oldest.end()

    def admit(self, connection: "GuardedProtocol", caller: str) -> None:
        """Give a connection a place, which it keeps until it is closed. Raises Rejected where its caller has enough."""
        if connection in self._admitted:
            return
        callers = len(self._by_caller) + (caller not in self._by_caller)
        share = max(1, self.places.at_once // callers)
        if len(self._admitted) >= self.places.at_once and self._by_caller[caller] >= share:
            sentence = "all places of this gateway are taken; try again in a moment"
            raise Rejected(Fault(503, "busy", sentence, {"retry-after": "1", "connection": "close"}))
        self._stop_waiting(connection)
        self._admitted[connection] = caller
        self._by_caller[caller] += 1

    def leave(self, connection: "GuardedProtocol") -> None:
        """Forget a connection that is closed."""
        self._stop_waiting(connection)
        caller = self._admitted.pop(connection, None)
        if caller is None:
            return
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]

    def _stop_waiting(self, connection: "GuardedProtocol") -> None:
        of_peer = self._waiting.get(connection.peer, {})
        if connection in of_peer:
            del of_peer[connection]
            self._waiting_count -= 1
            if not of_peer:
                del self._waiting[connection.peer]


class GuardedProtocol(H11Protocol):
    """One HTTP connection with deadlines: for the headers of each request, and for a client that reads its answer."""

    register: Register
    peer: str = ""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.app = _with_connection(self.app, self)
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._unread = 0

    def admit(self, caller: str) -> None:
        """Take a place for this caller, or for the peer where callers have no names. Raises Rejected."""
        self.register.admit(self, caller or f"peer {self.peer}")

    def end(self) -> None:
        """Close at once: what is still to be written is dropped, also by the kernel, which would keep it for hours."""
        sock = self.transport.get_extra_info("socket")
        if sock is not None and sock.fileno() >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.peer = _network(self.client[0]) if self.client else ""
        self._await_headers()
        self.register.arrive(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.register.leave(self)
        self._stop_header_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # The server's own timer for idle connections ends with the first byte, so a byte now and then would do.
        if not self._in_request():
            self._await_headers()
        super().data_received(data)
        if self._in_request():
            self._stop_header_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_last_reads()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._await_reader()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_write_timer()
        self._await_last_reads()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._await_last_reads()

    def _in_request(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # none before the first request, whatever its type says
        return cycle is not None and not cycle.response_complete

    def _await_headers(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.register.places.header_s, self.end)

    def _await_reader(self) -> None:
        if self._write_timer is None:
            self._unread = self.transport.get_write_buffer_size()
            self._write_timer = self.loop.call_later(self.register.places.write_s, self._end_unread)

    def _await_last_reads(self) -> None:
        """A transport that is closing waits until everything was read, for ever if need be."""
        if self.transport.is_closing():
            self._await_reader()

    def _end_unread(self) -> None:
        """End a client that has read next to nothing; one that is merely slow gets as long again."""
        self._write_timer = None
        if self.transport.get_write_buffer_size() > self._unread - _LEAST_READ:
            self.end()
        else:
            self._await_reader()

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None


def protocol_for(places: ConnectionLimits) -> type[GuardedProtocol]:
    """The protocol of one server, whose connections share these places."""
    return type("ServerProtocol", (GuardedProtocol,), {"register": Register(places)})


def _with_connection(app: Any, connection: GuardedProtocol) -> Any:
    async def held(scope: Any, receive: Any, send: Any) -> None:
        scope[HELD] = connection
        await app(scope, receive, send)

    return held


def _network(address: str) -> str:
    """Who counts as one peer: an address, or the network of one where a client has many."""
    try:
        known = ipaddress.ip_address(address)
    except ValueError:
        return address
    if known.version == 4:
        return address
    mapped = known.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.ip_network((int(known), _IPV6_NETWORK), strict=False))
