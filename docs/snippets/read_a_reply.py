from toolwire import parse_reply

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "Tell the weather.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]

leaked = 'Let me see.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
reply = parse_reply(leaked, tools=TOOLS)

assert reply.content.strip() == "Let me see."
[call] = reply.calls
assert (call.name, call.arguments) == ("weather", {"city": "Oslo"})
