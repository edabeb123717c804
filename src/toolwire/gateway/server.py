"""Serving the gateway on a socket until someone says stop."""

import errno
import signal
import socket
from collections.abc import Callable

import sniffio
import uvicorn
from starlette.applications import Starlette

from toolwire.errors import SettingsError
from toolwire.event_loop import run_on_new_loop
from toolwire.gateway.connections import affordable, protocol_for
from toolwire.gateway.settings import USUAL_PLACES, ConnectionLimits

_BACKLOG = 1024
_GRACE_S = 2
_HEADER_BYTES = 32 * 1024


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one. Raises SettingsError that says what is in the way."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol has to be named: only then does asyncio send small pieces at once (TCP_NODELAY), not 40 ms late.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((host, port))
        sock.listen(_BACKLOG)
    except (OSError, OverflowError) as wrong:
        sock.close()
        raise SettingsError(_why_not(host, port, wrong)) from None
    return sock


def address_of(sock: socket.socket) -> str:
    """The address to put into a client."""
    host, port = sock.getsockname()[:2]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 -- where it listens
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


class _Server(uvicorn.Server):
    """Ends streams that would never end by themselves before it waits for open answers."""

    def __init__(self, config: uvicorn.Config, app: Starlette) -> None:
        super().__init__(config)
        self._end_streams: Callable[[], None] | None = getattr(app.state, "end_streams", None)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._end_streams is not None:
            self._end_streams()
        await super().shutdown(sockets)


def server_of(app: Starlette, places: ConnectionLimits = USUAL_PLACES) -> uvicorn.Server:
    """The HTTP server for an app: quiet, bounded, without WebSockets."""
    return _Server(
        uvicorn.Config(
            app,
            http=protocol_for(affordable(places)),
            h11_max_incomplete_event_size=_HEADER_BYTES,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=_GRACE_S,
        ),
        app,
    )


def serve_until_stopped(app: Starlette, sock: socket.socket) -> None:
    """Serve until Ctrl-C or a request to terminate; open answers get a moment to end."""
    server = server_of(app)
    # The server raises the signal again once it has ended; by then it has been obeyed.
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # The HTTP client asks dozens of times for each request which library it runs under; this is the short answer.
    sniffio.current_async_library_cvar.set("asyncio")
    try:
        run_on_new_loop(server.serve(sockets=[sock]))
    except KeyboardInterrupt:
        return
    finally:
        signal.signal(signal.SIGTERM, before)
        sock.close()


def _why_not(host: str, port: int, wrong: Exception) -> str:
    match getattr(wrong, "errno", None):
        case errno.EADDRINUSE:
            return f"port {port} on {host} is in use; stop what listens there, or choose another with --port"
        case errno.EACCES:
            return f"port {port} needs more rights; choose one above 1023 with --port"
        case errno.EADDRNOTAVAIL | socket.EAI_NONAME:
            return f"this machine has no address {host}; choose another with --host"
        case _:
            return f"cannot listen on {host}:{port}: {wrong}"
