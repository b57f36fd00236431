import pytest
import torch
from torch import nn

from promptcal.errors import ConfigError
from promptcal.training.settings import Training


def test_adam_is_the_formula_of_its_paper():
    """m and v with β = 0.9 and 0.999, corrected; weight decay is added to the gradient, as PyTorch's Adam has it."""
    settings = Training(lr=0.1, weight_decay=0.01, algorithm="adam", epsilon=1e-3, warmup_epochs=0)
    parameter = nn.Parameter(torch.tensor([1.0, -2.0], dtype=torch.float64))
    optimiser = settings.optimiser([parameter])
    theta = parameter.detach().clone()
    m = v = torch.zeros(2, dtype=torch.float64)
    for t in range(1, 4):
        gradient = torch.tensor([0.3 * t, -1.0], dtype=torch.float64)
        parameter.grad = gradient.clone()
        optimiser.step()
        g = gradient + 0.01 * theta
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g.square()
        theta = theta - 0.1 * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-3)
        torch.testing.assert_close(parameter.detach(), theta, rtol=1e-12, atol=1e-12)


def test_the_multiplier_of_small_gradients_is_for_sgd():
    rates = {
        algorithm: Training(lr=0.1, lr_multiplier=10.0, warmup_epochs=0, algorithm=algorithm).lr_at(0)
        for algorithm in ("sgd", "adam")
    }
    assert rates == {"sgd": 1.0, "adam": 0.1}


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"unknown training.algorithm 'adan'. Did you mean 'adam'"):
        Training(algorithm="adan")
    with pytest.raises(ConfigError, match=r"training.epsilon is 0.0; it must be positive"):
        Training(epsilon=0.0)
