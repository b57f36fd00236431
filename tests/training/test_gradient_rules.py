"""Gradient rules against their formulas, tensor by tensor."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from promptcal.config import build, compose
from promptcal.errors import ConfigError
from promptcal.training.gradient_rules import GradientRule, ProGrad, Sum


def two_losses(seed):
    generator = torch.Generator().manual_seed(seed)
    parameters = [torch.randn(3, 4, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]
    weights = [torch.randn(3, 4, generator=generator, dtype=torch.float64) for _ in range(4)]
    task = sum(((w * p).sin().sum() for w, p in zip(weights, parameters, strict=False)), torch.zeros(()))
    general = sum(((w * p).square().sum() for w, p in zip(weights[2:], parameters, strict=True)), torch.zeros(()))
    return parameters, task, general


@given(st.integers(0, 200), st.floats(0.1, 2.0))
@settings(deadline=None, max_examples=40)
def test_prograd_equals_its_formula_on_each_tensor(seed, strength):
    parameters, task, general = two_losses(seed)
    g_task = torch.autograd.grad(task, parameters, retain_graph=True)
    g_general = torch.autograd.grad(general, parameters, retain_graph=True)
    ProGrad(guide="distillation", strength=strength)({"cross_entropy": task, "distillation": general}, parameters)
    for parameter, a, b in zip(parameters, g_task, g_general, strict=True):
        along = torch.dot(a.flatten(), b.flatten()) / b.norm()
        expected = a if along >= 0 else a - strength * along * b / b.norm()
        torch.testing.assert_close(parameter.grad, expected, rtol=1e-12, atol=1e-12)
        if strength == 1 and along < 0:
            assert abs(float((parameter.grad * b).sum())) < 1e-9


def test_a_conflict_is_projected_per_tensor_and_agreement_is_left_alone():
    x, y = (torch.ones(2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    task = (torch.tensor([3.0, 4.0]) * x).sum() + (torch.tensor([1.0, 2.0]) * y).sum()
    general = (torch.tensor([-1.0, 0.0]) * x).sum() + (torch.tensor([1.0, 0.0]) * y).sum()
    ProGrad()({"cross_entropy": task, "distillation": general}, [x, y])
    assert x.grad.tolist() == [0.0, 4.0]
    assert y.grad.tolist() == [1.0, 2.0]


def test_a_guide_without_gradient_changes_nothing():
    x = torch.ones(2, requires_grad=True)
    ProGrad()({"cross_entropy": (2 * x).sum(), "distillation": (0 * x).sum()}, [x])
    assert x.grad.tolist() == [2.0, 2.0]
    y = torch.ones(2, requires_grad=True)
    ProGrad()({"cross_entropy": (2 * y).sum(), "distillation": x.sum()}, [y])
    assert y.grad.tolist() == [2.0, 2.0]


def test_batches_add_up():
    for rule in (Sum(), ProGrad()):
        x = torch.ones(2, requires_grad=True)
        for _ in range(2):
            rule({"cross_entropy": (2 * x).sum(), "distillation": x.sum() * 0}, [x])
        assert x.grad.tolist() == [4.0, 4.0]


def test_prograd_needs_its_guide_and_something_to_guide():
    with pytest.raises(ConfigError, match=r"unknown gradient_rule.guide 'distilation'. Did you mean 'distillation'"):
        ProGrad(guide="distilation").check(["cross_entropy", "distillation"])
    with pytest.raises(ConfigError, match="the only loss term"):
        ProGrad().check(["distillation"])


def test_rules_are_chosen_by_name():
    assert isinstance(build(compose(["gradient_rule=prograd"]).gradient_rule), ProGrad)
    assert isinstance(build(compose([]).gradient_rule), GradientRule)
