"""What is deployed: weighted sums of the epochs' tensors, or the best of them."""

import math

import pytest
import torch

from promptcal.config import build, compose, options
from promptcal.errors import ConfigError
from promptcal.training.averaging import Averaging, BestOnValidation, ExponentialMovingAverage, Gaussian, LastEpoch

EPOCHS = [{"a": torch.tensor([float(e), 1.0]), "b": torch.tensor(e**2, dtype=torch.float64)} for e in range(1, 6)]


def folded(rule, rows=None):
    kept, history = {}, []
    for number, current in enumerate(EPOCHS, start=1):
        history.append({"epoch": number, **(rows[number - 1] if rows else {})})
        kept = rule.fold(kept, current, history, len(EPOCHS))
    return kept


def test_gaussian_is_the_weighted_sum_of_the_epochs():
    heights = [math.exp(-((e - 4) ** 2) / (2 * 1.5**2)) for e in range(1, 6)]
    kept = folded(Gaussian(4.0, 1.5))
    for name in ("a", "b"):
        expected = sum(h / sum(heights) * tensors[name].double() for h, tensors in zip(heights, EPOCHS, strict=True))
        torch.testing.assert_close(kept[name], expected, rtol=1e-14, atol=0)
    assert float(kept["a"][1]) == pytest.approx(1.0, abs=1e-15)


def test_the_published_weights_sum_to_one():
    assert sum(Gaussian().weights(20)) == pytest.approx(1.0)
    assert max(range(20), key=Gaussian().weights(20).__getitem__) + 1 == 15


def test_ema_moves_from_the_first_epoch():
    expected = EPOCHS[0]["a"].double()
    for tensors in EPOCHS[1:]:
        expected = 0.75 * expected + 0.25 * tensors["a"].double()
    torch.testing.assert_close(folded(ExponentialMovingAverage(0.75))["a"], expected)
    assert torch.equal(folded(ExponentialMovingAverage(0.0))["a"], EPOCHS[-1]["a"].double())


def test_the_last_epoch_keeps_nothing():
    assert folded(LastEpoch()) == {}


@pytest.mark.parametrize(("metric", "values", "best"), [("nll", [3, 1, 2, 1, 4], 2), ("accuracy", [3, 4, 2, 4, 1], 2)])
def test_best_on_validation_takes_the_earliest_best(metric, values, best):
    kept = folded(BestOnValidation(metric), [{f"val_{metric}": value} for value in values])
    assert torch.equal(kept["a"], EPOCHS[best - 1]["a"])


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="no epoch of 3 counts"):
        Gaussian(mean=500.0, std=1.0).weights(3)
    with pytest.raises(ConfigError, match=r"averaging.std is 0"):
        Gaussian(std=0.0)
    with pytest.raises(ConfigError, match=r"averaging.decay is 1"):
        ExponentialMovingAverage(1.0)
    with pytest.raises(ConfigError, match="Did you mean 'accuracy'"):
        BestOnValidation("acuracy")


def test_every_averaging_is_chosen_by_name():
    for name in options("averaging"):
        assert isinstance(build(compose([f"averaging={name}"]).averaging), Averaging)
