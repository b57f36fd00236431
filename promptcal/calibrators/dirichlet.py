"""Dirichlet calibration: an affine map of log-probabilities."""

from typing import ClassVar

from promptcal.calibrators.affine import Affine, best_penalty, fit_full
from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import log_probs, replace_logits
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "dirichlet")
class Dirichlet(Calibrator):
    """z' = W ln p + b minimising mean NLL + λ·(sum of W_kj², k ≠ j, / (C(C - 1)) + mean of b²).

    ln p is the log-softmax of the logits; probabilities that an earlier map has set are clipped at 1.2e-38.

    Args:
        penalty: λ. None: where the NLL of three-fold cross-validation on the fitting split stops falling, from
            10,000 down by factors of ten to 0.01.

    Attributes:
        penalty_: the λ that was used.
        weight_: W, [C, C].
        bias_: b, [C].

    Kull et al., "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with Dirichlet
    calibration", NeurIPS 2019, arXiv 1910.12656 (Dir-ODIR), with one λ for off-diagonal and intercept.

    >>> z = np.log(np.array([[0.9, 0.1]] * 4))
    >>> Dirichlet(penalty=0.0).fit(z, np.array([0, 0, 0, 1])).predict_proba(z[:1]).round(3)
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "dirichlet"
    transfers_to_new_classes = False
    keeps_argmax = False

    def __init__(self, penalty: float | None = None) -> None:
        self.penalty = penalty

    def _learn(self, predictions: Predictions) -> None:
        logs, labels = log_probs(predictions), predictions.labels
        self.penalty_ = best_penalty(logs, labels) if self.penalty is None else self.penalty
        self.weight_, self.bias_ = fit_full(logs, labels, self.penalty_)

    def _move(self, predictions: Predictions) -> Predictions:
        return replace_logits(predictions, Affine(self.weight_, self.bias_)(log_probs(predictions)))

    def _found(self) -> str:
        return f"penalty {self.penalty_:g}"
