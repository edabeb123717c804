"""The mean of two adapters, where the second went on from the first: `python -m training.blend FIRST SECOND OUT`.

The first may have a smaller rank; what it lacks counts as nothing. `--share` says how much of the first is taken.
"""

import argparse
from pathlib import Path

import numpy as np

from training.gguf import Array, Weights, write_adapter


def widened(tensor: Array, shape: tuple[int, ...]) -> Array:
    """The tensor in the corner of a larger one of zeros."""
    return np.pad(tensor, [(0, wanted - had) for had, wanted in zip(tensor.shape, shape, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("first", "second", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--share", type=float, default=0.5)
    given = parser.parse_args()
    first, second = Weights(given.first), Weights(given.second)
    padded = {name: widened(first.load(name), tensor.shape) for name, tensor in second.tensors.items()}
    rest = 1 - given.share
    mean = {name: given.share * tensor + rest * second.load(name) for name, tensor in padded.items()}
    write_adapter(given.out, mean, alpha=second.fields["adapter.lora.alpha"], name=second.fields["general.name"])


if __name__ == "__main__":
    main()
