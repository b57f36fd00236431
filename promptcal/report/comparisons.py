"""Which differences between methods are more than luck, and who may therefore be called best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float
from scipy import special, stats

from promptcal.metrics.comparison import holm
from promptcal.report.resampling import Measured, basic_interval, clusters
from promptcal.report.results import Number, Row

ALPHA = 0.05
FEWEST_DATA_SETS = 6
"""A two-sided Wilcoxon test of five pairs cannot reach 0.05."""

SAME = 1e-6
"""What differs by less is the same up to rounding: resampled numbers are float32."""

HIGHER, LOWER = "higher", "lower"
BETTER = {"accuracy": HIGHER, "harmonic_mean": HIGHER, "ece": LOWER, "nll": LOWER}
"""The numbers in which a best row is looked for, and which way is better."""


@dataclass(frozen=True)
class Difference:
    """A row less a reference row in one number.

    Attributes:
        row: the row.
        reference: what it is compared with.
        number: in which number.
        value: the mean difference.
        low: lower end of its 95 % interval (over data sets: the smallest difference).
        high: upper end (over data sets: the largest).
        p: two-sided p-value; None where a single run leaves nothing to say of the method.
        adjusted: p after Holm's correction over the rows of a table.
    """

    row: Row
    reference: Row
    number: Number
    value: float
    low: float
    high: float
    p: float | None = None
    adjusted: float | None = None

    @property
    def identical(self) -> bool:
        """The two rows are the same predictions, such as two methods routed to zero-shot."""
        return max(abs(self.value), abs(self.low), abs(self.high)) < SAME


def paired(row: Row, reference: Row, number: Number, ours: Measured, theirs: Measured) -> Difference | None:
    """The paired difference of two rows on the runs that both have, None where they share none.

    d/sd is taken as a t variate: d is the mean difference less the bias that the bootstrap shows, sd the standard
    deviation of the resampled difference. Its variance has a part from the runs (k - 1 degrees of freedom for k
    clusters) and a part from the images (very many): Satterthwaite's rule joins them, so that two runs that happen to
    agree do not make a small p-value. One cluster gives none: it cannot tell a method from its luck.

    Satterthwaite, "An Approximate Distribution of Estimates of Variance Components", Biometrics Bulletin 1946.
    """
    shared = tuple(draw for draw in ours.draws if draw in theirs.draws)
    ours, theirs = ours.only(shared), theirs.only(shared)
    if not shared or ours.resampled is None or theirs.resampled is None:
        return None
    values = ours.values - theirs.values
    resampled = ours.resampled - theirs.resampled
    value, spread = float(values.mean()), float(resampled.std(ddof=1))
    found = Difference(row, reference, number, value, *basic_interval(value, resampled))
    cluster = clusters(shared)
    k = int(cluster.max()) + 1
    if k == 1 or spread < SAME:
        return found
    between = float((np.bincount(cluster, values) / np.bincount(cluster)).var(ddof=1)) / k
    freedom = (k - 1) * spread**4 / between**2 if between > 0 else np.inf
    centred = 2 * value - float(resampled.mean())
    freedom = float(np.clip(freedom, k - 1, 1e9))
    return replace(found, p=float(2 * special.stdtr(freedom, -abs(centred) / spread)))


def against_best(table: Mapping[Row, Measured], number: Number) -> list[Difference]:
    """Every row less the best one, with Holm's correction over the rows."""
    top = best({row: float(one.values.mean()) for row, one in table.items()}, BETTER[number.metric])[0]
    found = [paired(row, top, number, one, table[top]) for row, one in table.items() if row != top]
    return adjust([one for one in found if one is not None])


def over_data_sets(
    values: Mapping[Row, Float[np.ndarray, " data_sets"]],
    resampled: Mapping[Row, Float[np.ndarray, " R"]],
    number: Number,
) -> list[Difference]:
    """Every row less the best one by two-sided Wilcoxon signed-rank tests over data sets, with Holm's correction.

    The intervals are those of the mean over these data sets. There are no p-values for fewer than six.

    Demšar, "Statistical Comparisons of Classifiers over Multiple Data Sets", JMLR 2006.
    """
    top = best({row: float(theirs.mean()) for row, theirs in values.items()}, BETTER[number.metric])[0]
    found = []
    for row in values:
        if row != top:
            differences = values[row] - values[top]
            value = float(differences.mean())
            tested = len(differences) >= FEWEST_DATA_SETS and np.abs(differences).max() >= SAME
            p = float(stats.wilcoxon(differences).pvalue) if tested else None
            found.append(
                Difference(row, top, number, value, *basic_interval(value, resampled[row] - resampled[top]), p)
            )
    return adjust(found)


def adjust(differences: Sequence[Difference]) -> list[Difference]:
    """Holm's correction over the differences that were tested."""
    adjusted = iter(holm(np.array([one.p for one in differences if one.p is not None])).tolist())
    return [one if one.p is None else replace(one, adjusted=next(adjusted)) for one in differences]


def best(values: Mapping[Row, float], better: str) -> list[Row]:
    """The row with the highest or lowest value and those that equal it, in their order."""
    top = (max if better == HIGHER else min)(values.values())
    return [row for row, value in values.items() if abs(value - top) < SAME]


def supported(rows: Sequence[Row], against: Sequence[Difference]) -> frozenset[Row]:
    """The best row and those identical to it, if every other row is significantly worse than it; otherwise nobody.

    That the best was picked by the same data does no harm: it must also beat the second best, and two equal rows are
    rarely so far apart (Gutmann, Maymin, "Is the Selected Population the Best?", Annals of Statistics 1987).

    Args:
        rows: all rows of the table.
        against: every row less the best one, as far as they share runs.
    """
    same = {one.row for one in against if one.identical}
    worse = {one.row for one in against if one.adjusted is not None and one.adjusted <= ALPHA}
    if not worse or {one.row for one in against} != same | worse or len(against) != len(rows) - 1:
        return frozenset()
    return frozenset({against[0].reference, *same})
