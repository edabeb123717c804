"""Routes that clients expect beside chat and that the gateway has nothing to add to: they pass as they are."""

from toolwire.gateway.exchange import ByModel, ByUpstream
from toolwire.gateway.faults import Fault, Rejected, of_answer
from toolwire.gateway.flow import Send, while_connected
from toolwire.gateway.guard import Receive, read_body
from toolwire.gateway.log import RequestEntry
from toolwire.gateway.middleware import Scope
from toolwire.gateway.settings import TransferLimits

PATHS = {"/v1/completions": "openai", "/v1/embeddings": "openai", "/v1/messages/count_tokens": "anthropic"}


class PassthroughRoute:
    """One such route: the body goes up and the answer comes down, byte for byte, within the usual bounds."""

    def __init__(self, source: ByUpstream | ByModel, path: str, bounds: TransferLimits) -> None:
        self._source = source
        self._path = path
        self._dialect = PATHS[path]
        self._bounds = bounds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(self._source, ByModel):
            raise Rejected(
                Fault(404, "not_served", f"{self._path} needs an upstream server; this gateway asks a model")
            )
        entry: RequestEntry = scope["toolwire.entry"]
        headers = scope["toolwire.headers"]
        body = await read_body(receive, headers, self._bounds)
        sent = self._source.keys(headers, self._dialect) | {"x-request-id": entry.id}
        await while_connected(self._pass(self._source, sent, body, send), receive, lambda: entry.answered)

    async def _pass(self, source: ByUpstream, headers: dict[str, str], body: bytes, send: Send) -> None:
        async with source.client.send("POST", self._path, headers, body) as incoming:
            if not 200 <= incoming.status < 300:
                told = await incoming.beginning()
                raise Rejected(of_answer(source.client.place, incoming.status, incoming.headers, told, self._dialect))
            piece = await incoming.piece()
            kind = (b"content-type", (incoming.media_type or "application/json").encode("latin-1", "replace"))
            await send({"type": "http.response.start", "status": incoming.status, "headers": [kind]})
            while piece:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                piece = await incoming.piece()
        await send({"type": "http.response.body", "body": b"", "more_body": False})
