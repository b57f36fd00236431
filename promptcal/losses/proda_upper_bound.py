"""ProDA's loss: an upper bound on the expected cross-entropy over a distribution of prompts."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from promptcal.config import register
from promptcal.precision import wide
from promptcal.types import Outputs


@register("loss", "proda_upper_bound")
@dataclass(frozen=True)
class ProdaUpperBound:
    """L = CE(z + ½·s²·σ, y) with σ_ic = Σ_d f_id² · Var_d(t_y − t_c), in nats; it stands in for cross-entropy.

    t_pcd are the unit text features of the P prompts of a step, Var_d the sum over p of the squared, centred difference
    divided by P + 1, f the unit image feature, s the logit scale, and z the logits of the mean text features, which are
    not normalised again. σ comes from σ_ic = Σ_d f_id² (V_yd + V_cd) − 2/(P + 1)·Σ_pd f_id² a_pyd a_pcd, with a the
    centred features and V their variance: no tensor is larger than b·P·D or b·C, where the released code fills D·C².

    Args:
        weight: of the term.

    References:
        Lu, Liu, Zhang, Liu, Tian, "Prompt Distribution Learning", CVPR 2022, arXiv 2205.03340, proposition 1; the
        divisor P + 1 is that of the released code. The covariance is diagonal over the feature's dimensions there, too.
    """

    weight: float = 1.0
    needs: ClassVar[frozenset[str]] = frozenset({"prompt_features"})
    replaces_cross_entropy: ClassVar[bool] = True
    of_text: ClassVar[bool] = True

    def __call__(self, outputs: Outputs, labels: Int[Tensor, " b"]) -> Float[Tensor, ""]:
        """The mean over the batch."""
        each = wide(outputs.require("prompt_features"))
        centred = each - each.mean(dim=0)
        divisor = len(each) + 1
        squares = wide(outputs.image_features).square()
        variance = squares @ (centred.square().sum(dim=0) / divisor).T
        cross = torch.einsum("bd,pbd,pcd->bc", squares, centred[:, labels], centred) / divisor
        own = variance.gather(1, labels[:, None])
        sigma = own + variance - 2 * cross
        return cross_entropy(wide(outputs.logits) + 0.5 * outputs.logit_scale**2 * sigma, labels)
