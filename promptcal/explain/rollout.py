"""Attention rollout: how much of each token reaches each other through all blocks up to a depth."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from promptcal.explain.recording import record


def attention_maps(model: nn.Module, pixels: Float[Tensor, "b c h w"]) -> Float[Tensor, "L b H N N"]:
    """The attention of every block and head, rows sum to 1; the model computes as ever, fused attention included.

    Raises:
        ConfigError: a model without one attention map a block (Swin, a CNN, blocks with parallel attention).
    """
    return torch.stack(record(model, pixels).maps())


def rollout(attention: Float[Tensor, "L b H N N"]) -> Float[Tensor, "L b N N"]:
    """R_l = Â_l R_{l−1} with R_0 = I and Â = (mean over heads of A + I), each row divided by its sum.

    Entry [l, i, q, k] is the share of token k at the input in token q after block l + 1 of image i; rows sum to 1.
    It knows nothing of values, norms and MLPs.

    References:
        Abnar and Zuidema, "Quantifying Attention Flow in Transformers", ACL 2020, arXiv 2005.00928.
    """
    mixed = attention.mean(dim=2) + torch.eye(attention.shape[-1], dtype=attention.dtype, device=attention.device)
    mixed = mixed / mixed.sum(dim=-1, keepdim=True)
    flow = [mixed[0]]
    for step in mixed[1:]:
        flow.append(step @ flow[-1])
    return torch.stack(flow)
