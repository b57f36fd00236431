"""What runs have to compute, counted from their configurations and data cards alone: no weights, no images, no runs.

The floating-point operations of the towers and the training steps, turned into time for a machine of some speed. It
leaves out what is small beside them: reading images, losses, calibrators, reports.
"""

import importlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from promptcal.config import asset_path, build
from promptcal.data.cards import read_card
from promptcal.data.protocols.contract import card_of
from promptcal.data.splits import ALL, MAX_VAL_SHOTS
from promptcal.errors import PromptcalError

OWN_TOKENS = 5
"""Tokens of a class in the shared-prefix text pass: a name of two or three, the full stop, the end."""

CONTEXT_TOKENS = 5
"""Tokens that all classes share: the start and a context of four."""

BACKWARD = 2
"""The backward pass through frozen weights costs a forward pass, and recomputing activations another."""


@dataclass(frozen=True)
class Towers:
    """Operations of a forward pass: of one image, and of one token of text."""

    image: float
    token: float


@dataclass(frozen=True)
class Machine:
    """How fast something computes: operations a second, and what a training step takes however little it computes."""

    name: str
    speed: float
    step_seconds: float = 0.02


ONE_GPU = Machine("one GPU, taken to sustain 10 TFLOP/s (half of what an A100 does in float32)", 10e12)


@dataclass(frozen=True)
class Work:
    """Operations and training steps."""

    operations: float
    steps: int

    def seconds(self, machine: Machine) -> float:
        """How long a machine takes."""
        return self.operations / machine.speed + self.steps * machine.step_seconds


def count(configs: Sequence[DictConfig]) -> Work | None:
    """The work of some runs; None where a card is faulty or gives no sizes, or a model's operations are not known.

    Features of the frozen image tower are counted once for all runs that share them through the cache.
    """
    operations, steps = 0.0, 0
    encoded: dict[tuple[str, ...], float] = {}
    for config in configs:
        try:
            found = _count_one(config)
        except PromptcalError:
            return None
        if found is None:
            return None
        operations += found.own.operations
        steps += found.own.steps
        for key, images in found.shared.items():
            encoded[key] = max(encoded.get(key, 0.0), images)
    return Work(operations + sum(encoded.values()), steps)


@dataclass(frozen=True)
class _Counted:
    """The work of a run alone, and the operations of the image features that other runs may share, by what they are."""

    own: Work
    shared: Mapping[tuple[str, ...], float]


def _count_one(config: DictConfig) -> _Counted | None:
    towers, tests = towers_of(config), _tests(config)
    sizes = read_card(config.dataset).sizes
    if towers is None or tests is None or not {"classes", "train"} <= sizes.keys():
        return None
    halved = str(config.choices.protocol) == "base_to_novel"
    classes = math.ceil(sizes["classes"] / 2) if halved else sizes["classes"]
    shots = int(config.shots)
    images = sizes["train"] * classes // sizes["classes"] if shots == ALL else shots * classes
    val = min(shots, MAX_VAL_SHOTS) * classes if shots != ALL else sizes.get("val", 0) * classes // sizes["classes"]
    tests = [*tests, (val, classes)]
    prompts_image, per_image = _flags(config.learner["_target_"])
    learns = any(config.losses.values())
    training, views = build(config.training), build(config.features).count(config.training.epochs)
    steps = max(1, images // training.batch_size) * training.epochs if learns else 0

    def texts(n_classes: int) -> float:
        return towers.token * (CONTEXT_TOKENS + OWN_TOKENS * n_classes)

    passes = training.batch_size if per_image else 1
    operations = steps * texts(classes) * passes * (1 + BACKWARD)
    operations += sum((n if per_image else 1) * texts(n_classes) for n, n_classes in tests)
    tested = sum(n for n, _ in tests)
    where = (str(config.choices.model), str(config.dataset.name))
    shared: dict[tuple[str, ...], float] = {(*where, "test"): tested * towers.image}
    if prompts_image:
        operations += steps * training.batch_size * towers.image * (1 + BACKWARD) + tested * towers.image
    elif steps:
        shared[*where, "train", str(config.seed), str(shots)] = images * max(1, views) * towers.image
    return _Counted(Work(operations, steps), shared)


def _tests(config: DictConfig) -> list[tuple[int, int]] | None:
    """For each target, its test images and the classes they are classified among."""
    card = read_card(config.dataset)
    if not {"classes", "test"} <= card.sizes.keys():
        return None
    classes, test = card.sizes["classes"], card.sizes["test"]
    own = OmegaConf.select(config, "protocol.target") == "own"
    found = [(test, math.ceil(classes / 2) if own else classes)]
    for described in OmegaConf.to_container(config.protocol).get("targets") or ():  # type: ignore[union-attr]
        sizes = card_of(described).sizes
        if not {"classes", "test"} <= sizes.keys():
            return None
        found.append((sizes["test"], sizes["classes"]))
    return found


def _flags(target: str) -> tuple[bool, bool]:
    """Whether a learner prompts the image tower, and whether its text prompts differ from image to image."""
    module, _, name = target.rpartition(".")
    learner = getattr(importlib.import_module(module), name)
    return learner.prompts_image is not False, learner.per_image is not False


def towers_of(config: DictConfig) -> Towers | None:
    """The operations of a CLIP's towers from its architecture; None where the image tower is no plain ViT."""
    node = config.model
    target = str(node["_target_"])
    if target.endswith(".open_clip_model"):
        from open_clip import get_model_config

        about = get_model_config(node.architecture)
    elif target.endswith(".embedded"):
        from promptcal.models.embedded import read_meta

        about = read_meta(asset_path("assets", "mini_clip.safetensors"))["config"]
    else:
        return None
    vision, text = (about or {}).get("vision_cfg", {}), (about or {}).get("text_cfg", {})
    if not isinstance(vision.get("layers"), int) or not vision.get("patch_size") or "width" not in text:
        return None
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    embedding = 2 * 3 * vision["patch_size"] ** 2 * vision["width"] * patches
    image = embedding + (patches + 1) * token_operations(vision["layers"], vision["width"], patches + 1)
    return Towers(float(image), float(token_operations(text["layers"], text["width"], CONTEXT_TOKENS + OWN_TOKENS)))


def token_operations(layers: int, width: int, length: int) -> int:
    """2·12·w² for the matrices of a transformer block and 4·w·T for attention among T tokens, in each layer."""
    return layers * (24 * width**2 + 4 * width * length)


def this_machine(seconds: float = 0.3) -> Machine:
    """The speed of this machine: half of what products of float32 matrices reach, measured for a moment."""
    import torch

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    left, right = torch.ones(1024, 768, device=device), torch.ones(768, 3072, device=device)
    left @ right
    done, started = 0, time.perf_counter()
    while (taken := time.perf_counter() - started) < seconds:
        float((left @ right)[0, 0])
        done += 1
    speed = done * 2 * 1024 * 768 * 3072 / taken / 2
    return Machine(f"this machine at {speed / 1e9:.0f} GFLOP/s (half of what a matrix product reaches now)", speed)


def sentences(configs: Sequence[DictConfig], machines: Iterable[Machine], words: Callable[[float], str]) -> list[str]:
    """What runs cost by their arithmetic, a line a machine; nothing where it cannot be counted."""
    work = count(configs)
    if work is None:
        return []
    counted = f"{work.operations / 1e15:.3g} PFLOP in {work.steps:,} steps"
    return [
        f"by arithmetic ({counted}): about {words(work.seconds(machine))} on {machine.name}" for machine in machines
    ]
