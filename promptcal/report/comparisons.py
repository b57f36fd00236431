"""Which differences between methods are more than luck, and who may therefore be called best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from jaxtyping import Float
from scipy import stats

from promptcal.metrics.comparison import holm
from promptcal.report.resampling import Measured, basic_interval, clusters, mean_over_runs
from promptcal.report.results import Number, Row

ALPHA = 0.05
FEWEST_DATA_SETS = 6
"""A two-sided Wilcoxon test of five pairs cannot reach 0.05."""

HIGHER, LOWER = "higher", "lower"
BETTER = {"accuracy": HIGHER, "harmonic_mean": HIGHER, "ece": LOWER, "nll": LOWER}
"""The numbers in which a best row is looked for, and which way is better."""


@dataclass(frozen=True)
class Difference:
    """First row minus second in one number.

    Attributes:
        first: one row.
        second: the other.
        number: in which number they are compared.
        value: the mean difference.
        low: lower end of its 95 % interval (over data sets: the smallest difference).
        high: upper end (over data sets: the largest).
        p: two-sided p-value; None where a single run leaves nothing to say of the method.
        adjusted: p after Holm's correction over the pairs of a table.
    """

    first: Row
    second: Row
    number: Number
    value: float
    low: float
    high: float
    p: float | None = None
    adjusted: float | None = None

    @property
    def identical(self) -> bool:
        """The two rows are the same predictions, such as two methods routed to zero-shot."""
        return self.value == 0.0 == self.low == self.high


def paired(first: Row, second: Row, number: Number, ours: Measured, theirs: Measured) -> Difference | None:
    """The paired difference of two rows on the runs that both have, None where they share none.

    d/sd is taken as a t variate: d is the mean difference less the bias that the bootstrap shows, sd the standard
    deviation of the resampled difference. Its variance has a part from the runs (k - 1 degrees of freedom for k
    clusters) and a part from the images (very many): Satterthwaite's rule joins them, so that two runs that happen to
    agree do not make a small p-value. One cluster gives none: it cannot tell a method from its luck.

    Satterthwaite, "An Approximate Distribution of Estimates of Variance Components", Biometrics Bulletin 1946.
    """
    shared = [draw for draw in ours.draws if draw in theirs.draws]
    if not shared or ours.replicates is None or theirs.replicates is None:
        return None
    ours, theirs = ours.only(shared), theirs.only(shared)
    values = ours.values - theirs.values
    resampled = mean_over_runs(ours) - mean_over_runs(theirs)
    value, spread = float(values.mean()), float(resampled.std(ddof=1))
    low, high = basic_interval(value, resampled)
    cluster = clusters(shared)
    k = int(cluster.max()) + 1
    if k == 1 or spread == 0.0:
        return Difference(first, second, number, value, low, high)
    between = float((np.bincount(cluster, values) / np.bincount(cluster)).var(ddof=1)) / k
    freedom = (k - 1) * spread**4 / between**2 if between > 0 else np.inf
    centred = 2 * value - float(resampled.mean())
    p = float(2 * stats.t.sf(abs(centred) / spread, max(freedom, k - 1.0)))
    return Difference(first, second, number, value, low, high, p)


def over_data_sets(table: Mapping[Row, Float[np.ndarray, " data_sets"]], number: Number) -> list[Difference]:
    """Two-sided Wilcoxon signed-rank tests of all pairs of rows over data sets; none for fewer than six.

    Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 2006.
    """
    found = []
    for first, second in combinations(table, 2):
        values = table[first] - table[second]
        if len(values) < FEWEST_DATA_SETS:
            return []
        p = float(stats.wilcoxon(values).pvalue) if values.any() else None
        bounds = float(values.min()), float(values.max())
        found.append(Difference(first, second, number, float(values.mean()), *bounds, p))
    return adjust(found)


def adjust(differences: Sequence[Difference]) -> list[Difference]:
    """Holm's correction over the pairs that were tested."""
    adjusted = iter(holm(np.array([one.p for one in differences if one.p is not None])).tolist())
    return [one if one.p is None else replace(one, adjusted=next(adjusted)) for one in differences]


def best(values: Mapping[Row, float], better: str) -> Row:
    """The row with the highest or lowest value, the first of equals."""
    return (max if better == HIGHER else min)(values, key=lambda row: values[row])


def supported(values: Mapping[Row, float], differences: Sequence[Difference], better: str) -> frozenset[Row]:
    """The best row and those identical to it, if every other row is significantly worse; otherwise nobody."""
    if len(values) < 2:
        return frozenset()
    top = best(values, better)
    against = {
        pair.second if pair.first == top else pair.first: pair
        for pair in differences
        if top in (pair.first, pair.second)
    }
    same = {row for row, pair in against.items() if pair.identical}
    others = set(values) - same - {top}
    known = {row: against[row].adjusted for row in others if row in against}
    beaten = {row for row, adjusted in known.items() if adjusted is not None and adjusted <= ALPHA}
    return frozenset({top, *same}) if others and beaten == others else frozenset()
