"""A model's request, our decision about it, and what came of it."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from toolwire.protocol.bus import AfterExecution
from toolwire.protocol.outcomes import OUTCOMES, Code, Status
from toolwire.protocol.tools import Delivery, Tool


class Problem(Struct, frozen=True, gc=False):
    """Something wrong or remarkable in a model's output, in words and as a code that programs can test."""

    code: str
    message: str
    call: int | None = None
    span: tuple[int, int] | None = None


class CallOptions(Struct, frozen=True):
    """What a call says about itself beside its arguments: who gets its result, how long it may take, and which
    configuration record its tool is to use. None and empty leave it to the tool. `dependencies` are the ids of other
    calls of the same reply, as the model gave them: it runs once they have succeeded.
    """

    delivery: Delivery | None = None
    timeout_s: float | None = None
    config_id: str = ""
    dependencies: tuple[str, ...] = ()


class ToolCall(Struct, frozen=True, gc=False):
    """A model's request to use a tool.

    `id` is minted by the runtime and unique; `alias` is whatever the provider or model called it and is only
    used to render the result. `fault` says why the arguments could not be read; such a call is answered, never run.
    """

    name: str
    arguments: Mapping[str, Any]
    id: str = ""
    alias: str | None = None
    format: str = "native"
    confidence: float = 1.0
    position: int = 0
    raw: Any = None
    fault: str = ""
    options: CallOptions | None = None


class Text(Struct, frozen=True, gc=False):
    text: str


class Image(Struct, frozen=True):
    """An image as base64 text with its media type."""

    data: str
    media_type: str = "image/png"


class Resource(Struct, frozen=True):
    """A pointer to something kept elsewhere."""

    uri: str
    title: str = ""
    media_type: str = ""


class ErrorText(Struct, frozen=True):
    text: str
    code: Code = Code.EXECUTION_FAILED


Block = Text | Image | Resource | ErrorText


class Source(Struct, frozen=True):
    """Where a block comes from, as the runtime knows it: `kind` is user, operator, model or tool.

    `uris` are the places where it was read, other agents among them. Anyone may have written what is `untrusted`.
    """

    kind: str
    name: str = ""
    call_id: str = ""
    uris: tuple[str, ...] = ()
    untrusted: bool = False

    def __str__(self) -> str:
        more = f" and {len(self.uris) - 1} more" if len(self.uris) > 1 else ""
        return f"{self.uris[0]}{more} by {self.name}" if self.uris else self.name or self.kind


class ToolOutput(Struct, frozen=True):
    """What a tool may return when text alone will not do: blocks for the model, and a value for programs.

    A tool that ran a program says how that ended, too. One that did a part of what it was asked for says what is
    `missing`, such as two of ten files that it could not read: its call ends as `partial`, and the model reads both.
    """

    content: tuple[Block, ...]
    structured: Any = None
    exit_code: int | None = None
    stderr: str = ""
    missing: str = ""


class ToolError(Struct, frozen=True):
    """Why a call did not succeed: a code from the closed list, a sentence for the model, room for detail."""

    code: Code
    message: str
    retryable: bool = False
    detail: Any = None

    @classmethod
    def of(cls, code: Code, message: str, detail: Any = None) -> "ToolError":
        return cls(code, message, OUTCOMES[code].retryable, detail)


class ToolResult(Struct, frozen=True, gc=False):
    """How a call ended. There is exactly one for every accepted call.

    `untrusted` marks content from outside: a page of the web, a message, a file that others wrote; `origins` say
    where it was read. `engine` and `profile` name the sandbox that confined it, and the digest of its rules.
    `blocked_ms` is how long its function held up the event loop without a pause, where that is worth a word.
    `after_execution` is what was reported with the result about its turn. Of a result on record it says what the turn
    does: it ends with this result (`terminate`), or goes on (None).
    """

    call_id: str
    name: str
    status: Status
    content: tuple[Block, ...] = ()
    structured: Any = None
    error: ToolError | None = None
    exit_code: int | None = None
    stderr: str = ""
    elapsed_ms: float = 0.0
    queued_ms: float = 0.0
    truncated: bool = False
    handle: str | None = None
    delivery: str | None = None
    untrusted: bool = False
    engine: str = ""
    profile: str = ""
    origins: tuple[str, ...] = ()
    blocked_ms: float = 0.0
    after_execution: AfterExecution | None = None

    @property
    def ok(self) -> bool:
        return self.status is Status.SUCCESS

    @property
    def is_failure(self) -> bool:
        """Whether nothing came of the call. A part of what was wanted is not a failure, and not all right either."""
        return self.status is not Status.SUCCESS and self.status is not Status.PARTIAL

    @property
    def text(self) -> str:
        """The words of the result: its text and error blocks, a line for each image or pointer."""
        content = self.content
        if len(content) == 1 and type(block := content[0]) is Text:
            return block.text
        return "\n".join(in_words(block) for block in content)

    @property
    def source(self) -> Source:
        """Where all of it comes from."""
        return Source("tool", self.name, self.call_id, self.origins, self.untrusted)

    @property
    def sources(self) -> tuple[Source, ...]:
        """Where each block of the content comes from; a pointer comes from where it points to as well."""
        own = self.source
        return tuple(
            Source("tool", own.name, own.call_id, (block.uri, *own.uris), own.untrusted)
            if isinstance(block, Resource) and block.uri not in own.uris
            else own
            for block in self.content
        )

    @classmethod
    def failed(cls, call: ToolCall, code: Code, message: str, *, detail: Any = None, **more: Any) -> "ToolResult":
        """A result that did not succeed; its status follows from the code."""
        error = ToolError.of(code, message, detail)
        return cls(call.id, call.name, OUTCOMES[code].status, (ErrorText(message, code),), error=error, **more)


def in_words(block: Block) -> str:
    """A block as text: what it says, or that there is an image or a pointer."""
    match block:
        case Text(text) | ErrorText(text):
            return text
        case Image(_, media_type):
            return f"[image {media_type}]"
        case Resource(uri, title):
            return f"[{title or 'resource'}: {uri}]"


class Allowed(Struct, frozen=True):
    """The call may run, with these (checked and coerced) arguments and this much time."""

    call: ToolCall
    tool: Tool
    arguments: Mapping[str, Any]
    timeout_s: float
    notes: tuple[str, ...] = ()


class Denied(Struct, frozen=True):
    """The call will not run. `rule` names the rung of the ladder that said so, `message` is what the model reads.

    It also answers for so many calls of the same reply that were `left_out`.
    """

    call: ToolCall
    code: Code
    message: str
    rule: str
    left_out: int = 0


class NeedsApproval(Struct, frozen=True):
    """The call may run once so many people have agreed to exactly these arguments under exactly this policy.

    `policy` is the digest of the policy alone, and of why it asks: a yes for a pattern is bound to that. A call that
    `tries` is first run where it changes and reaches nothing, and asked about only if that was not enough for it; where
    no approval can be requested, `refusal` is what is said instead.
    """

    allowed: Allowed
    reason: str
    digest: str
    quorum: int = 1
    policy: str = ""
    tries: bool = False
    refusal: str = ""


Decision = Allowed | Denied | NeedsApproval
