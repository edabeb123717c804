"""The weights that ship are those of the model, and whoever reads an answer pays little for them."""

from training.intent import TARGETS, composed

from toolwire.wire.text.intent import Surroundings, buckets, chance, features
from toolwire.wire.text.intent_weights import BUCKETS


def test_the_same_seed_composes_the_same_surroundings() -> None:
    assert list(composed(3, 50)) == list(composed(3, 50))
    assert list(composed(3, 50)) != list(composed(4, 50))


def test_the_shipped_weights_know_the_composed_surroundings() -> None:
    drawn = [(around, target) for around, target in composed(97, 600) if target in (TARGETS["meant"], TARGETS["shown"])]
    right = [(chance(around) >= 0.5) == (target > 0.5) for around, target in drawn]

    assert sum(right) >= 0.95 * len(right)


def test_every_feature_has_its_bucket_whatever_the_script() -> None:
    around = Surroundings("我先看一下。 Ich sehe nach: ", "とても長い説明です。 и ещё", "marked", traits=("first",))

    assert {bucket for bucket in buckets(around) if not 0 <= bucket < BUCKETS} == set()
    assert len(buckets(around)) <= len(features(around))


def test_long_surroundings_have_no_more_features_than_short_ones_of_the_same_bounds() -> None:
    """The work is bounded: a thousand times as many words cost nothing more."""
    short = Surroundings("word " * 200 + "\n", "word other " * 200, "bare")
    long = Surroundings("word " * 200_000 + "\n", "word other " * 200_000, "bare")

    assert features(long) == features(short)
