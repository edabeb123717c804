"""Nouns as JSON-ready objects for storage, and back. Defaults are left out; unknown fields are ignored on reading.

The short names are a contract with every store ever written: they may be added to, never changed.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct

from toolwire.protocol.agents import AgentSpec, FormatSpec, GrantedByUser, ModelSpec, SkillSpec, ToolsSpec
from toolwire.protocol.approvals import Approval, ApprovalCard, Scope
from toolwire.protocol.budgets import Budget
from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.calls import (
    Block,
    CallOptions,
    ErrorText,
    Image,
    Problem,
    Resource,
    Text,
    ToolCall,
    ToolError,
    ToolResult,
)
from toolwire.protocol.chat import Message, Note, Reply, ResultsMessage, Usage, UserMessage
from toolwire.protocol.outcomes import Code, Status
from toolwire.protocol.policy import Autonomy, Rule, Verdict
from toolwire.protocol.tools import Delivery, Grant, Tier
from toolwire.protocol.turns import Ending, EndReason, Limits
from toolwire.protocol.waits import ForApproval, ForResult, ForTurn, Until, Wait

Json = dict[str, Any]
T = TypeVar("T")


def write_call(call: ToolCall) -> Json:
    """A model's request, complete with what it was read from."""
    out: Json = {"name": call.name, "arguments": call.arguments, "id": call.id}
    if call.alias is not None:
        out["alias"] = call.alias
    if call.format != "native":
        out["format"] = call.format
    if call.confidence != 1.0:
        out["confidence"] = call.confidence
    if call.position:
        out["position"] = call.position
    if call.raw is not None:
        out["raw"] = call.raw
    if call.fault:
        out["fault"] = call.fault
    if call.options is not None:
        out["options"] = _write_options(call.options)
    return out


def read_call(data: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        name=data["name"],
        arguments=data["arguments"],
        id=data.get("id", ""),
        alias=data.get("alias"),
        format=data.get("format", "native"),
        confidence=data.get("confidence", 1.0),
        position=data.get("position", 0),
        raw=data.get("raw"),
        fault=data.get("fault", ""),
        options=_read_options(data["options"]) if "options" in data else None,
    )


def _write_options(options: CallOptions) -> Json:
    out: Json = {}
    if options.delivery is not None:
        out["delivery"] = options.delivery.value
    if options.timeout_s is not None:
        out["timeout_s"] = options.timeout_s
    if options.config_id:
        out["config_id"] = options.config_id
    if options.dependencies:
        out["dependencies"] = list(options.dependencies)
    return out


def _read_options(data: Mapping[str, Any]) -> CallOptions:
    delivery = data.get("delivery")
    return CallOptions(
        Delivery(delivery) if delivery is not None else None, data.get("timeout_s"), data.get("config_id", ""),
        tuple(data.get("dependencies", ())),
    )  # fmt: skip


def write_result(result: ToolResult) -> Json:
    """How a call ended, with every block of its content."""
    out: Json = {"call_id": result.call_id, "name": result.name, "status": result.status.value}
    if result.content:
        out["content"] = [_write_block(block) for block in result.content]
    if result.structured is not None:
        out["structured"] = result.structured
    if result.error is not None:
        out["error"] = _write_error(result.error)
    if result.exit_code is not None:
        out["exit_code"] = result.exit_code
    if result.stderr:
        out["stderr"] = result.stderr
    if result.elapsed_ms:
        out["elapsed_ms"] = result.elapsed_ms
    if result.queued_ms:
        out["queued_ms"] = result.queued_ms
    if result.truncated:
        out["truncated"] = True
    if result.handle is not None:
        out["handle"] = result.handle
    if result.delivery is not None:
        out["delivery"] = result.delivery
    if result.untrusted:
        out["untrusted"] = True
    if result.engine:
        out["engine"], out["profile"] = result.engine, result.profile
    if result.origins:
        out["origins"] = list(result.origins)
    if result.blocked_ms:
        out["blocked_ms"] = result.blocked_ms
    if result.after_execution is not None:
        out["after_execution"] = result.after_execution.value
    return out


def read_result(data: Mapping[str, Any]) -> ToolResult:
    error = data.get("error")
    return ToolResult(
        call_id=data["call_id"],
        name=data["name"],
        status=Status(data["status"]),
        content=tuple(_read_block(block) for block in data.get("content", ())),
        structured=data.get("structured"),
        error=None if error is None else _read_error(error),
        exit_code=data.get("exit_code"),
        stderr=data.get("stderr", ""),
        elapsed_ms=data.get("elapsed_ms", 0.0),
        queued_ms=data.get("queued_ms", 0.0),
        truncated=data.get("truncated", False),
        handle=data.get("handle"),
        delivery=data.get("delivery"),
        untrusted=data.get("untrusted", False),
        engine=data.get("engine", ""),
        profile=data.get("profile", ""),
        origins=tuple(data.get("origins", ())),
        blocked_ms=data.get("blocked_ms", 0.0),
        after_execution=AfterExecution(data["after_execution"]) if "after_execution" in data else None,
    )


def _write_block(block: Block) -> Json:
    if isinstance(block, Text):  # as nearly all are
        return {"text": block.text}
    match block:
        case Image(data, media_type):
            return {"image": data, "media_type": media_type}
        case Resource(uri, title, media_type):
            return {"uri": uri, "title": title, "media_type": media_type}
        case ErrorText(text, code):
            return {"error": text, "code": code.value}


def _read_block(data: Mapping[str, Any]) -> Block:
    match data:
        case {"text": text}:
            return Text(text)
        case {"image": image}:
            return Image(image, data.get("media_type", "image/png"))
        case {"uri": uri}:
            return Resource(uri, data.get("title", ""), data.get("media_type", ""))
        case {"error": text}:
            return ErrorText(text, Code(data.get("code", Code.EXECUTION_FAILED)))
        case _:
            return Text("[a block that this version cannot read]")


def _write_error(error: ToolError) -> Json:
    out: Json = {"code": error.code.value, "message": error.message}
    if error.retryable:
        out["retryable"] = True
    if error.detail is not None:
        out["detail"] = error.detail
    return out


def _read_error(data: Mapping[str, Any]) -> ToolError:
    return ToolError(Code(data["code"]), data["message"], data.get("retryable", False), data.get("detail"))


def write_usage(usage: Usage) -> Json:
    out: Json = {"input": usage.input_tokens, "output": usage.output_tokens}
    if usage.cached_tokens:
        out["cached"] = usage.cached_tokens
    if usage.cost_usd is not None:
        out["cost_usd"] = usage.cost_usd
    return out


def read_usage(data: Mapping[str, Any]) -> Usage:
    return Usage(data.get("input", 0), data.get("output", 0), data.get("cached", 0), data.get("cost_usd"))


def write_problem(problem: Problem) -> Json:
    out: Json = {"code": problem.code, "message": problem.message}
    if problem.call is not None:
        out["call"] = problem.call
    if problem.span is not None:
        out["span"] = list(problem.span)
    return out


def read_problem(data: Mapping[str, Any]) -> Problem:
    span = data.get("span")
    return Problem(data["code"], data["message"], data.get("call"), None if span is None else (span[0], span[1]))


def write_reply(reply: Reply) -> Json:
    """A model's answer. `raw` is for the caller and is not kept."""
    out: Json = {"content": reply.content, "finish_reason": reply.finish_reason}
    if reply.reasoning:
        out["reasoning"] = reply.reasoning
    if reply.calls:
        out["calls"] = [write_call(call) for call in reply.calls]
    if reply.problems:
        out["problems"] = [write_problem(problem) for problem in reply.problems]
    if reply.usage != Usage():
        out["usage"] = write_usage(reply.usage)
    if reply.model:
        out["model"] = reply.model
    if reply.carry is not None:
        out["carry"] = reply.carry
    return out


def read_reply(data: Mapping[str, Any]) -> Reply:
    return Reply(
        content=data.get("content", ""),
        reasoning=data.get("reasoning", ""),
        calls=tuple(read_call(call) for call in data.get("calls", ())),
        problems=tuple(read_problem(problem) for problem in data.get("problems", ())),
        finish_reason=data.get("finish_reason", "stop"),
        usage=read_usage(data.get("usage", {})),
        model=data.get("model", ""),
        carry=data.get("carry"),
    )


def write_message(message: Message) -> Json:
    """Any message of a conversation, under the name of its kind."""
    match message:
        case UserMessage(text, parts):
            return {"user": text, "parts": [_write_block(part) for part in parts]} if parts else {"user": text}
        case Note(text):
            return {"note": text}
        case ResultsMessage(results):
            return {"results": [write_result(result) for result in results]}
        case Reply():
            return {"reply": write_reply(message)}


def read_message(data: Mapping[str, Any]) -> Message:
    """Read what `write_message` wrote. Raises ValueError for a kind this version does not know."""
    match data:
        case {"user": text}:
            return UserMessage(text, tuple(_read_block(part) for part in data.get("parts", ())))
        case {"note": text}:
            return Note(text)
        case {"results": results}:
            return ResultsMessage(tuple(read_result(result) for result in results))
        case {"reply": reply}:
            return read_reply(reply)
        case _:
            raise ValueError(f"no message of this kind is known here: {', '.join(sorted(data))[:100]}")


def write_grant(grant: Grant) -> Json:
    return {
        "tier": grant.tier.name,
        "permissions": sorted(grant.permissions),
        "roots": list(grant.roots),
        "network": list(grant.network),
        "platform": grant.platform,
        "confirmed": sorted(grant.confirmed),
        "max_calls": grant.max_calls,
        "autonomy": grant.autonomy.name,
        "rules": [_write_rule(rule) for rule in grant.rules],
        "wary": grant.wary,
    }


def read_grant(data: Mapping[str, Any]) -> Grant:
    """Read a grant; what is missing is not granted."""
    return Grant(
        tier=Tier[data.get("tier", Tier.CRAWL.name)],
        permissions=frozenset(data.get("permissions", ())),
        roots=tuple(data.get("roots", ())),
        network=tuple(data.get("network", ())),
        platform=data.get("platform", ""),
        confirmed=frozenset(data.get("confirmed", ())),
        max_calls=data.get("max_calls", 0),
        autonomy=Autonomy[data.get("autonomy", Autonomy.SUPERVISED.name)],
        rules=tuple(_read_rule(rule) for rule in data.get("rules", ())),
        wary=data.get("wary", True),
    )


def _write_rule(rule: Rule) -> Json:
    named = {name: getattr(rule, name) for name in ("permission", "argument", "pattern", "reason", "quorum")}
    return {"verdict": rule.verdict.value, "tools": sorted(rule.tools), **{k: v for k, v in named.items() if v}}


def _read_rule(data: Mapping[str, Any]) -> Rule:
    named = {name: data[name] for name in ("permission", "argument", "pattern", "reason", "quorum") if name in data}
    return Rule(Verdict(data["verdict"]), frozenset(data.get("tools", ())), **named)


def write_limits(limits: Limits) -> Json:
    return {name: limit for name in _LIMITS if (limit := getattr(limits, name)) is not None}


def read_limits(data: Mapping[str, Any]) -> Limits:
    return Limits(**{name: data[name] for name in _LIMITS if name in data})


_LIMITS = tuple(Limits.__struct_fields__)


def write_approval(card: ApprovalCard) -> Json:
    plain = {name: getattr(card, name) for name in _APPROVAL}
    return {**plain, "arguments": dict(card.arguments), "answers": [_write_answer(answer) for answer in card.answers]}


def read_approval(data: Mapping[str, Any]) -> ApprovalCard:
    plain = {name: data[name] for name in _APPROVAL if name in data}
    answers = tuple(_read_answer(answer) for answer in data["answers"])
    return ApprovalCard(**plain, arguments=data["arguments"], answers=answers)


def _write_answer(answer: Approval) -> Json:
    written: Json = {"granted": answer.granted, "by": answer.by, "reason": answer.reason, "scope": answer.scope.value}
    written |= {"under": answer.under} if answer.under else {}
    written |= {"on_behalf_of": answer.on_behalf_of} if answer.on_behalf_of else {}
    written |= {"pattern": answer.pattern, "lasts_s": answer.lasts_s} if answer.pattern else {}
    return written if answer.arguments is None else {**written, "arguments": dict(answer.arguments)}


def _read_answer(data: Mapping[str, Any]) -> Approval:
    more = {name: data[name] for name in ("pattern", "lasts_s", "under", "on_behalf_of") if name in data}
    return Approval(data["granted"], data["by"], data["reason"], data.get("arguments"), Scope(data["scope"]), **more)


_APPROVAL = (
    "id", "turn_id", "call_id", "tool", "digest", "reason", "agent", "asked_at", "expires_at", "quorum",
    "project", "policy", "stands_until",
)  # fmt: skip


def write_ending(ending: Ending) -> Json:
    """How a turn ended, with its deliverable."""
    out: Json = {"reason": ending.reason.value, "answer": ending.answer}
    if ending.value is not None:
        out["value"] = ending.value
    if ending.call_id:
        out["call_id"] = ending.call_id
    return out


def read_ending(data: Mapping[str, Any]) -> Ending:
    return Ending(EndReason(data["reason"]), data["answer"], data.get("value"), data.get("call_id", ""))


def write_wait(wait: Wait) -> Json:
    """What a turn waits for, under the name of its kind."""
    match wait:
        case ForApproval(approval_id):
            return {"approval": approval_id}
        case ForResult(call_id, until):
            return {"result": call_id} | ({} if until is None else {"until": until})
        case ForTurn(turn_id):
            return {"turn": turn_id}
        case Until(at, reason):
            return {"until": at} | ({"reason": reason} if reason else {})


def read_wait(data: Mapping[str, Any]) -> Wait:
    """Read what `write_wait` wrote. Raises ValueError for a kind this version does not know."""
    match data:
        case {"approval": approval_id}:
            return ForApproval(approval_id)
        case {"result": call_id}:
            return ForResult(call_id, data.get("until"))
        case {"turn": turn_id}:
            return ForTurn(turn_id)
        case {"until": at}:
            return Until(at, data.get("reason", ""))
        case _:
            raise ValueError(f"unknown kind of wait: {', '.join(sorted(data))[:100]}")


def write_spec(spec: AgentSpec) -> Json:
    """How an agent is made. What has its default is left out."""
    return _write_parts(spec)


def read_spec(data: Mapping[str, Any]) -> AgentSpec:
    """Read what `write_spec` wrote; fields of a newer version are ignored."""
    model, tools = data.get("model", {}), data.get("tools", {})
    return _read_parts(
        AgentSpec,
        data,
        model=_read_parts(ModelSpec, model, formats=_read_parts(FormatSpec, model.get("formats", {}))),
        tools=_read_parts(
            ToolsSpec, tools, skills=tuple(_read_parts(SkillSpec, one) for one in tools.get("skills", ()))
        ),
        granted=_read_parts(GrantedByUser, data.get("granted", {})),
        budget=_read_parts(Budget, data["budget"]) if "budget" in data else None,
    )


def _write_parts(value: Any) -> Json:
    """The fields of a flat or nested value that differ from their defaults."""
    names = value.__struct_fields__
    defaults = dict(zip(reversed(names), reversed(value.__struct_defaults__), strict=False))
    return {
        name: _written_part(given)
        for name in names
        if (given := getattr(value, name)) is not None and (name not in defaults or given != defaults[name])
    }


def _written_part(given: Any) -> Any:
    if isinstance(given, tuple):
        return [_written_part(one) for one in given]
    return _write_parts(given) if isinstance(given, Struct) else given


def _read_parts(kind: Callable[..., T], data: Mapping[str, Any], **known: Any) -> T:
    plain = {name: data[name] for name in cast("Any", kind).__struct_fields__ if name in data}
    listed = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    return kind(**{**listed, **known})
