"""The markers by which models open and close things, as tables: one entry for each dialect."""

import re
from collections.abc import Iterable

from msgspec import Struct


class Markers(Struct, frozen=True):
    """A marker that opens a call or a group of calls, and the markers that close it.

    What stands inside is told by its first characters, so a dialect is only its markers. `head` reads a name that
    stands before JSON arguments, `noise` may stand before what counts, values of a `tight` dialect keep the line
    breaks around them, and `fence` delimits its strings.
    """

    slug: str
    opens: tuple[str, ...]
    closes: tuple[str, ...] = ()
    head: re.Pattern[str] | None = None
    tight: bool = False
    fence: str = ""
    noise: re.Pattern[str] | None = None


_MISTRAL = re.compile(
    r"\s*(?P<name>[\w.-]{1,128})\s*(?:\[CALL_ID\]\s*(?P<id>[^\[\]\s{]{1,64})\s*)?(?:\[ARGS\])?\s*(?=[{\"])"
)
_DEEPSEEK_SEP = r"<｜tool[▁_ ]sep｜>"
_DEEPSEEK = re.compile(
    rf"\s*(?:function\s*{_DEEPSEEK_SEP}\s*)?(?P<name>[\w.-]{{1,128}})\s*(?:{_DEEPSEEK_SEP}\s*)?(?:```(?:json)?\s*)?(?=[{{\"])"
)
_STEP3 = re.compile(rf"\s*+function\s*+{_DEEPSEEK_SEP}\s*+(?=<)")
_KIMI = re.compile(
    r"\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]{1,128}?)?(?::?\d{1,9})?)\s*<\|tool_call_argument_begin\|>\s*(?=[{\"])"
)
_SOLAR = re.compile(
    r"\s*(?P<id>[\w-]{1,64})?\s*<\|tool_call:name\|>\s*(?P<name>[\w.-]{1,128})\s*<\|tool_call:args\|>\s*(?=[{\"])"
)


FENCE = re.compile(r"```[ \t]*([\w+-]*+)[ \t]*\n?")


def _spaced(tag: str) -> tuple[str, ...]:
    """A tag with and without the namespace that Claude puts before it."""
    return tuple(tag.format(space) for space in ("", "antml" + ":"))


def _deepseek(begin: str) -> tuple[str, ...]:
    return tuple(f"<｜tool{begin.replace('~', gap)}｜>" for gap in ("▁", "_", " "))


ENVELOPES: tuple[Markers, ...] = (
    Markers("hermes", ("<tool_call>",), ("</tool_call>", "<tool_call>")),
    Markers("hunyuan_v3", ("<tool_call:opensource>",), ("</tool_call:opensource>",)),
    Markers("hunyuan_v3", ("<tool_calls:opensource>",), ("</tool_calls:opensource>",)),
    Markers("longcat", ("<longcat_tool_call>",), ("</longcat_tool_call>",)),
    Markers("tag_tool_use", ("<tool_use>",), ("</tool_use>",)),
    Markers("tag_tools", ("<tools>",), ("</tools>",)),
    Markers("tag_function_call", ("<function_call>",), ("</function_call>", "<function_call>")),
    Markers("glaive", ("<functioncall>",), ("</functioncall>", "<|endoftext|>")),
    Markers("tool_calls", ("<tool_calls>",), ("</tool_calls>",)),
    Markers("anthropic_xml", _spaced("<{}function_calls>"), _spaced("</{}function_calls>")),
    Markers("muse_glimmer", ("<atem:function_calls>",), ("</atem:function_calls>",)),
    Markers("minimax_m2", ("<minimax:tool_call>",), ("</minimax:tool_call>",)),
    Markers("dots", ("<dots_function_call>",), ("</dots_function_call>",)),
    Markers("deepseek_v32", ("<｜DSML｜function_calls>",), ("</｜DSML｜function_calls>",)),
    Markers("deepseek_v4", ("<｜DSML｜tool_calls>",), ("</｜DSML｜tool_calls>",)),
    Markers("seed_oss", ("<seed:tool_call>",), ("</seed:tool_call>",), tight=True),
    Markers("nemotron_v2", ("<TOOLCALL>",), ("</TOOLCALL>",)),
    Markers("granite3", ("<|tool_call|>",), ("<|/tool_call|>", "<|tool_call|>")),
    Markers("gemma4", ("<|tool_call>",), ("<tool_call|>",), fence='<|"|>'),
    Markers("functiongemma", ("<start_function_call>",), ("<end_function_call>",), fence="<escape>"),
    Markers("lfm2", ("<|tool_call_start|>",), ("<|tool_call_end|>",)),
    Markers("llama4_pythonic", ("<|python_start|>",), ("<|python_end|>",)),
    Markers("llama3_python_tag", ("<|python_tag|>",), ("<|eom_id|>", "<|eot_id|>")),
    Markers("apertus", ("<|tools_prefix|>",), ("<|tools_suffix|>",)),
    Markers("command_a", ("<|START_ACTION|>",), ("<|END_ACTION|>",)),
    Markers("internlm2", ("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"), ("<|action_end|>",)),
    Markers("gigachat31", ("<|function_call|>",)),
    Markers("gigachat3", ("<|message_sep|>\n\nfunction call<|role_sep|>\n", "function call<|role_sep|>\n")),
    Markers("inkling", ("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>"), ("<|end_message|>",)),
    Markers("gorilla", ("<<function>>",)),
    Markers("mistral", ("[TOOL_CALLS]",), ("</s>", "[TOOL_CALLS]"), head=_MISTRAL),
    Markers("phi4_mini", ("functools[",)),
    Markers("deepseek_v3", _deepseek("~calls~begin"), _deepseek("~calls~end")),
    Markers("deepseek_v3", _deepseek("~call~begin"), _deepseek("~call~end"), head=_DEEPSEEK, noise=_STEP3),
    Markers("kimi_k2", ("<|tool_calls_section_begin|>",), ("<|tool_calls_section_end|>",)),
    Markers("kimi_k2", ("<|tool_call_begin|>",), ("<|tool_call_end|>",), head=_KIMI),
    Markers("solar_open", ("<|tool_calls|>",), ("<|calls|>",)),
    Markers("solar_open", ("<|tool_call:begin|>",), ("<|tool_call:end|>",), head=_SOLAR),
)

THOUGHTS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<think:opensource>", "</think:opensource>"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
    ("<|channel>thought", "<channel|>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<|think|>", "<|end|>"),
    ("<|thought_start|>", "<|thought_end|>"),
    ("<|message_model|><|content_thinking|>", "<|end_message|>"),
    ("<|content_thinking|>", "<|end_message|>"),
    ("<thinking>", "</thinking>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<reasoning>", "</reasoning>"),
    ("<scratch_pad>", "</scratch_pad>"),
)

# An end that may stand alone: the prompt had opened the block, or the model only marks where its answer begins.
_SHARED_ENDS = ("<|end|>", "<|end_message|>")
LONE_ENDS = (
    *dict.fromkeys(close for _, close in THOUGHTS if close not in _SHARED_ENDS),
    "[BEGIN FINAL RESPONSE]",
)

# Markers around an answer, around groups of calls, and turn markers in the middle: they say nothing by themselves.
SILENT = (
    "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>", "<|message_model|>", "<|content_text|>",
    "<|end_message|>", "<|begin|>assistant", "<|content|>", "[END FINAL RESPONSE]", "<|tool_calls_section_end|>",
    "<bot_end>", "<|eom_id|>", "<|eot_id|>", "<|im_end|>", "<|im_start|>assistant",
    "<｜end▁of▁sentence｜>", "<|tool_calls_end|>", "<|message_sep|>", "<|role_sep|>", "<|end_of_turn|>",
    "<end_of_turn>",
    "<|END_OF_TURN_TOKEN|>", "<|eom|>", "<|from|>assistant", "<|from|> assistant", "<|eot|>",
    "<|return|>", "<|end|>", "<|call|>",
)  # fmt: skip

ANSWER_TAGS = ("response", "answer")

END_OF_TURN = (
    "</s>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<｜end▁of▁sentence｜>",
    "<end_of_turn>", "<eos>", "[EOS]", "<|END_OF_TURN_TOKEN|>", "<|return|>", "<|role_end|>", "<|stop|>", "<|eot|>",
    "<|end_of_turn|>", "</assistant>", "</longcat_s>", "<seed:eos>", "<turn|>",
    "<|user|>", "<|observation|>", "[e~[", "<|END_RESPONSE|>", "<|eom|>",
)  # fmt: skip


def any_of(literals: Iterable[str]) -> str:
    """A pattern that matches any of the literals, the longest first, sharing their beginnings."""
    root: dict[str, dict] = {}  # type: ignore[type-arg]
    for literal in literals:
        node = root
        for char in literal:
            node = node.setdefault(char, {})
        node[""] = {}
    return _branch(root)


def _branch(node: dict[str, dict]) -> str:  # type: ignore[type-arg]
    ways = [re.escape(char) + _branch(below) for char, below in sorted(node.items(), reverse=True) if char]
    if not ways:
        return ""
    if len(ways) == 1 and "" not in node:
        return ways[0]
    return f"(?:{'|'.join(ways)})" + ("?" if "" in node else "")


CLOSERS = tuple(
    dict.fromkeys(
        [close for envelope in ENVELOPES for close in envelope.closes if close not in envelope.opens]
        + [
            "</function>",
            *_spaced("</{}invoke>"),
            "</｜DSML｜invoke>",
            "</steptml:invoke>",
            "</atem:invoke>",
            "</tool>",
            "<|call|>",
            "<|end_message|>",
            "<|end_of_tool_call|>",
            "</tool_name>",
        ]
    )
)
CLOSER_PREFIXES = frozenset(closer[:size] for closer in CLOSERS for size in range(1, len(closer)))
OPENING = re.compile(any_of(opener for envelope in ENVELOPES for opener in envelope.opens))
CLOSING = re.compile(rf"\s*+(?:{any_of((*CLOSERS, *END_OF_TURN, *SILENT, '```', 'Observation:', '✿RESULT✿'))})")
_SPACED = any_of(closer[2:-1] for closer in CLOSERS if closer.startswith("</"))
AFTER_CALL = re.compile(rf"\s*+(?:{any_of(CLOSERS)}|<\s?/\s?(?:{_SPACED})\s?>)")
