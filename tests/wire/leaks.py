"""One call, in every way in which models write calls into text."""

from typing import Any


def tool(name: str, *properties: str) -> dict[str, Any]:
    """A tool as clients of OpenAI's API offer it, whose parameters are texts."""
    schema = {"type": "object", "properties": {key: {"type": "string"} for key in properties}}
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


def marked_calls(name: str, key: str = "command", value: str = "ls") -> dict[str, str]:
    """A call of this tool with one argument, in formats that say that it is a call whatever its name."""
    arguments = f'{{"{key}": "{value}"}}'
    call = f'{{"name": "{name}", "arguments": {arguments}}}'
    return {
        "hermes": f"<tool_call>\n{call}\n</tool_call>",
        "qwen": f"<tool_call>\n<function={name}>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>",
        "glm": f"<tool_call>{name}\n<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n</tool_call>",
        "invoke": f'<function_calls><invoke name="{name}"><parameter name="{key}">{value}</parameter></invoke>'
        "</function_calls>",
        "function tag": f"<function={name}>{arguments}</function>",
        "tool_use": f"<tool_use><name>{name}</name><arguments>{arguments}</arguments></tool_use>",
        "python tag": f"<|python_tag|>{call}",
        "mistral": f"[TOOL_CALLS] [{call}]",
        "mistral 2": f"[TOOL_CALLS]{name}[ARGS]{arguments}",
        "harmony": f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{arguments}<|call|>",
        "kimi": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
        f"{arguments}<|tool_call_end|><|tool_calls_section_end|>",
        "deepseek": f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n"
        f"```json\n{arguments}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "gemma": f'<|tool_call>call:{name}{{{key}:<|"|>{value}<|"|>}}<tool_call|>',
        "functools": f"functools[{call}]",
        "tool code": f'```tool_code\n{name}({key}="{value}")\n```',
        "tool_calls": f'{{"tool_calls": [{{"type": "function", "function": {call}}}]}}',
        "cohere": f'Action: ```json\n[{{"tool_name": "{name}", "parameters": {arguments}}}]\n```',
    }


def weak_calls(name: str, key: str = "command", value: str = "ls") -> dict[str, str]:
    """The same in formats that are a call only where the tool is known."""
    arguments = f'{{"{key}": "{value}"}}'
    call = f'{{"name": "{name}", "arguments": {arguments}}}'
    return {
        "bare": call,
        "list": f"[{call}]",
        "fenced": f"```json\n{call}\n```",
        "react": f"Thought: Look.\nAction: {name}\nAction Input: {arguments}",
        "pythonic": f'[{name}({key}="{value}")]',
        "a line of code": f'{name}({key}="{value}")',
        "name and arguments": f"{name}\n{arguments}",
        "tag per tool": f"<{name}><{key}>{value}</{key}></{name}>",
    }


def all_calls(name: str, key: str = "command", value: str = "ls") -> dict[str, str]:
    return marked_calls(name, key, value) | weak_calls(name, key, value)
