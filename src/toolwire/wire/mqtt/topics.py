"""Where messages are published: `{prefix}/agents/{id}/{channel}`."""

import re
from enum import StrEnum

from msgspec import Struct

from toolwire.wire.mqtt.refusals import RefusalCode, RefusedMessage

DEFAULT_PREFIX = "evoclaw"

AGENT_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""No dots, blanks or wildcards: the id is a level of an MQTT topic, a token of a NATS subject and a client id."""

_PREFIX = re.compile(r"[A-Za-z0-9_-]{1,64}(/[A-Za-z0-9_-]{1,64}){0,7}")


class AgentChannel(StrEnum):
    """What is written on a topic of an agent."""

    COMMANDS = "commands"
    REPORTS = "reports"
    PROGRESS = "progress"
    STATUS = "status"
    CAPABILITIES = "capabilities"


FROM_AGENT = (AgentChannel.REPORTS, AgentChannel.PROGRESS, AgentChannel.STATUS, AgentChannel.CAPABILITIES)
"""The channels on which an agent writes; it only reads the other one."""


class Address(Struct, frozen=True):
    """Whose topic it is, and what is written there."""

    agent_id: str
    channel: AgentChannel


class Topics(Struct, frozen=True):
    """The topics under one prefix. Raises ValueError for a prefix or an id that cannot be part of a topic."""

    prefix: str = DEFAULT_PREFIX

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            raise ValueError(f"the prefix {self.prefix[:80]!r} must be 1 to 8 words of A-Z a-z 0-9 _ - joined by '/'")

    def of(self, agent_id: str, channel: AgentChannel) -> str:
        if not AGENT_ID.fullmatch(agent_id):
            raise ValueError(f"the agent id {agent_id[:80]!r} must be 1 to 64 characters of A-Z a-z 0-9 _ -")
        return f"{self.prefix}/agents/{agent_id}/{channel.value}"

    def of_all(self, channel: AgentChannel) -> str:
        """The filter that subscribes to a channel of every agent."""
        return f"{self.prefix}/agents/+/{channel.value}"

    def parse(self, topic: str) -> Address | RefusedMessage:
        start = f"{self.prefix}/agents/"
        agent_id, _, channel = topic.removeprefix(start).partition("/")
        if topic.startswith(start) and AGENT_ID.fullmatch(agent_id) and channel in _CHANNELS:
            return Address(agent_id, AgentChannel(channel))
        return RefusedMessage(
            RefusalCode.BAD_TOPIC, f"{topic[:120]!r} is not a topic of an agent under {self.prefix!r}"
        )


_CHANNELS = frozenset(channel.value for channel in AgentChannel)
