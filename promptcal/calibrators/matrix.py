"""Matrix scaling with off-diagonal and intercept regularisation (ODIR)."""

from typing import ClassVar

from promptcal.calibrators.affine import Affine, best_penalty, fit_full
from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import current_logits, replace_logits
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "matrix")
class MatrixScaling(Calibrator):
    """z' = W z + b minimising mean NLL + λ·(sum of W_kj², k ≠ j, / (C(C - 1)) + mean of b²).

    A constant added to all logits of a row matters to this map, as it does not to a softmax; see ``dirichlet``.

    Args:
        penalty: λ. None: where the NLL of three-fold cross-validation on the fitting split stops falling, from
            10,000 down by factors of ten to 0.01.

    Attributes:
        penalty_: the λ that was used.
        weight_: W, [C, C].
        bias_: b, [C].

    Kull et al., "Beyond temperature scaling: Obtaining well-calibrated multi-class probabilities with Dirichlet
    calibration", NeurIPS 2019, arXiv 1910.12656 (MS-ODIR). There λ of the off-diagonal and μ of the intercept may
    differ; here they are one. Code that does not divide by C(C - 1) and C needs other values of λ.

    >>> z = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> MatrixScaling(penalty=0.0).fit(z, np.array([0, 0, 0, 1])).predict_proba(z[:1]).round(3)
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "matrix"
    transfers_to_new_classes = False
    keeps_argmax = False

    def __init__(self, penalty: float | None = None) -> None:
        self.penalty = penalty

    def _learn(self, predictions: Predictions) -> None:
        logits, labels = current_logits(predictions), predictions.labels
        self.penalty_ = best_penalty(logits, labels) if self.penalty is None else self.penalty
        self.weight_, self.bias_ = fit_full(logits, labels, self.penalty_)

    def _move(self, predictions: Predictions) -> Predictions:
        return replace_logits(predictions, Affine(self.weight_, self.bias_)(current_logits(predictions)))

    def _found(self) -> str:
        return f"penalty {self.penalty_:g}"
