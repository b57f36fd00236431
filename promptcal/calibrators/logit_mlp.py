"""A temperature per row from a network of its logits."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.networks import as_tensor, mlp, put_weights, seeded, train, weights_of
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "logit_mlp")
class LogitMLP(Calibrator):
    """T(z) = softplus(MLP(z)) + 1e-6 with one hidden layer (GELU), trained for the NLL of softmax(z / T(z)).

    This is what the code of CalAttn (arXiv 2508.08547) runs under the name SATS; the published SATS is ``sats``. With
    its defaults a validation split of some thousand rows gives ten steps, from a T of about 0.69: raise ``epochs`` to
    train it.

    Args:
        hidden: width of the hidden layer.
        epochs: passes over the fitting split.
        batch: rows a step.
        learning_rate: of AdamW.
        seed: of weights and batches.

    Attributes:
        weights_: the network.

    The authors' code keeps the epoch of least ECE on the fitting split; here the last one is kept.

    >>> LogitMLP().transfers_to_new_classes
    False
    """

    name: ClassVar[str] = "logit_mlp"
    transfers_to_new_classes = False

    def __init__(
        self, hidden: int = 128, epochs: int = 10, batch: int = 4096, learning_rate: float = 1e-3, seed: int = 0
    ) -> None:
        self.hidden = hidden
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.seed = seed

    def _learn(self, predictions: Predictions) -> None:
        logits, labels = as_tensor(current_logits(predictions)), as_tensor(predictions.labels, torch.int64)
        with seeded(self.seed):
            network = self._network(logits.shape[1])

            def loss(logits: Tensor, labels: Tensor) -> Tensor:
                return nn.functional.cross_entropy(logits / _temperature(network, logits)[:, None], labels)

            optimiser = torch.optim.AdamW(network.parameters(), lr=self.learning_rate)
            train(network, loss, [logits, labels], optimiser=optimiser, epochs=self.epochs, batch=self.batch)
        self.weights_ = weights_of(network)

    def _network(self, classes: int) -> nn.Sequential:
        return mlp([classes, self.hidden, 1], nn.GELU)

    def _move(self, predictions: Predictions) -> Predictions:
        logits = as_tensor(current_logits(predictions))
        network = put_weights(self._network(logits.shape[1]), self.weights_)
        with torch.no_grad():
            return divide_rows(predictions, _temperature(network, logits).double().numpy())

    def _found(self) -> str:
        return f"a network of {self.hidden} hidden units, {self.epochs} epochs"


def _temperature(network: nn.Module, logits: Tensor) -> Tensor:
    temperature: Tensor = nn.functional.softplus(network(logits)[:, 0]) + 1e-6
    return temperature
