"""What a tool is, and what a caller may do with tools."""

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Any

from msgspec import Struct, field

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.checked import (
    CheckedStruct,
    above_zero,
    check_fields,
    count,
    describe_value,
    flag,
    folders,
    mapping,
    names,
    one_of,
    optional,
    text,
    texts,
)
from toolwire.protocol.policy import Autonomy, Rule

JsonObject = Mapping[str, Any]
_SUSPEND = AfterExecution.SUSPEND  # an enum's member is looked up anew each time it is named


class Tier(IntEnum):
    """How much trust a tool asks for: look, work, or change the world."""

    CRAWL = 0
    WALK = 1
    RUN = 2


class Effect(StrEnum):
    """What may be done again when it is unknown whether a call took effect."""

    PURE = "pure"
    IDEMPOTENT = "idempotent"
    TRANSACTIONAL = "transactional"
    UNSAFE = "unsafe"


REPEATABLE = frozenset({Effect.PURE, Effect.IDEMPOTENT})


class Delivery(StrEnum):
    """Who gets a result: the model, which goes on with it, or the user, which ends the turn."""

    MODEL = "model"
    USER = "user"


def _examples(item: Any) -> tuple[JsonObject, ...]:
    if isinstance(item, (str, Mapping)) or not isinstance(item, Iterable):
        raise TypeError(f"must be a list of arguments, each a dict, not {describe_value(item)}")
    return tuple(map(mapping, item))


class InProcess(Struct, frozen=True):
    """A tool that is a Python function of this process.

    `invoke(arguments, context)` calls it with checked arguments; it returns the value, or an awaitable
    of the value when `is_async`. `check(value, plain)` says what is wrong with a value and its JSON form, if anything.
    Where the function's return type says itself how it becomes JSON, `dump(value)` does that. Where the arguments are
    converted first, which may take time, `bind(arguments, context)` does only that and gives back the call itself.
    """

    function: Callable[..., Any]
    invoke: Callable[[Mapping[str, Any], Any], Any]
    is_async: bool
    check: Callable[[Any, Any], str] | None = None
    dump: Callable[[Any], Any] | None = None
    bind: Callable[[Mapping[str, Any], Any], Callable[[], Any]] | None = None


class Agreement(Struct, frozen=True):
    """What was agreed about a call before it ran: what its turn does about it, and whether a result may change that."""

    after_execution: AfterExecution = AfterExecution.SUSPEND
    controls_turn: bool = False


USUAL = Agreement()

ENDS_TURN = "turn_end"
"""The category of tools that end their turn by themselves, and must be the only call of their step."""


class Service(Struct, frozen=True):
    """A tool that lives in another process on this machine, which listens on the Unix socket at `address`."""

    address: str


class Edge(Struct, frozen=True):
    """A tool that lives on a device, known by its name; "" is any device that offers it.

    There it has the name `tool`, where that is another one than it is offered under.
    """

    device: str
    tool: str = ""


class McpServer(Struct, frozen=True):
    """A tool of an MCP server, known by its name in the settings."""

    server: str


class BusService(Struct, frozen=True):
    """A tool of a service that gets its calls over a bus, at a subject such as `cg.v1r4.{project_id}.…cmd.tool.search`.

    `defaults` are arguments for what a model leaves out. A model neither sees nor gives those that are `fixed`, and
    those whose values are in the `environment` of the service: these are known here by the names of their variables.
    A result may say what its turn does next only where the tool `controls_turn`.
    """

    subject: str
    after_execution: AfterExecution = AfterExecution.SUSPEND
    controls_turn: bool = False
    defaults: JsonObject = field(default_factory=dict)
    fixed: JsonObject = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


Target = InProcess | Service | Edge | McpServer | BusService
"""Where a tool lives. Each kind has its executor; see `execute.router`. A tool without a target cannot be run."""


@check_fields(
    name=text, description=text, input_schema=mapping, output_schema=optional(mapping), tier=one_of(Tier),
    needs=names, effect=one_of(Effect), journaled=flag, reads=texts, writes=texts,
    requires_confirmation=flag, category=text,
    timeout_s=above_zero, max_timeout_s=above_zero, polling=flag, delivery=one_of(Delivery),
    untrusted=flag, sandbox=text, version=text, skill=text, platforms=names, examples=_examples, reading_box=flag,
    trial_box=flag, in_flight=optional(count(1)), after_execution=one_of(AfterExecution), controls_turn=flag,
    shows_output=flag,
)  # fmt: skip
class Tool(CheckedStruct, frozen=True):
    """One capability, written once, callable by any model. See `docs/glossary.md` for every field.

    A `journaled` transactional tool keeps a journal by `Context.idempotency_key`: run again after a crash, it does
    nothing that it has done before and gives the same answer. A shell tool with a `reading_box` runs a command that
    only reads where nothing can be written and nothing reached, so that it needs no approval. One with a
    `trial_box` can run any command so that it changes and reaches nothing, where its context has a `trial`.
    At most `in_flight` calls of it run at once, over all processes that share the store.
    `must_ask(arguments, roots)` says why a call needs approval whatever is confirmed; "" where it does not.
    `after_execution` says what a turn does about a call: go on with its result, end with it, or not wait for it. A
    result may override that only where the tool `controls_turn`. While a call runs on its own, the model reads before
    each step what it has written, where the tool `shows_output` and is not `untrusted`.
    """

    name: str
    description: str
    input_schema: JsonObject = field(default_factory=lambda: {"type": "object", "properties": {}})
    output_schema: JsonObject | None = None
    tier: Tier = Tier.WALK
    needs: frozenset[str] = frozenset()
    effect: Effect = Effect.UNSAFE
    journaled: bool = False
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    requires_confirmation: bool = False
    category: str = ""
    timeout_s: float = 30.0
    max_timeout_s: float = 300.0
    polling: bool = False
    delivery: Delivery = Delivery.MODEL
    untrusted: bool = False
    sandbox: str = "none"
    version: str = "1"
    skill: str = ""
    platforms: frozenset[str] = frozenset()
    examples: tuple[JsonObject, ...] = ()
    validator: Callable[[dict[str, Any]], dict[str, Any] | None] | None = None
    target: Target | None = None
    reading_box: bool = False
    trial_box: bool = False
    in_flight: int | None = None
    must_ask: Callable[[Mapping[str, Any], tuple[str, ...]], str] | None = None
    after_execution: AfterExecution = AfterExecution.SUSPEND
    controls_turn: bool = False
    shows_output: bool = False

    @property
    def agreement(self) -> "Agreement":
        """What a turn does about its calls, and whether a result of it may say otherwise."""
        one: Tool | BusService = self.target if type(self.target) is BusService else self
        if one.after_execution is _SUSPEND and not one.controls_turn:
            return USUAL
        return Agreement(one.after_execution, one.controls_turn)

    @property
    def in_process(self) -> InProcess:
        """Its target, where that is a function of this process. Raises TypeError for any other tool."""
        if not isinstance(self.target, InProcess):
            raise TypeError(f"tool {self.name!r} does not run in this process, so it cannot be called as a function")
        return self.target

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function behind an in-process tool directly, as if it had never been decorated."""
        return self.in_process.function(*args, **kwargs)


def _rules(item: Any) -> tuple[Rule, ...]:
    """Rules, also as they are written in settings."""
    listed = [item] if isinstance(item, (str, Rule)) else item
    if not isinstance(listed, (list, tuple, set, frozenset)):
        raise TypeError(f"must be rules in a list, not {describe_value(item)}")
    return tuple(map(_rule, listed))


def _rule(item: Any) -> Rule:
    if isinstance(item, Rule):
        return item
    if not isinstance(item, str):
        raise TypeError(f"must be rules in a list; {describe_value(item)} is not one of them")
    try:
        return Rule.parse(item)
    except ValueError as wrong:
        raise ValueError(f"holds {describe_value(item)}, which {wrong}") from None


@check_fields(
    tier=one_of(Tier), permissions=names, roots=folders, network=texts, platform=text, confirmed=names,
    max_calls=count(0), autonomy=one_of(Autonomy), rules=_rules, wary=flag,
)  # fmt: skip
class Grant(CheckedStruct, frozen=True):
    """What the caller of a turn may do. An argument of every decision, never ambient.

    `confirmed` names the tools that need no further word from a person; `"*"` stands for all of them. A `wary` grant
    has people asked again, whatever is confirmed, once a turn has read untrusted content.
    """

    tier: Tier = Tier.WALK
    permissions: frozenset[str] = frozenset()
    roots: tuple[str, ...] = ()
    network: tuple[str, ...] = ()
    platform: str = ""
    confirmed: frozenset[str] = frozenset()
    max_calls: int = 64
    autonomy: Autonomy = Autonomy.SUPERVISED
    rules: tuple[Rule, ...] = ()
    wary: bool = True


LIMIT = "&"
"""Begins an entry of a grant's `network` that limits one call to some hosts and allows nothing."""


def limits_of(network: Iterable[str]) -> tuple[str, ...]:
    """The limits among network rules; a call that carries a secret has some."""
    return tuple(entry for entry in network if entry.startswith(LIMIT))
