"""Measure the embedded CLIP's zero-shot figures and write its model card."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template

import numpy as np
import torch
from numpy.typing import NDArray
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from PIL import Image
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from promptcal.data.drawing import COLOURS, DIGIT_NAMES, MAX_SEVERITY, PATTERNS, SHAPES, draw_shape
from promptcal.models.clip import OPENAI_MEAN, OPENAI_STD
from promptcal.models.embedded import load_embedded, read_meta, stored_rows

TEMPLATE = "a photo of a {}."
Figures = dict[str, tuple[float, float, float]]


def handwritten_digits(
    resample: Image.Resampling = Image.Resampling.BICUBIC,
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """scikit-learn's 1,797 handwritten digits at 32 pixels: (n, 32, 32, 3) and labels. They are never trained on."""
    grey, labels = load_digits(return_X_y=True)
    small = (grey.reshape(-1, 8, 8) * 255 / 16).round().astype(np.uint8)
    large = [np.asarray(Image.fromarray(image).resize((32, 32), resample).convert("RGB")) for image in small]
    return np.stack(large), labels


def shifted_shapes(count: int, severity: int, seed: int = 1) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Shapes in the shifted style: images and the indices (count, 3) of colour, pattern and shape."""
    rng = np.random.default_rng([seed, severity])
    facts = np.stack([rng.integers(len(names), size=count) for names in (COLOURS, PATTERNS, SHAPES)], axis=1)
    images = [
        draw_shape(COLOURS[c], PATTERNS[p], SHAPES[s], rng, style="shifted", severity=severity) for c, p, s in facts
    ]
    return np.stack([np.asarray(image) for image in images]), facts


@torch.inference_mode()
def encode_images(model: CLIP, images: NDArray[np.uint8]) -> torch.Tensor:
    """Normalised embeddings of uint8 images (n, 32, 32, 3)."""
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (OPENAI_MEAN, OPENAI_STD))
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    parts = [model.encode_image((part - mean) / std, normalize=True) for part in pixels.split(256)]
    return torch.cat(parts)


@torch.inference_mode()
def zero_shot(
    model: CLIP, features: torch.Tensor, labels: NDArray[np.int64], names: Sequence[str], template: str = TEMPLATE
) -> tuple[float, float, float]:
    """Accuracy, mean confidence and expected calibration error (15 bins) of zero-shot classification."""
    tokenizer = SimpleTokenizer(context_length=model.context_length)
    texts = model.encode_text(tokenizer([template.format(name) for name in names]), normalize=True)
    probabilities = (model.logit_scale.exp() * features @ texts.T).softmax(dim=-1)
    confidence, predicted = (values.numpy() for values in probabilities.max(dim=-1))
    correct = predicted == labels
    bins = np.minimum((confidence * 15).astype(int), 14)
    error = sum(abs(float((correct[bins == b] - confidence[bins == b]).sum())) for b in range(15)) / len(labels)
    return float(correct.mean()), float(confidence.mean()), error


def measure(path: Path, quick: bool = False) -> Figures:
    """All figures of the card, or the few that tell whether training goes well."""
    model = load_embedded(path)
    figures: Figures = {"": (float(model.logit_scale.detach().exp()), 0.0, 0.0)}
    for resample in (Image.Resampling.BICUBIC, Image.Resampling.BILINEAR, Image.Resampling.NEAREST):
        images, labels = handwritten_digits(resample)
        features = encode_images(model, images)
        figures[f"digits, {resample.name.lower()}"] = zero_shot(model, features, labels, DIGIT_NAMES)
        if quick:
            break
    pairs = [f"{colour} {shape}" for colour in COLOURS for shape in SHAPES]
    triples = [f"{colour} {pattern} {shape}" for colour in COLOURS for pattern in PATTERNS for shape in SHAPES]
    for severity in (1, 3) if quick else range(1, MAX_SEVERITY + 1):
        images, facts = shifted_shapes(1000 if quick else 2000, severity)
        features = encode_images(model, images)
        colour, pattern, shape = facts.T
        figures[f"12 shapes, severity {severity}"] = zero_shot(model, features, shape, SHAPES)
        figures[f"144 colour x shape, severity {severity}"] = zero_shot(model, features, colour * 12 + shape, pairs)
        label = (colour * 4 + pattern) * 12 + shape
        figures[f"576 colour x pattern x shape, severity {severity}"] = zero_shot(model, features, label, triples)
    return figures


def summary(figures: Figures) -> str:
    """One line: accuracy / mean confidence of each measured task."""
    tasks = [f"{name} {accuracy:.3f}/{confidence:.3f}" for name, (accuracy, confidence, _) in figures.items() if name]
    return f"logit scale {figures[''][0]:.1f}; " + "; ".join(tasks)


def _row(name: str, figures: tuple[float, float, float]) -> str:
    return f"| {name} | " + " | ".join(f"{value:.3f}" for value in figures) + " |"


def write_card(path: Path, figures: Figures, minutes: float | None = None) -> None:
    """Write the model card beside the weights at `path`; `minutes` is how long training took, if that is known."""
    meta, model = read_meta(path), load_embedded(path)
    towers = (sum(p.numel() for p in part.parameters()) for part in (model.visual, model.transformer))
    took = "" if minutes is None else f" It took {minutes:.0f} minutes on two CPU cores."
    substitutions = {
        "megabytes": f"{path.stat().st_size / 1e6:.2f}",
        "parameters": " and ".join(f"{count / 1e6:.2f}" for count in towers),
        "rows": str(stored_rows(path)),
        "data": meta["data"],
        "training": meta["training"],
        "took": took,
        "scale": f"{figures[''][0]:.1f}",
        "table": "\n".join(_row(name, values) for name, values in figures.items() if name),
    }
    path.with_suffix(".md").write_text(CARD.substitute(substitutions), encoding="utf-8")


CARD = Template("""\
# The embedded CLIP

A small CLIP of $megabytes MB that ships with promptcal, so that every command runs without a download. It is an
ordinary `open_clip` CLIP: a vision transformer on 32-pixel images (patch 4, width 128, 4 layers, class token), a causal
text transformer (width 64, 3 layers, context 32, open_clip's own tokenizer) and 128-dimensional embeddings;
$parameters million parameters in the image and text blocks. Images are normalised with the mean and standard deviation
of OpenAI's CLIP. Its logit scale is $scale.

It is meant for tests, demonstrations and studies of calibration at small scale. It knows nothing of photographs.

## Training

- Data: $data. Half are shapes (12 colours x 4 patterns x 12 shapes), a third digits, the rest letters, on five kinds of
  background, more or less blurred and noisy. Digits are printed in the fonts of matplotlib or drawn by a wobbly pen
  along hand-made skeletons, and half of all glyphs pass through a grid of 8 to 16 pixels. No image of any data set is
  used; in particular the handwritten digits measured below are never trained on.
- Captions: a dozen forms around phrases such as "red striped circle", "seven", "handwritten digit three".
- Loss: InfoNCE between the pictures and the distinct captions of a batch, with near misses (one fact made false) as
  further captions. A caption that is true of a picture is never its negative. Auxiliary heads for shape, colour,
  pattern and character on the image embedding help training to start, and are discarded.
- $training; AdamW, cosine decay.$took

To make it again, from the root of the repository (all options have the values used; `--help` lists them):

    python scripts/pretrain_mini_clip.py --out promptcal/assets/mini_clip.safetensors

Sums in bfloat16 and float32 depend on the processor, so another machine gives slightly other weights and figures.

## File

One safetensors file of float16 tensors. $rows of the 49,408 token embeddings were trained and are stored; the others
are re-created from the seed in the metadata, and mean nothing to the model.

## Zero-shot figures

Measured on the file beside this card with the template "a photo of a {}.", by `scripts/measure_mini_clip.py`. Digits
are scikit-learn's 1,797 handwritten digits of 8 x 8 pixels, enlarged to 32 by the named interpolation, with the class
names "zero" to "nine". Shapes are 2,000 pictures per severity in the shifted style of the `shapes` benchmark, whose
backgrounds and occlusions are not in the training data. ECE is the expected calibration error in 15 bins.

| task | accuracy | mean confidence | ECE |
| --- | --- | --- | --- |
$table

## Limits

- Words outside the captions' vocabulary (colours, patterns, shapes, digits, letters and a few dozen others) carry no
  meaning; class names made of them get almost arbitrary embeddings.
- Upper-case and lower-case letters share a name, because the tokenizer lower-cases all text.
- "solid" objects are often captioned without that word, as in "red circle".
""")


def main() -> None:
    """Measure a file and print or write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("weights", type=Path, help="the safetensors file to measure")
    parser.add_argument("--card", action="store_true", help="write the model card beside the file")
    parser.add_argument("--minutes", type=float, help="training time to state on the card")
    arguments = parser.parse_args()
    figures = measure(arguments.weights)
    sys.stdout.write(summary(figures).replace("; ", "\n") + "\n")
    if arguments.card:
        write_card(arguments.weights, figures, arguments.minutes)


if __name__ == "__main__":
    main()
