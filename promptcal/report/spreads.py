"""Whether runs with a wider spread of margins are worse calibrated: a correlation over runs, with its interval."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

from promptcal.report.results import Group, Number, Results, Row
from promptcal.report.samples import Samples
from promptcal.report.tables import MINUS, Cell, Column, Table, lines

FEWEST_RUNS = 5
"""With fewer runs the interval of a correlation is nearly everything."""


class Correlation(NamedTuple):
    """Pearson's r of n pairs with its 95 % interval."""

    r: float
    low: float
    high: float
    n: int


def correlation(x: Float[np.ndarray, " n"], y: Float[np.ndarray, " n"], level: float = 0.95) -> Correlation | None:
    """Pearson's correlation with Fisher's interval, tanh(atanh(r) ± z/sqrt(n - 3)).

    None for fewer than five pairs, or where either does not vary.

    Fisher, "On the Probable Error of a Coefficient of Correlation Deduced from a Small Sample", Metron 1921.
    """
    if len(x) < FEWEST_RUNS or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return None
    r = float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))
    reach = stats.norm.ppf(0.5 + level / 2) / np.sqrt(len(x) - 3)
    with np.errstate(divide="ignore"):
        low, high = np.tanh(np.arctanh(r) + np.array([-reach, reach]))
    return Correlation(r, float(low), float(high), len(x))


def spread_table(results: Results, group: Group, rows: Sequence[Row], samples: Mapping[str, Samples]) -> Table | None:
    """By method and split, the correlation over runs of the margin's standard deviation with ECE; None without any."""
    splits = results.splits(group)

    def cell(row: Row, split: str) -> Cell:
        runs = [run for run in results.of(group, row) if split in samples[run.name].margin_spread]
        found = correlation(
            np.array([samples[run.name].margin_spread[split] for run in runs]),
            np.array([run.values[row.calibrator, Number(split, "ece")] for run in runs]),
        )
        if found is None:
            return Cell()
        r, low, high = (f"{value:+.2f}".replace("-", MINUS) for value in found[:3])
        return Cell(f"{r} ({low} to {high})")

    made = {row: tuple(cell(row, split) for split in splits) for row in rows}
    if not any(one.text for cells in made.values() for one in cells):
        return None
    columns = tuple(Column(Number(split, "ece"), "", split) for split in splits)
    caption = "Pearson's correlation over runs of the margin's standard deviation with ECE, 95 % interval"
    return Table("Margin spread and ECE", caption, columns, lines(rows, made.__getitem__))
