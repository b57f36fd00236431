"""A batch of random outputs, in any width of float, with every field that a loss term may read."""

import pytest
import torch
from torch.nn.functional import normalize

from promptcal.types import Outputs


@pytest.fixture(scope="session")
def random_outputs():
    """A function that makes random outputs and labels; text features and logits are leaves that take a gradient."""

    def make(b=6, classes=5, width=8, *, seed=0, dtype=torch.float64, scale=20.0, per_image=False, divided=False):
        generator = torch.Generator().manual_seed(seed)

        def unit(*shape):
            return normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1).to(dtype)

        image, frozen = unit(b, width), unit(classes, width)
        text = unit(b, classes, width) if per_image else unit(classes, width)
        near = normalize(frozen + 0.4 * text, dim=-1)
        logits = scale * (torch.einsum("bd,bcd->bc", image, near) if per_image else image @ near.T)
        labels = torch.randint(classes, (b,), generator=generator)
        temperature = 0.5 + torch.rand(b, generator=generator, dtype=torch.float64) if divided else None
        outputs = Outputs(
            logits=logits.detach().requires_grad_(),
            image_features=image,
            text_features=near.detach().requires_grad_(),
            zero_shot_text_features=frozen,
            logit_scale=scale,
            learns_text=True,
            temperature=None if temperature is None else temperature.to(dtype),
            zero_shot_image_features=image,
        )
        return outputs, labels

    return make
