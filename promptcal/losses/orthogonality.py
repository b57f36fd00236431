"""The orthogonality of O-TPT: class texts at right angles to one another."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import normalize

from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.losses.reading import tuned_texts
from promptcal.precision import outside_autocast
from promptcal.types import Outputs

FORMS = ("row_norm", "frobenius")


@register("loss", "text_orthogonality")
@dataclass(frozen=True)
class TextOrthogonality:
    """How far the Gram matrix G = T Tᵀ of the L2-normalised tuned class texts is from the identity.

        row_norm    L = mean_c (‖G_c‖ − 1) = mean_c (√(1 + Σ_{k≠c} cos²(T_c, T_k)) − 1)
        frobenius   L = ‖G − I‖²_F = Σ_{c≠k} cos²(T_c, T_k)

    Where the text features depend on the image, the mean runs over images.

    Args:
        weight: λ; 18 in the paper's fine-grained scripts and 2 for shifted ImageNets, both for tuning at test time.
        form: ``frobenius`` is the paper's equation, a sum that grows with the square of the number of classes;
            ``row_norm`` is what the released code, and with it the published λ, comes to. That code builds Householder
            reflections of the rows of G, which send each to its norm times a unit vector: the same number as here, at a
            cost that grows with C³, and NaN for rows that are orthogonal already.

    Raises:
        ConfigError: an unknown form.

    References:
        Sharifdeen et al., "O-TPT: Orthogonality Constraints for Calibrating Test-time Prompt Tuning in Vision-Language
        Models", CVPR 2025, arXiv 2503.12096, where it stands beside the entropy of one test image; here beside the loss
        of a training batch.
    """

    weight: float = 18.0
    form: str = "row_norm"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.form not in FORMS:
            raise ConfigError(unknown("form of orthogonality", self.form, FORMS))

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the current class list; the labels are not read."""
        del labels
        text = normalize(tuned_texts(outputs), dim=-1)
        with outside_autocast(text.device):
            squares = (text @ text.mT).square()
        rows = squares.sum(dim=-1) - squares.diagonal(dim1=-2, dim2=-1)
        if self.form == "frobenius":
            return rows.sum(dim=-1).mean()
        return (rows / ((1 + rows).sqrt() + 1)).mean()
