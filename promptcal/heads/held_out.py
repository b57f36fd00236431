"""A log-linear head fitted on held-out predictions, and the gate that it must pass."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.stats import t as student
from sklearn.base import clone

from promptcal.calibrators import CalibrationWarning, LogLinear
from promptcal.calibrators.instance_features import Reference
from promptcal.calibrators.instance_fit import Rows, fit_mean, fit_worse, temperature_scaling
from promptcal.errors import ConfigError, DataError
from promptcal.types import Predictions

GATE_LEVEL = 0.9
"""How sure the gate must be that classes left out gain: the level of its one-sided bound."""


@dataclass(frozen=True)
class Episode:
    """Predictions by prompts that have seen neither these rows nor, of ``novel``, the classes.

    Attributes:
        base: rows of the classes that the prompts were trained on.
        novel: rows of other classes, with these classes alone to choose from; None where none were left out.
    """

    base: Predictions
    novel: Predictions | None = None


class Gate(NamedTuple):
    """What classes left out gain by a head that was fitted without them.

    Attributes:
        gain: mean NLL of temperature scaling less that of the head, in nats, each class counting alike.
        low: its lower bound at ``GATE_LEVEL``.
        classes: over how many classes.
    """

    gain: float
    low: float
    classes: int

    @property
    def is_open(self) -> bool:
        """The head is kept."""
        return self.low > 0.0


def fit_held_out(head: LogLinear, val: Predictions, episodes: Sequence[Episode]) -> LogLinear:
    """A head whose weights are fitted on held-out predictions and whose temperature is that of base validation.

    Without classes left out, the weights are those of least mean NLL of the held-out base rows. With them, they
    minimise the worse of the mean NLLs of base and of novel rows, each less that of temperature scaling on the base
    rows; the gate then keeps them where classes left out gain by a head fitted without them (lower bound above 0, at a
    level of 0.9), and otherwise the head is temperature scaling.

    Prompts of the episodes have seen fewer images, and fewer classes, so their logits are of another sharpness: what
    goes from there to the final prompts is the weights, the shift of log T against temperature scaling, and nothing
    else. T of temperature scaling, the centre of the features, the base texts and the mean image are those of ``val``.

    Args:
        head: the features, the penalty, the clip; it is copied.
        val: base validation predictions of the final prompts.
        episodes: held-out predictions; either all of them have novel rows or none.

    Returns:
        The fitted head; its ``held_out_`` says what was seen.

    Raises:
        DataError: no episode, or novel rows in some of them only.
        ConfigError: a head of given weights, which have nothing to be fitted.
    """
    if head.weights is not None:
        raise ConfigError("a head of given weights is not fitted on held-out rows; leave its weights out.")
    if len({episode.novel is None for episode in episodes}) != 1:
        raise DataError("a head is fitted on one episode or more, all of them with novel classes or none.")
    fitted: LogLinear = clone(head).fit(val)
    scaling = temperature_scaling(fitted.rows_of(val, fitted.reference_), fitted.clip)
    parts = [rows_of(fitted, episode) for episode in episodes]
    base = Rows.stacked([part.base for part in parts])
    novel = [part.novel for part in parts if part.novel is not None]
    seen: dict[str, float | int | bool] = {"episodes": len(parts), "base_rows": len(base)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        if novel:
            found, passed = fit_worse(base, Rows.stacked(novel), fitted.penalty, fitted.clip), gate(parts, fitted)
            seen |= {"novel_rows": sum(map(len, novel)), **passed._asdict(), "kept": passed.is_open}
        else:
            found = fit_mean(base, fitted.penalty, fitted.clip)
    if seen.get("kept", True):
        fitted.adopt(replace(scaling, shift=found.shift, weights=found.weights))
    else:
        fitted.adopt(scaling)
    fitted.held_out_ = seen
    return fitted


class Part(NamedTuple):
    """The rows of an episode."""

    base: Rows
    novel: Rows | None


def rows_of(head: LogLinear, episode: Episode) -> Part:
    """Features are taken beside the texts and images of the episode's own base rows."""
    reference = Reference.of(episode.base, head.features, head.tokens)
    novel = None if episode.novel is None else head.rows_of(episode.novel, reference)
    return Part(head.rows_of(episode.base, reference), novel)


def gate(parts: Sequence[Part], head: LogLinear) -> Gate:
    """For each episode, what its novel classes gain by the head that is fitted on all rows but those of these classes.

    The bound is Student's, over the mean gains of the classes; one class alone has none.
    """
    gains: list[Float[np.ndarray, " n"]] = []
    tested = [part.novel for part in parts if part.novel is not None]
    for rows in tested:
        base = Rows.stacked([part.base.take(~np.isin(part.base.names, rows.names)) for part in parts])
        novel = Rows.stacked([other.take(~np.isin(other.names, rows.names)) for other in tested])
        if len(base) and len(novel):
            found = fit_worse(base, novel, head.penalty, head.clip)
            gains.append(temperature_scaling(base, head.clip).nll(rows) - found.nll(rows))
        else:  # nothing is left to fit a head on
            gains.append(np.zeros(len(rows)))
    return Gate(*mean_over_classes(np.concatenate(gains), np.concatenate([rows.names for rows in tested])))


def mean_over_classes(values: Float[np.ndarray, " n"], classes: np.ndarray) -> tuple[float, float, int]:
    """The mean of the class means, its lower bound at ``GATE_LEVEL`` (-inf for one class), and how many classes."""
    _, index = np.unique(classes, return_inverse=True)
    means = np.bincount(index, weights=values) / np.bincount(index)
    k = len(means)
    if k < 2:
        return float(means.mean()), -np.inf, k
    half = float(student.ppf(GATE_LEVEL, k - 1)) * float(means.std(ddof=1)) / np.sqrt(k)
    return float(means.mean()), float(means.mean() - half), k
