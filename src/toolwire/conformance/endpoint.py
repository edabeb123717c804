"""The card endpoint of the kit: the part of `toolwire serve` that a service needs, with faults on demand."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any
from urllib.parse import unquote

from toolwire.conformance.cases import ProtocolCase
from toolwire.conformance.findings import WrittenCard
from toolwire.errors import SettingsError
from toolwire.wire.utp.cards import MAX_CARD_BYTES, decode_result_card
from toolwire.wire.utp.violations import Refusal

HOLD_S = 30.0


class CardEndpoint:
    """Serves the cards of cases to a service, and keeps what it writes. Safe to use from several threads."""

    def __init__(self, project: str, token: str) -> None:
        self.project = project
        self.token = token
        self.url = ""
        self.denied = 0
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._cases: dict[str, ProtocolCase] = {}
        self._reads: dict[str, int] = {}
        self._failed_writes: dict[str, int] = {}
        self._written: list[WrittenCard] = []
        self._holds: dict[str, threading.Event] = {}
        self._arrived: dict[str, threading.Event] = {}

    def serve_case(self, case: ProtocolCase) -> None:
        """Serve the card of a case from now on."""
        with self._lock:
            self._cases[case.command.tool_call_card_id] = case

    def hold(self, case: ProtocolCase) -> tuple[Callable[[float], bool], Callable[[], None]]:
        """Let the first read of a card wait. Gives what waits until it was read, and what lets it go on."""
        card_id = case.command.tool_call_card_id
        arrived, go_on = threading.Event(), threading.Event()
        with self._lock:
            self._arrived[card_id], self._holds[card_id] = arrived, go_on
        return arrived.wait, go_on.set

    def number(self) -> int:
        """The next number of all that is seen: what comes later has a higher one."""
        with self._lock:
            return next(self._numbers)

    def written(self) -> list[WrittenCard]:
        with self._lock:
            return list(self._written)

    def read(self, card_id: str) -> tuple[int, bytes]:
        """The status and body for a service that reads a card."""
        with self._lock:
            case = self._cases.get(card_id)
            self._reads[card_id] = self._reads.get(card_id, 0) + 1
            arrived, held = self._arrived.get(card_id), self._holds.pop(card_id, None)
            own = next((one.data for one in self._written if one.card_id == card_id and one.kept), None)
        if own is not None:
            return 200, own
        if arrived is not None:
            arrived.set()
        if held is not None:
            held.wait(HOLD_S)
        if case is None or case.card is None:
            return 404, _error("card_not_found", "there is no such card")
        if self._reads[card_id] <= case.failing_reads:
            return 503, _error("store_unavailable", "try again")
        return 200, case.card

    def write(self, card_id: str, data: bytes) -> tuple[int, bytes]:
        """The status and body for a service that writes a result card."""
        card = decode_result_card(data)
        if isinstance(card, Refusal):
            with self._lock:
                self._written.append(WrittenCard(card_id, card, data, next(self._numbers), kept=False))
            return 400, _error("bad_card", card.violations[0].message)
        with self._lock:
            case = next((one for one in self._cases.values() if one.command.tool_call_id == card.tool_call_id), None)
            failed = self._failed_writes.get(card.tool_call_id, 0)
            if case is not None and failed < case.failing_writes:
                self._failed_writes[card.tool_call_id] = failed + 1
                return 503, _error("store_unavailable", "try again")
            before = next((one for one in self._written if one.card_id == card_id and one.kept), None)
            same = before is not None and json.loads(before.data) == json.loads(data)
            if not same:
                self._written.append(WrittenCard(card_id, card, data, next(self._numbers), kept=before is None))
        if before is None:
            return 201, data
        return (200, data) if same else (409, _error("card_conflict", "the card is kept with other content"))


@contextmanager
def served_cards(endpoint: CardEndpoint, host: str, port: int) -> Iterator[CardEndpoint]:
    """The endpoint on an address of this machine; port 0 takes a free one. Raises SettingsError."""
    try:
        server = ThreadingHTTPServer((host, port), _handler(endpoint))
    except OSError as wrong:
        raise SettingsError(f"{host}:{port} cannot be listened on: {wrong.strerror}; name another address") from None
    server.daemon_threads = True
    endpoint.url = f"http://{host}:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(endpoint: CardEndpoint) -> type[BaseHTTPRequestHandler]:
    start = f"/v1/projects/{endpoint.project}/cards/"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # an answer goes in one piece; a second one would wait until the first is acknowledged

        def do_GET(self) -> None:
            card_id = self._card_id()
            if card_id:
                self._answer(*endpoint.read(card_id))

        def do_PUT(self) -> None:
            length = self.headers.get("Content-Length", "")
            if not length.isdecimal() or int(length) > MAX_CARD_BYTES:
                self.close_connection = True
                self._answer(413, _error("body_too_large", f"a card has at most {MAX_CARD_BYTES} bytes and a length"))
                return
            data = self.rfile.read(int(length))
            card_id = self._card_id()
            if card_id:
                self._answer(*endpoint.write(card_id, data))

        def _card_id(self) -> str:
            """The card that is asked for; "" where the question was answered already."""
            if self.headers.get("Authorization", "") != f"Bearer {endpoint.token}":
                endpoint.denied += 1
                self._answer(401, _error("invalid_token", "show the token as a bearer token"))
                return ""
            if not self.path.startswith(start) or "/" in (rest := self.path.removeprefix(start)) or not rest:
                self._answer(404, _error("not_served", f"cards are at {start}CARD"))
                return ""
            return unquote(rest)

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """The findings say what matters."""

    return Handler


def _error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()
