"""MMCE: a kernel measure of miscalibration, and its form weighted by correctness."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.losses.reading import log_probabilities
from promptcal.types import Outputs

FORMS = ("squared", "root", "weighted", "weighted_released")
KERNELS = ("laplacian", "gaussian")
FLOOR = 1e-10
"""Added under the root, whose slope at 0 is infinite."""


@register("loss", "mmce")
@dataclass(frozen=True)
class MMCE:
    """M = Σ_ij w_i w_j (r_i − c_i)(r_j − c_j) k(c_i, c_j), a squared norm; c_i confidence, r_i 1 where correct, else 0.

    k(c, c') = exp(−|c − c'|/h). r and w have no gradient. The forms, for b samples of which m correct and n wrong:

        squared            w = 1/b, L = M
        root               w = 1/b, L = √M
        weighted           w = 1/m of the correct, 1/n of the wrong, L = √M; 0 where either is missing
        weighted_released  as weighted with w = 1/m² and 1/n²: the released torch code divides means once more

    Args:
        weight: 2, as Mukhoti et al. train with the weighted form.
        form: see above.
        bandwidth: h.
        kernel: ``laplacian`` as above, or ``gaussian`` for exp(−(c − c')²/(2h²)), which CalAttn's code has (with
            weight 0.1).

    Raises:
        ConfigError: an unknown form or kernel, or a bandwidth not above 0.

    References:
        Kumar, Sarawagi, Jain, "Trainable Calibration Measures for Neural Networks from Kernel Mean Embeddings", ICML
        2018 (PMLR 80); Mukhoti et al., "Calibrating Deep Neural Networks using Focal Loss", NeurIPS 2020,
        arXiv 2002.09437, whose unweighted code has no root and whose weighted code adds 1e-5 to its denominators (not
        done here) and 1e-10 under the root (done, for both roots).
    """

    weight: float = 2.0
    form: str = "squared"
    bandwidth: float = 0.4
    kernel: str = "laplacian"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ConfigError(unknown("form of MMCE", self.form, FORMS))
        if self.kernel not in KERNELS:
            raise ConfigError(unknown("kernel of MMCE", self.kernel, KERNELS))
        if not self.bandwidth > 0:
            raise ConfigError(f"bandwidth={self.bandwidth} of the kernel of MMCE must be above 0.")

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value of the batch."""
        log_confidence, predicted = log_probabilities(outputs).max(dim=1)
        confidence = log_confidence.exp()
        right = (predicted == labels).to(confidence.dtype)
        residual = self._weights(right) * (right - confidence)
        distance = (confidence[:, None] - confidence).abs() / self.bandwidth
        kernel = (-distance).exp() if self.kernel == "laplacian" else (-distance.square() / 2).exp()
        squared = (residual[:, None] * kernel * residual).sum()
        if self.form == "squared":
            return squared
        root = (squared.clamp_min(0) + FLOOR).sqrt()
        return torch.where(squared > 0, root, torch.zeros_like(root))

    def _weights(self, right: Float[Tensor, " b"]) -> Float[Tensor, " b"]:
        if self.form in ("squared", "root"):
            return torch.full_like(right, 1 / len(right))
        correct, wrong = right.sum(), (1 - right).sum()
        both = ((correct > 0) & (wrong > 0)).to(right.dtype)
        weights = right / correct.clamp_min(1) + (1 - right) / wrong.clamp_min(1)
        return both * (weights if self.form == "weighted" else weights.square())
