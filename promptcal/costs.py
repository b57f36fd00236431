"""What runs will cost, from what finished runs cost."""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

from omegaconf import DictConfig

from promptcal.run import RunFolder, method_label

ALIKE = ("model", "method", "epochs", "shots", "data set")
"""What makes runs cost alike; where no finished run agrees in all of it, the last ones are given up first."""


@dataclass(frozen=True)
class Estimate:
    """The work of some runs in seconds.

    Attributes:
        runs: how many runs.
        seconds: their work, where all of it can be estimated.
        finished: how many finished runs it is estimated from.
        given_up: in what some of those differ from the runs they stand for.
    """

    runs: int
    seconds: float | None
    finished: int
    given_up: tuple[str, ...] = ()

    def sentence(self, at_once: int, words: Callable[[float], str]) -> str:
        """The estimate in one sentence, for so many runs at once."""
        if self.seconds is None:
            return "no finished run of the same model to estimate the cost from; do one run first"
        parallel = f", {words(self.seconds / at_once)} with {at_once} at once" if at_once > 1 else ""
        unlike = f"; some of them differ in {', '.join(self.given_up)}" if self.given_up else ""
        return (
            f"about {words(self.seconds)} of work{parallel} "
            f"({self.seconds / self.runs:.1f} s a run, estimated from {self.finished} finished ones{unlike})"
        )


def measured(places: Collection[str]) -> Mapping[tuple[str, ...], list[float]]:
    """The seconds of every finished run below some folders, by every group it belongs to."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for place in sorted(places):
        for file in sorted(Path(place).rglob("run.json")):
            folder = RunFolder(file.parent)
            seconds = folder.info.get("seconds")
            if folder.path.suffix in (".partial", ".old") or seconds is None:
                continue
            key = _key(folder.config)
            for length in range(len(key) + 1):
                found[key[:length]].append(float(seconds))
    return found


def estimate(configs: Sequence[DictConfig], seconds: Mapping[tuple[str, ...], Sequence[float]]) -> Estimate:
    """What some runs will cost, each as the mean of the finished runs that are most like it.

    Runs of another model say nothing: without one of the same there is no estimate.
    """
    total, used, given_up = 0.0, set(), set()
    for config in configs:
        key = _key(config)
        if key[:1] not in seconds:
            return Estimate(len(configs), None, 0)
        length = max(length for length in range(len(key) + 1) if key[:length] in seconds)
        total += mean(seconds[key[:length]])
        used.add(key[:length])
        given_up |= set(ALIKE[length:])
    outermost = [key for key in used if not any(key[:length] in used for length in range(len(key)))]
    finished = sum(len(seconds[key]) for key in outermost)
    return Estimate(len(configs), total, finished, tuple(name for name in ALIKE if name in given_up))


def _key(config: DictConfig) -> tuple[str, ...]:
    return tuple(
        map(
            str,
            (config.choices.model, method_label(config), config.training.epochs, config.shots, config.dataset.name),
        )
    )
