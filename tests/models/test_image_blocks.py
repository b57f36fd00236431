"""Blocks of a frozen ViT against open_clip's own."""

import pytest
import torch
from open_clip.transformer import CustomResidualAttentionBlock, QuickGELU, ResidualAttentionBlock
from torch import nn

from promptcal.models.image_blocks import frozen_block

BLOCKS = [
    (ResidualAttentionBlock, {"act_layer": QuickGELU}),
    (ResidualAttentionBlock, {"act_layer": nn.GELU, "ls_init_value": 0.3}),
    (CustomResidualAttentionBlock, {"act_layer": QuickGELU, "qk_norm": True}),
]


@pytest.mark.parametrize("first_only", [False, True])
@pytest.mark.parametrize(("kind", "settings"), BLOCKS)
def test_values_and_gradients_are_open_clips(kind, settings, first_only):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        block = kind(16, 4, **settings).double().eval().requires_grad_(False)
        x = torch.randn(3, 7, 16, dtype=torch.float64)
    ours, theirs = (x.clone().requires_grad_() for _ in range(2))
    found, expected = frozen_block(block, ours, first_only=first_only), block(theirs)
    expected = expected[:, :1] if first_only else expected
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    (found * found.detach().sin()).sum().backward()
    (expected * expected.detach().sin()).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-11, atol=1e-12)


def test_under_autocast_it_is_the_block_in_that_precision():
    block = ResidualAttentionBlock(16, 4, act_layer=QuickGELU).eval().requires_grad_(False)
    x = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = frozen_block(block, x), block(x)
    torch.testing.assert_close(found.float(), expected.float(), rtol=0.05, atol=0.05)
