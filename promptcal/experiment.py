"""The straight line, from a configuration to a finished run; who reads this file has seen the whole program.

card → Task → few-shot draw → base/novel halves → bound classifier → loss terms → learned tensors
     → Predictions (val, base, novel) → calibrators → metric rows
"""

import json
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from promptcal.calibrators import CalibrationWarning, build_calibrator, fit_for, no_validation
from promptcal.config import build
from promptcal.console import progress
from promptcal.data import Card, check_images, load_task, read_card, size_warnings, task_digest, task_record
from promptcal.data.features import FeatureCache
from promptcal.data.protocols import Splits
from promptcal.errors import ConfigError, DataError
from promptcal.learners.contract import Learner
from promptcal.loggers.contract import About, log_epoch, log_metrics, open_loggers
from promptcal.losses.contract import check_terms
from promptcal.metrics import accuracy, ece, measure
from promptcal.models.classifier import BoundClassifier, Classifier
from promptcal.models.clip import FrozenClip
from promptcal.run import LOGS, RunFolder, identity, made_with, method_label
from promptcal.storage import save_predictions, save_tensors, write_json, write_jsonl
from promptcal.training.images import ImageSide
from promptcal.training.loop import fit
from promptcal.training.predict import predict
from promptcal.training.state import TrainingState, read_state, write_state
from promptcal.types import Predictions


@dataclass(frozen=True)
class Prepared:
    """A run before any work: its configuration, data, model and folder."""

    config: DictConfig
    card: Card
    splits: Splits
    clip: FrozenClip
    weights: str
    folder: RunFolder


def prepare(config: DictConfig, say: Callable[[str], None] = lambda line: None) -> Prepared:
    """Read the data, draw the shots, look for the images, load the model and find the run's folder."""
    calibrators = {name: build_calibrator(name) for name in config.calibrators}  # a typo is told before training
    card = read_card(config.dataset)
    task = load_task(card, config.data.root)
    for warning in size_warnings(card, task):
        say(warning)
    if config.data.missing == "skip":
        task = check_images(task, missing="skip")
    splits: Splits = build(
        config.protocol,
        task=task,
        shots=config.shots,
        seed=config.seed,
        split_seed=config.split_seed,
        calibration_split=config.calibration.split,
    )
    for name, calibrator in calibrators.items():
        if calibrator.learns_from == "rows" and not splits.train.val:
            raise no_validation(name)
    for used in (splits.train, *splits.targets.values()):
        check_images(used, missing=config.data.missing)
    clip, weights = frozen_clip(json.dumps(OmegaConf.to_container(config.model), sort_keys=True), device_of(config))
    distinct = {id(used): used for used in (splits.train, *splits.targets.values())}
    digest = "".join(task_digest(used) for used in distinct.values())
    name = identity(config, digest, weights)
    folder = RunFolder(Path(config.runs) / task.name / method_label(config) / name)
    return Prepared(config, card, splits, clip, weights, folder)


@lru_cache(maxsize=1)
def frozen_clip(model: str, device: torch.device) -> tuple[FrozenClip, str]:
    """The frozen model of a node of the configuration, as JSON, and the digest of its weights.

    The last one is kept: the runs of a sweep that follow one another mostly share it, and nothing changes it.
    """
    clip: FrozenClip = build(json.loads(model))
    clip.to(device)
    return clip, clip.weights_digest()


def run(
    config: DictConfig,
    *,
    again: bool = False,
    wait: bool = True,
    quiet: bool = False,
    say: Callable[[str], None] = lambda line: None,
) -> RunFolder:
    """Do one run, go on with it where an earlier attempt was stopped, or find it done.

    Args:
        config: from ``promptcal.config.compose``.
        again: repeat a run that is already done, from its beginning.
        wait: where another process is at this run, wait for its end and see.
        quiet: no progress bars.
        say: told what is being done, a line at a time.

    Returns:
        The finished run's folder.

    Raises:
        RunBusy: another process is at this run and ``wait`` is false.
    """
    prepared = prepare(config, say)
    if not complete(prepared, again=again, wait=wait, quiet=quiet, say=say):
        say(f"{prepared.folder.path} is done already")
    return prepared.folder


def complete(prepared: Prepared, *, again: bool, wait: bool, quiet: bool, say: Callable[[str], None]) -> bool:
    """Do a prepared run under its lock; returns False where it is done, or another process has done it meanwhile."""
    folder = prepared.folder
    if folder.is_done and not again:
        return False
    with folder.claimed(wait=wait):
        if folder.is_done and not again:
            return False
        carry_out(prepared, fresh=again, quiet=quiet, say=say)
        return True


def carry_out(prepared: Prepared, *, fresh: bool, quiet: bool, say: Callable[[str], None]) -> None:
    """Train, predict, calibrate, measure and write a run that this process has claimed."""
    config, folder, splits, clip = prepared.config, prepared.folder, prepared.splits, prepared.clip
    folder.begin(fresh=fresh)
    started = time.perf_counter()

    if config.system.threads:
        torch.set_num_threads(int(config.system.threads))
    generator = torch.Generator().manual_seed(int(config.seed))
    learner: Learner = build(config.learner, clip=clip, classes=splits.train.classes, generator=generator)
    learner.to(clip.device)
    classifier = Classifier(clip, learner, config.text_pass, float(config.system.memory_gb))
    targets = {name: classifier.bind(target.classes) for name, target in splits.targets.items()}
    base = classifier.bind(splits.train.classes)
    work = ImageSide(
        clip=clip,
        images=splits.train.images,
        augment=prepared.card.augment,
        weights=prepared.weights,
        cache=cache_of(config, prepared.card.name),
        prompted=learner.prompts_image,
        quiet=quiet,
    )

    made = made_with(str(clip.device))
    resume = unfinished(folder, learner, made, say)
    before = resume.seconds if resume else 0.0
    with open_loggers(config.system.log, about_run(prepared)) as loggers:

        def kept(state: TrainingState) -> None:
            write_state(folder.state, state, made)
            log_epoch(loggers, state.history[-1])

        history = train(base, work, splits, config, targets=targets, resume=resume, keep=kept, quiet=quiet, say=say)
        trained = time.perf_counter()
        everything = predict_all(base, work, splits, targets, config)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            rows = measure_all(everything, config)
        log_metrics(loggers, rows, len(history) or 1)
    notes = [*remarks(config), *dict.fromkeys(str(warning.message) for warning in caught)]
    for note in notes:
        say(f"{method_label(config)}: {note}")

    folder.write_config(config)
    state = {name: tensor.detach().cpu().numpy() for name, tensor in learner.state_dict().items()}
    save_tensors(folder.partial / "learner.safetensors", state, {"learner": config.learner["_target_"]})
    for name, predictions in everything.items():
        save_predictions(folder.partial / "predictions" / f"{name}.safetensors", predictions)
    write_jsonl(folder.partial / "history.jsonl", history)
    write_jsonl(folder.partial / "metrics.jsonl", rows)
    targets_record = {name: task_record(target) for name, target in splits.targets.items()}
    write_json(folder.partial / "task.json", {"train": task_record(splits.train), "targets": targets_record})
    folder.write_info(
        device=str(clip.device),
        weights=prepared.weights,
        learned_parameters=learner.n_parameters(),
        logit_scale=clip.logit_scale,
        train_seconds=round(before + trained - started, 3),
        notes=notes,
        seconds=round(before + time.perf_counter() - started, 3),
        resumed_after_epoch=len(resume.history) if resume else None,
    )
    folder.finish()


def remarks(config: DictConfig) -> list[str]:
    """What a reader of the report must know of how this configuration trains."""
    margin = any(node["_target_"].endswith(".MarginMeanVariance") for node in config.losses.values())
    if margin and config.training.batch_size == 1:
        return ["batches of 1 have no margin variance: the margin term is its mean alone."]
    return []


def unfinished(
    folder: RunFolder, learner: Learner, made: Mapping[str, Any], say: Callable[[str], None]
) -> TrainingState | None:
    """Where an earlier attempt at this run was stopped; a state that does not fit is thrown away with a word."""
    try:
        state = read_state(folder.state, learner, made)
    except DataError as error:
        say(f"the training starts again from its beginning: {error}")
        folder.state.unlink(missing_ok=True)
        return None
    if state is not None:
        say(f"{folder.path} goes on after epoch {len(state.history)}")
    return state


def train(
    base: BoundClassifier,
    work: ImageSide,
    splits: Splits,
    config: DictConfig,
    *,
    targets: Mapping[str, BoundClassifier],
    resume: TrainingState | None = None,
    keep: Callable[[TrainingState], None] = lambda state: None,
    quiet: bool,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Train the learner on the base half; a learner without learned tensors is left as it is."""
    learner, task = base.learner, splits.train
    terms = {name: build(node) for name, node in config.losses.items()}
    if learner.n_parameters() == 0:
        if terms:
            raise ConfigError(
                f"'{config.choices.method}' learns nothing, so the loss term '{next(iter(terms))}' has nothing to act "
                f"on; leave the plug-in out."
            )
        return []
    check_terms(terms, learns_text=learner.learns_text, n_classes=len(base.classes))
    settings = build(config.training)
    features = build(config.features)
    batches = work.batches(task, settings, features, int(config.seed))
    total = batches.steps * settings.epochs
    say(
        f"{method_label(config)} on {task.name}: {len(base.classes)} classes, {len(task.train)} images, batches of "
        f"{settings.batch_size}, {batches.steps} steps an epoch, {total} in all; "
        f"{work.describe(features, settings.epochs)}; logit scale {base.clip.logit_scale:.1f}"
    )
    if total < 50:
        say(
            f"only {total} steps in all: the learner may stay near its start; raise training.epochs or lower batch_size"
        )
    left = settings.epochs - (len(resume.history) if resume else 0)
    bar = progress(range(left), method_label(config), total=left, quiet=quiet)
    next(bar, None)

    def on_epoch(row: dict[str, Any]) -> None:
        every = settings.evaluate_every
        if every and (row["epoch"] % every == 0 or row["epoch"] == settings.epochs):
            learner.eval()
            for name, bound in targets.items():
                test = splits.targets[name].test
                seen = predict(bound, work.test_batches(test), test, split=name, precision=config.precision)
                probs = seen.probs()
                row |= {f"{name}_accuracy": accuracy(probs, seen.labels), f"{name}_ece": ece(probs, seen.labels)}
            learner.train()
        next(bar, None)

    return fit(base, batches, terms, settings, precision=config.precision, on_epoch=on_epoch, resume=resume, keep=keep)


def predict_all(
    base: BoundClassifier,
    work: ImageSide,
    splits: Splits,
    targets: Mapping[str, BoundClassifier],
    config: DictConfig,
) -> dict[str, Predictions]:
    """Predictions of the base validation images and of every target's test images."""
    found = {}
    if splits.train.val:
        val = splits.train.val
        found["val"] = predict(base, work.test_batches(val), val, split="val", precision=config.precision)
    for name, bound in targets.items():
        test = splits.targets[name].test
        found[name] = predict(bound, work.test_batches(test), test, split=name, precision=config.precision)
    return found


def measure_all(everything: Mapping[str, Predictions], config: DictConfig) -> list[dict[str, Any]]:
    """Metric rows of every calibrator on every target; calibrators are fitted on base validation alone."""
    rows = []
    for name in config.calibrators:
        calibrator = fit_for(name, everything)
        for split, predictions in everything.items():
            if split == "val":
                continue
            for measurement in measure(calibrator.transform(predictions)):
                rows.append({"calibrator": name, "split": split, **measurement.row()})
    about = {
        "dataset": config.choices.dataset,
        "method": method_label(config),
        "model": config.choices.model,
        "seed": config.seed,
        "split_seed": config.split_seed,
        "shots": config.shots,
    }
    return [{**about, **row} for row in rows]


def about_run(prepared: Prepared) -> About:
    """What loggers are told about a run."""
    name = "/".join(prepared.folder.path.parts[-3:])
    settings: Any = OmegaConf.to_container(prepared.config, resolve=True)
    return About(name, settings, prepared.folder.partial / LOGS)


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
