"""Runs a program of a skill in a box, and reads what it says."""

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
from msgspec.structs import replace

from toolwire.errors import ToolFailure
from toolwire.execute.egress.outward import way_out
from toolwire.execute.egress.traffic import TrafficLog
from toolwire.execute.skill_folders import SkillCopies
from toolwire.execute.skill_modules import module_command, module_context
from toolwire.execute.watched import watch_command
from toolwire.protocol.calls import Text, ToolOutput
from toolwire.protocol.context import Context
from toolwire.protocol.operations import LIMITS, Command, ExecOps, Ran, Refusal
from toolwire.protocol.outcomes import Code
from toolwire.protocol.skills import ArgumentPassing, Program

Faults = Callable[[Any], tuple[str, ...]]
"""What is wrong with an output, in sentences; nothing when it is as promised."""

_FLAG = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_SHOWN_ERRORS = 2_000
_LONGEST_ERRORS = 65_536
_LONGEST_OUTPUT = 10 * 1024 * 1024
# The caller must still be there to hear that time is up.
_MARGIN_S, _MARGIN_PART = 2.0, 0.25


class SkillRunner:
    """Runs the programs of one trusted folder, from a copy that has the trusted digest."""

    def __init__(self, ops: ExecOps, shelf: SkillCopies, folder: Path, digest: str) -> None:
        self._ops = ops
        self._shelf = shelf
        self._folder = folder
        self._digest = digest

    async def run(
        self, program: Program, arguments: Mapping[str, Any], context: Context, refusal: Refusal | None = None
    ) -> Ran:
        """Run it to its end. `refusal` keeps addresses closed. Raises ToolFailure, and what ExecOps raises."""
        place = await asyncio.to_thread(self._shelf.place, self._folder, self._digest)
        command = command_for(program, arguments, place, context)
        log = TrafficLog()
        try:
            hosts = context.grant.network if program.network else ()
            async with watch_command(context, command), way_out(command, hosts, audit=log, refusal=refusal) as outward:
                ran = await self._ops.run(outward)
        finally:
            context.ran_in("", "", log.take())
        context.ran_in(ran.engine, ran.profile)
        return ran


def command_for(program: Program, arguments: Mapping[str, Any], place: Path, context: Context) -> Command:
    """How a program is started: with its arguments, the workspace if it may have it, and no more time than the call."""
    binary = program.binary(sys.platform)
    if not binary:
        raise ToolFailure(f"there is no program for {sys.platform}", code=Code.UNAVAILABLE)
    workspace = context.grant.roots[0] if program.reads and context.grant.roots else ""
    if program.reads and not workspace:
        raise ToolFailure("no folder is granted, so there is nothing to work in", code=Code.PERMISSION_DENIED)
    wall_s = context.timeout_s - min(_MARGIN_S, context.timeout_s * _MARGIN_PART)
    by_flags = program.passing is ArgumentPassing.FLAGS
    given: dict[str, Any] = dict(arguments)
    if program.module:
        words, given = module_command(str(place / binary)), {"input": given, "context": module_context(context)}
    else:
        words = (str(place / binary), *(flags(arguments) if by_flags else ()))
    return Command(
        words,
        workspace,
        writable=program.writes,
        stdin=b"" if by_flags else orjson.dumps(given),
        limits=replace(LIMITS["bash"], wall_s=wall_s, output_bytes=_LONGEST_OUTPUT),
        engine=program.engine,
        readable=(str(place),),
    )


def flags(arguments: Mapping[str, Any]) -> Iterator[str]:
    """The words for some arguments: `--name=value`, `--name` or `--no-name`, and a list item by item.

    Name and value are one word, so no value can be taken for another flag. Raises ToolFailure.
    """
    for name, value in arguments.items():
        if not _FLAG.fullmatch(name):
            raise ToolFailure(f"{name[:60]!r} cannot be passed as a flag", code=Code.INVALID_PARAMS)
        for each in value if isinstance(value, list) else [value]:
            match each:
                case None:
                    continue
                case bool():
                    yield f"--{name}" if each else f"--no-{name}"
                case str():
                    yield f"--{name}={each}"
                case _:
                    yield f"--{name}={json.dumps(each, ensure_ascii=False)}"


def outcome(name: str, ran: Ran, faults: Faults | None) -> ToolOutput:
    """What a program gave, if all went well. Raises ToolFailure with its exit code and errors otherwise.

    JSON on its standard output is structured output; where `faults` are looked for, it must be that.
    """
    errors = ran.stderr.text[-_LONGEST_ERRORS:]
    if ran.limit == "wall":
        raise ToolFailure(
            f"{name!r} was ended after {ran.elapsed_s:.1f} s, with everything it had started.{_ending(errors)}",
            code=Code.TIMEOUT, detail=_detail(ran), exit_code=ran.exit_code, stderr=errors,
        )  # fmt: skip
    if ran.exit_code != 0:
        message = f"{name!r} {_how(ran)}.{_ending(errors or ran.stdout.text)}"
        raise ToolFailure(message, detail=_detail(ran), exit_code=ran.exit_code, stderr=errors)
    text = ran.stdout.text
    value = _parsed(ran, faults is not None)
    wrong = faults(value) if faults is not None else ()
    if wrong:
        raise ToolFailure(
            f"{name!r} gave an output that is not as it promises: {'; '.join(wrong)}",
            code=Code.INVALID_OUTPUT, detail=_detail(ran), exit_code=0, stderr=errors, given=text,
        )  # fmt: skip
    return ToolOutput((Text(text.strip() or "done"),), value, exit_code=0, stderr=errors)


def _parsed(ran: Ran, needed: bool) -> Any:
    """The output as JSON; None where it is text and may be."""
    data = ran.stdout.head + ran.stdout.tail
    if not needed and data.lstrip()[:1] not in {b"{", b"["}:
        return None
    try:
        if ran.stdout.truncated:
            raise ValueError(f"it has {ran.stdout.size} bytes, too many to keep")
        return orjson.loads(data)
    except ValueError as wrong:
        if not needed:
            return None
        raise ToolFailure(
            f"its output is not the JSON that it promises: {wrong}. It begins with: {ran.stdout.text[:200]!r}",
            code=Code.INVALID_OUTPUT, detail=_detail(ran), exit_code=0, stderr=ran.stderr.text, given=ran.stdout.text,
        ) from None  # fmt: skip


def _how(ran: Ran) -> str:
    if ran.limit:
        return f"was ended because it went over its limit of {ran.limit}"
    return f"was ended by signal {ran.signal}" if ran.exit_code is None else f"ended with exit code {ran.exit_code}"


def _ending(text: str) -> str:
    text = text.strip()
    return f" It said: {text[-_SHOWN_ERRORS:]}" if text else ""


def _detail(ran: Ran) -> dict[str, Any]:
    return {
        "exit_code": ran.exit_code,
        "signal": ran.signal,
        "limit": ran.limit,
        "engine": ran.engine,
        "profile": ran.profile,
        "stderr": ran.stderr.text[-_SHOWN_ERRORS:],
    }
