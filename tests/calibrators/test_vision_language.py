"""Calibrators for vision-language models: zero-shot, mixing, routing, DAC, SaLS, proximity, SATS."""

import copy
import math
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import softmax

from promptcal.calibrators import (
    DAC,
    SATS,
    BinMeanShift,
    CalibrationWarning,
    DensityRatio,
    Mix,
    MultiIsotonic,
    Route,
    SaLS,
    TemperatureScaling,
    ZeroShot,
)
from promptcal.errors import ConfigError, DataError
from promptcal.metrics import nll_from_logits, proximity
from promptcal.metrics.base_novel import take

FEATURES = ("image_features", "text_features", "zero_shot_text_features")


def test_zero_shot_and_mix(base):
    assert np.array_equal(ZeroShot().transform(base).logits, base.zero_shot_logits)
    divided = base.replace(temperature=np.full(200, 4.0))
    mixed = Mix(weight=0.25).transform(divided)
    assert mixed.logits == pytest.approx(0.75 * base.logits / 4.0 + 0.25 * base.zero_shot_logits, rel=1e-5)
    assert mixed.temperature is None
    assert np.allclose(Mix(weight=0.0).transform(base).probs(), base.probs())
    assert np.allclose(Mix(weight=1.0).transform(base).probs(), ZeroShot().transform(base).probs())
    with pytest.raises(ConfigError, match=r"must be in \[0, 1\]"):
        Mix(weight=1.5).transform(base)


def test_route_goes_by_the_class_list(val, base, novel):
    route = Route().fit(val)
    assert np.array_equal(route.transform(base).probs(), base.probs())
    assert np.array_equal(route.transform(novel).probs(), ZeroShot().transform(novel).probs())
    tuned = Route(base="temperature", novel="sals").fit(val)
    assert np.array_equal(tuned.transform(base).probs(), TemperatureScaling().fit(val).transform(base).probs())
    assert np.array_equal(tuned.transform(novel).probs(), SaLS().transform(novel).probs())
    assert tuned.transform(novel).transformed_by == ("route",)
    assert (route.learns_from, tuned.learns_from) == ("classes", "rows")
    assert (route.keeps_argmax, tuned.keeps_argmax) == (False, True)
    assert Route(base="vector").transfers_to_new_classes
    assert not Route(novel="vector").transfers_to_new_classes


def unit(vector):
    return vector / math.sqrt(sum(float(x) ** 2 for x in vector))


def dac_factor(index, split, val, neighbours, threshold):
    """One class at a time, one distance at a time."""

    def mean_distance(field):
        own = unit(getattr(split, field)[index].astype(np.float64))
        distances = [math.dist(own, unit(row.astype(np.float64))) for row in getattr(val, field)]
        distances.sort()
        nearest = distances[: min(neighbours, len(distances))]
        return distances[0], sum(nearest) / len(nearest)

    closest, tuned = mean_distance("text_features")
    _, frozen = mean_distance("zero_shot_text_features")
    return 1.0 if closest < threshold else math.exp(-tuned) / math.exp(-frozen)


@pytest.mark.parametrize("neighbours", [1, 5, 10])
def test_dac_equals_its_formula_class_by_class(val, novel, neighbours):
    calibrator = DAC(neighbours=neighbours).fit(val)
    factors = [dac_factor(index, novel, val, neighbours, 0.05) for index in range(len(novel.classes))]
    assert calibrator.factors(novel) == pytest.approx(factors, rel=1e-9)
    assert min(abs(factor - 1.0) for factor in factors) > 1e-4
    predicted = novel.logits.argmax(axis=1)
    expected = softmax(novel.logits.astype(np.float64) * np.array(factors)[predicted][:, None], axis=1)
    found = calibrator.transform(novel)
    assert np.allclose(found.probs(), expected, rtol=1e-9, atol=1e-15)
    assert found.logits is novel.logits


def test_dac_leaves_base_classes_alone_and_reads_no_rows(val, base, novel):
    calibrator = DAC().fit(val)
    assert np.array_equal(calibrator.factors(base), np.ones(8))
    assert np.array_equal(calibrator.transform(base).probs(), base.probs())
    other = DAC().fit(take(val, np.arange(3)))
    assert np.array_equal(other.transform(novel).probs(), calibrator.transform(novel).probs())
    nearly = base.replace(text_features=base.text_features + 0.01)
    assert np.array_equal(calibrator.factors(nearly), np.ones(8))


def test_dac_takes_all_base_classes_where_there_are_fewer_than_k(val, novel):
    three = val.replace(
        logits=val.logits[:, :3],
        zero_shot_logits=None,
        labels=val.labels % 3,
        classes=val.classes[:3],
        text_features=val.text_features[:3],
        zero_shot_text_features=val.zero_shot_text_features[:3],
    )
    assert np.array_equal(DAC(neighbours=10).fit(three).factors(novel), DAC(neighbours=3).fit(three).factors(novel))


def test_dac_refuses_what_it_cannot_use(val, novel):
    with pytest.raises(ConfigError, match="neighbours=0"):
        DAC(neighbours=0).fit(val)
    narrow = {name: getattr(novel, name)[:, :9] for name in FEATURES}
    with pytest.raises(DataError, match="base split 16"):
        DAC().fit(val).transform(novel.replace(**narrow))
    short = copy.copy(val)  # past the shape checks that the tests run under
    object.__setattr__(short, "text_features", val.text_features[:5])
    with pytest.raises(DataError, match="one each"):
        DAC().fit(short)
    zeros = novel.text_features.copy()
    zeros[2] = 0
    with pytest.raises(DataError, match="'class 10' are all zero"):
        DAC().fit(val).transform(novel.replace(text_features=zeros))


def test_sals_equals_its_formula(base, novel):
    for split in (base, novel, base.replace(temperature=np.full(200, 3.0))):
        z, z0 = split.calibrated_logits, split.zero_shot_logits.astype(np.float64)
        low, high = z.min(axis=1, keepdims=True), z.max(axis=1, keepdims=True)
        low0, high0 = z0.min(axis=1, keepdims=True), z0.max(axis=1, keepdims=True)
        expected = (z - low) / (high - low) * (high0 - low0) + low0
        found = SaLS().transform(split)
        assert np.allclose(found.probs(), softmax(expected, axis=1), rtol=1e-9)
        assert np.allclose(np.ptp(found.calibrated_logits, axis=1), (high0 - low0)[:, 0])
        assert found.logits is split.logits


def test_sals_of_flat_rows(base):
    flat = base.zero_shot_logits.copy()
    flat[4] = 1.0
    with pytest.raises(DataError, match="row 4"):
        SaLS().transform(base.replace(zero_shot_logits=flat))
    both = base.logits.copy()
    both[4] = 2.0
    assert SaLS().transform(base.replace(zero_shot_logits=flat, logits=both)).temperature[4] == 1.0


def test_calibrators_that_use_proximity_refuse_one_row_and_other_features(val, base):
    other = base.replace(image_features=base.image_features[:, :3], text_features=None, zero_shot_text_features=None)
    for calibrator in (DensityRatio(), BinMeanShift()):
        with pytest.raises(DataError, match="at least one other"):
            calibrator.fit(take(val, np.array([0])))
        with pytest.raises(DataError, match="have 3 numbers, those to compare with 16"):
            calibrator.fit(val).transform(other)


def kernel_density(sample, point):
    """A product Gaussian kernel density with the normal reference bandwidth, one point at a time."""
    n = len(sample)
    bandwidths = [1.06 * np.std([row[axis] for row in sample]) * n ** (-1 / 6) for axis in (0, 1)]
    total = 0.0
    for row in sample:
        kernel = 1.0
        for axis in (0, 1):
            u = (point[axis] - row[axis]) / bandwidths[axis]
            kernel *= math.exp(-0.5 * u * u) / (math.sqrt(2 * math.pi) * bandwidths[axis])
        total += kernel
    return total / n


def test_density_ratio_equals_its_formula(val, base):
    calibrator = DensityRatio(neighbours=5).fit(val)
    near_val = proximity(val.image_features.astype(np.float64), neighbours=5)
    near = proximity(base.image_features.astype(np.float64), val.image_features.astype(np.float64), neighbours=5)
    confidence, predicted = val.probs().max(axis=1), val.probs().argmax(axis=1)
    right = [(c, d) for c, d, good in zip(confidence, near_val, predicted == val.labels, strict=True) if good]
    wrong = [(c, d) for c, d, good in zip(confidence, near_val, predicted == val.labels, strict=True) if not good]
    after = calibrator.transform(base).probs()
    tops = base.probs().argmax(axis=1)
    for row in range(0, 200, 17):
        point = (base.probs()[row].max(), near[row])
        f1, f0 = kernel_density(right, point), kernel_density(wrong, point)
        assert after[row, tops[row]] == pytest.approx(f1 / (f1 + f0 * len(wrong) / len(right)), rel=1e-9)


def test_density_ratio_without_wrong_rows_leaves_confidences_alone_and_says_so(val, base):
    easy = val.replace(labels=val.logits.argmax(axis=1))
    with pytest.warns(CalibrationWarning, match="0 of 240 rows are wrong"):
        calibrator = DensityRatio().fit(easy)
    assert np.array_equal(calibrator.transform(base).probs(), base.probs())
    with pytest.raises(ConfigError, match="neighbours=0"):
        DensityRatio(neighbours=0).fit(val)


def test_density_ratio_far_from_every_row_is_still_a_probability(val, base):
    far = base.replace(image_features=base.image_features + 50.0)
    probs = DensityRatio().fit(val).transform(far).probs()
    assert np.isfinite(probs).all()
    assert np.abs(probs.sum(axis=1) - 1).max() < 1e-12


def test_bin_mean_shift_is_one_binning_per_level(val, base, novel):
    one = BinMeanShift(levels=1).fit(val)
    assert np.array_equal(one.transform(novel).probs(), MultiIsotonic().fit(val).transform(novel).probs())
    three = BinMeanShift(levels=3, neighbours=4).fit(val)
    own = proximity(val.image_features.astype(np.float64), neighbours=4)
    near = proximity(base.image_features.astype(np.float64), val.image_features.astype(np.float64), neighbours=4)
    assert len(three.edges_) == 2
    bounds = [-np.inf, *three.edges_, np.inf]
    after = three.transform(base).probs()
    for low, high in pairwise(bounds):
        fit, rows = np.flatnonzero((own > low) & (own <= high)), np.flatnonzero((near > low) & (near <= high))
        assert abs(len(fit) - 80) <= 1
        expected = MultiIsotonic().fit(take(val, fit)).transform(take(base, rows)).probs()
        assert np.array_equal(after[rows], expected)
    assert BinMeanShift("histogram").transfers_to_new_classes is False
    with pytest.raises(ConfigError, match="levels=0"):
        BinMeanShift(levels=0).fit(val)


def test_bin_mean_shift_merges_levels_of_equal_proximity(val):
    same = val.replace(image_features=np.ones_like(val.image_features))
    assert len(BinMeanShift().fit(same).parts_) == 1


def test_sats_learns_and_is_repeatable(val, base):
    parameters = {"hidden": [64, 32], "head": [32], "epochs": 30, "learning_rate": 3e-3}
    first, second = SATS(**parameters).fit(val), SATS(**parameters).fit(val)
    found = first.transform(base)
    assert np.array_equal(found.temperature, second.transform(base).temperature)
    assert (found.temperature > 0).all()
    assert np.std(found.temperature) > 1e-3
    assert nll_from_logits(found.calibrated_logits, base.labels) < nll_from_logits(base.logits, base.labels)
    drawn = SATS(**parameters, draw=True).fit(val).transform(base)
    assert not np.array_equal(drawn.temperature, found.temperature)
