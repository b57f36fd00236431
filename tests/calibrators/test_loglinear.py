"""The log-linear head: its features, the relatives it contains, and its fits."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from promptcal.calibrators import DAC, CalAttn, CalibrationWarning, LogLinear, SaLS, TemperatureScaling
from promptcal.calibrators.instance_features import FEATURES, Reference, columns_of, design
from promptcal.calibrators.instance_fit import Rows, _mean_nll, fit_mean, fit_worse, temperature_scaling
from promptcal.errors import ConfigError, DataError, MissingField
from promptcal.metrics import nll_from_logits
from promptcal.metrics.base_novel import take
from promptcal.types import Predictions

EVERY = ["range", "dac", "norm", "cosine", "margin", "entropy", "kl", "confidence", "tokens"]


def with_norms(predictions):
    norms = 5.0 + predictions.logits.max(axis=1).astype(np.float64)
    return predictions.replace(norms=norms)


# --- the relatives it contains ---------------------------------------------------------------------------------------


def test_without_weights_it_is_temperature_scaling_to_the_bit(val, base, novel):
    scaling = TemperatureScaling().fit(val)
    for head in (LogLinear([]), LogLinear(["range", "kl"], weights=[0.0, 0.0]), LogLinear(penalty=1e12)):
        head.fit(val)
        for split in (base, novel):
            assert np.allclose(head.transform(split).temperature, scaling.transform(split).temperature, rtol=1e-12)
    exact = LogLinear(["range", "kl"], weights=[0.0, 0.0]).fit(val)
    assert np.array_equal(exact.transform(novel).temperature, scaling.transform(novel).temperature)
    assert np.array_equal(exact.transform(novel).probs(), scaling.transform(novel).probs())


def test_range_alone_with_weight_one_is_sals(val, base, novel):
    head = LogLinear(["range"], weights=[1.0], temperature=1.0, clip=math.inf).fit(val)
    for split in (base, novel):
        assert head.transform(split).temperature == pytest.approx(SaLS().transform(split).temperature, rel=1e-12)
        divided = split.replace(temperature=np.full(len(split.labels), 1.7))
        assert head.transform(divided).probs() == pytest.approx(SaLS().transform(divided).probs(), abs=1e-12)


def test_dac_alone_with_weight_one_is_dac(val, base, novel):
    head, dac = LogLinear(["dac"], weights=[1.0], temperature=1.0).fit(val), DAC().fit(val)
    for split in (base, novel):
        assert head.transform(split).temperature == pytest.approx(dac.transform(split).temperature, rel=1e-12)
    assert np.ptp(head.transform(novel).temperature) > 0


def test_a_temperature_behind_given_weights_is_that_of_the_divided_logits(val, novel):
    head = LogLinear(["range"], weights=[1.0], clip=math.inf).fit(val)
    after_sals = TemperatureScaling().fit(SaLS().transform(val))
    expected = after_sals.apply(SaLS().transform(novel))
    assert head.transform(novel).probs() == pytest.approx(expected.probs(), abs=1e-9)


# --- features --------------------------------------------------------------------------------------------------------


def by_hand(name, predictions, base, row):
    """One feature of one row, in plain Python."""
    tuned, frozen = predictions.logits[row].astype(float), predictions.zero_shot_logits[row].astype(float)
    p, p0 = softmax(tuned), softmax(frozen)
    image = predictions.image_features[row].astype(float)
    mean = base.image_features.astype(float).mean(axis=0)
    descending = sorted(frozen, reverse=True)
    if name == "confidence":
        means = [
            np.mean([softmax(each).max() for each in table])
            for table in (predictions.zero_shot_logits.astype(float), predictions.logits.astype(float))
        ]
        return math.log(means[0]) - math.log(means[1])
    return {
        "range": math.log(max(tuned) - min(tuned)) - math.log(max(frozen) - min(frozen)),
        "dac": -math.log(DAC().fit(base).factors(predictions)[int(tuned.argmax())]),
        "norm": math.log(5.0 + tuned.max()),
        "cosine": float(image @ mean) / math.sqrt(float(mean @ mean)),
        "margin": math.log(1 + descending[0] - descending[1]),
        "entropy": -sum(q * math.log(q) for q in p0) / math.log(len(p0)),
        "kl": sum(q * math.log(q / r) for q, r in zip(p0, p, strict=True)),
    }[name]


@pytest.mark.parametrize("name", [name for name in EVERY if name != "tokens"])
def test_a_feature_is_what_its_words_say(name, val, novel):
    split = with_norms(novel)
    found = FEATURES[name].of(split, Reference.of(val, [name], 1))
    expected = [by_hand(name, split, val, row) for row in range(0, 150, 7)]
    assert found[::7] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_token_scores_are_white_over_the_base_images(val):
    scores = design(val, ["tokens"], Reference.of(val, ["tokens"], 4))
    assert scores.mean(axis=0) == pytest.approx(np.zeros(4), abs=1e-12)
    assert scores.T @ scores / 240 == pytest.approx(np.eye(4), abs=1e-10)
    with pytest.raises(DataError, match="fewer than 4 directions"):
        Reference.of(take(val, np.arange(3)), ["tokens"], 4)
    assert columns_of(["range", "tokens"], 2) == ["range", "token 1", "token 2"]


def test_one_class_and_flat_rows_have_features(val):
    one = take(val, np.flatnonzero(val.labels == 0)).replace(
        classes=("only",),
        text_features=None,
        zero_shot_text_features=None,
        logits=np.full((int((val.labels == 0).sum()), 1), 3.0),
        zero_shot_logits=np.zeros((int((val.labels == 0).sum()), 1)),
    )
    names = ["range", "margin", "entropy", "kl"]
    assert not design(one, names, Reference()).any()
    flat = val.replace(zero_shot_logits=np.zeros_like(val.zero_shot_logits))
    with pytest.raises(DataError, match="row 0 has zero-shot logits that are all equal"):
        LogLinear(["range"]).fit(flat)


def test_neither_the_order_of_the_classes_nor_that_of_the_rows_matters(val, novel):
    head = LogLinear(EVERY).fit(with_norms(val))
    split = with_norms(novel)
    rng = np.random.default_rng(0)
    classes, rows = rng.permutation(len(novel.classes)), rng.permutation(150)
    shuffled = take(split, rows).replace(
        logits=split.logits[rows][:, classes],
        zero_shot_logits=split.zero_shot_logits[rows][:, classes],
        labels=np.argsort(classes)[split.labels[rows]],
        text_features=split.text_features[classes],
        zero_shot_text_features=split.zero_shot_text_features[classes],
        classes=tuple(split.classes[index] for index in classes),
    )
    assert head.temperatures(shuffled) == pytest.approx(head.temperatures(split)[rows], rel=1e-9)


# --- the fits --------------------------------------------------------------------------------------------------------


def drawn(n, weights, temperature, seed, classes=6):
    """Rows whose labels are drawn at temperatures log-linear in their features."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, len(weights)))
    logits = 3.0 * rng.normal(size=(n, classes))
    inverse = np.exp(-(np.log(temperature) + features @ np.array(weights)))
    labels = (logits * inverse[:, None] + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Rows(logits, labels, features, labels.astype(str))


def test_the_gradient_is_that_of_the_loss():
    rows = drawn(60, [0.5, -0.3], 1.5, 0)
    start = temperature_scaling(rows, 2.0)
    theta = np.array([0.1, 0.6, -0.4])
    deviation = np.abs((rows.features - start.centre) @ theta[1:])
    assert 0 < (deviation > math.log(2.0)).sum() < 60  # some rows are clipped
    steps = 1e-6 * np.eye(3)
    numeric = [
        (_mean_nll(start, rows, theta + step)[0] - _mean_nll(start, rows, theta - step)[0]) / 2e-6 for step in steps
    ]
    assert _mean_nll(start, rows, theta)[1] == pytest.approx(numeric, abs=1e-8)


def test_known_weights_are_found():
    rows = drawn(6000, [0.4, -0.3, 0.0], 2.0, 1)
    found = fit_mean(rows, 0.0, math.inf)
    assert found.weights == pytest.approx([0.4, -0.3, 0.0], abs=0.06)
    implied = math.log(found.scaling) + found.shift - found.weights @ found.centre
    assert implied == pytest.approx(math.log(2.0), abs=0.06)
    assert found.nll(rows).mean() < temperature_scaling(rows, math.inf).nll(rows).mean()


def test_a_penalty_shrinks_toward_temperature_scaling():
    rows = drawn(300, [0.4, -0.3], 2.0, 2)
    sizes = [float(np.linalg.norm(fit_mean(rows, penalty, 4.0).weights)) for penalty in (0.0, 0.03, 1.0, 1e9)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < 1e-6
    assert fit_mean(rows, 1e9, 4.0).scaling == temperature_scaling(rows, 4.0).scaling


def test_the_clip_bounds_every_temperature(val, novel):
    head = LogLinear(["range", "kl"], penalty=0.0, clip=1.1).fit(val)
    relative = head.temperatures(novel) / head.temperature_
    assert relative.max() <= 1.1 * (1 + 1e-12)
    assert relative.min() >= 1 / 1.1 * (1 - 1e-12)


def test_the_worse_of_two_sets_is_what_a_fine_grid_says():
    base, novel = drawn(400, [0.5], 1.0, 3), drawn(400, [0.2], 1.4, 4)
    found = fit_worse(base, novel, 0.01, math.inf)
    start = temperature_scaling(base, math.inf)

    def objective(shift, weight):
        theta = np.array([shift, weight])
        zero = np.zeros(2)
        differences = [_mean_nll(start, rows, theta)[0] - _mean_nll(start, rows, zero)[0] for rows in (base, novel)]
        return max(differences) + 0.01 * weight**2

    grid = min(objective(s, w) for s in np.linspace(-0.1, 0.4, 26) for w in np.linspace(0.0, 0.7, 36))
    assert objective(found.shift, found.weights[0]) <= grid + 1e-9
    assert objective(found.shift, found.weights[0]) == pytest.approx(grid, abs=1e-3)
    for rows in (base, novel):
        assert found.nll(rows).mean() < start.nll(rows).mean()


def test_sets_that_contradict_each_other_get_temperature_scaling():
    base, novel = drawn(2000, [0.5], 1.0, 5), drawn(2000, [-0.5], 1.0, 6)
    found = fit_worse(base, novel, 0.01, 4.0)
    assert abs(found.weights[0]) < 0.05
    assert abs(found.shift) < 0.05


def test_rows_of_different_class_lists_stand_together():
    few, many = drawn(30, [0.2], 1.0, 7, classes=3), drawn(40, [0.2], 1.0, 8, classes=9)
    both = Rows.stacked([few, many])
    apart = [temperature_scaling(rows, 4.0) for rows in (few, many)]
    same = fit_mean(both, 0.1, 4.0)
    expected = np.concatenate([same.nll(few), same.nll(many)])
    assert np.array_equal(same.nll(both), expected)
    assert min(m.scaling for m in apart) < temperature_scaling(both, 4.0).scaling < max(m.scaling for m in apart)
    picked = both.take(np.arange(70) >= 30)
    logs = log_softmax(many.logits / 1.0, axis=1)[np.arange(40), many.labels]
    assert temperature_scaling(picked, 4.0).nll(many).mean() <= -logs.mean()


def test_strange_parameters_and_fields_are_refused(val):
    for head, message in (
        (LogLinear(["rang"]), "Did you mean 'range'"),
        (LogLinear(["range", "range"]), "named twice"),
        (LogLinear(clip=0.5), "forbid every temperature"),
        (LogLinear(penalty=-1.0), "reward large weights"),
        (LogLinear(["range"], weights=[1.0, 2.0]), "2 weights for 1 features"),
        (LogLinear(["range"], temperature=2.0), "come with weights"),
        (LogLinear(["tokens"], tokens=0), "at least one"),
    ):
        with pytest.raises(ConfigError, match=message):
            head.fit(val)
    with pytest.raises(MissingField, match="norms"):
        LogLinear(["norm"]).fit(val)


def test_a_report_names_the_weights(val):
    said = LogLinear(["range", "kl"]).fit(val).report()
    assert "weights range " in said
    assert "240 rows of val" in said
    assert LogLinear(["dac"]).fit(val).weights_ == pytest.approx([0.0], abs=1e-9)


# --- the network of CalAttn, post hoc --------------------------------------------------------------------------------


def test_calattn_starts_at_temperature_scaling_and_warns_of_few_rows(val, novel):
    with pytest.warns(CalibrationWarning, match="240 rows, which it can learn by heart"):
        start = CalAttn(steps=0).fit(val)
    scaling = TemperatureScaling().fit(val)
    assert start.transform(novel).temperature == pytest.approx(scaling.transform(novel).temperature, rel=1e-6)


def test_calattn_learns_a_temperature_that_the_image_shows():
    rng = np.random.default_rng(0)
    images = rng.normal(size=(1200, 6))
    logits = 3.0 * rng.normal(size=(1200, 5))
    labels = (logits / np.exp(0.7 * images[:, :1]) + rng.gumbel(size=logits.shape)).argmax(axis=1)
    rows = Predictions(logits, labels, tuple("abcde"), image_features=images)
    fit, test = take(rows, np.arange(600)), take(rows, np.arange(600, 1200))
    head = CalAttn(steps=200, learning_rate=3e-3).fit(fit).transform(test)
    scaled = TemperatureScaling().fit(fit).transform(test)
    losses = [nll_from_logits(one.calibrated_logits, test.labels) for one in (head, scaled)]
    assert losses[0] < losses[1] - 0.02
    assert np.corrcoef(np.log(head.temperature), images[600:, 0])[0, 1] > 0.8
