"""Every loss term: a finite scalar, differentiable, indifferent to the order of the batch, equal to float64 by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from promptcal.errors import ConfigError
from promptcal.losses.contract import check_terms
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.losses.margin import MarginMeanVariance, margin
from promptcal.losses.moments import TextMoments, covariance_distance
from promptcal.types import ClassMoments, Outputs


def make_outputs(
    b=6, classes=5, width=8, *, seed=0, per_image=False, dtype=torch.float32, scale=20.0, temperature=None
):
    generator = torch.Generator().manual_seed(seed)

    def unit(*shape):
        return normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1).to(dtype)

    image, frozen = unit(b, width), unit(classes, width)
    text = unit(b, classes, width) if per_image else unit(classes, width)
    text.requires_grad_()
    cosine = torch.einsum("bd,bcd->bc", image, text) if per_image else image @ text.T
    labels = torch.randint(classes, (b,), generator=generator)
    outputs = Outputs(
        logits=scale * cosine,
        image_features=image,
        text_features=text,
        zero_shot_text_features=frozen,
        logit_scale=scale,
        learns_text=True,
        temperature=temperature,
        zero_shot_image_features=image,
    )
    return outputs, labels


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 9), b=st.integers(1, 12), rescale=st.booleans())
def test_margin_is_the_papers_formula_in_float64(seed, classes, b, rescale):
    outputs, labels = make_outputs(b, classes, seed=seed)
    term = MarginMeanVariance(alpha=0.3, beta=0.07, rescale=rescale)
    z = outputs.logits.detach().double().numpy()
    y = labels.numpy()
    m = np.array([z[i, y[i]] - np.delete(z[i], y[i]).max() for i in range(b)])
    ratio = 100 / 20 if rescale else 1
    expected = -0.3 * ratio * m.mean() + 0.07 * ratio**2 * ((m - m.mean()) ** 2).mean()
    assert term(outputs, labels).item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_margin_gradient_equals_finite_differences_in_float64():
    logits = torch.randn(5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3), requires_grad=True)
    labels = torch.tensor([0, 1, 2, 3, 1])

    def value(z):
        m = margin(z, labels)
        return -0.1 * m.mean() + 0.01 * m.var(correction=0)

    assert torch.autograd.gradcheck(value, (logits,))
    (gradient,) = torch.autograd.grad(value(logits), logits)
    z, b = logits.detach().numpy(), 5
    m = margin(logits, labels).detach().numpy()
    expected = np.zeros_like(z)
    for i, y in enumerate(labels.tolist()):
        others = z[i].copy()
        others[y] = -np.inf
        slope = -0.1 / b + 2 * 0.01 / b * (m[i] - m.mean())
        expected[i, y] += slope
        expected[i, others.argmax()] -= slope
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-12, atol=1e-15)


def test_margin_of_a_batch_of_one_has_no_variance():
    outputs, labels = make_outputs(b=1)
    only_variance = MarginMeanVariance(alpha=0.0, beta=1.0)
    assert only_variance(outputs, labels).item() == 0.0


def test_margin_of_three_by_three_by_hand():
    logits = torch.tensor([[3.0, 1.0, 0.0], [0.0, 2.0, 5.0], [1.0, 1.0, 4.0]])
    torch.testing.assert_close(margin(logits, torch.tensor([0, 1, 2])), torch.tensor([2.0, -3.0, 3.0]))


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), classes=st.integers(2, 12), width=st.integers(2, 12), per_image=st.booleans())
def test_moments_are_the_papers_formula_in_float64(seed, classes, width, per_image):
    outputs, labels = make_outputs(3, classes, width, seed=seed, per_image=per_image, dtype=torch.float64)
    tuned = outputs.text_features.detach().numpy()
    frozen = outputs.zero_shot_text_features.numpy()

    def plain(t):
        means = ((t.mean(axis=0) - frozen.mean(axis=0)) ** 2).sum()
        covariances = np.cov(t.T, bias=True).reshape(width, width) - np.cov(frozen.T, bias=True).reshape(width, width)
        return means + (covariances**2).sum()

    expected = np.mean([plain(t) for t in tuned]) if per_image else plain(tuned)
    assert TextMoments()(outputs, labels).item() == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize(("classes", "width"), [(4, 9), (9, 4), (6, 6)])
def test_gram_and_covariance_forms_agree_with_gradients_in_float64(classes, width):
    generator = torch.Generator().manual_seed(0)
    tuned = torch.randn(classes, width, dtype=torch.float64, generator=generator, requires_grad=True)
    frozen = torch.randn(classes, width, dtype=torch.float64, generator=generator)

    def by_covariance(t):
        t, f = t - t.mean(0), frozen - frozen.mean(0)
        return (t.T @ t / classes - f.T @ f / classes).square().sum()

    ours, plain = covariance_distance(ClassMoments.of(tuned), ClassMoments.of(frozen)), by_covariance(tuned)
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(
        torch.autograd.grad(ours, tuned)[0], torch.autograd.grad(plain, tuned)[0], rtol=1e-11, atol=1e-13
    )


def test_moments_vanish_exactly_where_nothing_moved():
    outputs, labels = make_outputs()
    same = Outputs(
        logits=outputs.logits,
        image_features=outputs.image_features,
        text_features=outputs.zero_shot_text_features,
        zero_shot_text_features=outputs.zero_shot_text_features,
        logit_scale=outputs.logit_scale,
        learns_text=True,
    )
    assert TextMoments()(same, labels).item() == 0.0


def test_cross_entropy_reads_the_calibrated_logits():
    temperature = torch.full((6,), 2.0)
    outputs, labels = make_outputs(temperature=temperature)
    expected = torch.nn.functional.cross_entropy(outputs.logits / 2, labels)
    torch.testing.assert_close(CrossEntropy()(outputs, labels), expected)


def test_terms_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match="no loss term"):
        check_terms({}, learns_text=True, n_classes=3)
    with pytest.raises(ConfigError, match="both 'a' and 'b'"):
        check_terms({"a": CrossEntropy(), "b": CrossEntropy()}, learns_text=True, n_classes=3)
    with pytest.raises(ConfigError, match="learns no text"):
        check_terms({"m": TextMoments()}, learns_text=False, n_classes=3)
    with pytest.raises(ConfigError, match="two classes"):
        check_terms({"a": CrossEntropy()}, learns_text=True, n_classes=1)
    single, labels = make_outputs(classes=1)
    with pytest.raises(ConfigError, match="runner-up"):
        MarginMeanVariance()(single, labels)
    with pytest.raises(ConfigError, match="two classes"):
        TextMoments()(single, labels)
