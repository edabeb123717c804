"""Vectors of texts, and those nearest to one among a million. Loaded when it is first needed: numpy is an extra.

A vector is kept in two forms. Its signs, a bit for each number, are held in memory and compared with a query all at
once, by the bits in which they differ: a million of 256 bits take some milliseconds. Of the few hundred that are left
then, the numbers themselves are read from the store, a byte each, and compared exactly.
"""

import asyncio
import importlib.util
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tokenizers import Tokenizer

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

MOST_BITS = 512
"""Of longer vectors the first numbers give the signs: any part of one tells which are near."""
_WORD_BITS = 64
_ROWS_AT_ONCE = 65_536
_IN_THREAD = 32


class StaticEmbedding:
    """The embedding that comes with the extra: the mean of vectors that the parts of words have. It sends nothing."""

    name = "wordllama:l2_supercat_256"
    floor = 0.15
    """Nine in ten pairs of records that have nothing to do with each other are less near than this."""

    def __init__(self) -> None:
        self._weights, self._tokenizer = _weights()

    async def vectors(self, texts: Sequence[str]) -> Floats:
        if len(texts) < _IN_THREAD:
            return self._vectors(texts)
        return await asyncio.to_thread(self._vectors, texts)

    async def close(self) -> None:
        pass

    def _vectors(self, texts: Sequence[str]) -> Floats:
        found = np.zeros((len(texts), self._weights.shape[1]), np.float32)
        for place, text in enumerate(texts):
            # One by one: many at once are encoded by threads, which a process that forks must not have.
            whole = text.encode("utf-8", "replace").decode()
            ids = self._tokenizer.encode(whole, add_special_tokens=False).ids
            if ids:
                found[place] = self._weights[ids].mean(axis=0)
        return found


@cache
def _weights() -> tuple[Floats, Tokenizer]:
    """The files of the wheel as they are: its own code would look for them in a hub, and is not imported."""
    found = importlib.util.find_spec("wordllama")
    if found is None or not found.submodule_search_locations:
        raise ImportError("wordllama")
    folder = Path(found.submodule_search_locations[0])
    weights = load_file(folder / "weights" / "l2_supercat_256.safetensors")["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json"))
    return weights.astype(np.float32), tokenizer


class VectorSource(Protocol):
    """A server that gives vectors."""

    name: str

    async def vectors(self, texts: Sequence[str]) -> list[list[float]]: ...

    async def close(self) -> None: ...


class ServerEmbedding:
    """An embedding model behind an API."""

    floor = 0.0

    def __init__(self, source: VectorSource) -> None:
        self.name = source.name
        self._source = source

    async def vectors(self, texts: Sequence[str]) -> Floats:
        return np.nan_to_num(np.array(await self._source.vectors(texts), np.float32))

    async def close(self) -> None:
        await self._source.close()


def signs(vectors: Floats) -> list[bytes]:
    """The signs of each vector, in whole words of 64 bits. Empty for one that says nothing."""
    width = min(vectors.shape[1], MOST_BITS)
    bits = np.zeros((len(vectors), -(-width // _WORD_BITS) * _WORD_BITS), np.bool_)
    bits[:, :width] = vectors[:, :width] > 0
    packed = np.packbits(bits, axis=1)
    return [row.tobytes() if vector.any() else b"" for row, vector in zip(packed, vectors, strict=True)]


def small(vectors: Floats) -> list[bytes]:
    """Each vector with a byte for each number. Only directions are compared, so its length may be another."""
    largest = np.maximum(np.abs(vectors).max(axis=1, keepdims=True), np.finfo(np.float32).tiny)
    return [row.tobytes() for row in np.rint(vectors / largest * 127).astype(np.int8)]


def rank(query: Floats, vectors: Sequence[tuple[int, bytes]], floor: float, most: int) -> list[int]:
    """The numbers of those whose direction is nearest to the query's, the nearest first."""
    same = [(number, vector) for number, vector in vectors if len(vector) == len(query)]
    if not same:
        return []
    matrix = np.frombuffer(b"".join(vector for _, vector in same), np.int8).reshape(len(same), -1).astype(np.float32)
    lengths = np.linalg.norm(matrix, axis=1) * np.linalg.norm(query)
    near = matrix @ query / np.maximum(lengths, np.finfo(np.float32).tiny)
    order = np.argsort(-near, kind="stable")[:most]
    return [same[place][0] for place in order if near[place] >= floor]


class VectorIndex:
    """The signs of many vectors, by the numbers of their records, in ascending order."""

    def __init__(self) -> None:
        self._numbers: Numbers = np.empty(0, np.int64)
        self._words: NDArray[np.uint64] = np.empty((0, 0), np.uint64)
        self._size = 0
        self._lock = threading.Lock()  # many vectors are compared in a thread

    def __len__(self) -> int:
        return self._size

    @property
    def memory(self) -> int:
        """How many bytes it holds."""
        return self._numbers.nbytes + self._words.nbytes

    def put(self, rows: Sequence[tuple[int, bytes]]) -> None:
        """Add vectors, or replace them. Those of a number whose signs are empty are dropped."""
        with self._lock:
            self._put_latest(dict(rows))

    def _put_latest(self, latest: Mapping[int, bytes]) -> None:
        full = sorted(number for number, bits in latest.items() if bits)
        self._drop([number for number, bits in latest.items() if not bits])
        if full:
            numbers = np.array(full, np.int64)
            self._put(numbers, np.frombuffer(b"".join(latest[n] for n in full), np.uint64).reshape(len(full), -1).T)

    def nearest(self, bits: bytes, most: int, since: int | None = None, until: int | None = None) -> list[int]:
        """The numbers of the vectors that differ least from these signs, in any order."""
        with self._lock:
            first, last = self._range(since, until)
            return self._nearest(bits, most, self._numbers[first:last], self._words[:, first:last])

    def nearest_among(self, bits: bytes, most: int, numbers: Sequence[int]) -> list[int]:
        """The same, among records of these numbers."""
        wanted = np.unique(np.array(numbers, np.int64))
        with self._lock:
            places, known = self._places(wanted)
            return self._nearest(bits, most, self._numbers[places[known]], self._words[:, places[known]])

    def _places(self, numbers: Numbers) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where numbers are, or would be, and which of them are there."""
        places = np.searchsorted(self._numbers[: self._size], numbers)
        known = places < self._size
        known[known] = self._numbers[places[known]] == numbers[known]
        return places, known

    def _nearest(self, bits: bytes, most: int, numbers: Numbers, words: NDArray[np.uint64]) -> list[int]:
        query = np.frombuffer(bits, np.uint64)
        if len(query) != len(words) or not len(numbers):
            return []
        differing = _differing(words, query)
        low, high = 0, len(query) * _WORD_BITS
        while low < high:  # the smallest difference within which there are enough of them
            middle = (low + high) // 2
            low, high = (low, middle) if np.count_nonzero(differing <= middle) >= most else (middle + 1, high)
        near = np.flatnonzero(differing <= low)
        found: list[int] = numbers[near[np.argsort(differing[near], kind="stable")[:most]]].tolist()
        return found

    def _range(self, since: int | None, until: int | None) -> tuple[int, int]:
        numbers = self._numbers[: self._size]
        first = 0 if since is None else int(np.searchsorted(numbers, since))
        return first, self._size if until is None else max(first, int(np.searchsorted(numbers, until)))

    def _put(self, numbers: Numbers, words: NDArray[np.uint64]) -> None:
        if len(self._words) != len(words):
            self._words, self._size = np.empty((len(words), 0), np.uint64), 0
            self._numbers = np.empty(0, np.int64)
        places, known = self._places(numbers)
        self._words[:, places[known]] = words[:, known]
        numbers, words, places = numbers[~known], words[:, ~known], places[~known]
        if (places < self._size).any():
            self._numbers = np.insert(self._numbers[: self._size], places, numbers)
            self._words = np.insert(self._words[:, : self._size], places, words, axis=1)
        else:
            self._make_room(self._size + len(numbers))
            self._numbers[self._size : self._size + len(numbers)] = numbers
            self._words[:, self._size : self._size + len(numbers)] = words
        self._size += len(numbers)

    def _make_room(self, size: int) -> None:
        if size > len(self._numbers):
            more = max(size, len(self._numbers) * 5 // 4, 1024) - len(self._numbers)
            self._numbers = np.append(self._numbers, np.zeros(more, np.int64))
            self._words = np.append(self._words, np.zeros((len(self._words), more), np.uint64), axis=1)

    def _drop(self, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        gone = np.isin(self._numbers[: self._size], np.array(numbers, np.int64))
        if gone.any():
            self._numbers = self._numbers[: self._size][~gone]
            self._words = self._words[:, : self._size][:, ~gone]
            self._size = len(self._numbers)


def _differing(words: NDArray[np.uint64], query: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """In how many bits each vector differs from the query; in pieces that stay in the processor's cache."""
    size = words.shape[1]
    total = np.empty(size, np.uint16)
    for at in range(0, size, _ROWS_AT_ONCE):
        part = total[at : at + _ROWS_AT_ONCE]
        part[:] = 0
        for word, wanted in zip(words, query, strict=True):
            part += np.bitwise_count(word[at : at + _ROWS_AT_ONCE] ^ wanted)
    return total
