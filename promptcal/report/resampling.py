"""Resampled numbers of runs: images are reweighted within runs, alike in every run that saw them, and runs are drawn.

Runs on the same images share the luck of those images, and methods are compared on them, so one weight belongs to an
image of a data set, not to a row of a file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from promptcal.metrics.bins import bin_index
from promptcal.report.results import HEADLINE_BINS, Draw, H, Number, Run
from promptcal.report.samples import Samples, Scores

RESAMPLED_BINS = (HEADLINE_BINS, 10, 20)
LARGEST = 1 << 26
"""How many image weights are held at once; very large data sets get fewer replicates."""

Replicates = Mapping[str, Mapping[tuple[str, Number], Float[np.ndarray, " R"]]]
"""By run and by (calibrator, number), the number under R common reweightings of the group's images."""


def reweight(samples: Mapping[str, Samples], resamples: int, seed: int) -> Replicates:
    """Accuracy, signed gap, NLL, ECE and H of runs under random image weights.

    The weights are standard exponential, independent between images (Bayesian bootstrap: Rubin, Annals of Statistics
    1981), which has the spread of drawing images with replacement and never leaves a split empty. H is the harmonic
    mean of a replicate's accuracies.

    Args:
        samples: by run, the scored images; the runs of one data set.
        resamples: how many reweightings R, at least 2; fewer for more than 65,000 images.
        seed: of the weights.
    """
    lists = dict.fromkeys(scores.images for sample in samples.values() for scores in sample.scores.values())
    _, inverse = np.unique(np.concatenate([np.asarray(images) for images in lists]), return_inverse=True)
    ends = np.cumsum([len(images) for images in lists])
    places = {images: inverse[end - len(images) : end] for images, end in zip(lists, ends, strict=True)}
    total = int(inverse.max()) + 1
    replicates = max(2, min(resamples, LARGEST // total))
    weights = np.random.default_rng(seed).standard_exponential((total, replicates), dtype=np.float32)
    return {name: _of_run(sample, places, weights) for name, sample in samples.items()}


def _of_run(
    sample: Samples, places: Mapping[tuple[str, ...], Int[np.ndarray, " n"]], weights: Float[np.ndarray, "N R"]
) -> dict[tuple[str, Number], Float[np.ndarray, " R"]]:
    found: dict[tuple[str, Number], np.ndarray] = {}
    drawn: dict[tuple[str, ...], np.ndarray] = {}
    for (calibrator, split), scores in sample.scores.items():
        if scores.images not in drawn:
            mine = weights[places[scores.images]]
            drawn[scores.images] = mine / mine.sum(axis=0)
        for metric, values in weighted_metrics(scores, drawn[scores.images]).items():
            found[calibrator, Number(split, metric)] = values
    for calibrator in dict.fromkeys(calibrator for calibrator, _ in sample.scores):
        base, novel = (found.get((calibrator, Number(split, "accuracy"))) for split in ("base", "novel"))
        if base is not None and novel is not None:
            found[calibrator, H] = 2 * base * novel / np.maximum(base + novel, np.finfo(np.float32).tiny)
    return found


def weighted_metrics(scores: Scores, weights: Float[np.ndarray, "n R"]) -> dict[str, Float[np.ndarray, " R"]]:
    """The metrics of one split under weights that sum to one in each column."""
    gap = scores.confidence - scores.correct
    columns, edges = [scores.correct[:, None], gap[:, None], scores.nll[:, None]], [3]
    for bins in RESAMPLED_BINS:
        columns.append(np.eye(bins)[bin_index(scores.confidence, bins)] * gap[:, None])
        edges.append(edges[-1] + bins)
    sums = np.concatenate(columns, axis=1).astype(np.float32).T @ weights
    found = {"accuracy": sums[0], "signed_gap": sums[1], "nll": sums[2]}
    for bins, start, end in zip(RESAMPLED_BINS, edges[:-1], edges[1:], strict=True):
        found["ece" if bins == HEADLINE_BINS else f"ece@{bins}"] = np.abs(sums[start:end]).sum(axis=0)
    return found


@dataclass(frozen=True)
class Measured:
    """One number of one row in each of its runs, in order of their draws, and its replicates where it was resampled."""

    draws: tuple[Draw, ...]
    values: Float[np.ndarray, " runs"]
    replicates: Float[np.ndarray, "runs R"] | None

    def only(self, draws: tuple[Draw, ...]) -> "Measured":
        """The same for some of the draws."""
        if draws == self.draws:
            return self
        places = [self.draws.index(draw) for draw in draws]
        replicates = None if self.replicates is None else self.replicates[places]
        return Measured(draws, self.values[places], replicates)

    @cached_property
    def resampled(self) -> Float[np.ndarray, " R"] | None:
        """The mean over runs in each replicate, where k - 1 of k clusters of runs are drawn with replacement.

        Drawing k - 1 instead of k gives the mean its unbiased variance for few clusters (Rao, Wu, "Resampling Inference
        With Complex Survey Data", JASA 1988). A single cluster is always drawn: it does not show how runs differ. Equal
        draws are weighted alike, so that methods stay paired.
        """
        if self.replicates is None or not self.draws:
            return None
        cluster, replicates = clusters(self.draws), self.replicates.shape[1]
        k = int(cluster.max()) + 1
        drawn = np.random.default_rng(k).multinomial(max(k - 1, 1), np.full(k, 1.0 / k), size=replicates)
        weights = drawn.T[cluster] / drawn.T[cluster].sum(axis=0)
        result: np.ndarray = (weights * self.replicates).sum(axis=0)
        return result


def measured(runs: Sequence[Run], calibrator: str, number: Number, replicates: Replicates) -> Measured | None:
    """One number of the runs of a row; None where no run has it."""
    having = sorted((run for run in runs if (calibrator, number) in run.values), key=lambda run: str(run.draw))
    if not having:
        return None
    values = np.array([run.values[calibrator, number] for run in having])
    resampled = [found for run in having if (found := replicates[run.name].get((calibrator, number))) is not None]
    stacked = np.stack(resampled).astype(np.float64) if len(resampled) == len(having) else None
    return Measured(tuple(run.draw for run in having), values, stacked)


def clusters(draws: Sequence[Draw]) -> Int[np.ndarray, " runs"]:
    """Which runs go together when runs are drawn: those of one class split where there are several, else each alone.

    Runs of one class split share their classes, so that only another class split tells how much the classes matter.
    """
    keys = [str(draw.split_seed) for draw in draws]
    if len(set(keys)) > 1:
        result: np.ndarray = np.unique(keys, return_inverse=True)[1]
        return result
    return np.arange(len(draws))


def basic_interval(value: float, replicates: Float[np.ndarray, " R"], level: float = 0.95) -> tuple[float, float]:
    """[2v - q(1 - a/2), 2v - q(a/2)]: the replicates' quantiles mirrored at the value.

    A resampled ECE is larger than the ECE itself by about as much as that is larger than the truth; the mirror takes
    this off, where the quantiles themselves (the percentile interval) would count it twice.

    >>> low, high = basic_interval(0.5, np.linspace(0.5, 0.7, 101))
    >>> round(low, 3), round(high, 3)
    (0.305, 0.495)
    """
    tail = (1.0 - level) / 2
    low, high = np.quantile(replicates, [tail, 1.0 - tail])
    return float(2 * value - high), float(2 * value - low)
