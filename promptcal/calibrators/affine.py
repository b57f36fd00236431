"""The affine maps of vector, matrix and Dirichlet scaling: softmax(W x + b) of least penalised NLL."""

import warnings
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.model_selection import KFold

from promptcal.calibrators.contract import CalibrationWarning
from promptcal.metrics.proper import row_nll_from_logits

PENALTIES = (1e4, 1e3, 1e2, 1e1, 1e0, 1e-1, 1e-2)
"""The penalties that cross-validation chooses from."""
FOLDS = 3
MOST_STEPS = 1000


class Affine(NamedTuple):
    """x' = W x + b: ``weight`` is W [C, C], or its diagonal [C]; ``bias`` is b [C]."""

    weight: Float[np.ndarray, "..."]
    bias: Float[np.ndarray, " C"]

    def __call__(self, inputs: Float[np.ndarray, "n C"]) -> Float[np.ndarray, "n C"]:
        """The logits of each row."""
        turned = inputs * self.weight if self.weight.ndim == 1 else inputs @ self.weight.T
        logits: np.ndarray = turned + self.bias
        return logits


def fit_diagonal(inputs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> Affine:
    """The diagonal map of least mean NLL, found from W = 1, b = 0."""
    classes = inputs.shape[1]
    return _fit(inputs, labels, Affine(np.ones(classes), np.zeros(classes)), 0.0)


def fit_full(
    inputs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"], penalty: float, start: Affine | None = None
) -> Affine:
    """The map of least mean NLL + penalty·(mean of the squared off-diagonal of W + mean of b²), from W = I, b = 0."""
    classes = inputs.shape[1]
    return _fit(inputs, labels, start or Affine(np.eye(classes), np.zeros(classes)), penalty)


def best_penalty(inputs: Float[np.ndarray, "n C"], labels: Int[np.ndarray, " n"]) -> float:
    """The penalty at which the NLL in three-fold cross-validation stops falling, from the largest down."""
    folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(inputs)) if len(labels) >= FOLDS else []
    affines: list[Affine | None] = [None] * len(folds)
    best, lowest = PENALTIES[0], np.inf
    for penalty in PENALTIES if folds else ():
        held = []
        for fold, (fit, out) in enumerate(folds):
            affines[fold] = affine = fit_full(inputs[fit], labels[fit], penalty, affines[fold])
            held.append(row_nll_from_logits(affine(inputs[out]), labels[out]))
        loss = float(np.concatenate(held).mean())
        if loss >= lowest:
            break
        best, lowest = penalty, loss
    return best


def _fit(inputs: np.ndarray, labels: np.ndarray, start: Affine, penalty: float) -> Affine:
    """L-BFGS in variables times the root of their curvature at the start, which saves most of the steps."""
    n, classes = inputs.shape
    full = start.weight.ndim == 2
    off_diagonal = 1.0 - np.eye(classes)
    pairs = max(classes * (classes - 1), 1)

    def turn(rows: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """The mean over the rows of the product with the inputs: of every pair of classes, or of each class."""
        product: np.ndarray = (rows.T @ inputs if full else (rows * inputs).sum(axis=0)) / n
        return product

    def pull(affine: Affine) -> Affine:
        """Half the slope of the penalty."""
        off = affine.weight * off_diagonal if full else np.zeros(classes)
        return Affine(penalty * off / pairs, penalty * affine.bias / classes)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        affine = unflatten(flat * unit)
        logits = affine(inputs)
        pulled = pull(affine)
        value = row_nll_from_logits(logits, labels).mean()
        value += (pulled.weight * affine.weight).sum() + (pulled.bias * affine.bias).sum()
        error = softmax(logits, axis=1)
        error[np.arange(n), labels] -= 1.0
        slope = np.r_[(turn(error, inputs) + 2.0 * pulled.weight).ravel(), error.mean(axis=0) + 2.0 * pulled.bias]
        return float(value), slope * unit

    def unflatten(flat: np.ndarray) -> Affine:
        return Affine(flat[:-classes].reshape(start.weight.shape), flat[-classes:])

    probs = softmax(start(inputs), axis=1)
    spread = probs * (1.0 - probs)
    stiff = pull(Affine(np.ones_like(start.weight), np.ones(classes)))
    curvature = np.r_[(turn(spread, inputs**2) + 2.0 * stiff.weight).ravel(), spread.mean(axis=0) + 2.0 * stiff.bias]
    unit = 1.0 / np.sqrt(curvature + np.finfo(np.float64).eps)
    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 1e-9, "gtol": 1e-7, "maxcor": 20}
    first = np.r_[start.weight.ravel(), start.bias] / unit
    found = minimize(loss, first, jac=True, method="L-BFGS-B", options=options)
    if found.status == 1:
        warnings.warn(
            f"an affine map of {classes} classes was still improving after {found.nit} steps on {n} rows; with so few "
            f"rows 'temperature' is the safer calibrator.",
            CalibrationWarning,
            stacklevel=5,
        )
    return unflatten(found.x * unit)
