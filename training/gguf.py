"""GGUF files: read the base model's metadata and weights, write an adapter. Only what this training needs."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

MAGIC = b"GGUF"
ALIGNMENT = 32
Array = npt.NDArray[Any]

_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_STRING, _ARRAY = 8, 9
_BLOCKS = {0: (1, 4), 1: (1, 2), 3: (32, 20), 8: (32, 34)}  # kind: values and bytes of a block


@dataclass(frozen=True, slots=True)
class Tensor:
    """Where a tensor lies in the file; `shape` has the rows first."""

    shape: tuple[int, ...]
    kind: int
    offset: int


class Weights:
    """An opened GGUF file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fields: dict[str, Any] = {}
        self.tensors: dict[str, Tensor] = {}
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ValueError(f"{path.name} is not a GGUF file")
            _, tensors, fields = struct.unpack("<IQQ", file.read(20))
            for _ in range(fields):
                name = _text(file)
                self.fields[name] = _value(file, _number(file, "<I"))
            for _ in range(tensors):
                name = _text(file)
                shape = [_number(file, "<Q") for _ in range(_number(file, "<I"))]
                self.tensors[name] = Tensor(tuple(shape[::-1]), _number(file, "<I"), _number(file, "<Q"))
            self.start = -(-file.tell() // ALIGNMENT) * ALIGNMENT

    def load(self, name: str) -> Array:
        """A tensor as 32-bit numbers."""
        tensor = self.tensors[name]
        count = int(np.prod(tensor.shape))
        if tensor.kind not in _BLOCKS:
            raise ValueError(f"{name}: tensors of kind {tensor.kind} cannot be read")
        values, size = _BLOCKS[tensor.kind]
        raw = np.fromfile(self.path, np.uint8, count // values * size, offset=self.start + tensor.offset)
        return _unpacked(raw, tensor.kind).reshape(tensor.shape)


def _unpacked(raw: Array, kind: int) -> Array:
    match kind:
        case 0:
            return raw.view(np.float32)
        case 1:
            return raw.view(np.float16).astype(np.float32)
        case 3:
            return _unpacked_q4_1(raw.reshape(-1, 20))
    blocks = raw.reshape(-1, 34)
    return blocks[:, :2].copy().view(np.float16).astype(np.float32) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _unpacked_q4_1(blocks: Array) -> Array:
    scale = blocks[:, 0:2].copy().view(np.float16).astype(np.float32)
    least = blocks[:, 2:4].copy().view(np.float16).astype(np.float32)
    nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return nibbles.astype(np.float32) * scale + least


def write_adapter(path: Path, tensors: Mapping[str, Array], *, alpha: float, name: str) -> None:
    """A LoRA adapter for llama.cpp, its tensors in 8 bits (Q8_0), which processors multiply faster than 16."""
    fields: list[tuple[str, int, Any]] = [
        ("general.type", _STRING, "adapter"),
        ("general.architecture", _STRING, "llama"),
        ("general.name", _STRING, name),
        ("general.license", _STRING, "apache-2.0"),
        ("adapter.type", _STRING, "lora"),
        ("adapter.lora.alpha", 6, alpha),
    ]
    with path.open("wb") as file:
        file.write(MAGIC + struct.pack("<IQQ", 3, len(tensors), len(fields)))
        for key, kind, value in fields:
            _put_text(file, key)
            file.write(struct.pack("<I", kind))
            _put_text(file, value) if kind == _STRING else file.write(struct.pack("<f", value))
        packed = {key: _packed(tensor) for key, tensor in tensors.items()}
        offset = 0
        for key, tensor in tensors.items():
            _put_text(file, key)
            file.write(struct.pack("<IQQIQ", 2, tensor.shape[1], tensor.shape[0], 8, offset))
            offset += -(-len(packed[key]) // ALIGNMENT) * ALIGNMENT
        file.write(b"\0" * (-file.tell() % ALIGNMENT))
        for data in packed.values():
            file.write(data)
            file.write(b"\0" * (-file.tell() % ALIGNMENT))


def _packed(tensor: Array) -> bytes:
    """Blocks of 32 numbers with their scale; the rows must be a multiple of that."""
    blocks = np.ascontiguousarray(tensor, np.float32).reshape(-1, 32)
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    steps = np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0)
    numbers = np.clip(np.round(steps), -127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), numbers.view(np.uint8)], axis=1).tobytes()


def _put_text(file: BinaryIO, text: str) -> None:
    data = text.encode()
    file.write(struct.pack("<Q", len(data)) + data)


def _number(file: BinaryIO, kind: str) -> Any:
    return struct.unpack(kind, file.read(struct.calcsize(kind)))[0]


def _text(file: BinaryIO) -> str:
    return file.read(_number(file, "<Q")).decode("utf-8", "replace")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        inner, count = _number(file, "<I"), _number(file, "<Q")
        return [_value(file, inner) for _ in range(count)]
    return _number(file, _SCALARS[kind])
