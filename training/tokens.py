"""Dialogues as numbers, cut exactly as llama.cpp cuts the base model's text."""

import random
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as Bytes
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from training.dialogues import Dialogue, Maker, dialogue
from training.generate import PARTS, as_turns
from training.gguf import Weights

LONGEST = 2048

Numbers = npt.NDArray[np.uint16]
Marks = npt.NDArray[np.bool_]


def tokenizer(weights: Weights) -> Tokenizer:
    """The base model's own tokenizer, from its file."""
    tokens: list[str] = weights.fields["tokenizer.ggml.tokens"]
    kinds: list[int] = weights.fields["tokenizer.ggml.token_type"]
    merges = [tuple(pair.split(" ")) for pair in weights.fields["tokenizer.ggml.merges"]]
    made = Tokenizer(BPE({token: number for number, token in enumerate(tokens)}, merges))
    made.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    made.decoder = Bytes()
    made.add_special_tokens(
        [AddedToken(token, special=True) for token, kind in zip(tokens, kinds, strict=True) if kind == 3]
    )
    return made


def encoded(talk: Dialogue, cutter: Tokenizer) -> tuple[Numbers, Marks]:
    """The tokens of a dialogue, and which of them the model must learn to write."""
    numbers: list[int] = []
    marks: list[bool] = []
    for role, text in as_turns(talk):
        own = role == "assistant"
        clean = text.replace("<|", "< |")
        for piece, learnt in ((f"<|im_start|>{role}\n", False), (f"{clean}<|im_end|>", own), ("\n", False)):
            cut = cutter.encode(piece).ids
            numbers += cut
            marks += [learnt] * len(cut)
    return np.array(numbers, np.uint16), np.array(marks, np.bool_)


def batch_of(part: str, seed: int, start: int, count: int, cutter: Tokenizer) -> list[tuple[Numbers, Marks, str]]:
    """Dialogues number `start` and following of a part; too long ones are left out."""
    rows = []
    settings: dict[str, Any] = PARTS[part]
    for number in range(start, start + count):
        talk = dialogue(Maker(random.Random(f"{part}:{seed}:{number}"), **settings))
        numbers, marks = encoded(talk, cutter)
        if len(numbers) <= LONGEST:
            rows.append((numbers, marks, talk.kind))
    return rows
