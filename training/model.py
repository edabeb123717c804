"""The base model with low-rank adapters beside its linear layers.

Weights stay in the layout of the GGUF file, whose rotary embedding turns neighbouring pairs; so the adapter can be
written out as it is.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from training.gguf import Weights

LINEARS = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")


class Adapted(nn.Module):
    """A frozen linear layer and what is learnt beside it."""

    def __init__(self, weight: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        outputs, inputs = weight.shape
        self.weight = nn.Buffer(weight)
        self.a = nn.Parameter(torch.randn(rank, inputs) / inputs**0.5)
        self.b = nn.Parameter(torch.zeros(outputs, rank))
        self.scale = alpha / rank

    def forward(self, x: Tensor) -> Tensor:
        low = functional.linear(x, self.a.to(x.dtype))
        return functional.linear(x, self.weight) + self.scale * functional.linear(low, self.b.to(x.dtype))


class Block(nn.Module):
    """One layer: attention, then the gated feed-forward part."""

    def __init__(self, weights: Weights, number: int, rank: int, alpha: float, kind: torch.dtype) -> None:
        super().__init__()
        own = f"blk.{number}."
        for name in LINEARS:
            weight = torch.from_numpy(weights.load(f"{own}{name}.weight")).to(kind)
            self.add_module(name, Adapted(weight, rank, alpha))
        self.norm_in = nn.Buffer(torch.from_numpy(weights.load(f"{own}attn_norm.weight").copy()))
        self.norm_mid = nn.Buffer(torch.from_numpy(weights.load(f"{own}ffn_norm.weight").copy()))
        self.heads = int(weights.fields["llama.attention.head_count"])
        self.shared = self.heads // int(weights.fields["llama.attention.head_count_kv"])
        self.epsilon = float(weights.fields["llama.attention.layer_norm_rms_epsilon"])

    def forward(self, x: Tensor, turn: tuple[Tensor, Tensor], bounds: Tensor, longest: int) -> Tensor:
        y = normed(x, self.norm_in, self.epsilon)
        q, k, v = (layer(y).unflatten(-1, (-1, 64)) for layer in (self.attn_q, self.attn_k, self.attn_v))
        q, k = rotated(q, turn), rotated(k, turn)
        k, v = k.repeat_interleave(self.shared, 1), v.repeat_interleave(self.shared, 1)
        x = x + self.attn_output(attention(q, k, v, bounds, longest).flatten(1))
        y = normed(x, self.norm_mid, self.epsilon)
        return x + self.ffn_down(functional.silu(self.ffn_gate(y)) * self.ffn_up(y))


class Model(nn.Module):
    """Reads dialogues laid end to end; `bounds` says where each one starts, and none sees another."""

    def __init__(self, weights: Weights, rank: int, alpha: float, kind: torch.dtype = torch.bfloat16) -> None:
        super().__init__()
        layers = int(weights.fields["llama.block_count"])
        self.embedding = nn.Buffer(torch.from_numpy(weights.load("token_embd.weight")).to(kind))
        self.norm = nn.Buffer(torch.from_numpy(weights.load("output_norm.weight").copy()))
        self.blocks = nn.ModuleList(Block(weights, number, rank, alpha, kind) for number in range(layers))
        self.base = float(weights.fields["llama.rope.freq_base"])
        self.epsilon = float(weights.fields["llama.attention.layer_norm_rms_epsilon"])

    def forward(self, tokens: Tensor, places: Tensor, bounds: Tensor, longest: int) -> Tensor:
        """The last hidden state of every token."""
        turn = self._turn(places)
        x = self.embedding[tokens]
        for block in self.blocks:
            x = block(x, turn, bounds, longest)
        return normed(x, self.norm, self.epsilon)

    def logits(self, hidden: Tensor) -> Tensor:
        return functional.linear(hidden, self.embedding).float()

    def learnt(self) -> list[nn.Parameter]:
        return [tensor for _, tensor in self.adapters()]

    @torch.no_grad()
    def take(self, state: Sequence[Tensor]) -> None:
        """Go on with these values of what is learnt."""
        for parameter, value in zip(self.learnt(), state, strict=True):
            parameter.copy_(value)

    def adapters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for number, block in enumerate(self.blocks):
            for name in LINEARS:
                layer = block.get_submodule(name)
                yield f"blk.{number}.{name}.weight.lora_a", layer.a
                yield f"blk.{number}.{name}.weight.lora_b", layer.b

    def start_from(self, adapter: Weights) -> None:
        """Go on from an adapter that was trained before, of this rank or a smaller one (at the same alpha / rank)."""
        with torch.no_grad():
            for name, tensor in self.adapters():
                known = torch.from_numpy(adapter.load(name))
                rows, columns = known.shape
                tensor[:rows, :columns].copy_(known)

    def _turn(self, places: Tensor) -> tuple[Tensor, Tensor]:
        steps = self.base ** (-torch.arange(0, 64, 2, device=places.device, dtype=torch.float32) / 64)
        angles = places.float()[:, None] * steps
        kind = self.embedding.dtype
        return angles.cos()[:, None].to(kind), angles.sin()[:, None].to(kind)


def normed(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon) * weight).to(x.dtype)


def rotated(x: Tensor, turn: tuple[Tensor, Tensor]) -> Tensor:
    """Neighbouring pairs turned by the token's place."""
    cos, sin = turn
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def attention(q: Tensor, k: Tensor, v: Tensor, bounds: Tensor, longest: int) -> Tensor:
    """Every token sees itself and what stands before it in its own dialogue."""
    if q.is_cuda:
        return torch.ops.aten._flash_attention_forward(q, k, v, bounds, bounds, longest, longest, 0.0, True, False)[0]
    edges = bounds.tolist()
    pieces = []
    for start, end in pairwise(edges):
        q1, k1, v1 = (part[start:end].transpose(0, 1)[None] for part in (q, k, v))
        pieces.append(functional.scaled_dot_product_attention(q1, k1, v1, is_causal=True)[0].transpose(0, 1))
    return torch.cat(pieces)
