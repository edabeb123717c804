"""Answers as OpenAI's Responses API gives them, whole and as a stream of events."""

from collections.abc import Callable, Sequence

from toolwire.gateway import frames
from toolwire.gateway.calls import Ready
from toolwire.gateway.faults import Fault
from toolwire.protocol.chat import Reply, Usage
from toolwire.wire.encode.outbound import Json


def call_item(call: Ready) -> Json:
    """A call as an output item: the upstream's own where it is right, with what else that says."""
    own: Json = call.raw
    match own:
        case {
            "type": "function_call",
            "id": str(),
            "call_id": call.id,
            "name": call.name,
            "arguments": str(written),
        } if call.is_written(written):
            return own
        case {"type": "custom_tool_call", "id": str()}:
            return own | {"call_id": call.id, "input": str(call.arguments.get("input", ""))}
        case {"type": "function_call", "call_id": call.id, "id": str()}:
            others = own
        case {"type": "function_call"}:
            others = own | {"id": f"fc_{call.id}"}  # one item may hold several calls
        case _:
            others = {"type": "function_call", "id": f"fc_{call.id}"}
    return others | {"call_id": call.id, "name": call.name, "arguments": call.written, "status": "completed"}


def text_item(id: str, text: str) -> Json:  # noqa: A002 -- the API's own word
    return {
        "type": "message",
        "id": id,
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }


def refusal_item(id: str, text: str) -> Json:  # noqa: A002 -- the API's own word
    return text_item(id, "") | {"content": [{"type": "refusal", "refusal": text}]}


def thought_item(id: str, text: str) -> Json:  # noqa: A002 -- the API's own word
    content = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": id, "summary": [], "content": content, "status": "completed"}


def usage_of(usage: Usage) -> Json:
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.total_tokens,
    }


def response(id: str, model: str, created: int, reply: Reply, calls: Sequence[Ready], word: str) -> Json:  # noqa: A002
    """A whole response."""
    output = [thought_item(f"rs_{id}", reply.reasoning)] if reply.reasoning else []
    output += [text_item(f"msg_{id}", reply.content)] if reply.content else []
    output += [call_item(call) for call in calls]
    return envelope(id, model, created) | ending_fields(word) | {"output": output, "usage": usage_of(reply.usage)}


def envelope(id: str, model: str, created: int) -> Json:  # noqa: A002 -- the API's own word
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def ending_fields(word: str) -> Json:
    """The fields that say how a response ended."""
    if word in ("length", "content_filter", "refusal"):
        reason = "max_output_tokens" if word == "length" else "content_filter"
        return {"status": "incomplete", "incomplete_details": {"reason": reason}}
    return {"status": "completed", "incomplete_details": None}


_WHOLE: dict[str, Callable[[str, str], Json]] = {
    "message": text_item,
    "refusal": refusal_item,
    "reasoning": thought_item,
}


class Items:
    """The output items of a stream, numbered in the order in which they begin; events are numbered as they are sent."""

    def __init__(self, id: str) -> None:  # noqa: A002 -- the API's own word
        self.output: list[Json] = []
        self.message_id = ""
        self._id = id
        self._sent = 0
        self._begun = 0
        self._open = ""
        self._item_id = ""
        self._pieces: list[str] = []
        self._annotations: list[Json] = []

    def passed(self, number: object) -> None:
        """An event went by with a number of its own; ours come after it."""
        if isinstance(number, int):
            self._sent = number + 1

    def event(self, kind: str, **fields: object) -> bytes:
        """One event with the next number."""
        self._sent += 1
        return frames.event({"type": kind, "sequence_number": self._sent - 1, **fields})

    def begin(self) -> tuple[list[bytes], int]:
        """Room for an item that passes through: what closes the one before, and its number."""
        closed = self.close()
        self._begun += 1
        return closed, self._begun - 1

    def text(self, text: str) -> list[bytes]:
        """More text, in a message of its own."""
        if not text:
            return []
        return [*self._going_on("message", text), self._of_part("response.output_text.delta", delta=text, logprobs=[])]

    def refusal(self, text: str) -> list[bytes]:
        """More of what a model says in place of an answer."""
        return [*self._going_on("refusal", text), self._of_part("response.refusal.delta", delta=text)] if text else []

    def annotate(self, annotation: Json) -> list[bytes]:
        """A source of the text that is being written."""
        if self._open != "message":
            return []
        self._annotations.append(annotation)
        at = len(self._annotations) - 1
        kind = "response.output_text.annotation.added"
        return [self._of_part(kind, annotation_index=at, annotation=annotation)]

    def thought(self, text: str) -> list[bytes]:
        """More reasoning."""
        if not text:
            return []
        return [*self._going_on("reasoning", text), self._of_part("response.reasoning_text.delta", delta=text)]

    def call(self, call: Ready) -> list[bytes]:
        """A whole call."""
        item = call_item(call)
        field = "input" if "input" in item else "arguments"
        kind = "custom_tool_call_input" if field == "input" else "function_call_arguments"
        closed, at = self.begin()
        self.output.append(item)
        where = {"item_id": item["id"], "output_index": at}
        begun = item | {field: "", "status": "in_progress"}
        return [
            *closed,
            self.event("response.output_item.added", output_index=at, item=begun),
            self.event(f"response.{kind}.delta", **where, delta=item[field]),
            self.event(f"response.{kind}.done", **where, name=call.name, **{field: item[field]}),
            self.event("response.output_item.done", output_index=at, item=item),
        ]

    def close(self) -> list[bytes]:
        """End the item that is being written, if there is one."""
        kind, self._open = self._open, ""
        if not kind:
            return []
        text, self._pieces = "".join(self._pieces), []
        item = _WHOLE[kind](self._item_id, text)
        match kind:
            case "message":
                item["content"][0]["annotations"] = self._annotations
                done = self._of_part("response.output_text.done", text=text, logprobs=[])
            case "refusal":
                done = self._of_part("response.refusal.done", refusal=text)
            case _:
                done = self._of_part("response.reasoning_text.done", text=text)
        self.output.append(item)
        part = self._of_part("response.content_part.done", part=item["content"][0])
        last = self.event("response.output_item.done", output_index=self._begun - 1, item=item)
        self._annotations, self.message_id = [], ""
        return [done, part, last]

    def _going_on(self, kind: str, text: str) -> list[bytes]:
        """Take more of an item of this kind; gives what opens it if it is not the one being written."""
        opened = [] if self._open == kind else self._opened(kind)
        self._pieces.append(text)
        return opened

    def _opened(self, kind: str) -> list[bytes]:
        closed, at = self.begin()
        item_id = self._fresh("rs") if kind == "reasoning" else self.message_id or self._fresh("msg")
        self._open, self._item_id = kind, item_id
        whole = _WHOLE[kind](item_id, "")
        begun = whole | {"content": [], "status": "in_progress"}
        added = self.event("response.output_item.added", output_index=at, item=begun)
        return [*closed, added, self._of_part("response.content_part.added", part=whole["content"][0])]

    def _of_part(self, kind: str, **fields: object) -> bytes:
        return self.event(kind, item_id=self._item_id, output_index=self._begun - 1, content_index=0, **fields)

    def _fresh(self, prefix: str) -> str:
        return f"{prefix}_{self._id}_{self._begun}"


class ResponsesWriter:
    """Writes an answer of any model as events of the Responses API."""

    def __init__(self, id: str, model: str, created: int) -> None:  # noqa: A002 -- the API's own word
        self._response = envelope(id, model, created)
        self._items = Items(id)

    def begin(self) -> list[bytes]:
        names = ("response.created", "response.in_progress")
        return [self._items.event(name, response=self._response) for name in names]

    def text(self, text: str) -> list[bytes]:
        return self._items.text(text)

    def thought(self, text: str) -> list[bytes]:
        return self._items.thought(text)

    def end(self, calls: Sequence[Ready], word: str, usage: Usage) -> list[bytes]:
        """The calls, and the whole response once more."""
        written = [frame for call in calls for frame in self._items.call(call)] + self._items.close()
        fields = ending_fields(word)
        whole = self._response | fields | {"output": self._items.output, "usage": usage_of(usage)}
        return [*written, self._items.event(f"response.{fields['status']}", response=whole)]

    def fail(self, fault: Fault) -> list[bytes]:
        return [
            self._items.event("response.failed", response=failed_response(self._response, fault, self._items.output))
        ]


def failed_response(response: Json, fault: Fault, output: list[Json]) -> Json:
    """A response that ends in an error."""
    code = "rate_limit_exceeded" if fault.status == 429 else "server_error"
    return response | {"status": "failed", "error": {"code": code, "message": fault.message}, "output": output}
