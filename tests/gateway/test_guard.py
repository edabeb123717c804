"""Who is let in, with what, and which key goes where."""

import asyncio
from typing import Any

import anthropic
import openai
import pytest
from starlette.routing import Route

from tests.gateway.clients import CHAT, MESSAGES, Kind
from tests.gateway.stand import BOUND_S, Gate, Stand
from tests.gateway.test_passing import each_api
from tests.models.provider import Provider
from toolwire.errors import SettingsError
from toolwire.gateway.app import make_app
from toolwire.gateway.log import as_json, as_text
from toolwire.gateway.settings import Access, TransferLimits, Upstream

TOKENS = Access(tokens=("first-token-123", "second-token-456"))
OWN = "sk-own-0123456789"
CHUNK = b"1f4\r\n" + b" " * 500 + b"\r\n"


async def post(gate: Gate, path: str = "/v1/chat/completions", body: Any = None, **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with gate.http() as client:
        return await client.post(path, json={"model": "m"} if body is None else body, headers=named)


@pytest.mark.threat("T58")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8787", 200),
        ("localhost", 200),
        ("[::1]:8787", 200),
        ("LOCALHOST:1", 200),
        ("evil.example", 403),
        ("evil.example:8787", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("10.0.0.7", 403),
        ("", 403),
    ],
)
async def test_a_request_under_a_foreign_name_is_refused(
    stand: Stand, upstream: Provider, host: str, status: int
) -> None:
    """A web page whose name was made to point at this machine (DNS rebinding) gives itself away by its name."""
    upstream.will(CHAT.says("Hello."))

    got = await post(await stand.gate(), host=host)

    assert got.status_code == status
    assert len(upstream.asked) == (status == 200)


@pytest.mark.threat("T58")
@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1", 200),
        ("https://evil.example", 403),
        ("http://localhost.evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
async def test_a_request_from_a_foreign_web_page_is_refused(
    stand: Stand, upstream: Provider, origin: str, status: int
) -> None:
    upstream.will(CHAT.says("Hello."))

    got = await post(await stand.gate(), origin=origin)

    assert got.status_code == status
    assert "access-control-allow-origin" not in got.headers


@pytest.mark.threat("T60")
@each_api
async def test_without_its_token_nobody_gets_through(stand: Stand, upstream: Provider, kind: Kind) -> None:
    gate = await stand.gate(access=TOKENS)

    for headers in (
        {},
        {"authorization": "Bearer wrong"},
        {"authorization": "first-token-123"},
        {"x_api_key": "first-token-12"},
    ):
        got = await post(gate, kind.path, **headers)
        assert got.status_code == 401
        assert got.json()["error"]["type"] == "authentication_error"
        assert got.json().get("type") == ("error" if kind is MESSAGES else None)
    assert upstream.asked == []


@pytest.mark.contrast("T60")
async def test_each_sdk_shows_the_token_in_its_own_way(stand: Stand, upstream: Provider) -> None:
    gate = await stand.gate(access=TOKENS)
    given: Any = {"model": "m", "messages": [{"role": "user", "content": "?"}]}

    upstream.will(CHAT.says("Hello."))
    async with gate.openai("second-token-456") as chat:
        await chat.chat.completions.create(**given)
    upstream.will(MESSAGES.says("Hello."))
    async with gate.anthropic("first-token-123") as messages:
        await messages.messages.create(max_tokens=5, **given)

    with pytest.raises(openai.AuthenticationError):
        async with gate.openai("third-token-789") as chat:
            await chat.chat.completions.create(**given)
    with pytest.raises(anthropic.AuthenticationError):
        async with gate.anthropic("third-token-789") as messages:
            await messages.messages.create(max_tokens=5, **given)


@pytest.mark.threat("T55")
async def test_the_gateways_tokens_stay_with_the_gateway(stand: Stand, upstream: Provider) -> None:
    upstream.will(CHAT.says("Hello."))

    await post(await stand.gate(access=TOKENS), authorization="Bearer first-token-123")

    assert "first-token-123" not in str(upstream.asked[0].headers)


async def test_a_clients_own_key_reaches_the_upstream_when_the_gateway_has_none(
    stand: Stand, upstream: Provider
) -> None:
    upstream.will(CHAT.says("Hello."))

    await post(await stand.gate(), authorization="Bearer theirs", x_api_key="theirs-too", cookie="a=b", x_other="1")

    sent = upstream.asked[0].headers
    assert (sent["authorization"], sent["x-api-key"]) == ("Bearer theirs", "theirs-too")
    assert "cookie" not in sent
    assert "x-other" not in sent


@each_api
async def test_the_gateways_own_key_takes_the_place_of_the_clients(
    stand: Stand, upstream: Provider, kind: Kind
) -> None:
    upstream.will(kind.says("Hello."))

    await post(await stand.gate(key=OWN), kind.path, authorization="Bearer theirs", x_api_key="theirs")

    sent = upstream.asked[0].headers
    assert sent["authorization"] == f"Bearer {OWN}"
    assert sent.get("x-api-key") == (OWN if kind is MESSAGES else None)
    assert "theirs" not in str(sent)


@pytest.mark.threat("T56")
async def test_a_client_cannot_choose_where_the_key_goes(stand: Stand, upstream: Provider) -> None:
    """LiteLLM once sent its key to whatever `api_base` a caller named (CVE-2024-6587)."""
    upstream.will(CHAT.says("Hello."))
    gate = await stand.gate(key=OWN)
    elsewhere = "http://127.0.0.1:9"
    body = {"model": "m", "api_base": elsewhere, "base_url": elsewhere, "upstream": elsewhere}

    got = await post(gate, f"/v1/chat/completions?api_base={elsewhere}", body, x_forwarded_host="evil.example")
    absolute = await post(gate, "/v1/../http://127.0.0.1:9/v1/chat/completions")

    assert got.status_code == 200
    assert upstream.asked[0].path == "/v1/chat/completions"
    assert absolute.status_code == 404


BAD_BODIES: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 400, "no JSON"),
    "no JSON": (b"model=m", 400, "no JSON"),
    "a list": (b"[]", 400, "JSON object"),
    "no model": (b"{}", 400, "name a model"),
    "a model that is no name": (b'{"model": {"$gt": ""}}', 400, "name a model"),
    "too deep": (b'{"model": "m", "messages": ' + b"[" * 200_000, 400, "no JSON"),
    "too large": (b'{"model": "' + b"m" * 3000 + b'"}', 413, "at most 2000 bytes"),
    "half a surrogate": (b'{"model": "\\ud800"}', 400, "no JSON"),
}


@pytest.mark.threat("T64")
@each_api
@pytest.mark.parametrize("case", BAD_BODIES)
async def test_a_body_that_is_no_request_is_refused_in_the_clients_dialect(
    stand: Stand, upstream: Provider, kind: Kind, case: str
) -> None:
    body, status, said = BAD_BODIES[case]
    gate = await stand.gate(bounds=TransferLimits(body_bytes=2000) if status == 413 else None)

    async with gate.http() as client:
        got = await client.post(kind.path, content=body)

    assert got.status_code == status
    assert said in got.json()["error"]["message"]
    assert upstream.asked == []


@pytest.mark.threat("T64")
@pytest.mark.parametrize(
    ("bounds", "rest", "status"),
    [
        (
            TransferLimits(body_bytes=2000),
            b"transfer-encoding: chunked\r\n\r\n" + (b"1f4\r\n" + b" " * 500 + b"\r\n") * 5,
            b"413",
        ),
        (TransferLimits(body_s=0.05), b"content-length: 5\r\n\r\n{", b"408"),
    ],
    ids=["too large without saying so", "never ending"],
)
async def test_a_body_is_not_waited_for_when_it_is(
    stand: Stand, bounds: TransferLimits, rest: bytes, status: bytes
) -> None:
    gate = await stand.gate(bounds=bounds)

    async with asyncio.timeout(BOUND_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(gate.url.rpartition(":")[2]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\n" + rest)
        told = await reader.read()
        writer.close()

    assert status in told.partition(b"\r\n")[0]


@pytest.mark.threat("T64")
async def test_a_compressed_body_is_not_unpacked(stand: Stand) -> None:
    got = await post(await stand.gate(), content_encoding="gzip")

    assert got.status_code == 415


async def test_a_plain_request_id_is_kept_and_an_odd_one_replaced(stand: Stand, upstream: Provider) -> None:
    upstream.will(CHAT.says("Hello."))
    gate = await stand.gate()

    kept = await post(gate, x_request_id="mine-1.2_3")
    odd = await post(gate, x_request_id="mine 'quoted'")

    assert kept.headers["x-request-id"] == "mine-1.2_3"
    assert upstream.asked[0].headers["x-request-id"] == "mine-1.2_3"
    assert odd.headers["x-request-id"].startswith("req_")


async def test_unknown_paths_and_methods_are_told_what_is_served(stand: Stand) -> None:
    async with (await stand.gate()).http() as client:
        lost = await client.get("/v2/nothing")
        wrong = await client.get("/v1/chat/completions")

    assert (lost.status_code, wrong.status_code) == (404, 405)
    assert "POST /v1/messages" in lost.json()["error"]["message"]


@pytest.mark.threat("T66")
async def test_the_log_says_what_happened_and_nothing_private(stand: Stand, upstream: Provider) -> None:
    text = 'My secret plan. <tool_call>{"name": "read_temperature", "arguments": {"room": "vault"}}</tool_call>'
    upstream.will(CHAT.says(text))
    gate = await stand.gate()

    await CHAT.ask(gate, stream=False, more={"model": "odd\nmodel\x1b[31m"})

    [entry] = gate.log
    line = as_text(entry)
    assert line.startswith("POST /v1/chat/completions odd%0Amodel%1B[31m 200 calls=1 repaired=1 ")
    for written in (line, as_json(entry)):
        assert "\n" not in written
        assert not any(word in written for word in ("vault", "secret", "client-key"))


async def test_a_failing_gateway_answers_all_the_same(stand: Stand) -> None:
    class Broken:
        name = "broken:model"

        async def ask(self, request: Any, on_delta: Any = None) -> Any:
            raise ZeroDivisionError("private detail")

        async def close(self) -> None:
            pass

    gate = await stand.gate(model=Broken())

    got = await post(gate, body={"model": "m", "messages": [{"role": "user", "content": "?"}]})

    assert got.status_code == 500
    assert got.json()["error"]["code"] == "internal_error"
    assert "private" not in got.text


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Access(host="0.0.0.0"), "token"),
        (lambda: Access(host="192.168.1.5"), "token"),
        (lambda: Access(tokens=("short",)), "eight characters"),
        (lambda: Upstream.at("ftp://host"), "must look like"),
        (lambda: Upstream.at("http://user:word@host"), "may not hold a user"),
        (lambda: Upstream.at("http://host", "latin"), "auto, openai"),
        (lambda: Upstream.at("http://host", key="a\nb"), "no key has"),
    ],
)
def test_settings_that_would_be_unsafe_or_wrong_are_refused(make: Any, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        make()


@pytest.mark.control("T58")
async def test_a_gateway_for_other_machines_takes_their_addresses_but_no_foreign_names(
    stand: Stand, upstream: Provider
) -> None:
    upstream.will(CHAT.says("Hello."))
    gate = await stand.gate(access=Access("0.0.0.0", TOKENS.tokens, frozenset({"models.home.example"})))
    token = {"authorization": "Bearer first-token-123"}

    asked = {host: await post(gate, host=host, **token) for host in ("10.0.0.7", "models.home.example", "evil.example")}

    assert [got.status_code for got in asked.values()] == [200, 200, 403]


@pytest.mark.threat("T60")
async def test_every_route_but_the_health_checks_wants_the_token(stand: Stand) -> None:
    gate = await stand.gate(access=TOKENS)
    paths = [route.path for route in make_app(Upstream("http://127.0.0.1:9")).routes if isinstance(route, Route)]

    async with gate.http() as client:
        told = {path: (await client.get(path)).status_code for path in [*paths, "/docs", "/"]}

    assert [path for path, status in told.items() if status != 401] == ["/healthz", "/readyz"]
