"""A temperature per row from a network of its image feature."""

import warnings
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.calibrators.contract import CalibrationWarning, Calibrator
from promptcal.calibrators.networks import as_tensor, mlp, put_weights, seeded, weights_of
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.calibrators.temperature import TemperatureScaling
from promptcal.config import register
from promptcal.types import Predictions

FEW = 500
"""Rows below which a network as wide as the image features is warned of."""
FLOOR = 1e-3


@register("calibrator", "calattn")
class CalAttn(Calibrator):
    """s(v) = T·softplus(w₂·GELU(W₁v + b₁) + b₂), trained for NLL + λ·Brier of softmax(z / s); s = T at the start.

    The head of CalAttn on stored predictions: the model is not touched, so it is its ``separate`` form. T is that of
    temperature scaling on the fitted rows. The image features enter less their mean and over one common spread.

    Args:
        hidden: width of the hidden layer.
        brier: λ, the weight of the Brier score.
        steps: of AdamW, on all rows at once.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
        seed: of the initial weights.

    Attributes:
        temperature_: T.
        weights_: the network.
        centre_: mean image feature, [D].
        spread_: root of the mean variance of its numbers.

    Liang et al., "Calibration Attention: Instance-wise Temperature Scaling for Vision Transformers", 2025, arXiv
    2508.08547, train the head together with the whole model. Fewer than 500 rows, as few shots give, are warned of: a
    network of so many inputs can learn them by heart.

    >>> CalAttn().brier
    0.1
    """

    name: ClassVar[str] = "calattn"
    needs = frozenset({"image_features"})

    def __init__(
        self,
        hidden: int = 32,
        brier: float = 0.1,
        steps: int = 200,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-2,
        seed: int = 0,
    ) -> None:
        self.hidden = hidden
        self.brier = brier
        self.steps = steps
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.seed = seed

    def _learn(self, predictions: Predictions) -> None:
        if len(predictions.labels) < FEW:
            warnings.warn(
                f"a network of {predictions.require('image_features').shape[1]} numbers an image is fitted on "
                f"{len(predictions.labels)} rows, which it can learn by heart; 'loglinear' has a few weights alone.",
                CalibrationWarning,
                stacklevel=3,
            )
        images = predictions.require("image_features").astype(np.float64)
        self.centre_ = images.mean(axis=0)
        self.spread_ = float(np.sqrt(images.var(axis=0).mean())) or 1.0
        self.temperature_ = TemperatureScaling().fit(predictions).temperature_
        logits = as_tensor(current_logits(predictions) / self.temperature_)
        labels, inputs = as_tensor(predictions.labels, torch.int64), as_tensor(self._inputs(predictions))
        truth = nn.functional.one_hot(labels, logits.shape[1])
        with seeded(self.seed):
            network = self._network(images.shape[1])
            *_, weight, bias = network.parameters()
            with torch.no_grad():
                weight.zero_()
                bias.fill_(np.log(np.e - 1.0))
        optimiser = torch.optim.AdamW(network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        for _ in range(self.steps):
            optimiser.zero_grad()
            scaled = logits / _positive(network, inputs)[:, None]
            brier = (scaled.softmax(dim=1) - truth).square().sum(dim=1).mean()
            loss = nn.functional.cross_entropy(scaled, labels) + self.brier * brier
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        self.weights_ = weights_of(network)

    def _network(self, width: int) -> nn.Sequential:
        return mlp([width, self.hidden, 1], nn.GELU)

    def _inputs(self, predictions: Predictions) -> Float[np.ndarray, "n D"]:
        standard: np.ndarray = (predictions.require("image_features") - self.centre_) / self.spread_
        return standard

    def _move(self, predictions: Predictions) -> Predictions:
        inputs = as_tensor(self._inputs(predictions))
        network = put_weights(self._network(inputs.shape[1]), self.weights_)
        with torch.no_grad():
            return divide_rows(predictions, self.temperature_ * _positive(network, inputs).double().numpy())

    def _found(self) -> str:
        return f"T = {self.temperature_:.4f} times a network of {self.hidden} hidden units"


def _positive(network: nn.Module, inputs: Tensor) -> Tensor:
    positive: Tensor = nn.functional.softplus(network(inputs)[:, 0]).clamp(min=FLOOR)
    return positive
