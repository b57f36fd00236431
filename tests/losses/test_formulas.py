"""Every term against its equation, written plainly in float64, with its options, its gradient and extreme logits."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from promptcal.config import asset_path
from promptcal.losses.brier import Brier
from promptcal.losses.ce_brier import CrossEntropyBrier
from promptcal.losses.confidence_penalty import ConfidencePenalty
from promptcal.losses.cross_entropy import CrossEntropy
from promptcal.losses.dca import DCA
from promptcal.losses.dispersion import TextDispersion
from promptcal.losses.dual_focal import DualFocal
from promptcal.losses.fcl import FocalCalibration
from promptcal.losses.flsd53 import FLSD53
from promptcal.losses.focal import Focal
from promptcal.losses.knowledge import Knowledge
from promptcal.losses.label_smoothing import LabelSmoothing
from promptcal.losses.margin import MarginMeanVariance
from promptcal.losses.mbls import MarginBasedLabelSmoothing
from promptcal.losses.mdca import MDCA
from promptcal.losses.mmce import MMCE
from promptcal.losses.moments import TextMoments
from promptcal.losses.orthogonality import TextOrthogonality
from promptcal.losses.penalty import ZeroShotPenalty
from promptcal.losses.text_alignment import TextAlignment
from promptcal.losses.zs_norm import ZeroShotNorm
from promptcal.types import Outputs


def plain(outputs, labels):
    """The arrays of outputs: logits z and divided logits u, their softmax p, true probabilities, texts."""
    z = outputs.logits.detach().double().numpy()
    s = np.ones(len(z)) if outputs.temperature is None else outputs.temperature.double().numpy()
    z0 = outputs.zero_shot_image_features.double().numpy() @ outputs.zero_shot_text_features.double().numpy().T
    u = z / s[:, None]
    e = np.exp(u - u.max(axis=1, keepdims=True))
    p = e / e.sum(axis=1, keepdims=True)
    y = labels.numpy()
    rows = range(len(y))
    tuned = outputs.text_features.detach().double().numpy()
    return SimpleNamespace(
        z=z,
        z0=outputs.logit_scale * z0,
        u=u,
        p=p,
        y=y,
        true=np.array([p[i, y[i]] for i in rows]),
        right=np.array([float(p[i].argmax() == y[i]) for i in rows]),
        sure=p.max(axis=1),
        ratio=100 / outputs.logit_scale,
        texts=tuned if tuned.ndim == 3 else tuned[None],
        frozen=outputs.zero_shot_text_features.double().numpy(),
        classes=z.shape[1],
    )


def focal(a, gamma):
    return np.mean([-((1 - t) ** gamma) * np.log(t) for t in a.true])


def squares(a):
    return np.mean([sum((a.p[i, c] - (c == a.y[i])) ** 2 for c in range(a.classes)) for i in range(len(a.y))])


def flsd(a):
    return np.mean([-((1 - t) ** (5 if t < 0.2 else 3)) * np.log(t) for t in a.true])


def dual(a, gamma):
    rows = []
    for i, t in enumerate(a.true):
        below = [q for q in a.p[i] if q < t]
        rows.append(-((1 - t + max(below, default=0.0)) ** gamma) * np.log(t))
    return np.mean(rows)


def two_terms(a, gamma):
    rows = []
    for i, t in enumerate(a.true):
        q = max(a.p[i, c] for c in range(a.classes) if c != a.y[i])
        rows.append(-((1 - t) ** gamma) * np.log(t) - q**gamma * np.log(1 - q))
    return np.mean(rows)


def smooth(a, wrong, right):
    return -np.mean(
        [sum((right if c == y else wrong) * np.log(a.p[i, c]) for c in range(a.classes)) for i, y in enumerate(a.y)]
    )


def margins(a, z):
    return np.array([z[i, y] - max(z[i, c] for c in range(a.classes) if c != y) for i, y in enumerate(a.y)])


def margin(a, z):
    m = margins(a, z)
    return -0.1 * m.mean() + 0.01 * ((m - m.mean()) ** 2).mean()


def mbls(z, m):
    return np.mean([max(row.max() - value - m, 0.0) for row in z for value in row])


def penalty(z, z0):
    above = [max(v - row0.max(), 0.0) for row, row0 in zip(z, z0, strict=True) for v in row]
    below = [max(row0.min() - v, 0.0) for row, row0 in zip(z, z0, strict=True) for v in row]
    return np.mean(above) + np.mean(below)


def zs_norm(a):
    total = 0.0
    for row, row0, y in zip(a.z, a.z0, a.y, strict=True):
        moved = (row - row.min()) / (row.max() - row.min()) * (row0.max() - row0.min()) + row0.min()
        total += np.log(np.exp(moved - moved[y]).sum()) / len(a.y)
    return total


def mdca(a):
    gaps = [abs(a.p[:, c].mean() - np.mean(a.y == c)) for c in range(a.classes)]
    return np.mean(gaps)


def kernel_sum(first, second, weight, kernel):
    return sum(weight(c, d) * kernel(abs(c - d)) for c in first for d in second)


def laplacian(d):
    return np.exp(-d / 0.4)


def gaussian(d):
    return np.exp(-(d**2) / (2 * 0.4**2))


def mmce(a, kernel=laplacian):
    pairs = [(r, c) for r, c in zip(a.right, a.sure, strict=True)]
    return sum((r - c) * (q - d) * kernel(abs(c - d)) for r, c in pairs for q, d in pairs) / len(pairs) ** 2


def mmce_weighted(a, released=False):
    correct, wrong = a.sure[a.right == 1], a.sure[a.right == 0]
    m, n = len(correct), len(wrong)
    if m == 0 or n == 0:
        return 0.0
    both = kernel_sum(correct, correct, lambda c, d: (1 - c) * (1 - d), laplacian)
    none = kernel_sum(wrong, wrong, lambda c, d: c * d, laplacian)
    mixed = kernel_sum(correct, wrong, lambda c, d: (1 - c) * d, laplacian)
    if released:  # torch.mean in place of the sums
        both, none, mixed = both / m**2, none / n**2, mixed / (m * n)
    return np.sqrt(both / m**2 + none / n**2 - 2 * mixed / (m * n) + 1e-10)


def entropy(a):
    return -np.mean([sum(q * np.log(q) for q in row) for row in a.p])


def moments(a, mean=True, covariance=True):
    total = 0.0
    for t in a.texts:
        centred, frozen = t - t.mean(axis=0), a.frozen - a.frozen.mean(axis=0)
        first = ((t.mean(axis=0) - a.frozen.mean(axis=0)) ** 2).sum()
        second = ((centred.T @ centred / a.classes - frozen.T @ frozen / a.classes) ** 2).sum()
        total += (mean * first + covariance * second) / len(a.texts)
    return total


def alignment(a):
    return np.mean([((t - f) ** 2).sum() for text in a.texts for t, f in zip(text, a.frozen, strict=True)])


def dispersion(a):
    return -np.mean([np.sqrt(((t - text.mean(axis=0)) ** 2).sum()) for text in a.texts for t in text])


def frobenius(a):
    return np.mean([((text @ text.T - np.eye(a.classes)) ** 2).sum() for text in a.texts])


def row_norm(a):
    """The released form: the Householder reflection of each row of the Gram matrix, less the identity."""
    total = 0.0
    for text in a.texts:
        for c, row in enumerate(text @ text.T):
            basis = np.eye(a.classes)[c]
            v = row - np.linalg.norm(row) * basis
            reflection = np.eye(a.classes) - 2 * np.outer(v, v) / (v @ v)
            total += np.linalg.norm(reflection @ row - basis) / a.classes / len(a.texts)
    return total


TERMS = {
    "cross_entropy": (CrossEntropy(), lambda a: -np.log(a.true).mean()),
    "focal": (Focal(), lambda a: focal(a, 3)),
    "focal of 0.5": (Focal(gamma=0.5), lambda a: focal(a, 0.5)),
    "focal of 0": (Focal(gamma=0.0), lambda a: -np.log(a.true).mean()),
    "flsd53": (FLSD53(), flsd),
    "dual_focal": (DualFocal(), lambda a: dual(a, 5)),
    "dual_focal two_terms": (DualFocal(gamma=2.0, form="two_terms"), lambda a: two_terms(a, 2)),
    "brier": (Brier(), squares),
    "ce_brier": (CrossEntropyBrier(), lambda a: -np.log(a.true).mean() + 0.1 * squares(a)),
    "fcl": (FocalCalibration(gamma=2.0, brier=0.7), lambda a: focal(a, 2) + 0.7 * squares(a)),
    "label_smoothing": (
        LabelSmoothing(epsilon=0.2),
        lambda a: smooth(a, 0.2 / a.classes, 0.8 + 0.2 / a.classes),
    ),
    "label_smoothing others": (
        LabelSmoothing(epsilon=0.2, spread="others"),
        lambda a: smooth(a, 0.2 / (a.classes - 1), 0.8),
    ),
    "zs_norm": (ZeroShotNorm(), zs_norm),
    "margin_mean_variance": (MarginMeanVariance(), lambda a: margin(a, a.z)),
    "margin_mean_variance rescaled": (MarginMeanVariance(rescale=True), lambda a: margin(a, a.z * a.ratio)),
    "margin_mean_variance divided": (MarginMeanVariance(reads="calibrated_logits"), lambda a: margin(a, a.u)),
    "mbls": (MarginBasedLabelSmoothing(), lambda a: mbls(a.z, 10)),
    "mbls rescaled": (MarginBasedLabelSmoothing(margin=30.0, rescale=True), lambda a: mbls(a.z * a.ratio, 30)),
    "mbls divided": (MarginBasedLabelSmoothing(reads="calibrated_logits"), lambda a: mbls(a.u, 10)),
    "zero_shot_penalty": (ZeroShotPenalty(), lambda a: penalty(a.z, a.z0)),
    "zero_shot_penalty rescaled": (ZeroShotPenalty(rescale=True), lambda a: a.ratio * penalty(a.z, a.z0)),
    "zero_shot_penalty divided": (ZeroShotPenalty(reads="calibrated_logits"), lambda a: penalty(a.u, a.z0)),
    "dca": (DCA(), lambda a: abs(a.sure.mean() - a.right.mean())),
    "mdca": (MDCA(), mdca),
    "mmce": (MMCE(), mmce),
    "mmce gaussian": (MMCE(kernel="gaussian"), lambda a: mmce(a, gaussian)),
    "mmce root": (MMCE(form="root"), lambda a: np.sqrt(mmce(a) + 1e-10)),
    "mmce weighted": (MMCE(form="weighted"), mmce_weighted),
    "mmce weighted_released": (MMCE(form="weighted_released"), lambda a: mmce_weighted(a, released=True)),
    "confidence_penalty": (ConfidencePenalty(), lambda a: -entropy(a)),
    "confidence_penalty entries": (ConfidencePenalty(average="entries"), lambda a: -entropy(a) / a.classes),
    "text_moments": (TextMoments(), moments),
    "text_moments mean": (TextMoments(part="mean"), lambda a: moments(a, covariance=False)),
    "text_moments covariance": (TextMoments(part="covariance"), lambda a: moments(a, mean=False)),
    "text_alignment": (TextAlignment(), alignment),
    "knowledge": (Knowledge(), lambda a: alignment(a) / 2),
    "text_dispersion": (TextDispersion(), dispersion),
    "text_orthogonality": (TextOrthogonality(), row_norm),
    "text_orthogonality frobenius": (TextOrthogonality(form="frobenius"), frobenius),
}


@pytest.mark.parametrize("name", TERMS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), b=st.integers(1, 9), classes=st.integers(2, 7), divided=st.booleans())
def test_the_equation_in_float64(random_outputs, name, seed, b, classes, divided):
    term, equation = TERMS[name]
    for per_image in (False, True) if term.of_text else (False,):
        outputs, labels = random_outputs(b, classes, seed=seed, per_image=per_image, divided=divided)
        value = term(outputs, labels)
        assert value.dtype == torch.float64
        close = 1e-6 if name.startswith("dual_focal") else 1e-9  # cubes of differences near zero lose digits
        assert value.item() == pytest.approx(equation(plain(outputs, labels)), rel=close, abs=1e-11)


@pytest.mark.parametrize("name", TERMS)
def test_the_gradient_is_that_of_finite_differences(random_outputs, name):
    term = TERMS[name][0]
    for per_image in (False, True) if term.of_text else (False,):
        outputs, labels = random_outputs(b=3, classes=4, width=3, seed=8, per_image=per_image, divided=True)
        field = "text_features" if term.of_text else "logits"
        leaf = getattr(outputs, field)

        def value(leaf, field=field, outputs=outputs, labels=labels):
            return term(replace(outputs, **{field: leaf}), labels)

        assert torch.autograd.gradcheck(value, (leaf,), eps=1e-6, atol=1e-7)
        (gradient,) = torch.autograd.grad(value(leaf), leaf)
        assert gradient.abs().sum() > 0


EXTREMES = {
    "right": [[100.0, 0.0, 0.0], [0.0, 100.0, 0.0]],
    "wrong": [[0.0, 100.0, 0.0], [100.0, 0.0, 0.0]],
    "one of each": [[100.0, 0.0, 0.0], [100.0, 0.0, 0.0]],
    "vast": [[3e4, -3e4, 0.0], [3e4, -3e4, 0.0]],
    "ties": [[5.0, 5.0, 1.0], [5.0, 1.0, 5.0]],
}


@pytest.mark.parametrize("name", TERMS)
def test_confident_logits_in_float32_have_finite_values_and_gradients(random_outputs, name):
    for case in EXTREMES:
        look_at_extreme(*random_outputs(b=2, classes=3, dtype=torch.float32, scale=100.0), name, case)


def look_at_extreme(outputs, _, name, case):
    outputs = replace(outputs, logits=torch.tensor(EXTREMES[case], requires_grad=True))
    labels = torch.tensor([0, 1])
    term, equation = TERMS[name]
    value = term(outputs, labels)
    assert value.dtype == torch.float32
    leaves = (outputs.logits, outputs.text_features)
    gradients = torch.autograd.grad(value, leaves, allow_unused=True)
    for number in (value, *(gradient for gradient in gradients if gradient is not None)):
        assert torch.isfinite(number).all()
    if case in ("wrong", "one of each") and "weighted_released" not in name:
        with np.errstate(divide="ignore", invalid="ignore"):
            expected = equation(plain(outputs, labels))
        if np.isfinite(expected):  # the plain equations know no log(1 - 1)
            assert value.item() == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_term_of_every_plugin_is_here():
    recipes = [OmegaConf.load(path) for path in (asset_path("configs") / "plugin").glob("*.yaml")]
    used = {
        loss
        for recipe in recipes
        for entry in recipe.get("defaults", [])
        if entry != "_self_"
        for loss in entry.values()
    }
    assert used - {"dor"} <= {name.split()[0] for name in TERMS}, "a term without its equation"


def test_values_by_hand():
    """Two classes with odds 4 : 1, so p = (0.8, 0.2), and a wrong row with p_y = 0.2."""
    logits = torch.tensor([[np.log(4.0), 0.0], [np.log(4.0), 0.0]], dtype=torch.float64)
    labels = torch.tensor([0, 1])
    outputs = Outputs(
        logits=logits, image_features=torch.zeros(2, 2, dtype=torch.float64), logit_scale=1.0, learns_text=False
    )
    a, b = -np.log(0.8), -np.log(0.2)

    def value(term):
        return pytest.approx(term(outputs, labels).item(), rel=1e-12)

    assert value(Focal(gamma=1.0)) == (0.2 * a + 0.8 * b) / 2
    assert value(FLSD53(threshold=0.3)) == (0.2**3 * a + 0.8**5 * b) / 2
    assert value(DualFocal(gamma=1.0)) == ((0.2 + 0.2) * a + 0.8 * b) / 2
    assert value(DualFocal(gamma=1.0, form="two_terms")) == (0.2 * a + 0.2 * a + 0.8 * b + 0.8 * b) / 2
    assert value(Brier()) == (0.08 + 1.28) / 2
    assert value(CrossEntropyBrier()) == (a + b) / 2 + 0.1 * 0.68
    assert value(FocalCalibration(gamma=1.0, brier=1.0)) == (0.2 * a + 0.8 * b) / 2 + 0.68
    assert value(LabelSmoothing(epsilon=0.1)) == (0.95 * a + 0.05 * b + 0.05 * a + 0.95 * b) / 2
    assert value(LabelSmoothing(epsilon=0.1, spread="others")) == (0.9 * a + 0.1 * b + 0.1 * a + 0.9 * b) / 2
    assert value(DCA()) == 0.3
    assert value(MDCA()) == 0.3
    assert value(MMCE()) == (0.2 - 0.8) ** 2 / 4
    assert value(MMCE(form="weighted")) == np.sqrt((0.2 - 0.8) ** 2 + 1e-10)
    assert value(ConfidencePenalty()) == -(0.8 * a + 0.2 * b)
    assert value(MarginMeanVariance()) == 0.01 * np.log(4) ** 2
    assert value(MarginBasedLabelSmoothing(margin=1.0)) == (np.log(4) - 1) / 2


def test_texts_by_hand():
    """Three frozen texts e1, e2, e3 and tuned texts e1, e1, e2, in four dimensions."""
    e = torch.eye(4, dtype=torch.float64)
    outputs = Outputs(
        logits=torch.zeros(1, 3, dtype=torch.float64),
        image_features=e[:1],
        text_features=torch.stack([e[0], e[0], e[1]]),
        zero_shot_text_features=e[:3],
        logit_scale=1.0,
        learns_text=True,
    )
    labels = torch.tensor([0])

    def value(term):
        return pytest.approx(term(outputs, labels).item(), rel=1e-12)

    assert value(TextAlignment()) == 4 / 3
    assert value(TextMoments(part="mean")) == 2 / 9
    # class covariances: tuned ((2, -2), (-2, 2))/9 in e1, e2; frozen (I - 1/3)/3 in e1, e2, e3
    assert value(TextMoments(part="covariance")) == (0 + 0 + 2 * 1 + 4 * 1 + 4) / 81
    assert value(TextDispersion()) == -(2 * np.sqrt(2) / 3 + np.sqrt(8) / 3) / 3
    assert value(TextOrthogonality()) == 2 * (np.sqrt(2) - 1) / 3
    assert value(TextOrthogonality(form="frobenius")) == 2
