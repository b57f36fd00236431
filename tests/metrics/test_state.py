"""A state that is built batch by batch, shard by shard, says what the one-shot functions say of all rows together."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from promptcal import metrics
from promptcal.errors import ConfigError, DataError
from promptcal.metrics import CalibrationState


def draw(seed: int, n: int = 90) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    probs = generator.dirichlet(np.full(5, 0.3), n)
    probs[: n // 9] = np.eye(5)[generator.integers(0, 5, n // 9)]
    return probs, generator.integers(0, 5, n)


def check(state: CalibrationState, probs: np.ndarray, labels: np.ndarray, *, abs: float = 1e-12) -> None:
    for bins in (10, 15, 20):
        for norm in ("l1", "l2", "max"):
            assert state.ece(bins, norm) == pytest.approx(metrics.ece(probs, labels, bins=bins, norm=norm), abs=abs)
        for name in ("mce", "mce_weighted", "debiased_ece_squared", "overconfidence", "underconfidence"):
            expected = getattr(metrics, name)(probs, labels, bins=bins)
            assert getattr(state, name)(bins) == pytest.approx(expected, abs=abs), name
    for name in ("smooth_ece", "accuracy", "signed_gap", "brier", "nll"):
        assert getattr(state, name)() == pytest.approx(getattr(metrics, name)(probs, labels), abs=abs), name
    assert state.clipped == metrics.clipped(probs, labels)
    assert state.n == len(labels)
    assert state.confidence() == pytest.approx(probs.max(axis=1).mean(), abs=abs)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 90), max_size=4))
def test_any_sharding_merged_equals_the_whole(seed: int, cuts: list[int]):
    probs, labels = draw(seed)
    parts = [part for part in np.split(np.random.default_rng(seed).permutation(90), sorted(cuts)) if len(part)]
    shards = [CalibrationState.empty().update(probs[part], labels[part]) for part in parts]
    check(sum(shards[1:], shards[0]), probs, labels)


def test_an_empty_state_changes_nothing():
    probs, labels = draw(1)
    check(CalibrationState.empty() + CalibrationState.empty().update(probs, labels), probs, labels)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_tensors(dtype: torch.dtype):
    probs, labels = draw(2)
    state = CalibrationState.empty()
    tensor = torch.tensor(probs, dtype=dtype, requires_grad=True)
    for start in range(0, 90, 32):
        state = state.update(tensor[start : start + 32], torch.tensor(labels[start : start + 32]))
    given_probs = tensor.detach().numpy()
    check(state, given_probs, labels)


def test_half_precision_tensors_have_the_wider_tolerance():
    probs, labels = torch.tensor([[0.7505, 0.25]]), torch.tensor([0])
    for half in (torch.float16, torch.bfloat16):
        assert CalibrationState.empty().update(probs.to(half), labels).n == 1
    with pytest.raises(DataError, match="row 0"):
        CalibrationState.empty().update(probs, labels)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_tensors_on_a_gpu():
    probs, labels = draw(3)
    state = CalibrationState.empty().update(torch.tensor(probs, device="cuda"), torch.tensor(labels, device="cuda"))
    check(state, probs, labels)


def test_logits_are_never_clipped():
    logits, labels = np.array([[0.0, 1000.0], [1.0, 1.0]]), np.array([0, 1])
    state = CalibrationState.empty().update_logits(torch.tensor(logits), torch.tensor(labels))
    assert state.nll() == pytest.approx(metrics.nll_from_logits(logits, labels))
    assert state.clipped == 0
    assert state.accuracy() == 0.0


def test_saving_and_loading(tmp_path: Path):
    probs, labels = draw(4)
    state = CalibrationState.empty((7, 15)).update(probs, labels)
    state.save(tmp_path / "state.safetensors")
    loaded = CalibrationState.load(tmp_path / "state.safetensors")
    assert loaded.bins == (7, 15)
    for name in ("totals", "binned", "cosines"):
        assert (getattr(loaded, name) == getattr(state, name)).all()
    (loaded + state).save(tmp_path / "again.safetensors")
    state.save(tmp_path / "same.safetensors")
    same = (tmp_path / "same.safetensors").read_bytes()
    assert same == (tmp_path / "state.safetensors").read_bytes()


def test_refusals(tmp_path: Path):
    probs, labels = draw(5)
    state = CalibrationState.empty().update(probs, labels)
    with pytest.raises(ConfigError, match="do not add up"):
        state + CalibrationState.empty((15,))
    with pytest.raises(ConfigError, match="keeps bin counts"):
        state.ece(12)
    with pytest.raises(ConfigError, match="unknown norm"):
        state.ece(15, "l3")
    with pytest.raises(DataError, match="no samples yet"):
        CalibrationState.empty().accuracy()
    with pytest.raises(DataError, match="no samples yet"):
        CalibrationState.empty().ece()
    with pytest.raises(DataError, match="row 0"):
        state.update(np.array([[0.5, 0.6, 0.0, 0.0, 0.0]]), np.array([0]))
    with pytest.raises(DataError, match="no file"):
        CalibrationState.load(tmp_path / "none.safetensors")
    from promptcal.storage import save_tensors

    save_tensors(tmp_path / "other.safetensors", {"a": np.zeros(1)}, {"kind": "something"})
    with pytest.raises(DataError, match="holds no calibration state"):
        CalibrationState.load(tmp_path / "other.safetensors")
