"""The loop: the published schedule, batches that a seed decides, a fall of the loss, and a stop at the first NaN."""

import math

import numpy as np
import pytest
import torch

from promptcal.errors import ConfigError, DataError, NumericalError
from promptcal.learners.coop import CoOp
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.losses.margin import MarginMeanVariance
from promptcal.losses.moments import TextMoments
from promptcal.models.classifier import Classifier
from promptcal.precision import autocast
from promptcal.training.averaging import Gaussian
from promptcal.training.batches import FeatureBatches, epoch_order
from promptcal.training.loop import Recipe, fit
from promptcal.training.memory import peak_memory_mb
from promptcal.training.predict import predict
from promptcal.training.settings import Features, Training
from promptcal.types import Batch, ClassNames, Sample

CLASSES = ClassNames(("cat", "red dog", "ship"))


def problem(clip, n=30, seed=0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centres = torch.randn(3, clip.embed_dim, generator=generator)
    features = centres[labels] + 0.3 * torch.randn(n, clip.embed_dim, generator=generator)
    return features, labels


def trained(clip, *, epochs=20, terms=None, precision="float32", lr=0.05, seed=0):
    features, labels = problem(clip)
    learner = CoOp(clip, n_context=4, generator=torch.Generator().manual_seed(seed))
    bound = Classifier(clip, learner).bind(CLASSES)
    history = fit(
        bound,
        FeatureBatches(features[None], labels, 10, seed),
        Recipe(terms or {"cross_entropy": CrossEntropy()}, precision=precision),
        Training(epochs=epochs, batch_size=10, lr=lr),
    )
    return bound, history


def test_the_schedule_is_the_familys_to_the_digit():
    settings = Training(epochs=5, lr=0.0035)
    assert [round(settings.lr_at(e), 6) for e in range(5)] == [1e-5, 0.0035, 0.003166, 0.002291, 0.001209]
    multiplied = Training(epochs=5, lr=0.0035, lr_multiplier=10.0)
    assert multiplied.lr_at(0) == 1e-5
    assert multiplied.lr_at(1) == pytest.approx(0.035)


def test_the_schedule_equals_torchs_cosine_delayed_by_the_warm_up():
    epochs, base = 50, 0.002
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=base)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, T_max=epochs)
    expected = [1e-5]
    for _ in range(epochs - 1):
        expected.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        cosine.step()
    settings = Training(epochs=epochs, lr=base)
    np.testing.assert_allclose([settings.lr_at(e) for e in range(epochs)], expected, rtol=1e-9)


def test_an_epoch_visits_each_sample_at_most_once_and_drops_the_rest():
    orders = epoch_order(33, 10, seed=1, epoch=4)
    assert [len(order) for order in orders] == [10, 10, 10]
    assert len(torch.cat(orders).unique()) == 30
    again = epoch_order(33, 10, seed=1, epoch=4)
    assert all(torch.equal(a, b) for a, b in zip(orders, again, strict=True))
    assert not torch.equal(orders[0], epoch_order(33, 10, seed=1, epoch=5)[0])
    (single,) = epoch_order(6, 32, seed=1, epoch=0)
    assert sorted(single.tolist()) == list(range(6))


def test_views_are_shown_in_turn(tiny_clip):
    features, labels = problem(tiny_clip)
    batches = FeatureBatches(torch.stack([features, features + 1]), labels, 10, 0)
    first, third = next(batches.epoch(0)), next(batches.epoch(2))
    assert batches.steps == 3
    order0, order2 = epoch_order(30, 10, 0, 0)[0], epoch_order(30, 10, 0, 2)[0]
    assert torch.equal(first.features, features[order0])
    assert torch.equal(third.features, features[order2])
    assert torch.equal(next(batches.epoch(1)).features, features[epoch_order(30, 10, 0, 1)[0]] + 1)


def test_training_lowers_the_loss_and_moves_nothing_but_the_learner(tiny_clip):
    before = tiny_clip.weights_digest()
    _, history = trained(tiny_clip)
    assert history[-1]["cross_entropy"] < 0.8 * history[0]["cross_entropy"]
    assert history[0]["lr"] == 1e-5
    assert history[0]["steps"] == 3
    assert tiny_clip.weights_digest() == before
    assert math.isclose(history[3]["total"], history[3]["cross_entropy"], rel_tol=1e-6)


def test_the_same_seed_gives_the_same_tensors(tiny_clip):
    first, history = trained(tiny_clip, epochs=4)
    second, again = trained(tiny_clip, epochs=4)
    assert torch.equal(first.learner.context, second.learner.context)
    assert history == again
    other, _ = trained(tiny_clip, epochs=4, seed=1)
    assert not torch.equal(first.learner.context, other.learner.context)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_regularisers_act_whatever_the_precision(tiny_clip, precision):
    terms = {"cross_entropy": CrossEntropy(), "margin": MarginMeanVariance(), "moments": TextMoments()}
    plain, _ = trained(tiny_clip, epochs=4, precision=precision)
    regularised, history = trained(tiny_clip, epochs=4, precision=precision, terms=terms)
    assert {"margin", "moments"} <= history[0].keys()
    assert not torch.equal(plain.learner.context, regularised.learner.context)


def test_a_nan_stops_the_run_with_the_step_and_the_name(tiny_clip):
    class Broken(CrossEntropy):
        def __call__(self, outputs, labels):
            return super().__call__(outputs, labels) * float("nan")

    with pytest.raises(NumericalError, match=r"epoch 1, step 1: the loss term 'broken' is NaN"):
        trained(tiny_clip, terms={"broken": Broken()})


def test_precisions_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="unknown precision 'fp16'"), autocast(torch.device("cpu"), "fp16"):
        pass
    with pytest.raises(ConfigError, match="needs a GPU"), autocast(torch.device("cpu"), "float16"):
        pass


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"training\.epochs is 0"):
        Training(epochs=0)
    with pytest.raises(ConfigError, match=r"features\.views is -1"):
        Features(views=-1)
    assert Features().count(50) == 50
    assert Features(views=4).count(50) == 4
    assert Features(views=0).count(50) == 0


def test_predictions_do_not_depend_on_the_batch(tiny_clip):
    features, labels = problem(tiny_clip)
    bound, _ = trained(tiny_clip, epochs=2)
    samples = [Sample(f"{i}.png", int(y)) for i, y in enumerate(labels)]

    def by(size):
        return predict(
            bound,
            (Batch(labels[i : i + size], features=features[i : i + size]) for i in range(0, 30, size)),
            samples,
            split="base",
        )

    whole, one = by(30), by(1)
    np.testing.assert_allclose(one.logits, whole.logits, rtol=1e-5, atol=1e-5)
    assert whole.classes == CLASSES.names
    assert whole.paths[3] == "3.png"
    assert whole.zero_shot_logits.shape == (30, 3)
    np.testing.assert_allclose(np.linalg.norm(whole.image_features, axis=1), 1, rtol=1e-5)
    with pytest.raises(DataError, match="no images"):
        predict(bound, [], [], split="novel")


def test_pixels_and_cached_features_are_the_same_views_in_the_same_order(tiny_clip, tmp_path):
    from promptcal.data.features import FeatureCache
    from promptcal.data.sources import ArrayImages
    from promptcal.data.views import Augment
    from promptcal.training.images import ImageSide
    from promptcal.types import Task

    pixels = np.random.default_rng(0).integers(0, 256, size=(9, 40, 36, 3), dtype=np.uint8)
    samples = tuple(Sample(f"{i}", i % 3) for i in range(9))
    images = ArrayImages(pixels, {sample.path: row for row, sample in enumerate(samples)})
    task = Task("t", CLASSES, samples, (), samples, images)
    settings = Training(epochs=3, batch_size=4)

    def batches(prompted):
        side = ImageSide(tiny_clip, images, Augment(), "w", FeatureCache(tmp_path), prompted, quiet=True)
        return side.batches(task, settings, Features(), seed=5)

    for epoch in range(3):
        for fresh, cached in zip(batches(True).epoch(epoch), batches(False).epoch(epoch), strict=True):
            assert torch.equal(fresh.labels, cached.labels)
            with torch.no_grad():
                encoded = tiny_clip.encode_image(fresh.pixels)
            torch.testing.assert_close(encoded, cached.features, rtol=1e-4, atol=1e-5)


def test_accumulated_batches_are_one_larger_batch(tiny_clip):
    def context(batch_size, accumulate):
        features, labels = problem(tiny_clip)
        learner = CoOp(tiny_clip, n_context=4, generator=torch.Generator().manual_seed(0))
        settings = Training(epochs=2, batch_size=batch_size, lr=0.05, accumulate=accumulate)
        history = fit(
            Classifier(tiny_clip, learner).bind(CLASSES),
            FeatureBatches(features[None], labels, batch_size, 0),
            Recipe({"cross_entropy": CrossEntropy()}),
            settings,
        )
        return learner.context.detach(), history

    (small, rows), (large, expected) = context(5, 3), context(15, 1)
    torch.testing.assert_close(small, large, rtol=1e-4, atol=2e-6)
    assert [row["steps"] for row in rows] == [row["steps"] for row in expected] == [2, 2]
    for row, other in zip(rows, expected, strict=True):
        assert row["cross_entropy"] == pytest.approx(other["cross_entropy"], rel=1e-5)
        assert row["accuracy"] == pytest.approx(other["accuracy"])


def test_an_average_is_what_is_deployed(tiny_clip):
    seen = []
    features, labels = problem(tiny_clip)
    learner = CoOp(tiny_clip, n_context=4, generator=torch.Generator().manual_seed(0))
    fit(
        Classifier(tiny_clip, learner).bind(CLASSES),
        FeatureBatches(features[None], labels, 10, 0),
        Recipe({"cross_entropy": CrossEntropy()}, averaging=Gaussian(2.0, 1.0)),
        Training(epochs=3, batch_size=10, lr=0.05),
        keep=lambda state: seen.append(state.learner["context"]),
    )
    weights = Gaussian(2.0, 1.0).weights(3)
    expected = sum(weight * tensor.double() for weight, tensor in zip(weights, seen, strict=True))
    torch.testing.assert_close(learner.context.detach(), expected.float(), rtol=1e-6, atol=1e-7)
    assert not torch.equal(learner.context.detach(), seen[-1])


def test_peak_memory_counts_what_is_held():
    before = peak_memory_mb(torch.device("cpu"))
    held = torch.ones(60_000_000)
    assert peak_memory_mb(torch.device("cpu")) >= max(before, held.numel() * 4 / 1e6)
