"""What a gateway is told when it starts: what stands behind it, who may use it, and how much it takes."""

from dataclasses import dataclass, field

import httpx2
from msgspec import Struct

from toolwire.errors import SettingsError
from toolwire.models.http_chat import checked_key, checked_url
from toolwire.protocol.providers import ANTHROPIC_URL, CHAT_APIS

DIALECTS = ("auto", *CHAT_APIS)
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 -- recognised, so that it can be refused without a token


@dataclass(frozen=True, slots=True)
class Upstream:
    """The server that answers. Its address is fixed here; nothing in a request can change it."""

    url: str
    dialect: str = "auto"
    key: str = field(default="", repr=False)

    @classmethod
    def at(cls, url: str, dialect: str = "auto", key: str = "") -> "Upstream":
        """The upstream at an address with or without its `/v1`. Raises SettingsError."""
        if dialect not in DIALECTS:
            raise SettingsError(f"--upstream-dialect is one of {', '.join(DIALECTS)}, not {dialect[:40]!r}")
        parts = checked_url(url)
        if parts.userinfo or parts.query or parts.fragment:
            raise SettingsError("the upstream's address may not hold a user, a query or a fragment")
        if dialect == "auto" and parts.host == httpx2.URL(ANTHROPIC_URL).host:
            dialect = "anthropic"
        return cls(url.rstrip("/").removesuffix("/v1").rstrip("/"), dialect, checked_key(key, "the upstream's key"))

    @property
    def host(self) -> str:
        return httpx2.URL(self.url).host

    @property
    def is_here(self) -> bool:
        return self.host in LOOPBACK


@dataclass(frozen=True, slots=True)
class ServiceToken:
    """A tool service: its name, its project, the tools whose cards it may see, and the token that it shows."""

    name: str
    project: str
    tools: frozenset[str]
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may ask: clients that name one of these hosts and, where there are tokens, show one of them.

    `callers` are the names of those whom the tokens were given to, in the order of the tokens. The tokens of `services`
    are good for cards alone, and those of clients are not good for cards.
    """

    host: str = "127.0.0.1"
    tokens: tuple[str, ...] = field(default=(), repr=False)
    names: frozenset[str] = frozenset()
    callers: tuple[str, ...] = ()
    services: tuple[ServiceToken, ...] = ()

    def __post_init__(self) -> None:
        if self.host not in LOOPBACK and not self.tokens:
            raise SettingsError(
                f"listening on {self.host} lets other machines in: give a token with --token-env NAME, "
                "or listen on 127.0.0.1"
            )
        own = [service.token for service in self.services]
        for token in (*self.tokens, *own):
            if len(checked_key(token, "--token-env")) < 8:
                raise SettingsError("a token needs at least eight characters")
        if len({*own, *self.tokens}) < len(own) + len(set(self.tokens)):
            raise SettingsError("each service needs a token of its own, which no client and no other service has")


class TransferLimits(Struct, frozen=True):
    """How much a client may send, how much an upstream may answer, and how long each may take.

    A body has `body_s` in all, and in its course `body_grace_s` plus a second for each `body_rate` bytes that came.
    `idle_s` bounds each silence of the upstream, `closing_s` the silence after a complete answer; `keep_alive_s` is
    how long a client's stream stays silent.
    """

    body_bytes: int = 32 * 1024 * 1024
    body_s: float = 60.0
    body_grace_s: float = 5.0
    body_rate: int = 16 * 1024
    answer_bytes: int = 32 * 1024 * 1024
    line_bytes: int = 8 * 1024 * 1024
    connect_s: float = 10.0
    idle_s: float = 300.0
    whole_s: float = 1800.0
    closing_s: float = 5.0
    keep_alive_s: float = 15.0


class ConnectionLimits(Struct, frozen=True):
    """How many connections are served `at_once` and how many more may be `waiting` with half a request.

    A client has `header_s` for the headers of a request, and may leave its answer unread for `write_s`.
    """

    at_once: int = 1024
    waiting: int = 2048
    header_s: float = 5.0
    write_s: float = 30.0


USUAL_PLACES = ConnectionLimits()
USUAL_ACCESS = Access()
USUAL_BOUNDS = TransferLimits()
