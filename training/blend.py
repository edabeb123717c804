"""The mean of two adapters, where the second went on from the first: `python -m training.blend FIRST SECOND OUT`."""

import argparse
from pathlib import Path

from training.gguf import Weights, write_adapter


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("first", "second", "out"):
        parser.add_argument(name, type=Path)
    given = parser.parse_args()
    first, second = Weights(given.first), Weights(given.second)
    mean = {name: (first.load(name) + second.load(name)) / 2 for name in first.tensors}
    write_adapter(given.out, mean, alpha=first.fields["adapter.lora.alpha"], name=first.fields["general.name"])


if __name__ == "__main__":
    main()
