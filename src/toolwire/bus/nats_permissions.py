"""What each role of a project may do at a NATS server. Pure.

Every project has an account of its own, so its messages, streams and consumers do not exist for another one. Inside the
account each role may send and receive only what it needs. A consumer is created at a subject that ends with its filter,
so a role that must not read reports cannot make a consumer for them either.
"""

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from toolwire.protocol.subjects import ROOT, VERSION, Category, check_token, handoff_subject

ALL_PROJECTS = "*"
"""In place of a project: one account in which every project is reached, for processes that serve all of them."""

_API, _ACK = "$JS.API", "$JS.ACK"


class NatsRole(StrEnum):
    """What kind of process logs in."""

    ORCHESTRATOR = "orchestrator"
    WORKER = "worker"
    SERVICE = "service"


class NatsUser(Struct, frozen=True):
    """Someone who may log in: a role in a project; a tool service gets the calls of one target only."""

    project: str
    role: NatsRole
    target: str = ""

    def __post_init__(self) -> None:
        if self.project != ALL_PROJECTS:
            check_token(self.project, "a project")
        if self.role is NatsRole.SERVICE:
            check_token(self.target, "the target of a service")

    @property
    def name(self) -> str:
        project = "all-projects" if self.project == ALL_PROJECTS else f"project-{self.project}"
        return "-".join(filter(None, (project, self.role.value, self.target)))

    @property
    def durable(self) -> str:
        """The only durable name that the user may have; any where it is "*"."""
        return f"service-{self.target}" if self.role is NatsRole.SERVICE else "*"


class Permissions(Struct, frozen=True):
    """The subjects to which a user may publish and subscribe; all others are refused.

    One that `answers` may also reply to what it receives, once for each message.
    """

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False


def permissions_of(user: NatsUser, public_key: str, commands: str, events: str) -> Permissions:
    """What a user may do, whose answers come in at an inbox named after its key, with streams of these names."""
    own = f"{ROOT}.{VERSION}.{user.project}"
    inbox = f"_INBOX.{public_key}.>"
    streams = {Category.COMMAND: commands, Category.EVENT: events}
    match user.role:
        case NatsRole.ORCHESTRATOR:
            reads = [f"{own}.*.{category.value}.>" for category in streams]
            makes = [f"{_API}.STREAM.{verb}.{name}" for verb in ("CREATE", "UPDATE") for name in streams.values()]
            sends = [f"{own}.*.{category.value}.>" for category in Category]
            return _allowing((*sends, *makes, *_consuming(user, reads, streams)), (f"{own}.>", inbox))
        case NatsRole.WORKER:
            reads = [f"{own}.*.cmd.tool.>"]
            # A worker also sends calls again that are due in the store. A command that is not due does nothing.
            told = [f"{own}.*.{kind}.agent.>" for kind in ("evt", "str")]
            sends = [*reads, f"{own}.*.cmd.sys.execution.report", f"{own}.*.cmd.agent.*.wakeup", *told]
        case NatsRole.SERVICE:
            reads = [f"{own}.*.cmd.tool.{user.target}", f"{own}.*.cmd.tool.{user.target}.>"]
            sends = [f"{own}.*.cmd.sys.execution.report", f"{own}.*.str.agent.>"]
    handed = map(handoff_subject, reads)
    return _allowing((*sends, *_consuming(user, reads, streams)), (*reads, *handed, inbox), answers=True)


def _allowing(publish: Iterable[str], subscribe: Iterable[str], *, answers: bool = False) -> Permissions:
    return Permissions(tuple(dict.fromkeys(publish)), tuple(dict.fromkeys(subscribe)), answers)


def _consuming(user: NatsUser, filters: Iterable[str], streams: dict[Category, str]) -> Iterable[str]:
    """The requests with which a user gets the kept messages that these filters stand for."""
    for name in streams.values():
        yield f"{_API}.STREAM.INFO.{name}"
    for pattern in filters:
        stream = streams[Category(pattern.split(".")[4])]
        yield f"{_API}.CONSUMER.CREATE.{stream}.{user.durable}.{pattern}"
        for verb in ("INFO", "MSG.NEXT"):
            yield f"{_API}.CONSUMER.{verb}.{stream}.{user.durable}"
        yield f"{_ACK}.{stream}.{user.durable}.>"
