import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from promptcal.models.causal_attention import CausalAttention, QuickMlp, Segment

GROUPS, BLOCKS, SIZE, TRUNK, STEM, HEADS, HEAD = 2, 3, 4, 2, 1, 2, 3
WIDTH, ROWS, CONSTANTS = HEADS * HEAD, TRUNK + BLOCKS * SIZE, 2


def additive(seen):
    return torch.zeros(seen.shape, dtype=torch.float64).masked_fill_(~seen, -torch.inf)[:, None]


def scene():
    """Three blocks that see constants, two trunk rows and their own past; and the trunk with its own past."""
    generator = torch.Generator().manual_seed(0)
    packed = torch.randn(GROUPS, ROWS, 3 * WIDTH, generator=generator, dtype=torch.float64, requires_grad=True)
    constants = torch.randn(2, 1, BLOCKS, HEADS, CONSTANTS, HEAD, generator=generator, dtype=torch.float64)
    past = torch.ones(SIZE, SIZE).tril().bool().expand(BLOCKS, SIZE, SIZE)
    seen = torch.cat([torch.ones(BLOCKS, SIZE, CONSTANTS + TRUNK).bool(), past], 2)
    trunk = torch.ones(1, TRUNK, STEM + TRUNK).tril(STEM).bool()
    segments = (
        Segment(slice(TRUNK, ROWS), TRUNK, slice(TRUNK, ROWS), CONSTANTS, additive(seen)),
        Segment(slice(0, TRUNK), 0, slice(0, TRUNK), STEM, additive(trunk)),
    )
    return packed, (constants, constants[:, :, :1, :, :STEM]), segments


def by_torch(packed, constants, segments):
    """The same attention, block after block, by torch's own function and autograd."""
    q, k, v = packed.view(GROUPS, ROWS, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4)
    fixed_k, fixed_v = (constants[0][side].transpose(0, 1).expand(-1, GROUPS, -1, -1, -1) for side in (0, 1))
    trunk = scaled_dot_product_attention(
        q[:, :, :TRUNK],
        torch.cat([fixed_k[0][:, :, :STEM], k[:, :, :TRUNK]], 2),
        torch.cat([fixed_v[0][:, :, :STEM], v[:, :, :TRUNK]], 2),
        attn_mask=segments[1].mask,
    )
    parts = [trunk]
    for block in range(BLOCKS):
        rows = slice(TRUNK + block * SIZE, TRUNK + (block + 1) * SIZE)
        keys = torch.cat([fixed_k[block], k[:, :, :TRUNK], k[:, :, rows]], 2)
        values = torch.cat([fixed_v[block], v[:, :, :TRUNK], v[:, :, rows]], 2)
        parts.append(scaled_dot_product_attention(q[:, :, rows], keys, values, attn_mask=segments[0].mask[block]))
    return torch.cat(parts, 2).transpose(1, 2).flatten(2)


def test_attention_equals_torchs_own_and_so_does_its_gradient():
    packed, constants, segments = scene()
    got, expected = (
        CausalAttention.apply(packed, None, constants, segments, HEADS),
        by_torch(packed, constants, segments),
    )
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    upstream = torch.randn(got.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradients = [torch.autograd.grad((out * upstream).sum(), packed)[0] for out in (got, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_queries_of_chosen_rows_attend_like_all_rows():
    packed, constants, (blocks, _) = scene()
    chosen = torch.tensor([1, 3])
    rows = (TRUNK + SIZE * torch.arange(BLOCKS)[:, None] + chosen).flatten()
    segment = Segment(slice(0, len(rows)), TRUNK, blocks.own, CONSTANTS, blocks.mask[:, :, chosen])
    query, keys = packed[:, rows, :WIDTH], packed[:, :, WIDTH:].contiguous()
    got = CausalAttention.apply(keys, query, constants[:1], (segment,), HEADS)
    expected = by_torch(packed, constants, scene()[2])[:, rows]
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(out.square().sum(), packed)[0] for out in (got, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("leading", [(5,), (2, 3)])
def test_quick_mlp_equals_its_formula_and_so_does_its_gradient(leading):
    generator = torch.Generator().manual_seed(0)
    x, up, up_bias, down, down_bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64)
        for shape in ((*leading, 4), (7, 4), (7,), (4, 7), (4,))
    )
    x.requires_grad_()
    inner = x @ up.T + up_bias
    expected = (inner * torch.sigmoid(1.702 * inner)) @ down.T + down_bias
    got = QuickMlp.apply(x, up, up_bias, down, down_bias)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    gradients = [torch.autograd.grad(out.square().sum(), x)[0] for out in (got, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-12)


def test_a_second_derivative_is_refused_rather_than_wrong():
    packed, constants, segments = scene()
    (first,) = torch.autograd.grad(
        CausalAttention.apply(packed, None, constants, segments, HEADS).square().sum(), packed, create_graph=True
    )
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
