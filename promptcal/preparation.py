"""What a run needs before any work: data, draw, model, and the folder that its numbers decide."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf

from promptcal.calibrators import Calibrator, build_calibrator, no_validation
from promptcal.config import build
from promptcal.data import Card, check_images, read_card, task_digest
from promptcal.data.features import FeatureCache
from promptcal.data.protocols import Draw, Splits, reader_of_targets, whole_task
from promptcal.errors import ConfigError
from promptcal.imports.few_shot import given_draw
from promptcal.models.assembly import Model
from promptcal.models.vision import VisionModel
from promptcal.run import RunFolder, identity, method_label


@dataclass(frozen=True)
class Prepared:
    """A run before any work: its configuration, data, model and folder."""

    config: DictConfig
    card: Card
    splits: Splits
    model: Model
    weights: str
    folder: RunFolder


def prepare(config: DictConfig, say: Callable[[str], None] = lambda line: None) -> Prepared:
    """Read the data, draw the shots, look for the images, load the model and find the run's folder."""
    card, splits = drawn(config, say)
    return prepared_for(config, card, splits)


def drawn(config: DictConfig, say: Callable[[str], None] = lambda line: None) -> tuple[Card, Splits]:
    """The card, and what the protocol draws from the data set."""
    card = read_card(config.dataset)
    task = whole_task(card, config.data.root, missing=config.data.missing, say=say)
    draw = Draw(
        shots=config.shots,
        seed=config.seed,
        split_seed=config.split_seed,
        calibration_split=config.calibration.split,
        read=reader_of_targets(config.data.root, missing=config.data.missing, say=say),
        given=given_draw(task, Path(config.data.few_shot), config.shots) if config.data.few_shot else {},
    )
    splits: Splits = build(config.protocol, task=task, draw=draw)
    return card, splits


def prepared_for(config: DictConfig, card: Card, splits: Splits) -> Prepared:
    """The run on images that are drawn already: look for them, load the model and find the run's folder."""
    calibrators = {name: build_calibrator(name) for name in config.calibrators}  # a typo is told before training
    for name, calibrator in calibrators.items():
        if calibrator.learns_from == "rows" and not splits.train.val:
            raise no_validation(name)
    for used in (splits.train, *splits.targets.values()):
        check_images(used, missing=config.data.missing)
    model, weights = load_model(json.dumps(OmegaConf.to_container(config.model), sort_keys=True), device_of(config))
    if isinstance(model, VisionModel):
        for name, calibrator in calibrators.items():
            refuse_texts(name, calibrator, model)
    distinct = {id(used): used for used in (splits.train, *splits.targets.values())}
    digest = "".join(task_digest(used) for used in distinct.values())
    name = identity(config, digest, weights)
    folder = RunFolder(Path(config.runs) / card.name / method_label(config) / name)
    return Prepared(config, card, splits, model, weights, folder)


def refuse_texts(name: str, calibrator: Calibrator, model: VisionModel) -> None:
    """Refuse a calibrator that reads the zero-shot classifier or texts of a CLIP, on a model that has none."""
    asked = sorted(calibrator.needs & {"zero_shot_logits", "text_features", "zero_shot_text_features"})
    if asked:
        raise ConfigError(
            f"the calibrator '{name}' reads {asked[0]} of a CLIP, and '{model.name}' has no text; leave it out, as in "
            f"calibrators=[none,temperature]."
        )


@lru_cache(maxsize=1)
def load_model(node: str, device: torch.device) -> tuple[Model, str]:
    """The model of a node of the configuration, as JSON, on its device, and the digest of its weights.

    The last one is kept: the runs of a sweep that follow one another mostly share it, and nothing changes it.
    """
    model: Model = build(json.loads(node))
    model.to(device)
    return model, model.weights_digest()


def cache_of(config: DictConfig, name: str) -> FeatureCache | None:
    """The feature cache on disk, where one is wanted, as the runs of one data set share it."""
    if not config.system.cache:
        return None
    return FeatureCache(Path(config.system.cache), int(config.system.cache_gb * 2**30), name)


def device_of(config: DictConfig) -> torch.device:
    """The device to work on: one, whatever else is visible."""
    wanted = str(config.system.device)
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError("system.device=cuda was asked for, but torch sees no GPU; use system.device=cpu or auto.")
    try:
        return torch.device(wanted)
    except RuntimeError as error:
        raise ConfigError(f"unknown device '{wanted}'; use auto, cpu or cuda.") from error
