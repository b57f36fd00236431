"""Means over runs with their intervals, for each data set and over data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from jaxtyping import Float

from promptcal.report.comparisons import BETTER, Difference, adjust, over_data_sets, paired, supported
from promptcal.report.resampling import Measured, basic_interval, mean_over_runs, measured, reweight
from promptcal.report.results import Group, Number, Results, Row
from promptcal.report.samples import Samples


@dataclass(frozen=True)
class Estimate:
    """A mean, over runs or over data sets.

    Attributes:
        value: the mean.
        std: the standard deviation between runs (data sets), None of one.
        runs: of how many.
        low: lower end of the 95 % interval, None where the number is not resampled.
        high: upper end.
        replicates: the resampled means [R] behind the interval.
    """

    value: float
    std: float | None
    runs: int
    low: float | None = None
    high: float | None = None
    replicates: Float[np.ndarray, " R"] | None = None

    @property
    def half(self) -> float | None:
        """Half the width of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def estimate(values: Float[np.ndarray, " n"], replicates: Float[np.ndarray, " R"] | None) -> Estimate:
    """The mean of values and, where it was resampled, its basic interval."""
    value, std = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None
    if replicates is None:
        return Estimate(value, std, len(values))
    return Estimate(value, std, len(values), *basic_interval(value, replicates), replicates)


@dataclass(frozen=True)
class Compared:
    """Everything a report says of one group, or of the average over data sets.

    ``winners[number]`` are the rows that may be called best in it: usually none, sometimes several identical ones.
    """

    estimates: Mapping[tuple[Row, Number], Estimate]
    differences: Mapping[tuple[Row, Row, Number], Difference]
    winners: Mapping[Number, frozenset[Row]]


def compare(results: Results, group: Group, samples: Mapping[str, Samples], resamples: int) -> Compared:
    """The estimates, paired differences and supported winners of one group.

    Args:
        results: of all runs.
        group: which of them.
        samples: by run folder name, the scored images.
        resamples: replicates of the bootstrap.
    """
    rows = results.rows(group)
    runs = [run for run in results.runs if run.group == group]
    replicates = reweight({run.name: samples[run.name] for run in runs}, resamples, results.groups.index(group))
    estimates, winners = {}, {}
    differences: dict[tuple[Row, Row, Number], Difference] = {}
    for number in dict.fromkeys(number for run in runs for _, number in run.values):
        found = {row: measured(results.of(group, row), row.calibrator, number, replicates) for row in rows}
        table = {row: one for row, one in found.items() if one is not None}
        for row, one in table.items():
            resampled = None if one.replicates is None else mean_over_runs(one)
            estimates[row, number] = estimate(one.values, resampled)
        if number.metric in BETTER:
            pairs = _pairs(table, number)
            differences |= {(pair.first, pair.second, number): pair for pair in pairs}
            means = {row: float(one.values.mean()) for row, one in table.items()}
            winners[number] = supported(means, pairs, BETTER[number.metric])
    return Compared(estimates, differences, winners)


def _pairs(table: Mapping[Row, Measured], number: Number) -> list[Difference]:
    """The tests of all pairs of rows that share runs, corrected together."""
    found = [paired(first, second, number, table[first], table[second]) for first, second in combinations(table, 2)]
    return adjust([pair for pair in found if pair is not None])


def average(compared: Mapping[Group, Compared], rows: Sequence[Row]) -> Compared:
    """The mean of each column over data sets, for rows that all of them have, and Wilcoxon tests over data sets.

    The intervals take these data sets as given: they say nothing of other data sets.
    """
    groups = list(compared.values())
    estimates, winners = {}, {}
    differences: dict[tuple[Row, Row, Number], Difference] = {}
    for number in dict.fromkeys(number for one in groups for _, number in one.estimates):
        table = {}
        for row in rows:
            found = [one.estimates.get((row, number)) for one in groups]
            known = [one for one in found if one is not None]
            if len(known) == len(groups):
                table[row] = np.array([one.value for one in known])
                estimates[row, number] = estimate(table[row], _mean_replicates(known))
        if number.metric in BETTER:
            pairs = over_data_sets(table, number)
            differences |= {(pair.first, pair.second, number): pair for pair in pairs}
            means = {row: float(values.mean()) for row, values in table.items()}
            winners[number] = supported(means, pairs, BETTER[number.metric])
    return Compared(estimates, differences, winners)


def _mean_replicates(estimates: Sequence[Estimate]) -> Float[np.ndarray, " R"] | None:
    known = [one.replicates for one in estimates if one.replicates is not None]
    if len(known) < len(estimates):
        return None
    shortest = min(len(one) for one in known)
    result: np.ndarray = np.mean([one[:shortest] for one in known], axis=0)
    return result
