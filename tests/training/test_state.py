"""A training that was stopped and gone on with is, bit for bit, one that was never stopped."""

from itertools import pairwise

import pytest
import torch

from promptcal.errors import DataError
from promptcal.learners.coop import CoOp
from promptcal.learners.maple import MaPLe
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.losses.margin import MarginMeanVariance
from promptcal.models.classifier import Classifier
from promptcal.training.averaging import ExponentialMovingAverage, Gaussian, LastEpoch
from promptcal.training.batches import FeatureBatches
from promptcal.training.loop import Recipe, fit
from promptcal.training.settings import Training
from promptcal.training.state import TrainingState, read_state, write_state
from promptcal.types import ClassNames

MADE = {"schema": 1, "device": "cpu", "packages": {"torch": "2"}}
EPOCHS, LAST = 5, LastEpoch()


class Stopped(Exception):
    pass


def bound_coop(clip, n_context=4):
    learner = CoOp(clip, n_context=n_context, generator=torch.Generator().manual_seed(3))
    return Classifier(clip, learner).bind(ClassNames(("cat", "red dog", "ship")))


def train(clip, *, momentum=0.9, averaging=LAST, resume=None, keep=lambda state: None, bound=None):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(24) % 3
    features = torch.randn(2, 24, clip.embed_dim, generator=generator)
    bound = bound or bound_coop(clip)
    terms = {"cross_entropy": CrossEntropy(), "margin": MarginMeanVariance()}
    settings = Training(epochs=EPOCHS, batch_size=8, lr=0.05, momentum=momentum)
    recipe = Recipe(terms, averaging=averaging)
    history = fit(bound, FeatureBatches(features, labels, 8, 1), recipe, settings, resume=resume, keep=keep)
    return bound, history


def stop_after(clip, path, epoch, **settings):
    def keep(state):
        write_state(path, state, MADE)
        if len(state.history) == epoch:
            raise Stopped

    with pytest.raises(Stopped):
        train(clip, keep=keep, **settings)


AVERAGINGS = [LastEpoch(), Gaussian(2.0, 2.0), ExponentialMovingAverage(0.5)]


@pytest.mark.parametrize(("momentum", "averaging"), [(0.0, LastEpoch()), *((0.9, rule) for rule in AVERAGINGS)])
@pytest.mark.parametrize("epoch", [1, 3, EPOCHS])
def test_a_stopped_training_ends_like_an_undisturbed_one(tiny_clip, tmp_path, epoch, momentum, averaging):
    whole, history = train(tiny_clip, momentum=momentum, averaging=averaging)
    stop_after(tiny_clip, tmp_path / "s", epoch, momentum=momentum, averaging=averaging)
    fresh = bound_coop(tiny_clip)
    state = read_state(tmp_path / "s", fresh.learner, MADE)
    assert len(state.history) == epoch
    assert state.seconds > 0
    seen = []
    resumed, again = train(
        tiny_clip, momentum=momentum, averaging=averaging, resume=state, bound=fresh, keep=seen.append
    )
    assert again == history
    assert [len(kept.history) for kept in seen] == list(range(epoch + 1, EPOCHS + 1))
    assert all(not torch.equal(a.learner["context"], b.learner["context"]) for a, b in pairwise(seen))
    for name, tensor in whole.learner.state_dict().items():
        assert torch.equal(tensor, resumed.learner.state_dict()[name]), name


def test_momentum_is_part_of_the_state(tiny_clip, tmp_path):
    whole, _ = train(tiny_clip)
    stop_after(tiny_clip, tmp_path / "s", 3)
    fresh = bound_coop(tiny_clip)
    state = read_state(tmp_path / "s", fresh.learner, MADE)
    assert state.optimiser
    forgetful = TrainingState(state.history, state.learner, {}, state.scaler, {}, state.seconds)
    resumed, _ = train(tiny_clip, resume=forgetful, bound=fresh)
    assert not torch.equal(whole.learner.context, resumed.learner.context)


def test_no_file_is_no_state(tiny_clip, tmp_path):
    assert read_state(tmp_path / "s", bound_coop(tiny_clip).learner, MADE) is None


def test_a_state_that_does_not_fit_is_refused(tiny_clip, tmp_path):
    path = tmp_path / "s"
    stop_after(tiny_clip, path, 2)
    learner = bound_coop(tiny_clip).learner
    with pytest.raises(DataError, match="made with another device and schema"):
        read_state(path, learner, {**MADE, "schema": 2, "device": "cuda"})
    with pytest.raises(DataError, match="another learner"):
        read_state(path, bound_coop(tiny_clip, n_context=5).learner, MADE)
    with pytest.raises(DataError, match="another learner"):
        read_state(path, MaPLe(tiny_clip, depth=2), MADE)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a whole safetensors file"):
        read_state(path, learner, MADE)
    path.write_bytes(b"")
    with pytest.raises(DataError, match="not a whole safetensors file"):
        read_state(path, learner, MADE)


def test_scalars_keep_their_shape(tmp_path):
    learner = torch.nn.Module()
    learner.scale = torch.nn.Parameter(torch.tensor(1.5, dtype=torch.float64))
    state = TrainingState((), learner.state_dict(), {"0.step": torch.tensor(3.0)}, {"scale": 2.0}, {}, 0.5)
    write_state(tmp_path / "s", state, MADE)
    back = read_state(tmp_path / "s", learner, MADE)
    assert back.learner["scale"].dtype == torch.float64
    assert back.learner["scale"].shape == back.optimiser["0.step"].shape == ()
    assert back.scaler == {"scale": 2.0}
