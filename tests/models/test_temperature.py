"""Heads against the equations of their papers, recomputed here."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from promptcal.config import build, options
from promptcal.errors import ConfigError
from promptcal.models.temperature import CalAttn, DirichletAlpha, GlobalScale, NormOnly, scale
from promptcal.types import ClassNames

CLASSES = ClassNames(("a", "b", "c", "d", "e"))


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def moved(head, seed=3):
    """The head after some training: every tensor away from its start."""
    source = generator(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=source))
    return head


def every_head(width=12, mode="joint"):
    return {
        "calattn": CalAttn(width, generator(), mode=mode),
        "norm": NormOnly(width, generator(), mode=mode),
        "global": GlobalScale(mode=mode),
        "dirichlet": DirichletAlpha(width, CLASSES, generator(), mode=mode),
    }


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 33, 1000])
@pytest.mark.parametrize("name", ["calattn", "norm", "global"])
def test_a_head_starts_at_exactly_one_and_leaves_the_logits_as_they_are(name, rows):
    features = 30 * torch.randn(rows, 12, generator=generator(1))
    logits = 100 * torch.randn(rows, 5, generator=generator(2))
    scaled = scale(every_head()[name], features, logits)
    assert scaled.temperature.dtype == torch.float32
    assert torch.equal(scaled.temperature, torch.ones(rows))
    assert torch.equal(scaled.logits / scaled.temperature[:, None], logits)


def test_calattn_is_its_formula():
    head = moved(CalAttn(12, generator()))
    z = torch.randn(40, 12, generator=generator(1))
    w1, b1, w2, b2 = (p.detach().double().numpy() for p in head.parameters())
    inner = z.double().numpy() @ w1.T + b1
    erf = np.vectorize(math.erf)
    gelu = inner * 0.5 * (1 + erf(inner / math.sqrt(2)))
    expected = np.log1p(np.exp(gelu @ w2[0] + b2[0]))
    np.testing.assert_allclose(head(z).detach().numpy(), expected, rtol=2e-6)
    assert np.std(expected) > 0.01
    with torch.no_grad():
        head.outer.bias.fill_(-50.0)
    assert torch.equal(head(z), torch.full((40,), 1e-3))


def test_heads_compute_in_float32_under_autocast():
    z = torch.randn(6, 12, generator=generator(1))
    for name, head in every_head().items():
        moved(head)
        plain = head(z)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(head(z), plain), name
        assert plain.dtype == torch.float32


@pytest.mark.parametrize("hidden", [16, 32, 64, 128])
def test_the_number_of_parameters(hidden):
    for width in (384, 768):
        count = sum(parameter.numel() for parameter in CalAttn(width, hidden=hidden).parameters())
        assert count == hidden * (width + 2) + 1


def test_the_gradient_of_the_temperature_has_the_sign_of_the_mistake():
    """dL/ds of CE + λ·Brier: −(1/s²) Σ_j l_j [D_j + 2λp_j(D_j − Σ_c p_c D_c)], D = p − e."""
    weight = 0.1

    def gradient(logits, label, s):
        s = torch.tensor(s, dtype=torch.float64, requires_grad=True)
        u = logits / s
        p = torch.softmax(u, dim=0)
        loss = functional.cross_entropy(u[None], torch.tensor([label]))
        loss = loss + weight * ((p - functional.one_hot(torch.tensor(label), len(p))) ** 2).sum()
        loss.backward()
        return float(s.grad)

    def formula(logits, label, s):
        p = torch.softmax(logits / s, dim=0).numpy()
        d = p - np.eye(len(p))[label]
        return float(-(logits.numpy() * (d + 2 * weight * p * (d - (p * d).sum()))).sum() / s**2)

    source = generator(5)
    for _ in range(20):
        logits = 3 * torch.randn(4, generator=source, dtype=torch.float64)
        label, s = int(torch.randint(4, (), generator=source)), 0.3 + 2 * float(torch.rand((), generator=source))
        assert gradient(logits, label, s) == pytest.approx(formula(logits, label, s), rel=1e-9, abs=1e-12)
    wrong = torch.tensor([8.0, 0.0, 0.0], dtype=torch.float64)
    assert gradient(wrong, 1, 1.0) < 0  # wrong and sure: descent raises s
    assert gradient(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64), 0, 1.0) > 0  # right and unsure: it falls


@pytest.mark.parametrize("name", ["calattn", "norm", "global", "dirichlet"])
@pytest.mark.parametrize("mode", ["joint", "stop_z", "separate"])
def test_gradients_reach_what_the_mode_says(name, mode):
    head = moved(every_head(mode=mode)[name])
    z = torch.randn(6, 12, generator=generator(1), requires_grad=True)
    logits = torch.randn(6, 5, generator=generator(2), requires_grad=True)
    labels = torch.arange(6) % 5

    def loss(scaled):
        divided = scaled.logits if scaled.temperature is None else scaled.logits / scaled.temperature[:, None]
        return functional.cross_entropy(divided, labels)

    scaled = scale(head, z, logits, training=True)
    (plain,) = torch.autograd.grad(functional.cross_entropy(logits, labels), logits)
    if mode == "separate":
        to_model = torch.autograd.grad(loss(scaled), [logits, z, *head.parameters()], allow_unused=True)
        assert torch.equal(to_model[0], plain)
        assert all(gradient is None for gradient in to_model[1:])
        scaled = scaled.apart
    to_logits, to_z, *to_head = torch.autograd.grad(loss(scaled), [logits, z, *head.parameters()], allow_unused=True)
    assert all(gradient is not None and gradient.abs().max() > 0 for gradient in to_head)
    reaches_logits = mode != "separate" and not head.replaces_logits
    assert (to_logits is not None) == reaches_logits
    assert (to_z is not None) == (mode == "joint" and name != "global")
    if reaches_logits:
        assert not torch.allclose(to_logits, plain)  # divided by s, at the divided logits


def test_the_alpha_head_answers_with_the_mean_of_a_dirichlet():
    head = moved(DirichletAlpha(12, CLASSES, generator()))
    z = torch.randn(9, 12, generator=generator(1))
    inner = functional.gelu(z @ head.inner.weight.T + head.inner.bias)
    alpha = 1 + torch.log1p(torch.exp(inner @ head.outer.weight.T + head.outer.bias))
    torch.testing.assert_close(torch.softmax(head(z), 1), alpha / alpha.sum(1, keepdim=True))
    scaled = scale(head, z, torch.zeros(9, 5))
    assert scaled.temperature is None
    assert torch.equal(scaled.logits, head(z))


def test_the_norm_head_sees_the_norm_alone():
    head = moved(NormOnly(12, generator()))
    z = torch.randn(9, 12, generator=generator(1))
    rotation, _ = torch.linalg.qr(torch.randn(12, 12, generator=generator(2)))
    torch.testing.assert_close(head(z), head(z @ rotation), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(head(z), head(2 * z), rtol=1e-3)


def test_the_same_generator_gives_the_same_head_whatever_torch_drew_before():
    first = CalAttn(12, generator(7)).state_dict()
    torch.rand(5)
    second = CalAttn(12, generator(7)).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    bound = 12**-0.5
    assert 0.8 * bound < first["inner.weight"].abs().max() <= bound


def test_heads_are_built_by_name_and_refuse_what_cannot_be():
    assert {"calattn", "calattn_64", "calattn_128", "calattn_released", "norm", "global", "dirichlet"} <= set(
        options("head")
    )
    target = "promptcal.models.temperature.CalAttn"
    head = build({"_target_": target, "hidden": 8}, width=12, generator=generator(), classes=CLASSES)
    assert sum(parameter.numel() for parameter in head.parameters()) == 8 * 14 + 1
    for wrong, word in (({"mode": "join"}, "joint"), ({"floor": 0.0}, "floor"), ({"start": "on"}, "one")):
        with pytest.raises(ConfigError, match=word):
            build({"_target_": target, **wrong}, width=12)
    released = CalAttn(768, generator(), hidden=128, floor=1e-6, start="torch")
    z = functional.layer_norm(torch.randn(512, 768, generator=generator(1)), (768,))
    assert 0.5 < float(released(z).detach().mean()) < 0.85
