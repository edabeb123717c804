from toolwire import Tool
from toolwire.protocol.chat import Request, UserMessage
from toolwire.wire.encode.request import encode_request
from toolwire.wire.encode.tool_names import NameMap
from toolwire.wire.formats.negotiation import negotiate
from toolwire.wire.formats.registry import DIALECTS
from toolwire.wire.replies.reply import parse_reply

lamp = Tool("house.lamp", "Switch a lamp.", {"type": "object", "properties": {"room": {"type": "string"}}})
request = Request((UserMessage("Light in the attic, please."),), tools=(lamp,))

for name in ("openai", "gemini", "hermes"):
    dialect = DIALECTS[name]
    body = encode_request(dialect, request, dialect.frame(request, "some-model"))
    assert dialect.messages_field in body
    assert dialect.losses(request.tools) == ()

formats = negotiate("ollama", "qwen3:8b")
assert formats.why == "ollama takes tools as ollama"

names = NameMap.of(request.tools, DIALECTS["openai"].wire_name)
call = {"id": "1", "type": "function", "function": {"name": "house_x2e_lamp", "arguments": '{"room": "attic"}'}}
answer = {"choices": [{"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}]}
reply = names.restore(parse_reply(answer, names.tools, provider="openai"))
assert [(one.name, one.arguments) for one in reply.calls] == [("house.lamp", {"room": "attic"})]
