"""Text-moment matching of TCPT: the tuned class texts keep the mean and covariance of the frozen ones."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor

from promptcal.config import register
from promptcal.errors import ConfigError, unknown
from promptcal.losses.reading import tuned_texts
from promptcal.precision import outside_autocast, wide
from promptcal.types import ClassMoments, Outputs

PARTS = ("both", "mean", "covariance")


@register("loss", "text_moments")
@dataclass(frozen=True)
class TextMoments:
    """L = ‖μ − μ⁰‖² + ‖Σ − Σ⁰‖²_F over the C classes, of L2-normalised text features, tuned and frozen (zero-shot).

    Σ = Tcᵀ Tc / C with the class-centred features Tc [C, D] (divisor C); no division by D. Where C < D the Frobenius
    distance is taken from C × C Gram matrices of Tc, Fc and Δ = Tc − Fc,

        ‖Σ − Σ⁰‖²_F = (⟨Tc Tcᵀ, ΔΔᵀ⟩ + 2⟨ΔFcᵀ, TcΔᵀ⟩ + ⟨Fc Fcᵀ, ΔΔᵀ⟩) / C²,

    the same number without cancellation near Tc = Fc; otherwise from the D × D form. Where the text features depend on
    the image, the term is taken per image and averaged.

    Args:
        weight: λ, 5.0 in the authors' code.
        part: ``both``, or for ablation ``mean`` (the first summand alone) or ``covariance`` (the second).

    Raises:
        ConfigError: a single class, whose covariance says nothing, or an unknown part.

    References:
        Sharifdeen et al. (TCPT), CVPR 2026, arXiv 2602.19024. Deviation: computed in float32, since the released code
        squares float16 differences, most of which underflow.
    """

    weight: float = 5.0
    part: str = "both"
    needs: ClassVar[frozenset[str]] = frozenset()
    replaces_cross_entropy: ClassVar[bool] = False
    of_text: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise ConfigError(unknown("part of the text moments", self.part, PARTS))

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The value for the current class list; the labels are not read."""
        del labels
        text = tuned_texts(outputs)
        with outside_autocast(text.device):
            tuned = ClassMoments.of(text)
            frozen = outputs.zero_shot_moments or ClassMoments.of(wide(outputs.require("zero_shot_text_features")))
            mean = (tuned.mean - frozen.mean).square().sum(dim=-1)
            if self.part == "mean":
                return mean.mean()
            covariance = covariance_distance(tuned, frozen)
            return (covariance if self.part == "covariance" else mean + covariance).mean()


def covariance_distance(tuned: ClassMoments, frozen: ClassMoments) -> Float[Tensor, "..."]:
    """‖Σ_T − Σ_F‖²_F of the class covariances (divisor C), by the cheaper of the Gram and the D × D form."""
    classes, width = frozen.centred.shape
    if classes >= width:
        return (tuned.gram - frozen.gram).square().sum(dim=(-2, -1)) / classes**2
    t, f = tuned.centred, frozen.centred
    delta = t - f
    products = (tuned.gram + frozen.gram) * (delta @ delta.mT) + 2 * (delta @ f.mT) * (t @ delta.mT)
    return products.sum(dim=(-2, -1)) / classes**2
