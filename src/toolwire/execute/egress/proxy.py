"""The egress proxy: the only way out of a box, one unix socket for each call.

The contract with the code that builds the box:

- `async with EgressProxy(path, grant.network, …)` listens on the unix socket `path` while the call runs. The socket is
  the call's identity: there are no credentials, and what may be reached follows from the call's grant alone. Make one
  only when the grant lists hosts. Its file belongs to this process alone; code that opens a box under another uid hands
  it over to that one. (`mode=0o666` would do in a folder that no other user may enter.)
- Bind the socket into a box that has no route to any network, and start the command through `bridge.py` (one file,
  standard library only): `python3 bridge.py SOCKET PORT COMMAND…` listens on 127.0.0.1:PORT, leaves a child that
  carries connections to the socket, and becomes COMMAND. `proxy_environment(PORT)` is what the command needs to find
  it. The bridge's child needs AF_UNIX sockets, the command AF_INET to 127.0.0.1. `outward.way_out` does all of it.
- Spoken here: HTTP/1.1 `CONNECT host:port` for TLS, whose server name must equal that host, and requests in absolute
  form for plain http. Everything else is refused, each refusal with a sentence in its body.
- `refusal` may keep single addresses of a host closed: of plain http all are seen here, of TLS the host alone.
- `audit` hears every decision and the bytes of every connection, without paths, queries, headers or bodies.
- Leaving the block ends every connection of the call and removes the socket.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from types import TracebackType

import h11

from toolwire.execute.egress.caps import Audit, Caps, Meter, OverCap, TrafficEvent, no_audit
from toolwire.execute.egress.connector import BUFFER, ConnectionRefused, Connector, OpenConnection, Unreachable, hang_up
from toolwire.execute.egress.places import BadUrl, WebAddress, read_authority, read_url
from toolwire.execute.egress.rules import BadRule, RequestedAddress, Rules
from toolwire.execute.egress.spoken import BadHttp, HttpStream
from toolwire.execute.egress.ways import ProxyRefusal, Tunnel
from toolwire.protocol.operations import Refusal

BRIDGE = Path(__file__).with_name("bridge.py")
BRIDGE_PORT = 3128
_WAITING = 128
# To a program in a box these are the box itself; the proxy would refuse them as addresses of this machine.
_OWN_HOSTS = "localhost,.localhost,127.0.0.1,127.0.0.0/8,0.0.0.0,::1,[::1]"


def proxy_environment(port: int = BRIDGE_PORT) -> dict[str, str]:
    """The variables by which programs in a box find the bridge."""
    url = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return {**dict.fromkeys(names, url), "no_proxy": _OWN_HOSTS, "NO_PROXY": _OWN_HOSTS}


class EgressProxy:
    """Serves one call on a unix socket, by the rules of its grant. With rules that cannot be read it refuses all."""

    def __init__(
        self,
        path: str,
        network: Iterable[str],
        *,
        connector: Connector | None = None,
        caps: Caps | None = None,
        audit: Audit = no_audit,
        mode: int = 0o600,
        refusal: Refusal | None = None,
    ) -> None:
        self._path = Path(path)
        self._rules, self._broken = _read_rules(network)
        self._caps = caps or Caps()
        self._connector = connector or Connector(connect_s=self._caps.connect_s)
        self._audit = audit
        self._mode = mode
        self._refusal = refusal
        self._tasks: set[asyncio.Task[None]] = set()
        self.meter = Meter(self._caps)

    def tighten(self, limits: Iterable[str]) -> None:
        """Hold what is asked for from now on to these limits as well."""
        more, broken = _read_rules(limits)
        self._rules = Rules(self._rules.rules, (*self._rules.limits, *more.limits))
        self._broken = self._broken or broken

    async def __aenter__(self) -> "EgressProxy":
        self._listener = _listening(self._path, self._mode)
        asyncio.get_running_loop().add_reader(self._listener, self._accept)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.get_running_loop().remove_reader(self._listener)
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _accept(self) -> None:
        # Not asyncio's own server: closing that one can lose a connection which it has just accepted.
        try:
            plug, _ = self._listener.accept()
        except OSError:  # gone again, or no descriptor is free: the next turn of the loop tries anew
            return
        task = asyncio.get_running_loop().create_task(self._serve(plug), name="toolwire-egress")
        self._tasks.add(task)
        task.add_done_callback(partial(self._done, plug))

    def _done(self, plug: socket.socket, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():  # perhaps before it could begin, so nothing else has closed the connection
            plug.close()

    async def _serve(self, plug: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=plug, limit=BUFFER)
        client = HttpStream(h11.SERVER, reader, writer, self._caps)
        try:
            async with asyncio.timeout(self._caps.whole_s):
                with self.meter.connection():
                    await self._answer(client)
        except ProxyRefusal as no:
            await self._refuse(client, no)
        except OverCap as over:
            await self._refuse(client, ProxyRefusal(429, str(over)))
        except BadHttp:
            await self._refuse(client, ProxyRefusal(400, "this is not a request to a proxy in HTTP/1.1"))
        except TimeoutError:
            await self._refuse(client, ProxyRefusal(408, "this took too long"))
        except (OSError, EOFError):
            pass  # the peer left, so there is no one to answer
        finally:
            await hang_up(writer)

    async def _answer(self, client: HttpStream) -> None:
        request = await client.head(h11.Request)
        method = request.method.decode("ascii")
        place = _place(method, request.target.decode("ascii"))
        self._refuse_address(place, method)
        opened = await self._open(place.asked("" if method == "CONNECT" else method))
        part = Meter(self._caps, self.meter)
        try:
            if method == "CONNECT":
                await Tunnel(part).tunnel(client, opened, place.host)
            else:
                await Tunnel(part).forward(client, opened, place, request)
        finally:
            await hang_up(opened.writer)
            self._audit(TrafficEvent("closed", f"{place.host}:{place.port}", up=part.up, down=part.down))

    def _refuse_address(self, place: WebAddress, method: str) -> None:
        """Of a tunnel only the host is seen here, so only what is said about all of a host counts."""
        if self._refusal is not None:
            url = place.url.rstrip("/") if method == "CONNECT" else place.url
            if reason := self._refusal(url):
                raise ProxyRefusal(403, reason, f"{place.host}:{place.port}")

    async def _open(self, asked: RequestedAddress) -> OpenConnection:
        place = f"{asked.host}:{asked.port}"
        verdict = self._rules.judge(asked)
        if self._broken or not verdict.allowed:
            raise ProxyRefusal(403, self._broken or verdict.reason, place, verdict.rule)
        try:
            opened = await self._connector.open(asked.host, asked.port)
        except ConnectionRefused as refused:
            raise ProxyRefusal(403, str(refused), place, verdict.rule) from None
        except Unreachable as lost:
            raise ProxyRefusal(502, str(lost), place, verdict.rule) from None
        self._audit(TrafficEvent("allowed", place, asked.method or "CONNECT", verdict.rule, address=opened.address))
        return opened

    async def _refuse(self, client: HttpStream, no: ProxyRefusal) -> None:
        self._audit(TrafficEvent("refused", no.place, rule=no.rule, reason=str(no)))
        body = f"{no}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        with contextlib.suppress(BadHttp, OSError):  # a tunnel that is open already can only be cut
            await client.say(h11.Response(status_code=no.status, headers=headers))
            await client.say(h11.Data(data=body))
            await client.say(h11.EndOfMessage())


def _listening(path: Path, mode: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(_WAITING)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _read_rules(network: Iterable[str]) -> tuple[Rules, str]:
    try:
        return Rules.of(network), ""
    except BadRule as wrong:
        return Rules(), f"no host is allowed, since a rule cannot be read: {wrong}"


def _place(method: str, target: str) -> WebAddress:
    """Where a request to the proxy wants to go."""
    try:
        if method == "CONNECT":
            return WebAddress("https", *read_authority(target, None))
        place = read_url(target)
    except BadUrl as wrong:
        raise ProxyRefusal(400, str(wrong)) from None
    if place.scheme != "http":
        raise ProxyRefusal(400, "ask for https with CONNECT", f"{place.host}:{place.port}")
    return place
