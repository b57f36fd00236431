"""The terms of ViT-Calibrator's second stage, against their formulas image by image."""

from types import SimpleNamespace

import pytest
import timm
import torch
from torch.nn import functional

from promptcal.errors import ConfigError
from promptcal.losses.masked_distillation import MaskedDistillation
from promptcal.losses.suppression import Suppression
from promptcal.models.vit_calibrator import CalibratedViT
from promptcal.types import Outputs


@pytest.fixture(scope="module")
def model():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 2, "num_classes": 5}
        calibrated = CalibratedViT(timm.create_model("vit_tiny_patch16_224", **options), "dimension")
        torch.nn.init.normal_(calibrated.correction[2].weight)
        calibrated.masks.copy_((torch.rand(5, 24) > 0.5).float())
    return calibrated


@pytest.fixture
def seen(model):
    """Outputs, the classifier's input and the labels of some images."""
    generator = torch.Generator().manual_seed(1)
    pixels, labels = torch.randn(6, 3, 16, 16, generator=generator), torch.randint(5, (6,), generator=generator)
    z = model.forward_head(model.forward_features(pixels), pre_logits=True)
    unit, norms = functional.normalize(z, dim=1), z.norm(dim=1)
    outputs = Outputs(logits=model.classify(z), image_features=unit, norms=norms, logit_scale=1.0, learns_text=False)
    return outputs, z, labels


def behind(backbone):
    return SimpleNamespace(learner=SimpleNamespace(backbone=backbone))


def test_the_teacher_sees_the_dimensions_of_its_class_alone_and_is_constant(model, seen):
    outputs, z, labels = seen
    head = model.backbone.head
    expected = torch.zeros(())
    for row, label, own in zip(z, labels, outputs.logits, strict=True):
        teacher = ((head.weight @ (row * model.masks[label]) + head.bias) / 2).detach().softmax(dim=0)
        expected = expected + 4 * (teacher * (teacher.log() - (own / 2).log_softmax(dim=0))).sum() / len(labels)
    found = MaskedDistillation(behind(model), temperature=2.0)(outputs, labels)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    learned = model.correction[2].weight
    of_found, of_expected = (torch.autograd.grad(value, learned, retain_graph=True)[0] for value in (found, expected))
    torch.testing.assert_close(of_found, of_expected, rtol=1e-3, atol=1e-6)
    assert of_found.abs().sum() > 0


def test_suppression_is_the_mean_square_outside_the_mask(model, seen):
    outputs, z, labels = seen
    outside = torch.stack(
        [row[model.masks[label] == 0].square().sum() / 24 for row, label in zip(z, labels, strict=True)]
    )
    torch.testing.assert_close(Suppression(behind(model))(outputs, labels), outside.mean(), rtol=1e-4, atol=1e-6)
    model.masks.fill_(1)
    assert Suppression(behind(model))(outputs, labels) == 0
    model.masks.copy_((torch.rand(5, 24, generator=torch.Generator().manual_seed(3)) > 0.5).float())


@pytest.mark.parametrize("term", [MaskedDistillation, Suppression])
def test_a_model_without_masks_is_refused(model, term):
    for backbone in (model.backbone, None, CalibratedViT(model.backbone, "token", sources=1, target=2)):
        with pytest.raises(ConfigError, match="acts on the class masks"):
            term(behind(backbone))
    with pytest.raises(ConfigError, match="temperature is 0"):
        MaskedDistillation(behind(model), temperature=0.0)
