"""The embedded CLIP: its file format, and the zero-shot figures of the weights that ship."""

import importlib.resources
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image
from sklearn.datasets import load_digits

from promptcal.data.drawing import COLOURS, DIGIT_NAMES, PATTERNS, SHAPES, draw_shape
from promptcal.models.clip import OPENAI_MEAN, OPENAI_STD
from promptcal.models.embedded import (
    MINI_CLIP_CONFIG,
    load_embedded,
    read_meta,
    save_embedded,
    untrained_rows,
)
from promptcal.storage import load_tensors, save_tensors

WEIGHTS = Path(str(importlib.resources.files("promptcal.assets"))) / "mini_clip.safetensors"
META: dict[str, Any] = {
    "config": MINI_CLIP_CONFIG,
    "trained_rows": [0, 320, 49406, 49407],
    "row_seed": 3,
    "row_std": 0.02,
}


@pytest.fixture(scope="module")
def model() -> CLIP:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = CLIP(**MINI_CLIP_CONFIG)
    table = torch.from_numpy(untrained_rows(49408, 64, META["row_seed"], META["row_std"]))
    table[META["trained_rows"]] = torch.linspace(-1, 1, 4 * 64).view(4, 64)
    with torch.no_grad():
        model.token_embedding.weight.copy_(table)
        for parameter in model.parameters():
            if parameter is not model.token_embedding.weight and parameter is not model.logit_scale:
                parameter.copy_(parameter.half())
        model.token_embedding.weight[META["trained_rows"]] = table[META["trained_rows"]].half().float()
    return model.eval()


@pytest.fixture(scope="module")
def shipped() -> CLIP:
    return load_embedded(WEIGHTS)


def test_round_trip_is_bit_equal_and_files_are_byte_identical(model: CLIP, tmp_path: Path) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    save_embedded(model, first, {**META, "note": "kept", "another": 1})
    loaded = load_embedded(first)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], tensor), name
    assert not loaded.training
    assert loaded.token_embedding.weight.dtype == torch.float32
    save_embedded(loaded, second, {"another": 1, "note": "kept", **META})
    assert first.read_bytes() == second.read_bytes()
    assert read_meta(first)["note"] == "kept"
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["first.safetensors", "second.safetensors"]


def test_loading_names_every_missing_extra_and_misshapen_tensor(model: CLIP, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_embedded(model, path, META)
    arrays, meta = load_tensors(path)
    del arrays["text_projection"]
    arrays["stray"] = np.zeros(2, dtype=np.float16)
    arrays["ln_final.bias"] = np.zeros(5, dtype=np.float16)
    save_tensors(path, arrays, meta)
    with pytest.raises(ValueError, match="does not fit the embedded CLIP") as caught:
        load_embedded(path)
    for part in ("missing text_projection", "extra stray", "ln_final.bias of shape (5,) instead of (64,)"):
        assert part in str(caught.value)


def test_loading_refuses_another_format(model: CLIP, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    save_tensors(path, {"a": np.zeros(1)}, {"format": 99})
    with pytest.raises(ValueError, match="format 99"):
        load_embedded(path)


def test_saving_asks_for_its_metadata(model: CLIP, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="lacks row_seed, row_std"):
        save_embedded(model, tmp_path / "weights", {"config": MINI_CLIP_CONFIG, "trained_rows": [1]})


def test_loading_leaves_the_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    load_embedded(WEIGHTS)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_shipped_file_is_a_small_clip_that_encodes_text(shipped: CLIP) -> None:
    assert type(shipped) is CLIP
    assert shipped.vocab_size == 49408
    assert shipped.context_length == 32
    assert WEIGHTS.stat().st_size < 4_000_000
    tokens = SimpleTokenizer(context_length=32)(["a photo of a seven.", "an unheard-of platypus"])
    with torch.inference_mode():
        features = shipped.encode_text(tokens)
    assert features.shape == (2, 128)
    assert bool(torch.isfinite(features).all())


@torch.inference_mode()
def zero_shot(
    model: CLIP, images: Sequence[Image.Image], labels: np.ndarray, names: Sequence[str]
) -> tuple[float, float]:
    """Accuracy and mean confidence with the template "a photo of a {}."."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (OPENAI_MEAN, OPENAI_STD))
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2) / 255
    texts = SimpleTokenizer(context_length=32)([f"a photo of a {name}." for name in names])
    features = model.encode_image((pixels - mean) / std, normalize=True)
    logits = model.logit_scale.exp() * features @ model.encode_text(texts, normalize=True).T
    confidence, predicted = logits.softmax(dim=-1).max(dim=-1)
    return float((predicted.numpy() == labels).mean()), float(confidence.mean())


def test_zero_shot_on_handwritten_digits(shipped: CLIP) -> None:
    grey, labels = load_digits(return_X_y=True)
    small = (grey[:600].reshape(-1, 8, 8) * 255 / 16).round().astype(np.uint8)
    images = [Image.fromarray(image).resize((32, 32), Image.Resampling.BICUBIC).convert("RGB") for image in small]
    accuracy, confidence = zero_shot(shipped, images, labels[:600], DIGIT_NAMES)
    assert accuracy >= 0.5
    assert confidence < 0.95


@pytest.mark.parametrize("severity", [1, 2])
def test_zero_shot_on_shifted_shapes(shipped: CLIP, severity: int) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(480) % len(SHAPES)
    images = [
        draw_shape(
            str(rng.choice(COLOURS)), str(rng.choice(PATTERNS)), SHAPES[label], rng, style="shifted", severity=severity
        )
        for label in labels
    ]
    accuracy, confidence = zero_shot(shipped, images, labels, SHAPES)
    assert accuracy >= 0.5
    assert confidence < 0.95
