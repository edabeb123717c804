"""A tool-calling runtime for LLM agents: one tool call, any model, any machine.

Public names are resolved when they are first used, so that `import toolwire` stays light.
"""

import sys
from typing import TYPE_CHECKING, Any

from toolwire.lazy import lazy_names

try:
    import fcntl

    _locks: Any = fcntl
except ImportError:  # Windows, for one
    _locks = None

__version__ = "0.1.0"

_COMMANDS = ("toolwire", "te", "toolwire.te")


def _require_platform() -> None:
    """Say where toolwire does not run, instead of failing somewhere later. Its own commands end with the sentence."""
    if _locks is not None:
        return
    why = "toolwire runs on Linux; this system lacks what it needs (fcntl). On Windows, use it inside WSL."
    started = {word.replace("\\", "/").rpartition("/")[2].removesuffix(".exe") for word in sys.orig_argv[:3]}
    if started.intersection(_COMMANDS):
        sys.exit(why)
    raise ImportError(why)


_require_platform()

_HOMES = {
    "Agent": "toolwire.agent",
    "Answer": "toolwire.agent",
    "run_sync": "toolwire.agent",
    "tool": "toolwire.define.functions",
    "Toolbox": "toolwire.define.toolbox",
    "Context": "toolwire.protocol.context",
    "Tool": "toolwire.protocol.tools",
    "Tier": "toolwire.protocol.tools",
    "Effect": "toolwire.protocol.tools",
    "Delivery": "toolwire.protocol.tools",
    "Grant": "toolwire.protocol.tools",
    "ToolCall": "toolwire.protocol.calls",
    "ToolResult": "toolwire.protocol.calls",
    "Text": "toolwire.protocol.calls",
    "Image": "toolwire.protocol.calls",
    "Resource": "toolwire.protocol.calls",
    "Problem": "toolwire.protocol.calls",
    "Status": "toolwire.protocol.outcomes",
    "Code": "toolwire.protocol.outcomes",
    "Reply": "toolwire.protocol.chat",
    "Usage": "toolwire.protocol.chat",
    "Limits": "toolwire.protocol.turns",
    "Turn": "toolwire.protocol.turns",
    "Approval": "toolwire.protocol.approvals",
    "Runtime": "toolwire.hub.runtime",
    "MemoryStore": "toolwire.record.memory",
    "SqliteStore": "toolwire.record.sqlite",
    "open_model": "toolwire.models.opening",
    "parse_reply": "toolwire.wire.replies.reply",
    "StreamParser": "toolwire.wire.replies.reply",
    "ToolwireError": "toolwire.errors",
    "ToolFailure": "toolwire.errors",
}

__all__ = [
    "Agent",
    "Answer",
    "Approval",
    "Code",
    "Context",
    "Delivery",
    "Effect",
    "Grant",
    "Image",
    "Limits",
    "MemoryStore",
    "Problem",
    "Reply",
    "Resource",
    "Runtime",
    "SqliteStore",
    "Status",
    "StreamParser",
    "Text",
    "Tier",
    "Tool",
    "ToolCall",
    "ToolFailure",
    "ToolResult",
    "Toolbox",
    "ToolwireError",
    "Turn",
    "Usage",
    "__version__",
    "open_model",
    "parse_reply",
    "run_sync",
    "tool",
]

if TYPE_CHECKING:
    from toolwire.agent import Agent as Agent
    from toolwire.agent import Answer as Answer
    from toolwire.agent import run_sync as run_sync
    from toolwire.define.functions import tool as tool
    from toolwire.define.toolbox import Toolbox as Toolbox
    from toolwire.errors import ToolFailure as ToolFailure
    from toolwire.errors import ToolwireError as ToolwireError
    from toolwire.hub.runtime import Runtime as Runtime
    from toolwire.models.opening import open_model as open_model
    from toolwire.protocol.approvals import Approval as Approval
    from toolwire.protocol.calls import Image as Image
    from toolwire.protocol.calls import Problem as Problem
    from toolwire.protocol.calls import Resource as Resource
    from toolwire.protocol.calls import Text as Text
    from toolwire.protocol.calls import ToolCall as ToolCall
    from toolwire.protocol.calls import ToolResult as ToolResult
    from toolwire.protocol.chat import Reply as Reply
    from toolwire.protocol.chat import Usage as Usage
    from toolwire.protocol.context import Context as Context
    from toolwire.protocol.outcomes import Code as Code
    from toolwire.protocol.outcomes import Status as Status
    from toolwire.protocol.tools import Delivery as Delivery
    from toolwire.protocol.tools import Effect as Effect
    from toolwire.protocol.tools import Grant as Grant
    from toolwire.protocol.tools import Tier as Tier
    from toolwire.protocol.tools import Tool as Tool
    from toolwire.protocol.turns import Limits as Limits
    from toolwire.protocol.turns import Turn as Turn
    from toolwire.record.memory import MemoryStore as MemoryStore
    from toolwire.record.sqlite import SqliteStore as SqliteStore
    from toolwire.wire.replies.reply import StreamParser as StreamParser
    from toolwire.wire.replies.reply import parse_reply as parse_reply


__getattr__ = lazy_names(__name__, globals(), _HOMES)
