"""Isotonic regression of many columns at once, and its evaluation by linear interpolation."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import isotonic_regression

BLOCK_ELEMENTS = 1 << 22
"""How many inputs are looked up together."""


class MonotoneColumns(NamedTuple):
    """A non-decreasing piecewise-linear function for each column, their knots one after the other.

    ``inputs`` and ``outputs`` are [knots]; the knots of column c are those from ``starts[c]`` up to ``starts[c + 1]``.
    """

    inputs: Float[np.ndarray, " knots"]
    outputs: Float[np.ndarray, " knots"]
    starts: Int[np.ndarray, " edges"]


def fit_monotone(inputs: Float[np.ndarray, "n C"], targets: Float[np.ndarray, "n C"]) -> MonotoneColumns:
    """Least-squares non-decreasing fit of ``targets`` in [0, 1] to ``inputs``, each column for itself.

    Equal inputs share one output. All columns go through one pass of the pool-adjacent-violators algorithm: the targets
    of column c are raised by 2c, so that no pool can reach across columns.
    """
    n, columns = inputs.shape
    column = np.repeat(np.arange(columns), n)
    x, y = inputs.T.ravel(), targets.T.ravel()
    order = np.lexsort((x, column))
    x, y, column = x[order], y[order], column[order]
    first = np.r_[True, (np.diff(x) != 0) | (np.diff(column) != 0)]
    at = np.flatnonzero(first)
    count = np.diff(np.r_[at, len(x)])
    x, column = x[at], column[at]
    y = np.add.reduceat(y, at) / count
    fitted = isotonic_regression(y + 2.0 * column, weights=count).x - 2.0 * column
    inner = np.zeros(len(x), dtype=bool)
    inner[1:-1] = (fitted[1:-1] == fitted[:-2]) & (fitted[1:-1] == fitted[2:])
    inner[1:-1] &= (column[1:-1] == column[:-2]) & (column[1:-1] == column[2:])
    starts = np.searchsorted(column[~inner], np.arange(columns + 1))
    return MonotoneColumns(x[~inner], np.clip(fitted[~inner], 0.0, 1.0), starts)


def evaluate_monotone(fitted: MonotoneColumns, inputs: Float[np.ndarray, "m C"]) -> Float[np.ndarray, "m C"]:
    """The functions at ``inputs``: linear between knots, constant beyond the first and the last."""
    columns = np.arange(inputs.shape[1])
    # Complex numbers are ordered by their real part first: one search finds the place within the own column.
    knots = np.repeat(columns, np.diff(fitted.starts)) + 1j * fitted.inputs
    result = np.empty(inputs.shape)
    rows = max(1, BLOCK_ELEMENTS // len(columns))
    for start in range(0, len(inputs), rows):
        block = inputs[start : start + rows]
        right = np.searchsorted(knots, columns + 1j * block, side="right")
        low = np.maximum(right - 1, fitted.starts[:-1])
        high = np.minimum(right, fitted.starts[1:] - 1)
        gap = fitted.inputs[high] - fitted.inputs[low]
        share = np.clip((block - fitted.inputs[low]) / np.where(gap > 0, gap, 1.0), 0.0, 1.0)
        result[start : start + rows] = fitted.outputs[low] + share * (fitted.outputs[high] - fitted.outputs[low])
    return result
