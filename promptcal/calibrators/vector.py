"""Vector scaling: one slope and one intercept for each class."""

from typing import ClassVar

from promptcal.calibrators.affine import Affine, fit_diagonal
from promptcal.calibrators.contract import Calibrator
from promptcal.calibrators.rewrite import current_logits, replace_logits
from promptcal.config import register
from promptcal.types import Predictions


@register("calibrator", "vector")
class VectorScaling(Calibrator):
    """z'_k = w_k·z_k + b_k with the w, b of least mean NLL (convex; L-BFGS from w = 1, b = 0, no penalty).

    A constant added to all logits of a row matters to this map, as it does not to a softmax.

    Attributes:
        weight_: w, [C].
        bias_: b, [C].

    Guo, Pleiss, Sun, Weinberger, "On Calibration of Modern Neural Networks", ICML 2017, arXiv 1706.04599.

    >>> z = np.array([[2.0, 0.0], [2.0, 0.0], [2.0, 0.0], [2.0, 0.0]])
    >>> VectorScaling().fit(z, np.array([0, 0, 0, 1])).predict_proba(z[:1]).round(3)
    array([[0.75, 0.25]])
    """

    name: ClassVar[str] = "vector"
    transfers_to_new_classes = False
    keeps_argmax = False

    def _learn(self, predictions: Predictions) -> None:
        self.weight_, self.bias_ = fit_diagonal(current_logits(predictions), predictions.labels)

    def _move(self, predictions: Predictions) -> Predictions:
        return replace_logits(predictions, Affine(self.weight_, self.bias_)(current_logits(predictions)))

    def _found(self) -> str:
        return f"{len(self.bias_)} slopes from {self.weight_.min():.3f} to {self.weight_.max():.3f}"
