import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptcal.metrics import ece
from promptcal.report.resampling import (
    Measured,
    basic_interval,
    clusters,
    measured,
    reweight,
    weighted_metrics,
)
from promptcal.report.results import Draw, Number, read_results
from promptcal.report.samples import Samples, Scores, read_samples


def scores(n, seed=0, images=None):
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.5, 1.0, n)
    correct = (generator.random(n) < confidence).astype(np.float64)
    return Scores(images or tuple(f"{row}.png" for row in range(n)), confidence, correct, generator.exponential(size=n))


def samples(**by_split):
    return Samples({("none", split): one for split, one in by_split.items()}, {}, None, {}, (), {})


@given(st.integers(1, 300), st.integers(0, 100))
def test_equal_weights_give_the_metrics_themselves(n, seed):
    one = scores(n, seed)
    found = weighted_metrics(one, np.full((n, 2), 1.0 / n, dtype=np.float32))
    probs, labels = np.stack([one.confidence, 1 - one.confidence], axis=1), 1 - one.correct.astype(np.int64)
    for bins, name in ((15, "ece"), (10, "ece@10"), (20, "ece@20")):
        np.testing.assert_allclose(found[name], ece(probs, labels, bins=bins), atol=1e-5)
    np.testing.assert_allclose(found["accuracy"], one.correct.mean(), atol=1e-5)
    np.testing.assert_allclose(found["signed_gap"], (one.confidence - one.correct).mean(), atol=1e-5)
    np.testing.assert_allclose(found["nll"], one.nll.mean(), atol=1e-4)


def test_image_weights_have_the_spread_of_the_bootstrap():
    one = scores(400)
    replicates = reweight({"a": samples(base=one)}, 4000, seed=1)["a"]["none", Number("base", "accuracy")]
    p = one.correct.mean()
    assert replicates.std() == pytest.approx(np.sqrt(p * (1 - p) / 400), rel=0.06)
    assert replicates.mean() == pytest.approx(p, abs=0.002)


def test_an_image_has_one_weight_in_every_run_that_saw_it():
    one, same, other = scores(50), scores(50), scores(50, images=tuple(f"other {row}" for row in range(50)))
    found = reweight({"a": samples(base=one), "b": samples(base=same), "c": samples(base=other)}, 200, seed=0)
    number = ("none", Number("base", "accuracy"))
    np.testing.assert_array_equal(found["a"][number], found["b"][number])
    assert abs(np.corrcoef(found["a"][number], found["c"][number])[0, 1]) < 0.3


def test_more_seeds_of_the_same_predictions_do_not_narrow_the_interval(study):
    """Zero-shot predictions do not depend on the seed: three runs know no more than one."""
    runs = [run for run in read_results(study).runs if run.method == "zero_shot"]
    replicates = reweight({run.name: read_samples(run) for run in runs}, 500, seed=0)
    number = Number("novel", "accuracy")
    three, one = (measured(some, "none", number, replicates).resampled for some in (runs, runs[:1]))
    assert three.std() == pytest.approx(one.std(), rel=1e-5)


@given(st.integers(2, 8), st.integers(0, 50))
def test_drawing_runs_gives_the_unbiased_variance_of_their_mean(k, seed):
    values = np.random.default_rng(seed).normal(size=k)
    draws = tuple(Draw(run, None) for run in range(k))
    resampled = Measured(draws, values, np.repeat(values[:, None], 4000, axis=1)).resampled
    assert resampled.std() == pytest.approx(values.std(ddof=1) / np.sqrt(k), rel=0.15)


def test_runs_of_one_class_split_are_drawn_together():
    draws = [Draw(seed, split) for split in (None, 0, 1) for seed in (1, 2)]
    assert len(set(clusters(draws).tolist())) == 3
    assert clusters(draws)[0] == clusters(draws)[1]
    assert clusters([Draw(1, 5), Draw(2, 5)]).tolist() == [0, 1]


@given(st.floats(0, 1), st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_the_basic_interval_mirrors_the_percentile_interval(value, replicates):
    low, high = basic_interval(value, np.array(replicates))
    percentile_low, percentile_high = np.quantile(replicates, [0.025, 0.975])
    assert low + percentile_high == pytest.approx(2 * value)
    assert high + percentile_low == pytest.approx(2 * value)
    assert low <= high


def test_the_interval_of_three_runs_covers_the_truth():
    """Accuracy of 300 images under three seeds: images and seeds both bring luck."""
    generator = np.random.default_rng(7)
    covered = 0
    for trial in range(100):
        ease = generator.uniform(0.4, 1.0, 300)
        luck = generator.random(300)
        draws = tuple(Draw(seed, None) for seed in range(3))
        found = {}
        for draw in draws:
            correct = (luck < ease - generator.normal(0.0, 0.03)).astype(np.float64)
            found[str(draw.seed)] = samples(base=Scores(tuple(map(str, range(300))), ease, correct, correct))
        key = ("none", Number("base", "accuracy"))
        replicates = np.stack([one[key] for one in reweight(found, 200, seed=trial).values()])
        values = np.array([one.scores["none", "base"].correct.mean() for one in found.values()])
        low, high = basic_interval(values.mean(), Measured(draws, values, replicates).resampled)
        covered += low <= 0.7 <= high
    assert covered >= 84  # about 92 are; fewer than 84 would be luck of one in a thousand
