"""Shared fixtures: a tiny random CLIP, and shape checks on every annotated function of the package."""

import os
from pathlib import Path

import pytest
from jaxtyping import install_import_hook

for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # every core has a test process of its own; set before torch is imported

install_import_hook("promptcal", "beartype.beartype")

TEST_DATA = os.environ.get("PROMPTCAL_TEST_DATA")


def make_tiny_clip(*, seed: int = 0, quick_gelu: bool = True, context_length: int = 77, name: str = "tiny"):
    """A CLIP with random weights: embed 32, text and image width 32, 2 layers, 32-pixel images, patch 8."""
    import torch
    from open_clip.model import CLIP
    from open_clip.tokenizer import SimpleTokenizer

    from promptcal.models.clip import FrozenClip, ImageTransform

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CLIP(
            32,
            {"image_size": 32, "patch_size": 8, "width": 32, "layers": 2, "head_width": 16},
            {"context_length": context_length, "width": 32, "heads": 2, "layers": 2},
            quick_gelu=quick_gelu,
        )
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if parameter_name.endswith("bias") or "ln_" in parameter_name:
                    parameter.add_(0.1 * torch.randn_like(parameter))
            model.logit_scale.fill_(3.0)
    return FrozenClip(model, SimpleTokenizer(context_length=context_length), ImageTransform(32), name)


@pytest.fixture(scope="session")
def tiny_clip():
    """One tiny CLIP for the session; frozen, so sharing it is safe."""
    return make_tiny_clip()


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The folder of real images and splits, where there is one."""
    if not TEST_DATA or not Path(TEST_DATA).is_dir():
        pytest.skip("set PROMPTCAL_TEST_DATA to the folder of real images and splits")
    return Path(TEST_DATA)


@pytest.fixture(scope="session")
def oracles(test_data: Path) -> Path:
    """The folder of independently computed metric values, beside the test data."""
    folder = test_data.parent / "oracles"
    if not folder.is_dir():
        pytest.skip("there is no 'oracles' folder beside PROMPTCAL_TEST_DATA")
    return folder
