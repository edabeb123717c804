"""Addresses of messages between processes: `cg.<version>.<project>.<channel>.<category>.<component>.<target>…`.

Every part is a token of letters, digits, `_` and `-`. A dot, a blank or a wildcard in a project or an agent would
otherwise address the messages of another one, so a subject that holds such a token cannot be made.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import TypeVar

from msgspec import Struct

from toolwire.protocol.checked import describe_value

Choice = TypeVar("Choice", bound=StrEnum)

ROOT = "cg"
VERSION = "v1r4"
"""The version of the protocol that is spoken here."""

VERSIONS = frozenset({VERSION})
"""The versions that are understood here."""

LONGEST_TOKEN = 64
LONGEST_SUBJECT = 1_024
MOST_TARGETS = 8
PROJECT_MARK, CHANNEL_MARK = "{project_id}", "{channel_id}"

TOKEN = f"[A-Za-z0-9_-]{{1,{LONGEST_TOKEN}}}"
VERSION_TOKEN = "v[0-9]{1,4}(?:r[0-9]{1,4})?"
_TOKEN = re.compile(TOKEN)
_VERSION = re.compile(VERSION_TOKEN)
_PMO = ("pmo", "internal")
_REPORT = ("execution", "report")


class BadSubject(ValueError):
    """This cannot be the address of a message."""


class WrongVersion(BadSubject):
    """The address is of a version of the protocol that is not understood here."""


class Category(StrEnum):
    """What a message is: a command, an event that is kept, or a stream that is not."""

    COMMAND = "cmd"
    EVENT = "evt"
    STREAM = "str"


class Component(StrEnum):
    """Whom a message is for, or what it is about."""

    AGENT = "agent"
    SYSTEM = "sys"
    USER = "user"
    TOOL = "tool"


def check_token(token: object, what: str) -> str:
    """The token, if it may be part of a subject. Raises BadSubject."""
    if isinstance(token, str) and _TOKEN.fullmatch(token):
        return token
    raise BadSubject(f"{what} must be 1 to {LONGEST_TOKEN} letters, digits, '_' or '-', not {describe_value(token)}")


class Subject(Struct, frozen=True):
    """The address of a message. Making one raises BadSubject for a token that could mean more than itself.

    `path` is the target and what follows it. `str(subject)` is the subject as it is sent.
    """

    project: str
    channel: str
    category: Category
    component: Component
    path: tuple[str, ...]
    version: str = VERSION

    def __post_init__(self) -> None:
        if not _VERSION.fullmatch(self.version):
            raise BadSubject(f"the protocol version of a subject is like {VERSION}, not {describe_value(self.version)}")
        check_token(self.project, "the project of a subject")
        check_token(self.channel, "the channel of a subject")
        if not 1 <= len(self.path) <= MOST_TARGETS:
            raise BadSubject(f"a subject has 1 to {MOST_TARGETS} tokens after its component, not {len(self.path)}")
        for token in self.path:
            check_token(token, "the target of a subject")

    def __str__(self) -> str:
        head = (ROOT, self.version, self.project, self.channel, self.category.value, self.component.value)
        return ".".join((*head, *self.path))

    @property
    def is_tool_command(self) -> bool:
        return (self.category, self.component) == (Category.COMMAND, Component.TOOL)

    @property
    def pmo_tool(self) -> str:
        """The built-in tool of the PMO that a command at this subject is for; "" for any other subject."""
        is_command = (self.category, self.component) == (Category.COMMAND, Component.SYSTEM)
        return self.path[2] if is_command and len(self.path) == 3 and self.path[:2] == _PMO else ""

    @property
    def is_report(self) -> bool:
        return (self.category, self.component, self.path) == (Category.COMMAND, Component.SYSTEM, _REPORT)

    @property
    def wakes(self) -> str:
        """The target that a wakeup at this subject is for; "" for any other subject."""
        is_command = (self.category, self.component) == (Category.COMMAND, Component.AGENT)
        return self.path[0] if is_command and len(self.path) == 2 and self.path[1] == "wakeup" else ""

    @classmethod
    def parse(cls, text: object, *, versions: frozenset[str] = VERSIONS) -> "Subject":
        """The subject that a text is. Raises BadSubject, and WrongVersion where only the version is not understood."""
        if not isinstance(text, str) or len(text) > LONGEST_SUBJECT:
            raise BadSubject(f"a subject is text of at most {LONGEST_SUBJECT} characters, not {describe_value(text)}")
        subject = _parsed(str(text))
        if subject.version not in versions:
            raise WrongVersion(
                f"protocol version {subject.version} is not understood here; send {' or '.join(sorted(versions))}"
            )
        return subject

    @classmethod
    def tool(cls, project: str, channel: str, *target: str) -> "Subject":
        """Where commands for a tool service go."""
        return cls(project, channel, Category.COMMAND, Component.TOOL, target)

    @classmethod
    def pmo(cls, project: str, channel: str, tool: str) -> "Subject":
        """Where commands for a built-in tool of the PMO go."""
        return cls(project, channel, Category.COMMAND, Component.SYSTEM, (*_PMO, tool))

    @classmethod
    def report(cls, project: str, channel: str) -> "Subject":
        """Where a service reports a result that has no way into the inbox of its own."""
        return cls(project, channel, Category.COMMAND, Component.SYSTEM, _REPORT)

    @classmethod
    def wakeup(cls, project: str, channel: str, target: str) -> "Subject":
        """The doorbell of the process that drives an agent's turns."""
        return cls(project, channel, Category.COMMAND, Component.AGENT, (target, "wakeup"))

    @classmethod
    def event(cls, project: str, channel: str, agent: str, name: str) -> "Subject":
        """An event of an agent that is kept: `step`, `task` or `state`."""
        return cls(project, channel, Category.EVENT, Component.AGENT, (agent, name))

    @classmethod
    def stream(cls, project: str, channel: str, agent: str, name: str = "chunk") -> "Subject":
        """What an agent says while it says it. It is not kept."""
        return cls(project, channel, Category.STREAM, Component.AGENT, (agent, name))


@lru_cache(maxsize=1_024)
def _parsed(text: str) -> Subject:
    """Most messages are of few subjects."""
    tokens = text.split(".")
    if len(tokens) < 7 or tokens[0] != ROOT:
        example = f"{ROOT}.{VERSION}.<project>.<channel>.cmd.tool.<target>"
        raise BadSubject(f"a subject is like {example}, not {describe_value(text)}")
    _, version, project, channel, category, component, *path = tokens
    return Subject(
        project, channel, _member(Category, category), _member(Component, component), tuple(path), version
    )  # fmt: skip


class TargetSubject(Struct, frozen=True):
    """The subject of a registered tool, where `{project_id}` and `{channel_id}` stand for those of the call.

    It is checked when it is parsed, and again when it is filled: a tool of one project never reaches another.
    """

    template: str
    subject: Subject

    @classmethod
    def parse(cls, text: object, *, versions: frozenset[str] = VERSIONS) -> "TargetSubject":
        """Raises BadSubject. The marks may stand in their own places only."""
        if not isinstance(text, str) or len(text) > LONGEST_SUBJECT:
            raise BadSubject(
                f"a target subject is text of at most {LONGEST_SUBJECT} characters, not {describe_value(text)}"
            )
        tokens = text.split(".")
        for place, mark in ((2, PROJECT_MARK), (3, CHANNEL_MARK)):
            if len(tokens) > place and tokens[place] == mark:
                tokens[place] = "x"
        subject = Subject.parse(".".join(tokens), versions=versions)
        if not subject.is_tool_command and not subject.pmo_tool:
            places = "cmd.tool.<target> or cmd.sys.pmo.internal.<tool>"
            raise BadSubject(f"a tool is called at {places}, not at {describe_value(text)}")
        return cls(text, subject)

    def fill(self, project: str, channel: str) -> Subject:
        """The subject for a call of this project. Raises BadSubject where the template names another one."""
        own_project, own_channel = self.template.split(".")[2:4]
        if own_project not in (PROJECT_MARK, project):
            raise BadSubject(f"{self.template} belongs to another project than {describe_value(project)}")
        if own_channel not in (CHANNEL_MARK, channel):
            raise BadSubject(f"{self.template} belongs to another channel than {describe_value(channel)}")
        found = self.subject
        return Subject(project, channel, found.category, found.component, found.path, found.version)

    @property
    def filter(self) -> str:
        """What a service subscribes to in order to get all calls of the tool."""
        return self.template.replace(PROJECT_MARK, "*").replace(CHANNEL_MARK, "*")


def handoff_subject(text: str) -> str:
    """Where messages of a subject, or of those that a filter stands for, are handed over: with `str` for `cmd`."""
    return _with_category(text, Category.STREAM)


def command_subject(text: str) -> str:
    """The subject of a message that was handed over at this one."""
    return _with_category(text, Category.COMMAND)


def _with_category(text: str, category: Category) -> str:
    tokens = text.split(".")
    tokens[4:5] = [category.value]
    return ".".join(tokens)


def check_filter(text: object) -> str:
    """The filter, if it is one: tokens, `*` for any token, `>` at the end for all that follow. Raises BadSubject."""
    if not isinstance(text, str) or len(text) > LONGEST_SUBJECT:
        raise BadSubject(f"a filter is text of at most {LONGEST_SUBJECT} characters, not {describe_value(text)}")
    *front, last = text.split(".")
    for token in (*front, *(() if last == ">" else (last,))):
        if token != "*":
            check_token(token, "a filter's token")
    return text


def filter_matches(pattern: str, subject: str) -> bool:
    """Whether a subject is among those that a filter stands for."""
    wanted, given = pattern.split("."), subject.split(".")
    if wanted[-1] == ">":
        wanted.pop()
        if len(given) <= len(wanted):
            return False
        given = given[: len(wanted)]
    return len(wanted) == len(given) and all(one in ("*", other) for one, other in zip(wanted, given, strict=True))


def _member(kind: type[Choice], token: str) -> Choice:
    try:
        return kind(token)
    except ValueError:
        names = ", ".join(kind)
        raise BadSubject(
            f"the {kind.__name__.lower()} of a subject is one of {names}, not {describe_value(token)}"
        ) from None
