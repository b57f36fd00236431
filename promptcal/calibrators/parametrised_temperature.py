"""Parametrised temperature scaling: a temperature per row from its largest logits."""

from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.networks import as_tensor, mlp, put_weights, seeded, weights_of
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.calibrators.temperature import best_temperature
from promptcal.config import register
from promptcal.errors import ConfigError
from promptcal.types import Predictions

LOWEST = 0.1
"""The smallest temperature."""


@register("calibrator", "parametrised_temperature")
class ParametrisedTemperature(Calibrator):
    """T(z) = |MLP(the K largest logits in descending order)|, trained for the Brier score of softmax(z / T(z)).

    The logits enter relative to the largest, which a softmax cannot see anyway, and standardised; a row with fewer than
    K classes repeats its smallest. The order of the classes does not matter, so the map may be applied to new ones.

    Args:
        top: K.
        hidden: width of each of the two hidden layers (ReLU).
        steps: most steps of L-BFGS on all rows at once, started at the T of temperature scaling.
        seed: of the initial weights.

    Attributes:
        weights_: the network.
        centre_: mean of the inputs, [K].
        spread_: their standard deviation, [K].

    Raises:
        ConfigError: at ``fit``, for K < 2.

    Tomani, Cremers, Buettner, "Parameterized Temperature Scaling for Boosting the Expressive Power in Post-Hoc
    Uncertainty Calibration", ECCV 2022, arXiv 2102.12182, where the raw logits enter and Adam takes 100,000 steps of
    1,000 rows.

    >>> ParametrisedTemperature(top=5).get_params()
    {'hidden': 5, 'seed': 0, 'steps': 50, 'top': 5}
    """

    name: ClassVar[str] = "parametrised_temperature"

    def __init__(self, top: int = 10, hidden: int = 5, steps: int = 50, seed: int = 0) -> None:
        self.top = top
        self.hidden = hidden
        self.steps = steps
        self.seed = seed

    def _learn(self, predictions: Predictions) -> None:
        if self.top < 2:
            raise ConfigError(f"top={self.top} leaves nothing to tell rows apart; take two logits or more.")
        logits = current_logits(predictions)
        largest = self._largest(logits)
        self.centre_ = largest.mean(axis=0)
        self.spread_ = np.where(largest.std(axis=0) > 0, largest.std(axis=0), 1.0)
        inputs, targets = as_tensor(self._inputs(logits), torch.float64), as_tensor(logits, torch.float64)
        truth = nn.functional.one_hot(as_tensor(predictions.labels, torch.int64), logits.shape[1])
        with seeded(self.seed), torch.no_grad():
            network = self._network()
            *_, weight, bias = network.parameters()
            weight.zero_()
            bias.fill_(best_temperature(logits, predictions.labels).temperature)
        optimiser = torch.optim.LBFGS(
            network.parameters(), max_iter=self.steps, tolerance_change=1e-12, line_search_fn="strong_wolfe"
        )

        def loss() -> Tensor:
            optimiser.zero_grad()
            probs = (targets / _temperature(network, inputs)[:, None]).softmax(dim=1)
            brier = (probs - truth).square().sum(dim=1).mean()
            brier.backward()  # type: ignore[no-untyped-call]
            return brier

        optimiser.step(loss)  # type: ignore[no-untyped-call]
        self.weights_ = weights_of(network)

    def _network(self) -> nn.Sequential:
        return mlp([self.top, self.hidden, self.hidden, 1], nn.ReLU).double()

    def _largest(self, logits: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n K"]:
        """The K largest logits of each row relative to the largest, in descending order."""
        descending = -np.sort(-logits, axis=1)[:, : self.top]
        padded = np.pad(descending, ((0, 0), (0, self.top - descending.shape[1])), mode="edge")
        result: np.ndarray = padded - padded[:, :1]
        return result

    def _inputs(self, logits: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n K"]:
        standard: np.ndarray = (self._largest(logits) - self.centre_) / self.spread_
        return standard

    def _move(self, predictions: Predictions) -> Predictions:
        network = put_weights(self._network(), self.weights_)
        with torch.no_grad():
            inputs = as_tensor(self._inputs(current_logits(predictions)), torch.float64)
            temperature = _temperature(network, inputs).numpy()
        return divide_rows(predictions, temperature)

    def _found(self) -> str:
        return f"a network of {self.top} logits"


def _temperature(network: nn.Module, inputs: Tensor) -> Tensor:
    temperature: Tensor = network(inputs)[:, 0].abs().clamp(min=LOWEST)
    return temperature
