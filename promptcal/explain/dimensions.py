"""Which dimensions of a classifier's input speak for a class, and masks that keep those that matter."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from promptcal.errors import ConfigError


def dimension_relevance(
    features: Float[Tensor, "n D"], weight: Float[Tensor, "C D"], classes: Int[Tensor, " n"]
) -> Float[Tensor, "n D"]:
    """The relevance of each dimension of a linear classifier's input for a class, by the α-rule (α = 1).

    r_d = (z_d w_cd)⁺ / Σ_k (z_k w_ck)⁺: never negative; the sum over dimensions is 1 (0 where nothing speaks for the
    class). What ``promptcal.explain.relevance`` gives at the classifier's input, without a pass through the model.
    """
    part = (features * weight[classes]).clamp(min=0)
    total = part.sum(dim=1, keepdim=True)
    return torch.where(total > 0, part / total.clamp(min=torch.finfo(total.dtype).tiny), 0)


def class_means(relevance: Float[Tensor, "n D"], classes: Int[Tensor, " n"], n_classes: int) -> Float[Tensor, "C D"]:
    """The mean relevance of each class's images; zero for a class without images."""
    sums = torch.zeros(n_classes, relevance.shape[1], dtype=relevance.dtype, device=relevance.device)
    sums.index_add_(0, classes, relevance)
    counts = torch.bincount(classes, minlength=n_classes).clamp(min=1)
    return sums / counts[:, None]


def dimension_masks(means: Float[Tensor, "C D"], keep: float = 0.9) -> Float[Tensor, "C D"]:
    """1 for the fewest dimensions that carry a share ``keep`` of a class's relevance, 0 for the others.

    A class without any relevance (no image of it was classified rightly) keeps all its dimensions.

    Raises:
        ConfigError: a share outside (0, 1].
    """
    if not 0 < keep <= 1:
        raise ConfigError(f"keep is {keep}; it is the share of relevance that a mask keeps, above 0 and at most 1.")
    sizes, order = means.abs().sort(dim=1, descending=True)
    before = sizes.cumsum(dim=1) - sizes
    total = sizes.sum(dim=1, keepdim=True)
    kept = ((before < keep * total) & (sizes > 0)) | (total == 0)
    return torch.zeros_like(means).scatter(1, order, kept.to(means.dtype))
