"""Calibration without keeping samples: a small record of sums to which batches, processes and shards add up."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from promptcal.errors import ConfigError, DataError, unknown
from promptcal.metrics.bins import (
    NORMS,
    BinSums,
    debiased_l2_squared,
    equal_width,
    maximum,
    over,
    under,
    weighted_maximum,
)
from promptcal.metrics.inputs import HALF_ROW_SUM_TOLERANCE, check_labels, check_probabilities, top_of
from promptcal.metrics.proper import SMALLEST, row_brier, row_nll, softmax_and_nll
from promptcal.metrics.smooth import COSINES, cosine_sums, fixed_point
from promptcal.storage import load_tensors, save_tensors

TOTALS = ("n", "confidence", "correct", "nll", "brier", "clipped")


@dataclass(frozen=True)
class CalibrationState:
    """Sums from which the top-label calibration metrics follow: constant memory, equal to the one-shot functions.

    ``CalibrationState.empty()`` starts; ``update`` and ``update_logits`` return a new state with a batch added; states
    of the same bin counts add up with ``+`` in any order, so shards and processes merge. Bins are right-closed.

    Attributes:
        bins: the bin counts that ECE and its kin can be asked for.
        totals: [6] number of samples, sums of confidence, correctness, NLL and Brier score, number of clipped rows.
        binned: [3, sum of bins] counts, confidence sums and correctness sums, one bin count after the other.
        cosines: [4001] sums of (confidence - correct)·cos(k·pi·confidence), for smooth ECE.

    >>> state = CalibrationState.empty().update(np.array([[0.8, 0.2]]), np.array([0]))
    >>> round((state + state).ece(bins=15), 9)
    0.2
    """

    bins: tuple[int, ...]
    totals: Float[np.ndarray, "6"]
    binned: Float[np.ndarray, "3 B"]
    cosines: Float[np.ndarray, " K"]

    @classmethod
    def empty(cls, bins: tuple[int, ...] = (10, 15, 20)) -> "CalibrationState":
        """A state that has seen nothing, for some bin counts."""
        return cls(bins, np.zeros(len(TOTALS)), np.zeros((3, sum(bins))), np.zeros(COSINES + 1))

    def update(self, probs: Any, labels: Any) -> "CalibrationState":
        """The state after a batch of probabilities [b, C] and labels [b], numpy arrays or tensors on any device.

        Raises:
            DataError: what ``check_probabilities`` refuses.
        """
        values, tolerance = _as_array(probs)
        checked, classes = check_probabilities(values, _as_array(labels)[0], tolerance)
        nll = row_nll(checked, classes)
        clipped = float((checked[np.arange(len(classes)), classes] < SMALLEST).sum())
        return self + self._of(checked, classes, nll, clipped)

    def update_logits(self, logits: Any, labels: Any) -> "CalibrationState":
        """The state after a batch of logits [b, C] and labels [b]: nothing is clipped.

        Raises:
            DataError: a logit that is not finite, or labels out of range.
        """
        values = _as_array(logits)[0]
        classes = check_labels(_as_array(labels)[0], *values.shape)
        probs, nll = softmax_and_nll(values, classes)
        return self + self._of(probs, classes, nll, 0.0)

    def _of(self, probs: np.ndarray, labels: np.ndarray, nll: np.ndarray, clipped: float) -> "CalibrationState":
        confidence, correct = top_of(probs, labels)
        sums = [equal_width(confidence, correct, bins) for bins in self.bins]
        brier = row_brier(probs, labels)
        rows = (np.ones(len(labels)), confidence, correct, nll, brier)
        return CalibrationState(
            self.bins,
            np.array([*(float(row.sum()) for row in rows), clipped]),
            np.concatenate([np.stack([part.count, part.confidence, part.outcome]) for part in sums], axis=1),
            cosine_sums(confidence, confidence - correct),
        )

    def __add__(self, other: "CalibrationState") -> "CalibrationState":
        """Both states' samples together; raises ConfigError where the bin counts differ."""
        if self.bins != other.bins:
            raise ConfigError(f"states with bins {self.bins} and {other.bins} do not add up; use the same bin counts.")
        return CalibrationState(
            self.bins, self.totals + other.totals, self.binned + other.binned, self.cosines + other.cosines
        )

    def save(self, path: Path) -> None:
        """Write the state as safetensors."""
        arrays = {"totals": self.totals, "binned": self.binned, "cosines": self.cosines}
        save_tensors(path, arrays, {"kind": "CalibrationState", "bins": list(self.bins)})

    @classmethod
    def load(cls, path: Path) -> "CalibrationState":
        """Read a state; raises DataError where the file is missing, broken or of another kind."""
        arrays, metadata = load_tensors(path)
        if metadata.get("kind") != "CalibrationState":
            raise DataError(f"{path} holds no calibration state; such files are written by CalibrationState.save.")
        return cls(tuple(metadata["bins"]), arrays["totals"], arrays["binned"], arrays["cosines"])

    @property
    def n(self) -> int:
        """How many samples the state has seen."""
        return int(self.totals[0])

    def _mean(self, name: str) -> float:
        if self.n == 0:
            raise DataError("this calibration state has seen no samples yet; update it first.")
        return float(self.totals[TOTALS.index(name)] / self.totals[0])

    def sums(self, bins: int = 15) -> BinSums:
        """The bin sums of one bin count; raises ConfigError where the state does not keep it."""
        if bins not in self.bins:
            raise ConfigError(f"this state keeps bin counts {self.bins}, not {bins}; start it with bins=({bins},).")
        self._mean("correct")
        start = sum(self.bins[: self.bins.index(bins)])
        return BinSums(*self.binned[:, start : start + bins])

    def ece(self, bins: int = 15, norm: str = "l1") -> float:
        """Expected calibration error, as ``promptcal.metrics.ece``."""
        if norm not in NORMS:
            raise ConfigError(unknown("norm", norm, NORMS))
        return float(NORMS[norm](self.sums(bins)))

    def mce(self, bins: int = 15) -> float:
        """Maximum calibration error."""
        return float(maximum(self.sums(bins)))

    def mce_weighted(self, bins: int = 15) -> float:
        """The largest share-weighted gap."""
        return float(weighted_maximum(self.sums(bins)))

    def debiased_ece_squared(self, bins: int = 15) -> float:
        """The debiased squared l2 error."""
        return float(debiased_l2_squared(self.sums(bins)))

    def overconfidence(self, bins: int = 15) -> float:
        """The part of the ECE from overconfident bins."""
        return float(over(self.sums(bins)))

    def underconfidence(self, bins: int = 15) -> float:
        """The part of the ECE from underconfident bins."""
        return float(under(self.sums(bins)))

    def smooth_ece(self) -> float:
        """Smooth ECE, as ``promptcal.metrics.smooth_ece``."""
        self._mean("correct")
        return float(fixed_point(self.cosines / self.n)[0])

    def accuracy(self) -> float:
        """The share of right predictions."""
        return self._mean("correct")

    def confidence(self) -> float:
        """Mean confidence."""
        return self._mean("confidence")

    def signed_gap(self) -> float:
        """Mean confidence minus accuracy."""
        return self._mean("confidence") - self._mean("correct")

    def nll(self) -> float:
        """Negative log-likelihood in nats."""
        return self._mean("nll")

    def brier(self) -> float:
        """Brier score, the sum over classes."""
        return self._mean("brier")

    @property
    def clipped(self) -> int:
        """How many rows had their label's probability clipped for the NLL."""
        return int(self.totals[TOTALS.index("clipped")])


def _as_array(values: Any) -> tuple[np.ndarray, float | None]:
    """A numpy array of numbers or tensors on any device, and the row-sum tolerance of half-precision tensors."""
    if not hasattr(values, "detach"):
        return np.asarray(values), None
    import torch

    tensor = values.detach().cpu()
    half = tensor.dtype in (torch.float16, torch.bfloat16)
    array: np.ndarray = (tensor.float() if half else tensor).numpy()
    return array, HALF_ROW_SUM_TOLERANCE if half else None
