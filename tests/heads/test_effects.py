"""What a head does, against metrics of single resamples."""

import numpy as np
import pytest

from promptcal.calibrators import FixedTemperature, Identity, LogLinear, TemperatureScaling
from promptcal.heads.effects import METRICS, Effect, effects, resampled, spread, verdict
from promptcal.metrics import aurc, ece, nll_from_logits
from promptcal.metrics.base_novel import take
from promptcal.types import Predictions


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    logits = np.round(3.0 * rng.normal(size=(300, 4)), 1)
    labels = (logits / 2.0 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    frozen = logits + rng.normal(size=logits.shape)
    return Predictions(logits, labels, tuple("abcd"), zero_shot_logits=frozen, split="base")


def test_resampled_metrics_are_those_of_the_resampled_rows(rows):
    drawn = np.random.default_rng(1).integers(0, 300, (3, 300))
    times = np.stack([np.bincount(chosen, minlength=300).astype(float) for chosen in drawn])
    found = resampled(rows, times)
    for column, chosen in enumerate(drawn):
        part = take(rows, chosen)
        expected = [
            nll_from_logits(part.logits, part.labels),
            ece(part.probs(), part.labels),
            aurc(part.probs(), part.labels),
        ]
        assert found[:, column] == pytest.approx(expected, rel=1e-12)


def test_effects_are_differences_from_temperature_scaling(rows):
    fit, test = take(rows, np.arange(150)), take(rows, np.arange(150, 300))
    scaling = TemperatureScaling().fit(fit)
    found = effects({"ts": scaling, "none": Identity(), "hot": FixedTemperature(9.0)}, scaling, {"base": test})
    assert [(e.calibrator, e.metric) for e in found][:3] == [("ts", metric) for metric in METRICS]
    assert all((e.difference, e.low, e.high) == (0.0, 0.0, 0.0) for e in found[:3])
    hot = next(e for e in found if (e.calibrator, e.metric) == ("hot", "nll"))
    assert hot.is_worse
    assert hot.low < hot.difference < hot.high
    assert hot.value - hot.difference == pytest.approx(found[0].value)
    assert "worse than temperature scaling" in verdict(found, "hot")[0]
    assert "cannot be told from" in verdict(found, "ts")[0]
    better = Effect("x", "novel", "nll", 0.5, -0.1, -0.2, -0.01, 10)
    assert "novel NLL better" in verdict([better], "x")[0]


def test_the_spread_of_temperatures(rows):
    fit, test = take(rows, np.arange(150)), take(rows, np.arange(150, 300))
    scaling = TemperatureScaling().fit(fit)
    flat = spread(scaling, scaling, test)
    assert (flat.low, flat.high, flat.correlation) == (scaling.temperature_, scaling.temperature_, None)
    assert flat.residual == pytest.approx(flat.residual_scaling)
    head = LogLinear(["entropy"], weights=[1.0]).fit(fit)
    found = spread(head, scaling, test)
    assert found.low < found.median < found.high
    assert -1 < found.correlation < 0
    divided = test.replace(temperature=np.full(150, 3.0))
    assert spread(scaling, scaling, divided).mean == pytest.approx(scaling.temperature_)
    assert spread(Identity(), scaling, divided).mean == 1.0
