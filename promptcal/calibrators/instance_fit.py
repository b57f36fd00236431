"""The fits of a log-linear temperature: least penalised NLL of one set of rows, or of the worse of two."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.optimize import minimize
from scipy.special import logsumexp

from promptcal.calibrators.temperature import TemperatureScaling

ABSENT = -1e9
"""The logit of a class that a row's own class list lacks, where rows of several lists stand together: p = 0."""
MOST_STEPS = 500


@dataclass(frozen=True)
class Rows:
    """Labelled rows, possibly of several class lists, with the features of each.

    Attributes:
        logits: [n, C]; ``ABSENT`` beyond a row's own classes.
        labels: [n], the column of the true class.
        features: [n, K].
        names: the name of the true class, [n].
    """

    logits: Float[np.ndarray, "n C"]
    labels: Int[np.ndarray, " n"]
    features: Float[np.ndarray, "n K"]
    names: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, chosen: Bool[np.ndarray, " n"]) -> "Rows":
        """Some of the rows."""
        return Rows(self.logits[chosen], self.labels[chosen], self.features[chosen], self.names[chosen])

    @staticmethod
    def stacked(parts: Sequence["Rows"]) -> "Rows":
        """The rows of all parts, which may have different numbers of classes."""
        width = max(part.logits.shape[1] for part in parts)
        padding = [((0, 0), (0, width - part.logits.shape[1])) for part in parts]
        padded = [np.pad(p.logits, pad, constant_values=ABSENT) for p, pad in zip(parts, padding, strict=True)]
        columns = zip(*((part.labels, part.features, part.names) for part in parts), strict=True)
        return Rows(np.concatenate(padded), *(np.concatenate(column) for column in columns))


@dataclass(frozen=True)
class LogLinearMap:
    """log s = log T + shift + clip(sum_k w_k (φ_k - m_k)), the clip being to ± log of ``clip``.

    Attributes:
        scaling: T of temperature scaling on the rows that the centre is of.
        shift: what joins log T; 0 is temperature scaling where the weights are 0.
        weights: w, [K].
        centre: m, the features that have temperature T·exp(shift), [K].
        clip: how many times as high or low as that a temperature may become; ``inf`` for any.
    """

    scaling: float
    shift: float
    weights: Float[np.ndarray, " K"]
    centre: Float[np.ndarray, " K"]
    clip: float

    def temperatures(self, features: Float[np.ndarray, "n K"]) -> Float[np.ndarray, " n"]:
        """The temperature of each row."""
        limit = np.log(self.clip)
        deviation = np.clip((features - self.centre) @ self.weights, -limit, limit)
        temperatures: np.ndarray = self.scaling * np.exp(self.shift) * np.exp(deviation)
        return temperatures

    def nll(self, rows: Rows) -> Float[np.ndarray, " n"]:
        """The NLL of each row in nats."""
        return _row_nll(rows, np.log(self.temperatures(rows.features)))[0]


def temperature_scaling(rows: Rows, clip: float) -> LogLinearMap:
    """The map of least NLL without features: the start of every fit, and what it shrinks toward."""
    scaling = TemperatureScaling().fit(rows.logits, rows.labels).temperature_
    columns = rows.features.shape[1]
    return LogLinearMap(scaling, 0.0, np.zeros(columns), rows.features.mean(axis=0), clip)


def fit_mean(rows: Rows, penalty: float, clip: float) -> LogLinearMap:
    """The map of least (mean NLL + penalty·‖w‖²), by L-BFGS from temperature scaling.

    In 1/T alone the NLL is convex; in the weights it is not, so this is the optimum that is reached from w = 0, never
    worse than it.
    """
    start = temperature_scaling(rows, clip)

    def objective(theta: np.ndarray) -> tuple[float, np.ndarray]:
        loss, slope = _mean_nll(start, rows, theta)
        return loss + penalty * float(theta[1:] @ theta[1:]), slope + 2.0 * penalty * np.r_[0.0, theta[1:]]

    return _better(start, _search(objective, len(start.weights)), lambda theta: objective(theta)[0])


def fit_worse(base: Rows, novel: Rows, penalty: float, clip: float) -> LogLinearMap:
    """The map of least max(base, novel) + penalty·‖w‖², each the mean NLL less that of temperature scaling on ``base``.

    The minimum is at most 0, which temperature scaling has, and where it is below 0 both sets gain. Found by sequential
    quadratic programming in (shift, w, t): least t + penalty·‖w‖² with both differences at most t.
    """
    start = temperature_scaling(base, clip)
    zero = np.zeros(1 + len(start.weights))
    sets = [(rows, _mean_nll(start, rows, zero)[0]) for rows in (base, novel)]

    def difference(rows: Rows, scaled: float) -> dict[str, object]:
        def room(point: np.ndarray) -> float:
            return float(point[-1]) - (_mean_nll(start, rows, point[:-1])[0] - scaled)

        def slope(point: np.ndarray) -> np.ndarray:
            gradient: np.ndarray = np.r_[-_mean_nll(start, rows, point[:-1])[1], 1.0]
            return gradient

        return {"type": "ineq", "fun": room, "jac": slope}

    def objective(point: np.ndarray) -> tuple[float, np.ndarray]:
        weights = point[1:-1]
        return float(point[-1] + penalty * weights @ weights), np.r_[0.0, 2.0 * penalty * weights, 1.0]

    def worse(theta: np.ndarray) -> float:
        differences = [_mean_nll(start, rows, theta)[0] - scaled for rows, scaled in sets]
        return max(differences) + penalty * float(theta[1:] @ theta[1:])

    found = minimize(
        objective,
        np.r_[zero, 0.0],
        jac=True,
        method="SLSQP",
        constraints=[difference(rows, scaled) for rows, scaled in sets],
        options={"maxiter": MOST_STEPS, "ftol": 1e-10},
    )
    return _better(start, np.asarray(found.x)[:-1], worse)


def _search(objective: Callable[[np.ndarray], tuple[float, np.ndarray]], columns: int) -> np.ndarray:
    options = {"maxiter": MOST_STEPS, "ftol": 1e-13, "gtol": 1e-9}
    found: np.ndarray = minimize(objective, np.zeros(1 + columns), jac=True, method="L-BFGS-B", options=options).x
    return found


def _better(start: LogLinearMap, theta: np.ndarray, loss: Callable[[np.ndarray], float]) -> LogLinearMap:
    """The map at theta = (shift, w), or temperature scaling where that is no worse or there is no feature."""
    zero = np.zeros_like(theta)
    if len(theta) == 1 or not np.isfinite(theta).all() or not loss(theta) < loss(zero):
        return start
    return LogLinearMap(start.scaling, float(theta[0]), theta[1:], start.centre, start.clip)


def _mean_nll(start: LogLinearMap, rows: Rows, theta: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean NLL at theta = (shift, w) and its gradient; a clipped row has no slope in the weights."""
    limit = np.log(start.clip)
    centred = rows.features - start.centre
    deviation = centred @ theta[1:]
    logs = np.log(start.scaling) + theta[0] + np.clip(deviation, -limit, limit)
    losses, slopes = _row_nll(rows, logs)
    inside = slopes * (np.abs(deviation) < limit)
    return float(losses.mean()), np.r_[slopes.mean(), inside @ centred / len(losses)]


def _row_nll(rows: Rows, logs: Float[np.ndarray, " n"]) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The NLL of each row at log temperatures u, and its derivative in u: z_y/s - E_p[z]/s."""
    relative = rows.logits - rows.logits[np.arange(len(rows.labels)), rows.labels][:, None]
    with np.errstate(over="ignore"):
        scaled = relative * np.exp(-logs)[:, None]
    losses = logsumexp(scaled, axis=1)
    probs = np.exp(scaled - losses[:, None])
    slopes = -np.einsum("nc,nc->n", probs, scaled)
    return losses, slopes
