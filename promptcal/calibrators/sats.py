"""Sample-dependent adaptive temperature scaling: a temperature per row from a class-conditional autoencoder."""

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Laplace, Normal, kl_divergence

from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.networks import as_tensor, mlp, put_weights, seeded, train, weights_of
from promptcal.calibrators.rewrite import current_logits, divide_rows
from promptcal.config import register
from promptcal.types import Predictions

SMALLEST = 1e-3
"""The smallest standard deviation and the smallest temperature."""


@register("calibrator", "sats")
class SATS(Calibrator):
    """T(f) = max(softplus(MLP(ln p(z | y = k) for every class k)), 1e-3), with z encoded from the image feature f.

    A variational autoencoder of the features (Laplace likelihood of scale 1, and a normal prior of z for each class)
    and the temperature head are trained together for -ELBO(f, y) + NLL of softmax(logits / T(f)), by Adam.

    Args:
        latent: width of z.
        hidden: widths of the encoder's hidden layers; the decoder's are the same in reverse.
        head: widths of the temperature head's hidden layers.
        epochs: passes over the fitting split.
        batch: rows a step.
        learning_rate: of Adam.
        draw: draw z at transform, as the authors' code does. By default its mean is taken, so that the temperature of a
            row depends on neither chance nor the other rows.
        seed: of weights, batches and draws.

    Attributes:
        weights_: the networks.

    Joy, Pinto, Lim, Torr, Dokania, "Sample-dependent Adaptive Temperature Scaling for Improved Calibration", AAAI 2023,
    arXiv 2207.06211.

    >>> sorted(SATS().needs)
    ['image_features']
    """

    name: ClassVar[str] = "sats"
    transfers_to_new_classes = False
    needs = frozenset({"image_features"})

    def __init__(
        self,
        latent: int = 16,
        hidden: tuple[int, ...] | list[int] = (1024, 512, 512),
        head: tuple[int, ...] | list[int] = (128, 128),
        epochs: int = 100,
        batch: int = 128,
        learning_rate: float = 5e-4,
        draw: bool = False,
        seed: int = 0,
    ) -> None:
        self.latent = latent
        self.hidden = hidden
        self.head = head
        self.epochs = epochs
        self.batch = batch
        self.learning_rate = learning_rate
        self.draw = draw
        self.seed = seed

    def _learn(self, predictions: Predictions) -> None:
        features = as_tensor(predictions.require("image_features"))
        logits, labels = as_tensor(current_logits(predictions)), as_tensor(predictions.labels, torch.int64)
        with seeded(self.seed):
            network = self._network(features.shape[1], logits.shape[1])
            optimiser = torch.optim.Adam(network.parameters(), lr=self.learning_rate)
            tensors = [features, logits, labels]
            train(network, network.loss, tensors, optimiser=optimiser, epochs=self.epochs, batch=self.batch)
        self.weights_ = weights_of(network)

    def _network(self, width: int, classes: int) -> "_ConditionalAutoencoder":
        return _ConditionalAutoencoder(width, classes, self.latent, tuple(self.hidden), tuple(self.head))

    def _move(self, predictions: Predictions) -> Predictions:
        features = as_tensor(predictions.require("image_features"))
        network = self._network(features.shape[1], predictions.logits.shape[1])
        put_weights(network, self.weights_)
        with torch.no_grad(), seeded(self.seed):
            posterior = network.encode(features)
            latent = posterior.rsample() if self.draw else posterior.mean
            temperature: np.ndarray = network.temperature(latent).double().numpy()
        return divide_rows(predictions, temperature)

    def _found(self) -> str:
        return f"an autoencoder of {self.latent} latent numbers, {self.epochs} epochs"


class _ConditionalAutoencoder(nn.Module):
    """Encoder, decoder, a prior for each class, and the temperature head."""

    def __init__(self, width: int, classes: int, latent: int, hidden: tuple[int, ...], head: tuple[int, ...]) -> None:
        super().__init__()
        self.encoder = mlp([width, *hidden], nn.ELU)
        self.mean = nn.Linear(hidden[-1], latent)
        self.deviation = nn.Linear(hidden[-1], latent)
        self.decoder = mlp([latent, *reversed(hidden), width], nn.ELU)
        self.prior_mean = nn.Linear(classes, latent, bias=False)
        self.prior_deviation = nn.Linear(classes, latent, bias=False)
        self.head = mlp([classes, *head, 1], nn.ELU)

    def encode(self, features: Tensor) -> Normal:
        """The posterior of z, [b, latent]."""
        hidden = nn.functional.softplus(self.encoder(features))
        return Normal(self.mean(hidden), nn.functional.softplus(self.deviation(hidden)).clamp(min=SMALLEST))

    def priors(self) -> Normal:
        """The prior of z for each class, [C, latent]."""
        deviation = nn.functional.softplus(self.prior_deviation.weight.T).clamp(min=SMALLEST)
        return Normal(self.prior_mean.weight.T, deviation)

    def temperature(self, latent: Tensor) -> Tensor:
        """T of each row, [b]."""
        likelihoods = self.priors().log_prob(latent[:, None, :]).sum(dim=2)  # type: ignore[no-untyped-call]
        temperature: Tensor = nn.functional.softplus(self.head(likelihoods)[:, 0]).clamp(min=SMALLEST)
        return temperature

    def loss(self, features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """-ELBO(f, y) + NLL of the scaled logits, mean over the batch."""
        posterior, priors = self.encode(features), self.priors()
        latent = posterior.rsample()
        decoded = Laplace(self.decoder(latent), 1.0)
        reconstruction = decoded.log_prob(features).sum(dim=1)  # type: ignore[no-untyped-call]
        prior = Normal(priors.loc[labels], priors.scale[labels])
        divergence = kl_divergence(posterior, prior).sum(dim=1)
        nll = nn.functional.cross_entropy(logits / self.temperature(latent)[:, None], labels)
        loss: Tensor = (divergence - reconstruction).mean() + nll
        return loss
