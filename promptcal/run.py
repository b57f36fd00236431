"""One run on disk: a folder found by what decides its numbers, written whole or not at all."""

import hashlib
import importlib.util
import json
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

import promptcal
from promptcal.errors import DataError, RunBusy
from promptcal.locks import locked
from promptcal.metrics.base_novel import together
from promptcal.storage import load_predictions, load_tensors, read_jsonl, write_json, write_text
from promptcal.types import Predictions

SCHEMA = 1
"""Raised when the meaning of a run folder changes; part of the hash, so that old runs are not taken for new ones."""

ABOUT_DATA = ("title", "folder", "other_folders", "path", "sizes", "source", "licence", "reference")
"""Keys of a data card that only say what it is or where its files lie."""

IRRELEVANT = (
    *("data", "runs", "system", "model.weights", "model.download"),
    *(f"dataset.{key}" for key in ABOUT_DATA),
)
"""Keys of the configuration that cannot change a number."""

STATE = "state.safetensors"
"""The state of an unfinished training, in the working folder of its run."""

LOGS = "logs"
"""What loggers write beside the run's own files."""

PACKAGES = (
    "torch",
    "torchvision",
    "open_clip_torch",
    "timm",
    "numpy",
    "scipy",
    "scikit-learn",
    "safetensors",
    "pillow",
)


def method_label(config: DictConfig) -> str:
    """What a run's method is called: the recipe, its plug-ins and its head, such as ``coop+margin+moments``."""
    head, node = config.choices.get("head", "none"), config.get("head") or {}
    mode = node.get("mode", "joint")
    heads = [] if head == "none" else [head if mode == "joint" else f"{head}_{mode}"]
    return "+".join([config.choices.method, *config.choices.plugin, *heads])


def identity(config: DictConfig, task_digest: str, weights_digest: str) -> str:
    """Eight hexadecimal digits over everything that can change a number and nothing that cannot."""
    settings = OmegaConf.to_container(config, resolve=True)
    if not isinstance(settings, dict):
        raise DataError("the configuration of a run must be a mapping.")
    for key in IRRELEVANT:
        parent, _, leaf = key.rpartition(".")
        holder: Any = settings[parent] if parent else settings
        holder.pop(leaf, None)
    for target in (settings.get("protocol") or {}).get("targets") or ():
        if isinstance(target, dict):
            for key in ABOUT_DATA:
                target.pop(key, None)
    content = {
        "schema": SCHEMA,
        "config": settings,
        "code": code_digest(settings),
        "task": task_digest,
        "weights": weights_digest,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def code_digest(settings: Any) -> dict[str, str]:
    """SHA-256 of the source file of every ``_target_`` in a configuration: an edited loss or learner is another run."""
    if isinstance(settings, dict):
        found = {key: digest for value in settings.values() for key, digest in code_digest(value).items()}
        target = str(settings.get("_target_") or "")
        spec = importlib.util.find_spec(target.rpartition(".")[0]) if target else None
        if spec is not None and spec.origin and Path(spec.origin).is_file():
            found[target] = hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
        return found
    return {}


@dataclass(frozen=True)
class RunFolder:
    """``runs/<dataset>/<method>/<hash8>``; while a run is under way it works in ``<hash8>.partial`` beside it."""

    path: Path

    @property
    def partial(self) -> Path:
        """Where an unfinished run works."""
        return self.path.with_name(f"{self.path.name}.partial")

    @property
    def is_done(self) -> bool:
        """A folder under its own name is whole: it is renamed when everything in it has been written."""
        return (self.path / "run.json").is_file()

    @property
    def state(self) -> Path:
        """Where the state of an unfinished training is kept."""
        return self.partial / STATE

    @contextmanager
    def claimed(self, *, wait: bool = True) -> Iterator[None]:
        """Keep other processes from this run while the block works on it.

        Raises:
            RunBusy: another process is at it and ``wait`` is false.
            DataError: the folder cannot be written.
        """
        with ExitStack() as stack:
            try:
                held = stack.enter_context(locked(self.path.with_name(f"{self.path.name}.lock"), wait=wait))
            except OSError as error:
                raise DataError(
                    f"the folder {self.path.parent} cannot be written ({error.strerror}); set runs=FOLDER to another."
                ) from error
            if not held:
                raise RunBusy(f"another process is doing {self.path}.")
            yield

    def begin(self, *, fresh: bool = False) -> Path:
        """The working folder of this run, with nothing of an earlier attempt but its training state and logs.

        Args:
            fresh: without these, too.
        """
        self.partial.mkdir(parents=True, exist_ok=True)
        for left in self.partial.iterdir():
            if fresh or left.name not in (STATE, LOGS):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        return self.partial

    def finish(self) -> None:
        """Make the working folder the run; an older run of the same name is replaced whole."""
        self.state.unlink(missing_ok=True)
        old = self.path.with_name(f"{self.path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if self.path.exists():
            self.path.rename(old)
        self.partial.rename(self.path)
        shutil.rmtree(old, ignore_errors=True)

    def _file(self, name: str) -> Path:
        path = self.path / name
        if not path.exists():
            raise DataError(f"{self.path} is not a finished run: it has no {name}; run it again.")
        return path

    @property
    def config(self) -> DictConfig:
        """The resolved configuration."""
        loaded = OmegaConf.load(self._file("config.yaml"))
        if not isinstance(loaded, DictConfig):
            raise DataError(f"{self.path / 'config.yaml'} is not a mapping.")
        return loaded

    @property
    def info(self) -> dict[str, Any]:
        """``run.json``: commit, versions, device, times, cost."""
        info: dict[str, Any] = json.loads(self._file("run.json").read_text(encoding="utf-8"))
        return info

    @property
    def task(self) -> dict[str, Any]:
        """``task.json``: the drawn images and class names of training and of every target."""
        task: dict[str, Any] = json.loads(self._file("task.json").read_text(encoding="utf-8"))
        return task

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of ``metrics.jsonl``; raises DataError for a run that was imported without images."""
        rows = read_jsonl(self._file("metrics.jsonl"))
        if not rows:
            raise DataError(
                f"{self.path} was imported without images and has no predictions; import it again with dataset=NAME "
                f"and data.root=FOLDER."
            )
        return rows

    @property
    def history(self) -> list[dict[str, Any]]:
        """The rows of ``history.jsonl``; empty for a method that does not train."""
        return read_jsonl(self._file("history.jsonl"))

    def predictions(self, split: str) -> Predictions:
        """The predictions of a split: as stored, or those of the stored splits that it joins."""
        name = f"predictions/{split}.safetensors"
        parts = () if (self.path / name).is_file() else self._joined.get(split, ())
        if parts:
            return together([self.predictions(part) for part in parts], split)
        return load_predictions(self._file(name))

    @property
    def trained_classes(self) -> tuple[str, ...] | None:
        """The classes that were trained; None where the folder does not say."""
        return tuple(self.task["train"]["classes"]) if (self.path / "task.json").is_file() else None

    @property
    def _joined(self) -> dict[str, list[str]]:
        """The splits that are several stored ones together."""
        known = (self.path / "task.json").is_file()
        return dict(self.task.get("joined", {})) if known else {}

    def learner_state(self) -> dict[str, torch.Tensor]:
        """The learned tensors."""
        arrays, _ = load_tensors(self._file("learner.safetensors"))
        return {name: torch.from_numpy(array) for name, array in arrays.items()}

    def write_config(self, config: DictConfig) -> None:
        """Write the resolved configuration into the working folder."""
        write_text(self.partial / "config.yaml", OmegaConf.to_yaml(config, resolve=True, sort_keys=True))

    def write_info(self, **facts: Any) -> None:
        """Write ``run.json`` into the working folder: versions, commit and the given facts."""
        write_json(self.partial / "run.json", {"schema": SCHEMA, **versions(), **facts})


def find_runs(*places: Path) -> list[RunFolder]:
    """The finished runs at or below some folders, in order of their paths.

    Raises:
        DataError: a place that does not exist or holds no finished run.
    """
    found = []
    for place in places:
        if not place.exists():
            raise DataError(f"there is no folder {place}.")
        folders = [file.parent for file in sorted(place.rglob("run.json"))]
        here = [RunFolder(folder) for folder in folders if folder.suffix not in (".partial", ".old")]
        if not here:
            raise DataError(f"there is no finished run in {place}; 'promptcal run' makes one.")
        found += here
    return found


def versions() -> dict[str, Any]:
    """What the numbers were made with: promptcal and its commit, Python, the packages that matter."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "absent"
    return {
        "promptcal": promptcal.__version__,
        "commit": commit(),
        "python": platform.python_version(),
        "packages": packages,
    }


def made_with(device: str) -> dict[str, Any]:
    """What decides the bits of a run besides its identity: a training is gone on with by the same alone."""
    return {"schema": SCHEMA, **versions(), "device": device}


@cache
def commit() -> str | None:
    """The commit of promptcal's own checkout, with ``-dirty`` where files differ from it; None in an installation."""
    root = Path(promptcal.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
