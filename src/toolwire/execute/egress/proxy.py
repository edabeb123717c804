"""The egress proxy: the only way out of a box, one unix socket for each call.

The contract with whoever builds the box:

- `async with EgressProxy(path, grant.network, …)` listens on the unix socket `path` while the call runs. The socket is
  the call's identity: there are no credentials, and what may be reached follows from the call's grant alone. Make one
  only when the grant lists hosts; give `mode=0o666` when the box runs under another uid and the folder is private.
- Bind the socket into a box that has no route to any network, and start the command through `bridge.py` (one file,
  standard library only; bind it too): `python3 bridge.py SOCKET PORT COMMAND…` listens on 127.0.0.1:PORT, leaves a
  child that carries connections to the socket, and becomes COMMAND. `proxy_environment(PORT)` is what the command needs
  to find it. The bridge's child needs AF_UNIX sockets; the command needs only AF_INET to 127.0.0.1.
- Spoken here: HTTP/1.1 `CONNECT host:port` for TLS, whose server name must equal that host, and requests in absolute
  form for plain http. Everything else is refused, each refusal with a sentence in its body.
- `audit` hears every decision and the bytes of every connection, without paths, queries, headers or bodies.
- Leaving the block ends every connection of the call and removes the socket.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import h11

from toolwire.execute.egress.caps import Audit, Caps, Meter, Noted, OverCap, no_audit
from toolwire.execute.egress.connector import BUFFER, Connector, Opened, Refused, Unreachable, hang_up
from toolwire.execute.egress.hello import LONGEST_HELLO, Incomplete, NotTls, server_name
from toolwire.execute.egress.hosts import BadHost, Host, read_host
from toolwire.execute.egress.places import BadUrl, Place, read_authority, read_url
from toolwire.execute.egress.rules import Asked, BadRule, Rules
from toolwire.execute.egress.spoken import Garbled, Spoken, passed_on

BRIDGE = Path(__file__).with_name("bridge.py")
BRIDGE_PORT = 3128
_READ = 64 * 1024
_UNREADABLE = "unreadable"


class _No(Exception):
    """A refusal: the status to answer with, and the sentence."""

    def __init__(self, status: int, reason: str, place: str = _UNREADABLE, rule: str = "") -> None:
        super().__init__(reason)
        self.status, self.place, self.rule = status, place, rule


def proxy_environment(port: int = BRIDGE_PORT) -> dict[str, str]:
    """The variables by which programs in a box find the bridge."""
    url = f"http://127.0.0.1:{port}"
    names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
    return {**dict.fromkeys(names, url), "no_proxy": "", "NO_PROXY": ""}


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
    ) -> None:
        self._path = Path(path)
        self._rules, self._broken = _read_rules(network)
        self._caps = caps or Caps()
        self._connector = connector or Connector(connect_s=self._caps.connect_s)
        self._audit = audit
        self._mode = mode
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.meter = Meter(self._caps)

    async def __aenter__(self) -> "EgressProxy":
        self._server = await asyncio.start_unix_server(self._accept, str(self._path), limit=BUFFER)
        self._path.chmod(self._mode)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer), name="toolwire-egress")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Spoken(h11.SERVER, reader, writer, self._caps)
        try:
            async with asyncio.timeout(self._caps.whole_s):
                with self.meter.connection():
                    await self._answer(client)
        except _No as no:
            await self._refuse(client, no)
        except OverCap as over:
            await self._refuse(client, _No(429, str(over)))
        except Garbled as wrong:
            await self._refuse(client, _No(400, f"this is not a request to a proxy: {wrong}"))
        except TimeoutError:
            await self._refuse(client, _No(408, "this took too long"))
        except (OSError, EOFError):
            pass  # someone left: there is nobody to tell
        finally:
            await hang_up(writer)

    async def _answer(self, client: Spoken) -> None:
        request = await client.head(h11.Request)
        method = request.method.decode("ascii")
        place = _place(method, request.target.decode("ascii"))
        opened = await self._open(place.asked("" if method == "CONNECT" else method))
        before = self.meter.up, self.meter.down
        try:
            if method == "CONNECT":
                await self._tunnel(client, opened, place.host)
            else:
                await self._forward(client, opened, place, request)
        finally:
            await hang_up(opened.writer)
            up, down = self.meter.up - before[0], self.meter.down - before[1]
            self._audit(Noted("closed", f"{place.host}:{place.port}", up=up, down=down))

    async def _open(self, asked: Asked) -> Opened:
        place = f"{asked.host}:{asked.port}"
        verdict = self._rules.judge(asked)
        if self._broken or not verdict.allowed:
            raise _No(403, self._broken or verdict.reason, place, verdict.rule)
        try:
            opened = await self._connector.open(asked.host, asked.port)
        except Refused as refused:
            raise _No(403, str(refused), place, verdict.rule) from None
        except Unreachable as lost:
            raise _No(502, str(lost), place, verdict.rule) from None
        self._audit(Noted("allowed", place, asked.method or "CONNECT", verdict.rule, address=opened.address))
        return opened

    async def _refuse(self, client: Spoken, no: _No) -> None:
        self._audit(Noted("refused", no.place, rule=no.rule, reason=str(no)))
        body = f"{no}\n".encode()
        headers = [
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(body))),
            ("connection", "close"),
        ]
        with contextlib.suppress(Garbled, OSError):  # a tunnel that is open already can only be cut
            await client.say(h11.Response(status_code=no.status, headers=headers))
            await client.say(h11.Data(data=body))
            await client.say(h11.EndOfMessage())

    async def _tunnel(self, client: Spoken, opened: Opened, host: Host) -> None:
        if not isinstance(await client.event(), h11.EndOfMessage):
            raise _No(400, "CONNECT has no body", str(host))
        await client.say(h11.Response(status_code=200, headers=[]))
        hello = await self._hello(client, host)
        self.meter.sent(len(hello))
        opened.writer.write(hello)
        await _together(
            self._carry(opened.reader, client.writer, self.meter.got),
            self._carry(client.reader, opened.writer, self.meter.sent),
        )

    async def _hello(self, client: Spoken, host: Host) -> bytes:
        """The first words of TLS, once they name the host that was asked for."""
        data = client.unread
        async with asyncio.timeout(self._caps.head_s):
            while len(data) <= LONGEST_HELLO:
                with contextlib.suppress(Incomplete):
                    _check_name(data, host)
                    return data
                piece = await client.reader.read(_READ)
                if not piece:
                    raise EOFError
                data += piece
        raise _No(403, "the ClientHello is too long", str(host))

    async def _carry(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, count: Callable[[int], None]
    ) -> None:
        while piece := await source.read(_READ):
            count(len(piece))
            sink.write(piece)
            await sink.drain()
        if sink.can_write_eof():
            sink.write_eof()

    async def _forward(self, client: Spoken, opened: Opened, place: Place, request: h11.Request) -> None:
        server = Spoken(h11.CLIENT, opened.reader, opened.writer, self._caps)
        headers = [(name, value) for name, value in passed_on(request.headers) if name != b"host"]
        ours = [(b"host", place.authority.encode()), (b"connection", b"close")]
        head = h11.Request(method=request.method, target=place.target.encode(), headers=[*ours, *headers])
        self.meter.sent(await server.say(head))
        await _together(self._give_answer(client, server), self._send_body(client, server))

    async def _send_body(self, client: Spoken, server: Spoken) -> None:
        """One request is passed on, whole; whatever follows it on this connection is not read."""
        while isinstance(event := await client.event(), (h11.Data, h11.EndOfMessage)):
            if isinstance(event, h11.EndOfMessage):
                await server.say(h11.EndOfMessage())
                return
            self.meter.sent(len(event.data))
            await server.say(h11.Data(data=event.data))

    async def _give_answer(self, client: Spoken, server: Spoken) -> None:
        try:
            answer = await server.head(h11.Response)
        except Garbled:
            raise _No(502, "the server's answer cannot be read") from None
        headers = [*passed_on(answer.headers), (b"connection", b"close")]
        self.meter.got(sum(len(name) + len(value) for name, value in headers))
        await client.say(h11.Response(status_code=answer.status_code, headers=headers, reason=answer.reason))
        while isinstance(event := await server.event(), h11.Data):
            self.meter.got(len(event.data))
            await client.say(h11.Data(data=event.data))
        if isinstance(event, h11.EndOfMessage):
            await client.say(h11.EndOfMessage())


async def _together(main: Coroutine[Any, Any, None], side: Coroutine[Any, Any, None]) -> None:
    """Run both until `main` ends or one of them fails; nothing of them is left afterwards."""
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(job, name="toolwire-egress-way") for job in (main, side)]
    waiting = set(tasks)
    try:
        while tasks[0] in waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _read_rules(network: Iterable[str]) -> tuple[Rules, str]:
    try:
        return Rules.of(network), ""
    except BadRule as wrong:
        return Rules(), f"no host is allowed, since a rule cannot be read: {wrong}"


def _place(method: str, target: str) -> Place:
    """Where a request to the proxy wants to go."""
    try:
        if method == "CONNECT":
            return Place("https", *read_authority(target, None))
        place = read_url(target)
    except BadUrl as wrong:
        raise _No(400, str(wrong)) from None
    if place.scheme != "http":
        raise _No(400, "ask for https with CONNECT", f"{place.host}:{place.port}")
    return place


def _check_name(data: bytes, host: Host) -> None:
    """Raises unless the ClientHello is for this host; for an address, it must name nobody."""
    try:
        name = server_name(data)
        same = host.address is not None if name is None else read_host(name) == host
    except (NotTls, BadHost) as wrong:
        raise _No(403, f"only TLS may follow CONNECT: {wrong}", str(host)) from None
    if not same:
        raise _No(403, f"the server name in TLS is not {host}, for which the tunnel was asked", str(host))
