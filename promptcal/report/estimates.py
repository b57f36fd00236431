"""Means over runs with their intervals, for each data set and over data sets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from promptcal.report.comparisons import BETTER, Difference, against_best, over_data_sets, paired, supported
from promptcal.report.resampling import basic_interval, measured, reweight
from promptcal.report.results import Group, Number, Results, Row
from promptcal.report.samples import Samples
from promptcal.report.transfers import with_means


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


SIGNED = ("signed_gap",)
"""Resampled numbers that can be negative."""


def estimate(
    values: Float[np.ndarray, " n"], replicates: Float[np.ndarray, " R"] | None, *, signed: bool = False
) -> Estimate:
    """The mean of values and, where it was resampled, its basic interval, cut at 0 where the number has no sign."""
    value, std = float(values.mean()), float(values.std(ddof=1)) if len(values) > 1 else None
    if replicates is None:
        return Estimate(value, std, len(values))
    low, high = basic_interval(value, replicates)
    return Estimate(value, std, len(values), *((low, high) if signed else (max(low, 0.0), max(high, 0.0))), replicates)


@dataclass(frozen=True)
class Compared:
    """Everything a report says of one group, or of the average over data sets.

    ``differences[row, reference, number]`` is the row less the reference: less the best row, and less zero-shot.
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
    drawn = reweight({run.name: samples[run.name] for run in runs}, resamples, results.groups.index(group))
    replicates = {run.name: with_means(drawn[run.name], run.others) for run in runs}
    estimates: dict[tuple[Row, Number], Estimate] = {}
    winners: dict[Number, frozenset[Row]] = {}
    differences: dict[tuple[Row, Row, Number], Difference] = {}
    for number in dict.fromkeys(number for run in runs for _, number in run.values):
        known = {row: measured(results.of(group, row), row.calibrator, number, replicates) for row in rows}
        table = {row: one for row, one in known.items() if one is not None}
        signed = number.metric in SIGNED
        estimates |= {(row, number): estimate(one.values, one.resampled, signed=signed) for row, one in table.items()}
        if number.metric in BETTER:
            against = against_best(table, number)
            winners[number] = supported(list(table), against)
            for reference in references_of(list(table)):
                found = [paired(row, reference, number, one, table[reference]) for row, one in table.items()]
                differences |= {(row, reference, number): one for row, one in zip(table, found, strict=True) if one}
            differences |= {(one.row, one.reference, number): one for one in against}
    return Compared(estimates, differences, winners)


def references_of(rows: Sequence[Row]) -> list[Row]:
    """The rows that others are compared with: plain zero-shot, in each of its variants."""
    return [row for row in rows if (row.method, row.calibrator) == ("zero_shot", "none")]


def average(compared: Mapping[Group, Compared], rows: Sequence[Row]) -> Compared:
    """The mean of each column over data sets, for rows that all of them have, and Wilcoxon tests over data sets.

    The intervals take these data sets as given: they say nothing of other data sets.
    """
    groups = list(compared.values())
    estimates, winners = {}, {}
    differences: dict[tuple[Row, Row, Number], Difference] = {}
    for number in dict.fromkeys(number for one in groups for _, number in one.estimates):
        values, resampled = {}, {}
        for row in rows:
            known = [one.estimates[row, number] for one in groups if (row, number) in one.estimates]
            if len(known) == len(groups):
                values[row] = np.array([one.value for one in known])
                means = _mean_replicates(known)
                estimates[row, number] = estimate(values[row], means, signed=number.metric in SIGNED)
                resampled[row] = estimates[row, number].replicates
        if number.metric in BETTER:
            tested = {row: one for row, one in resampled.items() if one is not None}
            against = over_data_sets({row: values[row] for row in tested}, tested, number) if tested else []
            differences |= {(one.row, one.reference, number): one for one in against}
            winners[number] = supported(list(values), against)
    return Compared(estimates, differences, winners)


def _mean_replicates(estimates: Sequence[Estimate]) -> Float[np.ndarray, " R"] | None:
    """The resampled means over data sets, whose images are independent of each other."""
    known = [one.replicates for one in estimates if one.replicates is not None]
    if len(known) < len(estimates):
        return None
    shortest = min(len(one) for one in known)
    result: np.ndarray = np.mean([one[:shortest] for one in known], axis=0)
    return result
