"""Means over runs with their intervals, differences between methods with their tests, and who may be called best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy import stats

from promptcal.report.resampling import Replicates, basic_interval, clusters, draw_runs, reweight
from promptcal.report.results import Group, Number, Results, Row, Run
from promptcal.report.samples import Samples

SEED = 0
ALPHA = 0.05
FEWEST_DATA_SETS = 6
"""A two-sided Wilcoxon test of five pairs cannot reach 0.05."""

HIGHER, LOWER = "higher", "lower"
BETTER = {"accuracy": HIGHER, "harmonic_mean": HIGHER, "ece": LOWER, "nll": LOWER}
"""The numbers in which a best row is looked for, and which way is better."""


@dataclass(frozen=True)
class Estimate:
    """A mean over runs: standard deviation between runs (None for one), 95 % interval (None where not resampled)."""

    value: float
    std: float | None
    runs: int
    low: float | None = None
    high: float | None = None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


@dataclass(frozen=True)
class Difference:
    """First row minus second in one number, on the runs that both have; ``adjusted`` is the p of Holm's method."""

    first: Row
    second: Row
    number: Number
    value: float
    low: float
    high: float
    p: float
    adjusted: float
    runs: int


@dataclass(frozen=True)
class Compared:
    """Everything a report says of one group, or of the average over data sets."""

    estimates: Mapping[tuple[Row, Number], Estimate]
    differences: Mapping[tuple[Row, Row, Number], Difference]
    winners: Mapping[Number, frozenset[Row]]


def compare(results: Results, group: Group, samples: Mapping[str, Samples], resamples: int) -> Compared:
    """The estimates, paired differences and supported winners of one group.

    Args:
        results: of all runs.
        group: which of them.
        samples: by run folder name, the scored images; without them there are means and no intervals or tests.
        resamples: replicates of the bootstrap.
    """
    rows = results.rows(group)
    mine = {run.folder.path.name: samples[run.folder.path.name] for row in rows for run in results.of(group, row)}
    replicates = reweight(mine, resamples, SEED)
    numbers = dict.fromkeys(number for run in results.runs if run.group == group for _, number in run.values)
    estimates = {}
    for row in rows:
        runs = results.of(group, row)
        for number in numbers:
            having = [run for run in runs if (row.calibrator, number) in run.values]
            if having:
                estimates[row, number] = _estimate(having, row.calibrator, number, replicates)
        for split in results.splits(group):
            floors = [
                mine[run.folder.path.name].scores[row.calibrator, split].ece_noise_floor
                for run in runs
                if split in run.counts
            ]
            estimates[row, Number(split, "ece_noise_floor")] = Estimate(float(np.mean(floors)), None, len(floors))
    differences: dict[tuple[Row, Row, Number], Difference] = {}
    winners = {}
    for number in numbers:
        if number.metric in BETTER:
            found = _differences(
                results, group, [row for row in rows if (row, number) in estimates], number, replicates
            )
            differences |= {(d.first, d.second, number): d for d in found}
            values = {row: estimates[row, number].value for row in rows if (row, number) in estimates}
            winners[number] = supported(values, found, BETTER[number.metric])
    return Compared(estimates, differences, winners)


def _estimate(runs: Sequence[Run], calibrator: str, number: Number, replicates: Replicates) -> Estimate:
    values = np.array([run.values[calibrator, number] for run in runs])
    value, std = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None
    stacked = [replicates.of[run.folder.path.name].get((calibrator, number)) for run in runs]
    if any(one is None for one in stacked):
        return Estimate(value, std, len(runs))
    return Estimate(value, std, len(runs), *basic_interval(value, _resampled(np.stack(stacked), runs)))  # type: ignore[arg-type]


def _resampled(per_run: Float[np.ndarray, "runs R"], runs: Sequence[Run]) -> Float[np.ndarray, " R"]:
    """The mean over runs in each replicate, runs drawn by cluster."""
    weights = draw_runs(clusters(runs), per_run.shape[1], SEED + 1)
    result: np.ndarray = (weights * per_run).sum(axis=0)
    return result


def _differences(
    results: Results, group: Group, rows: Sequence[Row], number: Number, replicates: Replicates
) -> list[Difference]:
    """The differences of all pairs of rows that share runs, with Holm's correction over the pairs."""
    pairs = []
    for first, second in combinations(rows, 2):
        ours = {run.draw: run for run in results.of(group, first) if (first.calibrator, number) in run.values}
        theirs = {run.draw: run for run in results.of(group, second) if (second.calibrator, number) in run.values}
        shared = sorted(set(ours) & set(theirs), key=str)
        if shared:
            runs = [(ours[draw], theirs[draw]) for draw in shared]
            pairs.append((first, second, runs))
    return _adjust([_difference(first, second, number, runs, replicates) for first, second, runs in pairs])


def _adjust(differences: Sequence[Difference]) -> list[Difference]:
    """Holm's correction over the pairs that differ at all; identical rows, such as two that both route, are no test."""
    adjusted = iter(holm([one.p for one in differences if not _same(one)]))
    return [one if _same(one) else replace(one, adjusted=next(adjusted)) for one in differences]


def _difference(
    first: Row, second: Row, number: Number, pairs: Sequence[tuple[Run, Run]], replicates: Replicates
) -> Difference:
    """A paired difference: t of its bootstrap, with degrees of freedom between those of the runs and of the images.

    The variance of the mean difference has a part between clusters of runs (k - 1 degrees of freedom) and a part from
    the images (very many); Satterthwaite's rule joins them. Welch, Biometrika 1947.
    """
    ours, theirs = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    values = np.array([a.values[first.calibrator, number] - b.values[second.calibrator, number] for a, b in pairs])
    resampled = _resampled(
        np.stack(
            [
                replicates.of[a.folder.path.name][first.calibrator, number].astype(np.float64)
                - replicates.of[b.folder.path.name][second.calibrator, number]
                for a, b in pairs
            ]
        ),
        ours,
    )
    value, spread = float(values.mean()), float(resampled.std(ddof=1))
    low, high = basic_interval(value, resampled)
    if spread <= 1e-12:
        return Difference(first, second, number, value, low, high, 1.0, 1.0, len(theirs))
    cluster = clusters(ours)
    k = int(cluster.max()) + 1
    between = float((np.bincount(cluster, values) / np.bincount(cluster)).var(ddof=1)) / k if k > 1 else 0.0
    freedom = spread**4 * (k - 1) / between**2 if between > 0 else np.inf
    centred = 2 * value - float(resampled.mean())
    p = float(2 * stats.t.sf(abs(centred) / spread, max(freedom, k - 1.0)))
    return Difference(first, second, number, value, low, high, p, 1.0, len(theirs))


def _same(difference: Difference) -> bool:
    return difference.value == 0.0 and difference.low == 0.0 == difference.high


def holm(p: Sequence[float]) -> list[float]:
    """Holm's adjusted p values: the i-th smallest times (m - i + 1), made monotone, at most 1.

    Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 1979.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def supported(values: Mapping[Row, float], differences: Sequence[Difference], better: str) -> frozenset[Row]:
    """The best row and those identical to it, if every other row is significantly worse; otherwise nobody."""
    if len(values) < 2:
        return frozenset()
    best = (max if better == HIGHER else min)(values, key=lambda row: values[row])
    by_other = {d.second if d.first == best else d.first: d for d in differences if best in (d.first, d.second)}
    if set(by_other) != set(values) - {best}:
        return frozenset()
    same = {row for row, d in by_other.items() if _same(d)}
    others = set(by_other) - same
    if not others or any(by_other[row].adjusted > ALPHA for row in others):
        return frozenset()
    return frozenset({best, *same})


def average(compared: Mapping[Group, Compared], rows: Sequence[Row]) -> Compared:
    """The mean of each column over data sets, for rows that every data set has, and Wilcoxon tests over data sets.

    Wilcoxon signed-rank tests of the data sets' paired differences, two-sided, with Holm's correction over all pairs
    of rows; none for fewer than six data sets. Demšar, "Statistical Comparisons of Classifiers over Multiple Data
    Sets", JMLR 2006.
    """
    estimates, winners = {}, {}
    differences: dict[tuple[Row, Row, Number], Difference] = {}
    numbers = dict.fromkeys(number for one in compared.values() for _, number in one.estimates)
    for number in numbers:
        table = {
            row: np.array([one.estimates[row, number].value for one in compared.values()])
            for row in rows
            if all((row, number) in one.estimates for one in compared.values())
        }
        for row, values in table.items():
            estimates[row, number] = Estimate(float(values.mean()), float(values.std(ddof=1)), len(values))
        if number.metric in BETTER and len(compared) >= FEWEST_DATA_SETS:
            found = _adjust([_wilcoxon(a, b, number, table[a] - table[b]) for a, b in combinations(table, 2)])
            differences |= {(d.first, d.second, number): d for d in found}
            means = {row: float(values.mean()) for row, values in table.items()}
            winners[number] = supported(means, found, BETTER[number.metric])
    return Compared(estimates, differences, winners)


def _wilcoxon(first: Row, second: Row, number: Number, values: Float[np.ndarray, " data_sets"]) -> Difference:
    p = float(stats.wilcoxon(values).pvalue) if values.any() else 1.0
    return Difference(
        first, second, number, float(values.mean()), float(values.min()), float(values.max()), p, 1.0, len(values)
    )
