"""Train the adapter: `python -m training.train --base FILE.gguf --out FOLDER`. One GPU, some minutes.

Dialogues are generated and cut into tokens by all processor cores before the GPU is touched (worker processes that
start after CUDA does hang), then laid end to end, so that no time goes into padding.
"""

import argparse
import json
import math
import multiprocessing
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from training.gguf import Weights, write_adapter
from training.model import Model
from training.tokens import LONGEST, Marks, Numbers, batch_of, tokenizer

CHUNK = 500
PAD = 2
Row = tuple[Numbers, Marks, str]
Figures = tuple[dict[str, float], list[str]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Dialogues end to end, filled up to a fixed size so that compiled code fits every batch."""

    tokens: Tensor
    places: Tensor
    bounds: Tensor
    learnt: Tensor

    @classmethod
    def of(cls, rows: list[Row], room: int, device: str) -> "Batch":
        lengths = [len(numbers) for numbers, _, _ in rows]
        spare = room - sum(lengths)
        tokens = np.concatenate([numbers for numbers, _, _ in rows] + [np.full(spare, PAD, np.uint16)]).astype(np.int64)
        marks = np.concatenate([marks for _, marks, _ in rows] + [np.zeros(spare, bool)])
        filler = [LONGEST] * (spare // LONGEST) + [spare % LONGEST]
        places = np.concatenate([np.arange(length) for length in lengths + filler])
        bounds = np.cumsum([0, *lengths, *filler]).astype(np.int32)
        bounds = np.concatenate([bounds, np.full(max(0, len(rows) + 64 - len(bounds)), room, np.int32)])
        learnt = np.nonzero(marks)[0]
        given = (tokens, places, bounds, learnt)
        return cls(*(torch.from_numpy(part).to(device, non_blocking=True) for part in given))


def prepare(weights: Path, part: str, seed: int, count: int) -> list[Row]:
    """So many dialogues, made by all cores."""
    starts = range(0, count, CHUNK)
    work = partial(_chunk, weights, part, seed)
    with multiprocessing.get_context("fork").Pool() as pool:
        return [row for rows in pool.imap(work, starts) for row in rows][:count]


_cutters: dict[Path, Tokenizer] = {}


def _chunk(weights: Path, part: str, seed: int, start: int) -> list[Row]:
    if weights not in _cutters:
        _cutters[weights] = tokenizer(Weights(weights))
    return batch_of(part, seed, start, CHUNK, _cutters[weights])


def batches(rows: list[Row], size: int) -> list[list[Row]]:
    return [rows[start : start + size] for start in range(0, len(rows) - size + 1, size)]


def loss_of(model: Model, batch: Batch) -> Tensor:
    hidden = model(batch.tokens, batch.places, batch.bounds, LONGEST)
    return functional.cross_entropy(model.logits(hidden[batch.learnt - 1]), batch.tokens[batch.learnt])


def rate(step: int, steps: int, top: float, warm: int = 100) -> float:
    if step < warm:
        return top * (step + 1) / warm
    return top * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm))))


@torch.no_grad()
def measure(model: Model, rows: list[Row], size: int, room: int, device: str, cutter: Tokenizer) -> Figures:
    """Loss; by kind of turn, the share in which every token would have been chosen; and the calls that went wrong."""
    calls = int(cutter.encode("@").ids[0])
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    losses, misses = [], []
    for group in batches(rows, min(size, len(rows))):
        batch = Batch.of(group, room, device)
        logits = model.logits(model(batch.tokens, batch.places, batch.bounds, LONGEST)[batch.learnt - 1])
        losses.append(functional.cross_entropy(logits, batch.tokens[batch.learnt]).item())
        chosen = np.zeros(room, np.int64)
        chosen[batch.learnt.cpu().numpy()] = logits.argmax(-1).cpu().numpy()
        start = 0
        for numbers, marks, kind in group:
            for first, last in _turns(marks):
                given, wanted = chosen[start + first : start + last], numbers[first:last]
                name = f"{kind}.{'call' if wanted[0] == calls else 'text'}"
                seen[name] += 1
                right[name] += bool((given == wanted).all())
                right[f"{name}.form"] += bool((given[0] == calls) == (wanted[0] == calls))
                if (wanted[0] == calls and (given != wanted).any()) or (given[0] == calls) != (wanted[0] == calls):
                    misses.append(f"{name}\n{_read(numbers[:last], cutter)}\n>>> {_read(given, cutter)}\n")
            start += len(numbers)
    shares = {name: round(right[name] / seen[name.removesuffix(".form")], 3) for name in sorted(right)}
    return {"loss": round(sum(losses) / len(losses), 4)} | shares, misses


def _read(numbers: Numbers, cutter: Tokenizer) -> str:
    return str(cutter.decode(numbers.tolist(), skip_special_tokens=False))


def _turns(marks: Marks) -> list[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marks.astype(np.int8), [0]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))


def train(given: argparse.Namespace) -> None:
    began = time.time()
    data = prepare(given.base, "train", given.seed, given.steps * given.batch)
    checks = {part: prepare(given.base, part, 7, given.check) for part in ("phrasings", "tools")}
    groups = batches(data, given.batch)
    room = -(-max(sum(len(row[0]) for row in group) for group in groups) // 1024) * 1024
    mean = sum(len(row[0]) for row in data) / len(data)
    print(f"{len(data)} dialogues of {mean:.0f} tokens in {time.time() - began:.0f} s, room {room}", flush=True)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(given.seed)
    torch.set_float32_matmul_precision("high")
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    model = Model(Weights(given.base), given.rank, given.alpha, kind).to(device)
    if given.start:
        model.start_from(Weights(given.start))
    if given.compile:
        for block in model.blocks:
            block.compile(dynamic=False)
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=given.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=device == "cuda")
    limit = began + given.minutes * 60
    steps, began_steps = len(groups), time.time()
    for step, group in enumerate(groups):
        share = max(step / steps, (time.time() - began_steps) / max(1.0, limit - began_steps))
        for settings in optimizer.param_groups:
            settings["lr"] = rate(int(share * steps) if step > 200 else step, steps, given.rate)
        loss = loss_of(model, Batch.of(group, room, device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 100 == 0 or step == 10:
            print(f"step {step} loss {loss.item():.4f} at {time.time() - began:.0f} s", flush=True)
        if share >= 1:
            print(f"time is up after {step + 1} steps", flush=True)
            break
    save(model, given)
    cutter = tokenizer(Weights(given.base))
    for part, rows in checks.items():
        figures, misses = measure(model, rows, given.batch, room, device, cutter)
        print(part, json.dumps(figures), f"{time.time() - began:.0f} s", flush=True)
        (given.out / f"{part}.json").write_text(json.dumps(figures, indent=1))
        (given.out / f"{part}-misses.txt").write_text("\n".join(misses))


def save(model: Model, given: argparse.Namespace) -> None:
    tensors = {name: tensor.detach().float().cpu().numpy() for name, tensor in model.adapters()}
    write_adapter(given.out / "smollm2-tools.gguf", tensors, alpha=given.alpha, name="smollm2-tools")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="an adapter to go on from")
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rank", type=int, default=32)
    parser.add_argument("--alpha", type=float, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--check", type=int, default=1024)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--compile", action="store_true")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
