"""`toolwire serve`: the gateway in front of a server or of the embedded model."""

import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire.agent import run_sync
from toolwire.assemble.kept_store import KeptStore
from toolwire.assemble.project import ProjectFolder
from toolwire.assemble.specs import choice_for
from toolwire.assemble.stores import require_own_state
from toolwire.assemble.telemetry import open_metrics, tracer_of
from toolwire.cli.entry.exits import Exit
from toolwire.cli.entry.streams import LineFormatter
from toolwire.cli.resolve.options import Model, Project
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.identity import system_user
from toolwire.cli.terminal.text import on_one_line
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.models.opening import open_model
from toolwire.protocol.chat import ChatModel
from toolwire.record.contract import Store, Workload
from toolwire.settings import Settings

if TYPE_CHECKING:
    from toolwire.assemble import record_upkeep, report_link, tool_catalogue, turn_service
    from toolwire.assemble import records as project_records
    from toolwire.gateway import app, approvals, observing, record_access, server
    from toolwire.gateway import cards as card_routes
    from toolwire.gateway import log as log_lines
    from toolwire.gateway import registry as registry_routes
    from toolwire.gateway import settings as gateway_settings
else:
    project_records = lazy_module("toolwire.assemble.records")
    record_upkeep = lazy_module("toolwire.assemble.record_upkeep")
    report_link = lazy_module("toolwire.assemble.report_link")
    tool_catalogue = lazy_module("toolwire.assemble.tool_catalogue")
    turn_service = lazy_module("toolwire.assemble.turn_service")
    app = lazy_module("toolwire.gateway.app")
    card_routes = lazy_module("toolwire.gateway.cards")
    approvals = lazy_module("toolwire.gateway.approvals")
    observing = lazy_module("toolwire.gateway.observing")
    log_lines = lazy_module("toolwire.gateway.log")
    record_access = lazy_module("toolwire.gateway.record_access")
    registry_routes = lazy_module("toolwire.gateway.registry")
    server = lazy_module("toolwire.gateway.server")
    gateway_settings = lazy_module("toolwire.gateway.settings")


UpstreamUrl = Annotated[
    str | None, typer.Option("--upstream", metavar="URL", help="The server that answers: http://127.0.0.1:11434.")
]
Dialect = Annotated[
    str | None,
    typer.Option("--upstream-dialect", metavar="NAME", help="What it speaks: auto, openai, anthropic, ollama."),
]
Host = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help="Where to listen; 127.0.0.1 unless set otherwise.")
]
Port = Annotated[
    int | None,
    typer.Option("--port", metavar="N", help="The port; 0 takes a free one, 8787 is used unless set otherwise."),
]
UpstreamKeyEnv = Annotated[
    str | None, typer.Option("--key-env", metavar="NAME", help="Variable with the key for the upstream.")
]
TokenEnv = Annotated[
    list[str] | None,
    typer.Option("--token-env", metavar="NAME", help="Variable with a token that clients must show. Repeatable."),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option("--allow-host", metavar="NAME", help="Another name by which clients reach it. Repeatable."),
]
Agents = Annotated[
    bool, typer.Option("--agents", help="Let clients with a token run this project's agent over HTTP: /v1/turns.")
]
JsonLogs = Annotated[bool, typer.Option("--json-logs", help="Log JSON lines.")]


def serve(
    upstream: UpstreamUrl = None,
    upstream_dialect: Dialect = None,
    model: Model = None,
    host: Host = None,
    port: Port = None,
    key_env: UpstreamKeyEnv = None,
    token_env: TokenEnv = None,
    allow_host: AllowHost = None,
    agents: Agents = False,
    project: Project = "default",
    json_logs: JsonLogs = False,
) -> Exit:
    """Serve OpenAI- and Anthropic-compatible APIs in front of a model, and repair its tool calls.

    Put the printed address into any OpenAI or Anthropic client. Give --upstream for a server, or --model for a
    model that toolwire asks itself, such as local:smollm2. What the [serve] section of toolwire.toml sets needs no
    flag; a flag wins.
    """
    _require_gateway()
    flags: dict[str, Any] = {
        "serve.upstream": upstream, "serve.upstream_dialect": upstream_dialect, "serve.model": model,
        "serve.host": host, "serve.port": port, "serve.key_env": key_env, "serve.token_env": token_env,
        "serve.allow_hosts": allow_host, "serve.json_logs": json_logs or None,
        "serve.agents": agents or None,
    }  # fmt: skip
    place = current_project(flags, project=project)
    chosen = place.settings.serve
    address, name = upstream_or_model(place.settings)
    tokens = tuple(map(_variable, chosen.token_env))
    names = frozenset(each.lower() for each in chosen.allow_hosts)
    services = _services(place)
    access = gateway_settings.Access(chosen.host, tokens, names, chosen.token_env, services)
    key = _variable(chosen.key_env) if chosen.key_env else ""
    behind = gateway_settings.Upstream.at(address, chosen.upstream_dialect, key) if address else None
    asked = _open_chosen_model(place, name, key) if name else None
    turns = _turns(place) if chosen.agents else None
    stores = turns or KeptStore(place)
    telemetry = _telemetry(place, stores)
    desk = _desk(place, chosen.token_env, stores) if chosen.token_env else None
    admins = _registry(place, chosen.token_env, stores)
    records = _records(place, chosen.token_env, stores)
    sock = server.listen(chosen.host, chosen.port)
    log = _logger(as_json=chosen.json_logs)
    served = app.make_app(
        behind, asked, access=access, log=log, desk=desk, turns=turns, registry=admins,
        cards=card_routes.CardAccess(_opener(stores)) if services else None, records=records,
        background=partial(_background, place, stores, services, records, has_turns=turns is not None),
        close=stores.close if isinstance(stores, KeptStore) else None, telemetry=telemetry,
    )  # fmt: skip
    own = server.address_of(sock)
    asks = behind.url if behind else name
    typer.echo(f"Put {own}/v1 into your client ({own} for Anthropic's); it asks {asks}. Ctrl-C ends it.")
    sys.stdout.flush()
    _log_lines(as_json=chosen.json_logs)
    server.serve_until_stopped(served, sock)
    return Exit.DONE


def upstream_or_model(settings: Settings) -> tuple[str, str]:
    """What the gateway asks: the address of a server, or the name of a model; the other one is empty.

    The stronger of both settings wins, so that a flag replaces what a file says. Raises SettingsError.
    """
    chosen = settings.serve
    by_upstream, by_model = settings.origin("serve.upstream").strength, settings.origin("serve.model").strength
    if by_upstream == by_model:
        raise SettingsError(
            "give either --upstream URL or --model PROVIDER:NAME, e.g. --upstream http://127.0.0.1:11434, "
            "or set serve.upstream or serve.model"
        )
    return (chosen.upstream or "", "") if by_upstream > by_model else ("", chosen.model or "")


def _require_gateway() -> None:
    """Raise SettingsError when the extra that the gateway needs is missing."""
    try:
        _ = app.make_app, server.listen  # loads both, and so all of the gateway
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] in ("starlette", "uvicorn"):
            raise SettingsError(f"serving needs an extra: pip install 'toolwire[serve]' ({missing})") from None
        raise


def _open_chosen_model(place: ProjectFolder, model: str, key: str) -> ChatModel:
    """The model, at the address and in the formats that its profile gives it."""
    choice = choice_for(place, model)
    return open_model(
        choice.model, base_url=choice.url, api_key=key or None, key_variable=choice.api_key_env, preference=choice.tools
    )


def _telemetry(
    place: ProjectFolder, stores: "turn_service.TurnService | KeptStore"
) -> "observing.GatewayTelemetry | None":
    """What the gateway tells about requests: traces where they are sent, metrics unless other machines could read them.

    Raises SettingsError where metrics are set and the extra is missing.
    """
    chosen = place.settings.serve
    tracer, metrics = tracer_of(place), None
    if chosen.metrics or (chosen.metrics is None and chosen.host in gateway_settings.LOOPBACK):
        try:
            metrics = open_metrics(place)
        except SettingsError:
            if chosen.metrics:
                raise
    if tracer is None and metrics is None:
        return None

    async def read() -> Workload:
        async with stores.use() if isinstance(stores, KeptStore) else stores.use_store() as store:
            return Workload() if store is None else await store.workload(store.clock())

    return observing.GatewayTelemetry(tracer, metrics, read if metrics is not None else None)


def _turns(place: ProjectFolder) -> "turn_service.TurnService":
    """What runs agents for clients. Raises SettingsError where anyone could, and where turns would not be kept."""
    if not place.settings.serve.token_env:
        raise SettingsError("agents over HTTP need a token: give --token-env NAME, or set serve.token_env")
    service = turn_service.TurnService(place)
    service.require_agent()
    return service


def _desk(
    place: ProjectFolder, tokens: Iterable[str], behind: "turn_service.TurnService | KeptStore"
) -> "approvals.ApprovalDesk":
    """How the project's store is opened, and who may answer its questions. Raises SettingsError."""
    people = _token_names(place, "approval.people", tokens)
    if place.has_home:
        run_sync(require_own_state(place))
    if isinstance(behind, KeptStore):
        return approvals.ApprovalDesk(behind.use, people)
    return approvals.ApprovalDesk(behind.use_store, people, answered=behind.wake)


def _registry(
    place: ProjectFolder, tokens: Iterable[str], behind: "turn_service.TurnService | KeptStore"
) -> "registry_routes.RegistryAccess | None":
    """Who may change the registered tools of the project; None where that is no caller. Raises SettingsError."""
    admins = _token_names(place, "registry.admins", tokens)
    if not admins:
        return None
    if not place.settings.store.lasts:
        raise SettingsError("registry.admins register tools in a store; choose a store.kind that outlives its process")
    return registry_routes.RegistryAccess(place.name, _opener(behind), admins)


def _records(
    place: ProjectFolder, tokens: Iterable[str], behind: "turn_service.TurnService | KeptStore"
) -> "record_access.RecordAccess | None":
    """Who may use the records of the project; None where that is no caller. Raises SettingsError."""
    roles = project_records.record_roles(place)
    if not roles:
        return None
    for name in ("readers", "writers", "admins"):
        _token_names(place, f"records.{name}", tokens)
    if not place.settings.store.lasts:
        raise SettingsError("records over HTTP are kept in a store; choose a store.kind that outlives its process")
    return record_access.RecordAccess(project_records.KeptRecords(place, _opener(behind)).open, roles)


def _opener(behind: "turn_service.TurnService | KeptStore") -> "Callable[[], AbstractAsyncContextManager[Store]]":
    return behind.open if isinstance(behind, KeptStore) else behind.use_store


def _services(place: ProjectFolder) -> "tuple[gateway_settings.ServiceToken, ...]":
    """The services that may read and write cards. Raises SettingsError."""
    found = []
    for name, one in place.settings.bus_services.items():
        if not one.tools:
            raise SettingsError(f"bus_services.{name}.tools names no tool; name those that the service runs")
        token = _variable(one.token_env)
        found.append(gateway_settings.ServiceToken(name, one.project or place.name, frozenset(one.tools), token))
    if found and not place.settings.store.lasts:
        raise SettingsError("cards of services are kept in a store; choose a store.kind that outlives its process")
    return tuple(found)


@asynccontextmanager
async def _background(
    place: ProjectFolder,
    stores: "turn_service.TurnService | KeptStore",
    services: "tuple[gateway_settings.ServiceToken, ...]",
    records: "record_access.RecordAccess | None",
    *,
    has_turns: bool,
) -> AsyncIterator[None]:
    """What runs beside the requests: reports of services, the upkeep of records, and the record about tools."""
    opened = stores.use if isinstance(stores, KeptStore) else stores.use_store
    upkeep = record_upkeep.keeping_up(place, opened, system_user()) if records or has_turns else nullcontext()
    catalogue = tool_catalogue.kept_catalogue(place, records.open_service) if records else nullcontext()
    async with _received_reports(place, stores, services), upkeep, catalogue:
        yield


@asynccontextmanager
async def _received_reports(
    place: ProjectFolder,
    stores: "turn_service.TurnService | KeptStore",
    services: "tuple[gateway_settings.ServiceToken, ...]",
) -> AsyncIterator[None]:
    """Takes the reports of services from the bus, if there are services and a bus that reaches them."""
    if not services or place.settings.bus.kind == "in-process":
        yield
        return
    projects = {service.project for service in services}
    async with _opener(stores)() as store, report_link.received_reports(place, store, projects):
        yield


def _token_names(place: ProjectFolder, key: str, tokens: Iterable[str]) -> frozenset[str]:
    """The callers that a setting names. Raises SettingsError for one that has no token."""
    section, _, name = key.partition(".")
    named: frozenset[str] = frozenset(getattr(getattr(place.settings, section), name))
    if unknown := sorted(named.difference(tokens)):
        raise SettingsError(
            f"{key} names {unknown[0]}; give it as --token-env (or in serve.token_env) too, or leave it out"
        )
    return named


def _variable(name: str) -> str:
    value = os.environ.get(name, "").strip()
    if not value:
        raise SettingsError(f"the variable {name} is not set, or empty")
    return value


def _logger(*, as_json: bool) -> Callable[[Any], None]:
    line = log_lines.as_json if as_json else log_lines.as_text

    def write(entry: Any) -> None:
        typer.echo(on_one_line(line(entry)), err=True)

    return write


def _log_lines(*, as_json: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=as_json))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
