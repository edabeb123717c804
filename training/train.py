"""Train the adapter: `python -m training.train --base FILE.gguf --out FOLDER`. One GPU, some minutes.

Dialogues are generated and cut into tokens by all processor cores while the GPU works (the processes start before it
is touched, or they hang), then laid end to end, so that no time goes into padding.
"""

import argparse
import json
import math
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator
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

CHUNK = 250
PAD = 2
ROOM = 28 * 1024
MOST_ROWS = 190
EDGES = 256
KEPT = 0.998
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
    def of(cls, rows: list[Row], device: str) -> "Batch":
        lengths = [len(numbers) for numbers, _, _ in rows]
        spare = ROOM - sum(lengths)
        tokens = np.concatenate([numbers for numbers, _, _ in rows] + [np.full(spare, PAD, np.uint16)]).astype(np.int64)
        marks = np.concatenate([marks for _, marks, _ in rows] + [np.zeros(spare, bool)])
        filler = [LONGEST] * (spare // LONGEST) + [spare % LONGEST]
        places = np.concatenate([np.arange(length) for length in lengths + filler])
        bounds = np.cumsum([0, *lengths, *filler]).astype(np.int32)
        bounds = np.concatenate([bounds, np.full(EDGES - len(bounds), ROOM, np.int32)])
        learnt = np.nonzero(marks)[0]
        given = (tokens, places, bounds, learnt)
        return cls(*(torch.from_numpy(part).to(device, non_blocking=True) for part in given))


def dialogues(weights: Path, part: str, seed: int, count: int) -> Iterator[Row]:
    """So many dialogues in their order, made ahead by all cores from now on."""
    pool = multiprocessing.get_context("fork").Pool()
    chunks = pool.imap(partial(_chunk, weights, part, seed), range(0, count, CHUNK))
    return (row for rows in chunks for row in rows)


_cutters: dict[Path, Tokenizer] = {}


def _chunk(weights: Path, part: str, seed: int, start: int) -> list[Row]:
    if weights not in _cutters:
        _cutters[weights] = tokenizer(Weights(weights))
    return batch_of(part, seed, start, CHUNK, _cutters[weights])


def packed(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """As many dialogues as fit each step; what is left at the end is dropped."""
    group: list[Row] = []
    for row in rows:
        if sum(len(numbers) for numbers, _, _ in group) + len(row[0]) > ROOM or len(group) == MOST_ROWS:
            yield group
            group = []
        group.append(row)


def loss_of(model: Model, batch: Batch) -> Tensor:
    hidden = model(batch.tokens, batch.places, batch.bounds, LONGEST)
    return functional.cross_entropy(model.logits(hidden[batch.learnt - 1]), batch.tokens[batch.learnt])


def rate(step: int, share: float, top: float, warm: int = 100) -> float:
    """A short rise, then down to nothing as the time runs out."""
    return top * min(1.0, (step + 1) / warm) * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))


@torch.no_grad()
def measure(model: Model, rows: list[Row], device: str, cutter: Tokenizer) -> Figures:
    """Loss; by kind of turn, the share in which every token would have been chosen; and the calls that went wrong."""
    calls = int(cutter.encode("@").ids[0])
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    losses, misses = [], []
    for group in packed(rows):
        batch = Batch.of(group, device)
        logits = model.logits(model(batch.tokens, batch.places, batch.bounds, LONGEST)[batch.learnt - 1])
        losses.append(functional.cross_entropy(logits, batch.tokens[batch.learnt]).item())
        chosen = np.zeros(ROOM, np.int64)
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
    given.out.mkdir(parents=True, exist_ok=True)
    groups = packed(dialogues(given.base, "train", given.seed, given.most))
    checks = {part: list(dialogues(given.base, part, 7, given.check)) for part in ("phrasings", "tools")}
    print(f"dialogues to check with after {time.time() - began:.0f} s", flush=True)
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
    means = learn(model, groups, given, began, device)
    cutter = tokenizer(Weights(given.base))
    found = candidates(model, means, given.mean)
    for name, state in found.items():
        model.take(state)
        save(model, given.out / f"{name}.gguf", given.alpha)
    for name, state in found.items():
        model.take(state)
        for part, rows in checks.items():
            figures, misses = measure(model, rows, device, cutter)
            print(name, part, json.dumps(figures), f"{time.time() - began:.0f} s", flush=True)
            (given.out / f"{name}-{part}-misses.txt").write_text("\n".join(misses))


def learn(
    model: Model, groups: Iterable[list[Row]], given: argparse.Namespace, began: float, device: str
) -> list[Tensor]:
    """Train until the time is up; the running mean of the weights, which is often better than the last of them."""
    learnt = model.learnt()
    means = [parameter.detach().clone() for parameter in learnt]
    optimizer = torch.optim.AdamW(learnt, lr=given.rate, betas=(0.9, 0.98), weight_decay=0.01, fused=device == "cuda")
    began_steps = time.time()
    seconds = max(1.0, began + given.minutes * 60 - began_steps)
    for step, group in enumerate(groups):
        share = (time.time() - began_steps) / seconds
        for settings in optimizer.param_groups:
            settings["lr"] = rate(step, share, given.rate)
        loss = loss_of(model, Batch.of(group, device))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        with torch.no_grad():
            torch._foreach_lerp_(means, [parameter.detach() for parameter in learnt], max(1 - KEPT, 1 / (step + 1)))
        if step % 200 == 0 or step == 10:
            print(f"step {step} loss {loss.item():.4f} at {time.time() - began:.0f} s", flush=True)
        if share >= 1 or step + 1 == given.steps:
            break
    print(f"{step + 1} steps after {time.time() - began:.0f} s", flush=True)
    return means


def candidates(model: Model, means: list[Tensor], others: list[Path]) -> dict[str, list[Tensor]]:
    """Weights to choose from: the last, their running mean, and its mean with other adapters."""
    found = {"last": [parameter.detach().clone() for parameter in model.learnt()], "mean": means}
    if others:
        known = [[torch.from_numpy(file.load(name)) for name, _ in model.adapters()] for file in map(Weights, others)]
        every = [[tensor.to(means[0].device) for tensor in tensors] for tensors in known] + [means]
        found["blend"] = [torch.stack(tensors).mean(0) for tensors in zip(*every, strict=True)]
    return found


def save(model: Model, path: Path, alpha: float) -> None:
    tensors = {name: tensor.detach().float().cpu().numpy() for name, tensor in model.adapters()}
    write_adapter(path, tensors, alpha=alpha, name="smollm2-tools")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--start", type=Path, help="an adapter to go on from")
    parser.add_argument("--mean", type=Path, nargs="*", default=[], help="adapters to take the mean with at the end")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--most", type=int, default=600_000, help="dialogues made at most")
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
