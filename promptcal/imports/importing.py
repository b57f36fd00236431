"""From a released checkpoint to a run like one of our own: find, fit, configure, load, go on as after a training."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from promptcal.assembled import assemble
from promptcal.config import compose
from promptcal.data import Card, check_images, read_card
from promptcal.data.class_names import normalise_class_names
from promptcal.data.protocols import Splits
from promptcal.data.sources import FolderImages
from promptcal.errors import ConfigError, DataError, NumericalError
from promptcal.experiment import conclude
from promptcal.imports.backbones import check_widths, guess_model
from promptcal.imports.checkpoints import Checkpoint, FolderNames, folder_names, read_checkpoint
from promptcal.imports.fitting import Fitted, choose
from promptcal.imports.released import RELEASES
from promptcal.learners.contract import Learner
from promptcal.models.clip import FrozenClip
from promptcal.preparation import drawn, prepared_for
from promptcal.run import RunFolder
from promptcal.types import ClassNames, Task

Say = Callable[[str], None]


def import_checkpoint(
    place: Path,
    overrides: Sequence[str] = (),
    *,
    classes: Sequence[str] = (),
    again: bool = False,
    quiet: bool = False,
    say: Say = lambda line: None,
) -> RunFolder:
    """Make a run of a checkpoint that the released code of a method saved.

    With the images of its data set it is predicted, calibrated and measured as a run that was trained here; without, it
    holds the learned tensors and the class names. Nothing in the file is run.

    Args:
        place: the checkpoint, or the folder of its run.
        overrides: of the configuration; they go before what the names of the folders say.
        classes: class names, where the data set is not at hand.
        again: repeat an import that is done already.
        quiet: no progress bars.
        say: told what is being done, a line at a time.

    Raises:
        DataError: no checkpoint; a file that is refused, cut off or something else; a learned tensor that is missing,
            strange or of another shape; classes that are not those it was trained on.
        ConfigError: a method, model or list of classes that neither file nor folders tell, or that does not fit.
        NumericalError: a learned tensor with NaN or infinity in it.
    """
    checkpoint = read_checkpoint(place)
    where, names = str(checkpoint.path), folder_names(checkpoint.path)
    words = _words(names, overrides, bare=bool(classes))
    recipe = _last("method", words)
    fitted = choose(checkpoint.tensors, where=where, trainer=names.trainer, recipe=recipe, learner=_learner_of(recipe))
    if not recipe:
        words.append(f"method={fitted.release.recipe}")
    if not _last("model", words):
        words.append(f"model={guess_model(fitted, checkpoint.tensors, where)}")
    config = _configuration(checkpoint, names, fitted, words)
    state = learned_tensors(fitted, where)
    config.imported = {"origin": f"released {fitted.release.trainer}", "tensors": _digest(state)}
    say(
        f"{where}: {config.choices.method} on {config.choices.model}, "
        f"{sum(tensor.numel() for tensor in state.values()):,} learned numbers in {len(state)} tensors; "
        f"{len(fitted.dropped)} others left out"
    )
    card, splits = _named(config, classes, say) if classes else _data(config, words, say)
    prepared = prepared_for(config, card, splits)
    if not isinstance(prepared.model, FrozenClip):
        raise ConfigError(f"the model '{config.choices.model}' is no CLIP and takes no prompts; add --model NAME.")
    check_widths(fitted, prepared.model, config, where)
    folder = prepared.folder
    if folder.is_done and not again:
        say(f"{folder.path} is done already")
        return folder
    work = assemble(prepared, quiet=quiet)
    if isinstance(work.learner, Learner):
        load_learned(work.learner.eval(), state, fitted, where)
    about = {"file": checkpoint.path.name, "epoch": checkpoint.epoch, "names": dict(fitted.released_names)}
    with folder.claimed():
        folder.begin(fresh=True)
        conclude(prepared, work, [], say=say, info={"imported": lambda: about})
        folder.finish()
    return folder


def _words(names: FolderNames, overrides: Sequence[str], *, bare: bool) -> list[str]:
    """What is known of the configuration: what the folders say, where no override says otherwise, and the overrides.

    A method may be called by the name it has in the released code.
    """
    recipes = {release.trainer.lower(): release.recipe for release in reversed(RELEASES)}
    words = []
    for override in overrides:
        key, _, value = override.partition("=")
        words.append(f"{key}={recipes.get(value.lower(), value)}" if key == "method" else override)
    found = [f"{key}={value}" for key, value in names.overrides.items() if not _last(key, words)]
    if bare and not _last("dataset", [*found, *words]):
        found += ["dataset=folder", "dataset.name=imported", "dataset.title=imported"]
    return [*found, *words]


def _learner_of(recipe: str) -> str:
    """The learner of a recipe, or nothing where there is none."""
    released = {release.recipe: release.learner for release in RELEASES}
    return released.get(recipe) or (str(compose([f"method={recipe}"]).choices.learner) if recipe else "")


def _last(key: str, words: Sequence[str]) -> str:
    """The last value that some overrides give a key, or nothing."""
    values = [word.partition("=")[2] for word in words if word.partition("=")[0] == key]
    return values[-1] if values else ""


def _configuration(checkpoint: Checkpoint, names: FolderNames, fitted: Fitted, words: Sequence[str]) -> DictConfig:
    """The recipe of a checkpoint, with what is known and what its tensors tell."""
    config = compose(words)
    learner = config.learner
    for key, value in fitted.release.settings(fitted.sizes).items():
        learner[key] = value
    if names.position and "position" in learner and not _last("learner.position", words):
        learner.position = names.position
    start = str(learner.get("init") or "").split()
    tokens = fitted.sizes.get("n", 0)
    if start and (len(start) < tokens or (len(start) > tokens and not fitted.release.keeps_words)):
        learner.init = ""
    if learner.get("init_reference") and tokens != learner.min_context:
        learner.init_reference = False
    if checkpoint.epoch is not None and not _last("training.epochs", words):
        config.training.epochs = checkpoint.epoch
    OmegaConf.set_struct(config, False)
    return config


def learned_tensors(fitted: Fitted, where: str) -> dict[str, Tensor]:
    """The learned tensors by our names, in float32.

    Raises:
        NumericalError: NaN or infinity in one of them. DataError: its numbers are cut off.
    """
    state = {}
    for name, stored in fitted.tensors.items():
        state[name] = stored.read().float()
        if not bool(torch.isfinite(state[name]).all()):
            released = fitted.released_names[name]
            raise NumericalError(f"{where} has NaN or infinity in '{released}'; its training failed.")
    return state


def _digest(state: Mapping[str, Tensor]) -> str:
    """Twelve hexadecimal digits over the learned tensors, which decide the numbers of an imported run."""
    content = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        content.update(f"{name}{tuple(tensor.shape)}".encode() + tensor.numpy().tobytes())
    return content.hexdigest()[:12]


def _named(config: DictConfig, classes: Sequence[str], say: Say) -> tuple[Card, Splits]:
    """Classes without a data set."""
    config.calibrators = ["none"]
    card = read_card(config.dataset)
    names = ClassNames(normalise_class_names(list(classes)), card.templates)
    task = Task(card.name, names, train=(), val=(), test=(), images=FolderImages(Path()))
    say(f"a run of {len(classes)} classes for 'promptcal predict', without predictions: no data set is looked at")
    return card, Splits(train=task, targets={"base": task})


def _data(config: DictConfig, words: Sequence[str], say: Say) -> tuple[Card, Splits]:
    """The card, and what the protocol draws from the data set; without images where these are not there."""
    alone = "or the class names alone as --classes A,B,…"
    if not _last("dataset", words):
        raise ConfigError(f"no folder says which data set it was trained on; add dataset=NAME, {alone}.")
    card = read_card(config.dataset)
    if card.folder is not None and card.path is None and config.data.root is None:
        raise ConfigError(
            f"the data set '{card.name}' is not at hand; add data.root=FOLDER (its folder there is '{card.folder}'), "
            f"{alone}."
        )
    assumed = [f"{key}={config[key]}" for key in ("shots", "seed") if not _last(key, words)]
    if assumed:
        say(f"no folder says how its images were drawn; assumed: {', '.join(assumed)}")
    card, splits = drawn(config, say)
    try:
        for used in (splits.train, *splits.targets.values()):
            check_images(used, missing=config.data.missing)
    except DataError as error:
        say(f"a run for 'promptcal predict', without predictions: {error}")
        config.calibrators = ["none"]
        targets = {name: _without_images(task) for name, task in splits.targets.items()}
        splits = replace(splits, train=_without_images(splits.train), targets=targets, joined={})
    return card, splits


def _without_images(task: Task) -> Task:
    return task.replace(train=(), val=(), test=())


def load_learned(learner: Learner, state: Mapping[str, Tensor], fitted: Fitted, where: str) -> None:
    """Load the learned tensors, all of them and no others.

    Raises:
        DataError: a tensor that is missing, strange or of another shape; the shape that belongs is named.
    """
    wanted = {name: tuple(tensor.shape) for name, tensor in learner.state_dict().items()}
    for name in {**wanted, **state}:
        released = fitted.released_names.get(name, name)
        if name not in state:
            raise DataError(f"{where} lacks '{released}' of shape {list(wanted[name])}, which the learner needs.")
        if name not in wanted:
            raise DataError(f"{where} holds '{released}', which the learner has no place for.")
        if tuple(state[name].shape) != wanted[name]:
            own = tuple(state[name].shape)
            tied = learner.tied_classes
            why = (
                f": it was trained on {own[0]} classes and there are {len(tied)}; check data set and protocol"
                if tied is not None and own[1:] == wanted[name][1:]
                else ""
            )
            raise DataError(f"{where} has '{released}' of shape {list(own)} where {list(wanted[name])} belongs{why}.")
    learner.load_state_dict(dict(state))
