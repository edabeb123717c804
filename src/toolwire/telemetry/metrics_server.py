"""Gives metrics over HTTP. A page in a browser must not read them by a name that it had point to this machine."""

import ipaddress
import threading
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def serve_metrics(port: int, host: str, registry: CollectorRegistry) -> tuple[WSGIServer, threading.Thread]:
    """A server in a thread. One that only this machine reaches answers to no names but its own. Raises OSError."""
    server, thread = start_http_server(port, host, registry)
    if host in _LOOPBACK:
        app = server.get_app()
        assert app is not None
        server.set_app(_for_this_machine(app))
    return server, thread


def _for_this_machine(app: App) -> App:
    def guarded(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if is_own_name(environ.get("HTTP_HOST", "")):
            return app(environ, start)
        start("421 Misdirected Request", [("Content-Type", "text/plain")])
        return [b"metrics are given at 127.0.0.1 and localhost only\n"]

    return guarded


def is_own_name(authority: str) -> bool:
    """Whether a Host header names this machine: by a usual name, or by a number, which no page can have point here."""
    try:
        host = urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return False
    if host.removesuffix(".") in _LOOPBACK:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
