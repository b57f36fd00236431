"""The straight line, from a configuration to a finished run; who reads this file has seen the whole program.

card → Task → few-shot draw → base/novel halves or other targets → bound classifier → loss terms → learned tensors
     → Predictions (val and every target) → calibrators → metric rows
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from promptcal.assembled import Assembled, assemble, left_out, predict_all, predict_split
from promptcal.calibrators import CalibrationWarning, LogLinear
from promptcal.config import build
from promptcal.console import progress
from promptcal.data import task_record
from promptcal.diagnostics import diagnose, head_row
from promptcal.errors import ConfigError, DataError
from promptcal.evaluation import measure_all, remarks
from promptcal.heads.loglinear import LOGLINEAR, LogLinearHead
from promptcal.learners.contract import Learner
from promptcal.loggers.contract import About, log_epoch, log_metrics, open_loggers
from promptcal.losses.contract import check_terms
from promptcal.metrics import accuracy, ece, nll
from promptcal.models.vision import Network
from promptcal.preparation import Prepared, prepare
from promptcal.run import LOGS, RunFolder, made_with, method_label
from promptcal.storage import save_predictions, save_tensors, write_json, write_jsonl
from promptcal.training.loop import Recipe, fit
from promptcal.training.memory import peak_memory_mb
from promptcal.training.state import TrainingState, read_state, write_state
from promptcal.types import Predictions
from promptcal.words import word_record


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
    """Train and write a run that this process has claimed."""
    folder = prepared.folder
    folder.begin(fresh=fresh)
    started = time.perf_counter()
    work = assemble(prepared, quiet=quiet)
    made = made_with(str(prepared.model.device))
    resume = unfinished(folder, work.learner, made, say)
    before = resume.seconds if resume else 0.0
    with open_loggers(prepared.config.system.log, about_run(prepared)) as loggers:

        def keep(state: TrainingState) -> None:
            write_state(folder.state, state, made)
            log_epoch(loggers, state.history[-1])

        history = train(prepared, work, resume=resume, keep=keep, quiet=quiet, say=say)
        trained = time.perf_counter()
        rows = conclude(
            prepared,
            work,
            history,
            say=say,
            info={
                "train_seconds": lambda: round(before + trained - started, 3),
                "seconds": lambda: round(before + time.perf_counter() - started, 3),
                "peak_memory_mb": lambda: peak_memory_mb(prepared.model.device),
                "nearest_words": lambda: word_record(prepared.model, work.learner),
                "resumed_after_epoch": lambda: len(resume.history) if resume else None,
            },
        )
        log_metrics(loggers, rows, len(history) or 1)
    folder.finish()


def conclude(
    prepared: Prepared,
    work: Assembled,
    history: list[dict[str, Any]],
    *,
    say: Callable[[str], None],
    info: Mapping[str, Callable[[], Any]],
) -> list[dict[str, Any]]:
    """Predict, calibrate, measure and write a run whose learned tensors are there; returns its metric rows.

    Args:
        prepared: the run; its working folder is filled, not finished.
        work: its parts, with the learned tensors in place.
        history: a row for each epoch.
        say: told the run's notes.
        info: what ``run.json`` says of this run in particular, each asked for at the end.
    """
    config, folder, splits = prepared.config, prepared.folder, prepared.splits
    everything = predict_all(prepared, work)
    head = head_behind(prepared, everything, say)
    if head is not None:
        head.save(folder.partial / "head.safetensors")
        everything = {name: head.apply(predictions) for name, predictions in everything.items()}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        rows = measure_all(everything, config, splits.train.classes.names)
    warned = dict.fromkeys(str(warning.message) for warning in caught)
    notes = [*splits.notes, *left_out(prepared, work), *remarks(config), *warned]
    for note in notes:
        say(f"{method_label(config)}: {note}")

    folder.write_config(config)
    state = {name: tensor.detach().cpu().numpy() for name, tensor in work.learner.state_dict().items()}
    save_tensors(folder.partial / "learner.safetensors", state, {"learner": config.learner["_target_"]})
    for name, predictions in everything.items():
        if name not in splits.joined:
            save_predictions(folder.partial / "predictions" / f"{name}.safetensors", predictions)
    write_jsonl(folder.partial / "history.jsonl", history)
    write_jsonl(folder.partial / "metrics.jsonl", rows)
    write_jsonl(folder.partial / "diagnostics.jsonl", diagnose(everything))
    targets = {name: task_record(target) for name, target in splits.targets.items()}
    joined = {"joined": splits.joined} if splits.joined else {}
    write_json(folder.partial / "task.json", {"train": task_record(splits.train), "targets": targets, **joined})
    folder.write_info(
        device=str(prepared.model.device),
        weights=prepared.weights,
        learned_parameters=work.learner.n_parameters(),
        logit_scale=prepared.model.logit_scale,
        notes=notes,
        **{name: ask() for name, ask in info.items()},
    )
    return rows


def train_and_predict(prepared: Prepared, *, quiet: bool) -> dict[str, Predictions]:
    """Train the method of a run on its splits, from its start, and predict their targets; nothing is written."""
    work = assemble(prepared, quiet=quiet)
    train(prepared, work, quiet=quiet, say=lambda line: None)
    return predict_all(prepared, work)


def head_behind(
    prepared: Prepared, everything: Mapping[str, Predictions], say: Callable[[str], None]
) -> LogLinear | None:
    """The head that is fitted behind the training, on further trainings; None where the run has none of this kind."""
    config, name = prepared.config, method_label(prepared.config)
    if config.head["_target_"] != LOGLINEAR:
        return None
    fitted = fit_head(prepared, build(config.head), everything.get("val"), lambda line: say(f"{name}: {line}"))
    say(f"{name}: {fitted.report()}")
    return fitted


def fit_head(prepared: Prepared, head: LogLinearHead, val: Predictions | None, say: Callable[[str], None]) -> LogLinear:
    """A head for a run, fitted on what further trainings of its method predict of what they have not seen."""
    folds = head.divided(prepared.splits.train, int(prepared.config.seed))
    say(f"{len(folds)} further trainings for the head")
    return head.fitted(val, folds, lambda fold: train_and_predict(replace(prepared, splits=fold), quiet=True))


def unfinished(
    folder: RunFolder, learner: Learner | Network, made: Mapping[str, Any], say: Callable[[str], None]
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
    prepared: Prepared,
    work: Assembled,
    *,
    resume: TrainingState | None = None,
    keep: Callable[[TrainingState], None] = lambda state: None,
    quiet: bool,
    say: Callable[[str], None],
) -> list[dict[str, Any]]:
    """Train the learner on the training classes; a learner without learned tensors is left as it is."""
    config, splits, base = prepared.config, prepared.splits, work.base
    learner, task = work.learner, splits.train
    terms = {
        name: build(node, **base.offers, generator=torch.Generator().manual_seed(int(config.seed)))
        for name, node in config.losses.items()
        if node
    }
    if learner.n_parameters() == 0:
        if terms:
            raise ConfigError(
                f"'{config.choices.method}' learns nothing, so the loss term '{next(iter(terms))}' has nothing to act "
                f"on; leave the plug-in out."
            )
        return []
    if not terms:
        raise ConfigError(
            f"'{method_label(config)}' has {learner.n_parameters()} numbers to learn and no loss to learn them from; "
            f"add one, as in plugin=[ce_brier]."
        )
    check_terms(terms, learns_text=learner.learns_text, n_classes=len(base.classes))
    recipe = Recipe(terms, build(config.gradient_rule), build(config.averaging), config.precision)
    if recipe.averaging.reads_validation and not task.val:
        raise ConfigError(f"averaging={config.choices.averaging} needs base validation images, and there are none.")
    settings, features = build(config.training), build(config.features)
    if isinstance(learner, Network):
        learner.study(work.images.test_batches(task.train))
    batches = work.images.batches(task, settings, features, int(config.seed))
    total = -(-batches.steps // settings.accumulate) * settings.epochs
    say(
        f"{method_label(config)} on {task.name}: {len(base.classes)} classes, {len(task.train)} images, batches of "
        f"{settings.batch_size}, {total // settings.epochs} steps an epoch, {total} in all; "
        f"{work.images.describe(settings, features)}; logit scale {prepared.model.logit_scale:.1f}"
    )
    if learner.head is not None and learner.head.mode == "joint" and not learner.prompts_image:
        say("the head reads an embedding of the frozen image tower, so head.mode=joint and stop_z are the same")
    if total < 50:
        say(
            f"only {total} steps in all: the learner may stay near its start; raise training.epochs or lower batch_size"
        )
    left = settings.epochs - (len(resume.history) if resume else 0)
    bar = progress(range(left), method_label(config), total=left, quiet=quiet)
    next(bar, None)

    def on_epoch(row: dict[str, Any]) -> None:
        every = settings.evaluate_every
        watched = []
        if recipe.averaging.reads_validation or (settings.watches_validation and task.val):
            watched.append("val")
        if every and (row["epoch"] % every == 0 or row["epoch"] == settings.epochs):
            watched += work.targets
        learner.eval()
        for name in watched:
            seen = predict_split(prepared, work, name)
            probs = seen.probs()
            row |= {
                f"{name}_accuracy": accuracy(probs, seen.labels),
                f"{name}_ece": ece(probs, seen.labels),
                f"{name}_nll": nll(probs, seen.labels),
                **head_row(seen, name),
            }
        learner.train()
        next(bar, None)

    seed = int(config.seed)
    return fit(base, batches, recipe, settings, seed=seed, on_epoch=on_epoch, resume=resume, keep=keep)


def about_run(prepared: Prepared) -> About:
    """What loggers are told about a run."""
    name = "/".join(prepared.folder.path.parts[-3:])
    settings: Any = OmegaConf.to_container(prepared.config, resolve=True)
    return About(name, settings, prepared.folder.partial / LOGS)
