"""`toolwire conformance`: tests a tool service of any language against the protocol."""

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolwire.assemble.buses import nats_servers, nats_streams
from toolwire.cli.entry.exits import Exit
from toolwire.cli.resolve.options import AsJson, NoColor
from toolwire.cli.resolve.project import current_project
from toolwire.cli.terminal.screen import Screen
from toolwire.errors import SettingsError
from toolwire.lazy import lazy_module
from toolwire.protocol.subjects import BadSubject, Subject

if TYPE_CHECKING:
    from toolwire.conformance import kit
    from toolwire.conformance.findings import CheckResult
else:
    # It needs the extra `nats`.
    kit = lazy_module("toolwire.conformance.kit")

PAGE = "docs/protocol.md"


SubjectName = Annotated[
    str, typer.Option("--subject", metavar="SUBJECT", help="Where the service gets its commands.", show_default=False)
]
BusUrl = Annotated[
    str | None, typer.Option("--bus", metavar="URL", help="The NATS server, in place of that of the settings.")
]
ToolName = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Name of the tool; otherwise the end of the subject.")
]
CallArguments = Annotated[
    str,
    typer.Option(
        "--args", metavar="JSON", help="Arguments with which a call succeeds; {nonce} is another word in each call."
    ),
]
EffectsFile = Annotated[
    str | None,
    typer.Option("--effects", metavar="FILE", help="File to which each run of the tool adds its {nonce}."),
]
CardsAddress = Annotated[
    str, typer.Option("--cards", metavar="HOST:PORT", help="Where the kit serves cards; port 0 takes a free one.")
]
TokenVariable = Annotated[
    str | None,
    typer.Option("--token-env", metavar="NAME", help="Variable with the token that the service shows for cards."),
]
Credentials = Annotated[
    str | None, typer.Option("--credentials", metavar="FILE", help="Credentials file for the NATS server.")
]
Timeout = Annotated[
    float, typer.Option("--timeout", metavar="S", min=0.1, max=3_600, help="Seconds for each group of answers.")
]
ServiceCommand = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND", help="What starts the service, if the kit is to do that."),
]


def conformance(
    subject: SubjectName,
    bus: BusUrl = None,
    tool: ToolName = None,
    arguments: CallArguments = "{}",
    effects: EffectsFile = None,
    cards: CardsAddress = "127.0.0.1:0",
    token_env: TokenVariable = None,
    credentials: Credentials = None,
    timeout_s: Timeout = 20.0,
    as_json: AsJson = False,
    no_color: NoColor = False,
    command: ServiceCommand = None,
) -> Exit:
    """Test a tool service over a real broker: what it does with good commands and with bad ones. Ends with 1 if not.

    A service that the kit starts finds NATS_URL, CARDS_URL, CARDS_TOKEN, TOOL_SUBJECT and TOOL_NAME in its environment.
    Use a project that is not in use: real calls would be mixed with those of the kit.
    """
    screen = Screen.of("auto", no_color=no_color)
    parsed = _subject(subject)
    host, port = _address(cards)
    if not command and not token_env:
        raise SettingsError("a service that runs already shows a token for cards: name its variable with --token-env")
    place = current_project({"bus.url": bus, "bus.credentials": credentials})
    options = kit.KitOptions(
        parsed,
        tool or parsed.path[-1],
        _arguments(arguments),
        nats_servers(place),
        nats_streams(place),
        _token(token_env),
        host,
        port,
        Path(effects) if effects else None,
        tuple(command or ()),
        timeout_s,
    )
    findings = asyncio.run(kit.run_kit(options))
    failed = any(finding.wrong for finding in findings)
    if as_json:
        screen.json({"subject": subject, "passed": not failed, "checks": [_object(finding) for finding in findings]})
    else:
        _show(screen, findings)
    return Exit.FAILED if failed else Exit.DONE


def _show(screen: Screen, findings: "list[CheckResult]") -> None:
    rows = []
    for finding in findings:
        verdict = "failed" if finding.wrong else "skipped" if finding.skipped else "ok"
        said = "; ".join(finding.wrong) or finding.skipped
        place = f"{PAGE}#{finding.paragraph}" if finding.wrong else ""
        rows.append((verdict, finding.name, finding.about, said, place))
    screen.table(("", "check", "what is right", "what is wrong", "see"), rows)
    counts = [sum(row[0] == verdict for row in rows) for verdict in ("ok", "failed", "skipped")]
    style = "red" if counts[1] else "green"
    screen.tell("{} passed, {} failed, {} skipped.".format(*counts), style)


def _object(finding: "CheckResult") -> dict[str, Any]:
    verdict = "failed" if finding.wrong else "skipped" if finding.skipped else "ok"
    return {
        "check": finding.name,
        "verdict": verdict,
        "about": finding.about,
        "wrong": list(finding.wrong),
        "skipped": finding.skipped,
        "see": f"{PAGE}#{finding.paragraph}",
    }


def _subject(text: str) -> Subject:
    try:
        parsed = Subject.parse(text)
    except BadSubject as wrong:
        raise SettingsError(f"--subject: {wrong}") from None
    if not parsed.is_tool_command:
        raise SettingsError("--subject: name the subject of a tool, such as cg.v1r4.test.public.cmd.tool.search")
    return parsed


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError as wrong:
        raise SettingsError(f"--args is not JSON ({wrong})") from None
    if not isinstance(found, dict):
        raise SettingsError("""--args must be an object, such as '{"text": "{nonce}"}'""")
    return found


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise SettingsError(f"--cards is HOST:PORT, such as 127.0.0.1:8790, not {text[:80]!r}")
    return host, int(port)


def _token(variable: str | None) -> str:
    if variable is None:
        return ""
    token = os.environ.get(variable, "").strip()
    if not token:
        raise SettingsError(f"the variable {variable} is not set, or empty")
    return token
