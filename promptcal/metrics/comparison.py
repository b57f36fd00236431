"""Two or more models on the same samples: which one is better, and is the difference more than chance?"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from promptcal.errors import DataError
from promptcal.metrics.bins import bin_index
from promptcal.metrics.contract import Scored, TopLabelPredictions, score
from promptcal.metrics.noise import blocks
from promptcal.metrics.presets import nll_rows
from promptcal.metrics.proper import row_brier
from promptcal.types import Predictions

ECE_BINS = 15


@dataclass(frozen=True)
class Comparison:
    """One metric of two models on the same samples; ``difference`` is ``other`` minus ``first``.

    ``low`` and ``high`` bound the difference with 95 %; ``p_holm`` is the p-value after Holm's correction over every
    metric and model compared.
    """

    metric: str
    first: str
    other: str
    first_value: float
    other_value: float
    difference: float
    low: float
    high: float
    p_value: float
    p_holm: float
    n: int
    unit: str = "fraction"

    def row(self) -> dict[str, Any]:
        """The comparison as one JSON-ready row."""
        return asdict(self)


@dataclass(frozen=True)
class Contribution:
    """What each sample adds to a metric: the metric is the sum over k of |mean over samples of table[:, k]|."""

    metric: str
    table: Float[np.ndarray, "n K"]
    unit: str = "fraction"


def contributions(scored: Scored) -> list[Contribution]:
    """Accuracy, ECE (15 bins) and, where all classes are known, NLL and Brier score, as sums over samples."""
    n = len(scored)
    residuals = np.zeros((n, ECE_BINS))
    residuals[np.arange(n), bin_index(scored.confidence, ECE_BINS)] = scored.confidence - scored.correct
    rows = [Contribution("accuracy", scored.correct[:, None]), Contribution("ece", residuals)]
    if scored.probabilities is not None:
        rows.append(Contribution("nll", nll_rows(scored)[:, None], "nats"))
        rows.append(Contribution("brier", row_brier(scored.probs, scored.labels)[:, None], "score"))
    return rows


def compare(
    predictions: Mapping[str, Predictions | TopLabelPredictions], *, replicates: int = 2000, seed: int = 0
) -> list[Comparison]:
    """Every later model against the first on the same samples: accuracy, ECE, NLL and Brier score.

    The p-value is that of a permutation test: the two predictions of a sample change places with probability 1/2, which
    is exact where the models are exchangeable. The interval is a paired basic bootstrap. Holm's correction is over all
    rows, every metric of every later model.

    Raises:
        DataError: fewer than two models; different samples (number, labels, or paths where both know them).
    """
    if len(predictions) < 2:
        raise DataError("a comparison needs at least two sets of predictions.")
    (first, base), *others = predictions.items()
    base_contributions = contributions(score(base))
    rows: list[Comparison] = []
    for name, other in others:
        _check_same_samples(first, base, name, other)
        pairs = zip(base_contributions, contributions(score(other)), strict=False)
        rows += _compare(first, name, list(pairs), replicates, seed)
    adjusted = holm(np.array([row.p_value for row in rows]))
    return [replace(row, p_holm=float(p)) for row, p in zip(rows, adjusted, strict=True)]


def _check_same_samples(
    first: str, a: Predictions | TopLabelPredictions, other: str, b: Predictions | TopLabelPredictions
) -> None:
    if len(a.labels) != len(b.labels):
        raise DataError(f"{first} has {len(a.labels)} rows and {other} has {len(b.labels)}; compare the same samples.")
    different = np.asarray(a.labels) != np.asarray(b.labels)
    if different.any():
        row = int(different.argmax())
        raise DataError(f"row {row} has label {a.labels[row]} in {first} and {b.labels[row]} in {other}.")
    if isinstance(a, Predictions) and isinstance(b, Predictions) and a.paths and b.paths and a.paths != b.paths:
        row = next(i for i, (mine, theirs) in enumerate(zip(a.paths, b.paths, strict=True)) if mine != theirs)
        raise DataError(f"row {row} is {a.paths[row]} in {first} and {b.paths[row]} in {other}; use one order.")


def _compare(
    first: str, other: str, pairs: list[tuple[Contribution, Contribution]], replicates: int, seed: int
) -> list[Comparison]:
    a, b = (np.concatenate([pair[side].table for pair in pairs], axis=1) for side in (0, 1))
    starts = np.cumsum([0] + [mine.table.shape[1] for mine, _ in pairs[:-1]])
    n = len(a)

    def values(sums: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.add.reduceat(np.abs(sums) / n, starts, axis=-1)
        return result

    generator = np.random.default_rng(seed)
    value_a, value_b = values(a.sum(axis=0)), values(b.sum(axis=0))
    difference = value_b - value_a
    extreme, drawn = np.ones(len(pairs)), []
    for size in blocks(replicates, n):
        swapped = (generator.random((size, n)) < 0.5).astype(np.float64)
        mixed = a.sum(axis=0) + swapped @ (b - a)
        permuted = values(a.sum(axis=0) + b.sum(axis=0) - mixed) - values(mixed)
        extreme += (np.abs(permuted) >= np.abs(difference) - 1e-12).sum(axis=0)
        chosen = generator.integers(0, n, (size, n)) + np.arange(size)[:, None] * n
        times = np.bincount(chosen.ravel(), minlength=size * n).reshape(size, n).astype(np.float64)
        drawn.append(values(times @ b) - values(times @ a))
    p_values = extreme / (replicates + 1)
    upper, lower = np.quantile(np.concatenate(drawn), [0.975, 0.025], axis=0)
    return [
        Comparison(
            metric=mine.metric,
            first=first,
            other=other,
            first_value=float(value_a[k]),
            other_value=float(value_b[k]),
            difference=float(difference[k]),
            low=float(2 * difference[k] - upper[k]),
            high=float(2 * difference[k] - lower[k]),
            p_value=float(p_values[k]),
            p_holm=float(p_values[k]),
            n=n,
            unit=mine.unit,
        )
        for k, (mine, _) in enumerate(pairs)
    ]


def holm(p_values: Float[np.ndarray, " m"]) -> Float[np.ndarray, " m"]:
    """Holm's adjusted p-values: for the k-th smallest of m, the largest of (m - j + 1)·p_(j) over j <= k, at most 1.

    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    m = len(p_values)
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty(m)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(p_values[order] * np.arange(m, 0, -1)))
    return adjusted
