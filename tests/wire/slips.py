"""Slips that real models make around one tool, `add(a, b)`: the recovery bench, and what it has not yet thought of."""

import json
from typing import Any

from .test_native import completion

SUM = {"a": 40, "b": 2}
CALL = json.dumps({"name": "add", "arguments": SUM})
DEEPSEEK = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    + json.dumps(SUM)
    + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
QWEN = """<tool_call>
<function=add>
<parameter=a>
40
</parameter>
<parameter=b>
2
</parameter>
</function>
</tool_call>"""
CLAUDE = """<function_calls>
<invoke name="add">
<parameter name="a">40</parameter>
<parameter name="b">2</parameter>
</invoke>
</function_calls>"""
BREADCRUMB = {
    "action": "create",
    "breadcrumb": {
        "schema_name": "agent.response.v1",
        "context": {
            "message": "Adding",
            "tool_requests": [{"tool": "add", "input": SUM, "requestId": "add-001", "return_to_llm": True}],
        },
    },
}


def _twice() -> dict[str, Any]:
    response = completion(json.dumps(SUM))
    response["choices"][0]["message"]["tool_calls"] *= 2
    return response


SLIPS: dict[str, Any] = {
    "n00": completion('{"a": 40, "b": 2}'),
    "n01": completion('{"a": 40, "b": 2,}'),
    "n02": completion("{'a': 40, 'b': 2}"),
    "n03": completion('{"a": 40, "b": 2'),
    "n04": completion('"{\\"a\\": 40, \\"b\\": 2}"'),
    "n05": completion('{"a": "40", "b": "2"}'),
    "n06": completion('{"a": 40, "b": 2}', name="Add"),
    "n07": completion('{"a": 40, "b": 2}', name="functions.add"),
    "n08": completion('{"a": 40, "b": 2}', name="sum_numbers"),
    "n09": completion('{"arguments": {"a": 40, "b": 2}}'),
    "n10": completion('{"a": 40, "b": 2}', alias=""),
    "n11": _twice(),
    "n12": completion('{"a": 40, "b": 2, "note": "x"}'),
    "n13": completion('{"a": 40}'),
    "n14": completion('```json\n{"a": 40, "b": 2}\n```'),
    "t01": f"I will add.\n<tool_call>\n{CALL}\n</tool_call>",
    "t02": QWEN,
    "t03": f"<tool_use>{CALL}</tool_use>",
    "t04": f"<function_call>{CALL}</function_call>",
    "t05": f"```json\n{CALL}\n```",
    "t06": CALL,
    "t07": f"[TOOL_CALLS][{CALL}]",
    "t08": '<|python_tag|>{"name": "add", "parameters": {"a": 40, "b": 2}}',
    "t09": DEEPSEEK,
    "t10": CLAUDE,
    "t11": json.dumps(BREADCRUMB),
    "t12": f"<tools>{CALL}</tools>",
}
"""The twenty-seven of the bench, by their numbers there."""

TOLD = {
    "n08": "a tool that was not offered: the model hears of `add`",
    "n12": "an argument that the tool does not take",
    "n13": "an argument that is missing",
}
"""Those that cannot be run as they are: the model is told, and then calls properly."""


def _said_too() -> dict[str, Any]:
    response = completion(json.dumps(SUM))
    response["choices"][0]["message"]["content"] = f"I will add.\n<tool_call>\n{CALL}\n</tool_call>"
    return response


MORE: dict[str, Any] = {
    "native and in text": _said_too(),
    "cut by the length limit": completion('{"a": 40, "b": 2', reason="length"),
    "Harmony": "<|channel|>analysis<|message|>Add them.<|end|><|start|>assistant<|channel|>commentary "
    'to=functions.add <|constrain|>json<|message|>{"a": 40, "b": 2}<|call|>',
    "Gemini, signed": {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {"text": "Add them.", "thought": True},
                        {"functionCall": {"name": "add", "args": SUM}, "thoughtSignature": "c2ln"},
                    ]
                },
                "finishReason": "STOP",
            }
        ]
    },
    "Anthropic, thinking": {
        "type": "message",
        "content": [
            {"type": "thinking", "thinking": "Add them.", "signature": "c2ln"},
            {"type": "tool_use", "id": "toolu_1", "name": "add", "input": SUM},
        ],
        "stop_reason": "tool_use",
    },
}
"""More ways to one call of the sum."""

QUOTED = f"To add numbers one would write `<tool_call>{CALL}</tool_call>`, but 42 is easy."
TWO = f'<tool_call>{CALL}</tool_call>\n<tool_call>{{"name": "add", "arguments": {{"a": 1, "b": 1}}}}</tool_call>'
