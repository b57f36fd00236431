"""How often the 95 % intervals cover the truth, and how often the tests reject a true hypothesis.

    python scripts/coverage_intervals.py [--repeats 1000] [--n 500 2000 10000] [--gaps 0 0.03 0.1]

Confidences are drawn from Beta(5, 1.5) and kept above the gap; a prediction is right with probability confidence - gap,
so the true l1 and l2 calibration errors are the gap, whatever the bins. In the mixed rows the model is over- and under-
confident by the gap in turn along the confidence axis, where the mean gap says nothing. The paired tests compare two
models that perturb the same logits independently: neither is better.
"""

import argparse

import numpy as np

from promptcal.metrics.bins import bin_sums, l1, l2, width_bins
from promptcal.metrics.comparison import compare
from promptcal.metrics.intervals import convex_interval, l2_interval, outcome_test
from promptcal.metrics.smooth import smooth_error
from promptcal.types import Predictions

BINS = width_bins(15)
POPULATION = 2_000_000


def draw(generator: np.random.Generator, n: int, gap: float, mixed: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Confidences [n], outcomes [n] and their probabilities [n] of a model whose calibration error is ``gap``."""
    confidence = np.clip(generator.beta(5.0, 1.5, n), gap, 1.0 - gap if mixed else 1.0)
    shift = gap * np.where(np.floor(confidence * 15) % 2 == 0, 1.0, -1.0) if mixed else gap
    chance = confidence - shift
    return confidence, (generator.random(n) < chance).astype(np.float64), chance


def coverage(n: int, gap: float, *, mixed: bool = False, repeats: int = 1000, seed: int = 0) -> dict[str, float]:
    """The share of the intervals of ECE, l2 error, smooth ECE that cover the truth, and of tests that reject at 5 %."""
    generator = np.random.default_rng(seed)
    confidence, _, chance = draw(generator, POPULATION, gap, mixed)
    population = bin_sums(confidence, chance, *BINS(confidence))
    truth = (float(l1(population)), float(l2(population)), smooth_error(confidence, chance).value)
    hits = np.zeros(4)
    for repeat in range(repeats):
        confidence, outcome, _ = draw(generator, n, gap, mixed)
        residual = confidence - outcome
        intervals = (
            convex_interval(residual, float(l1(bin_sums(confidence, outcome, *BINS(confidence))))),
            l2_interval(confidence, outcome, BINS),
            convex_interval(residual, smooth_error(confidence, outcome).value),
        )
        pairs = zip(truth, intervals, strict=True)
        covered = [found is not None and found.low <= value <= found.high for value, found in pairs]
        rejected = outcome_test(confidence, outcome, BINS, replicates=199, seed=repeat).p_value <= 0.05
        hits += [*covered, rejected]
    return dict(zip(("ece", "rmsce", "smooth_ece", "test_rejects"), (hits / repeats).tolist(), strict=True))


def rejection(
    n: int, *, repeats: int = 1000, replicates: int = 399, classes: int = 5, seed: int = 0
) -> dict[str, float]:
    """The share of paired tests at 5 % that reject that two equally good models are equally good, by metric."""
    generator = np.random.default_rng(seed)
    names = tuple(map(str, range(classes)))
    rejected: dict[str, int] = {}
    for repeat in range(repeats):
        logits = 2.0 * generator.normal(size=(n, classes))
        labels = (logits + generator.gumbel(size=(n, classes))).argmax(axis=1)
        models = {
            name: Predictions(logits + 0.5 * generator.normal(size=(n, classes)), labels, names) for name in ("a", "b")
        }
        for row in compare(models, replicates=replicates, seed=repeat):
            rejected[row.metric] = rejected.get(row.metric, 0) + (row.p_value <= 0.05)
    return {metric: count / repeats for metric, count in rejected.items()}


def main() -> None:
    """Print a table of coverage and one of rejections."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--n", type=int, nargs="+", default=[500, 2000, 10000])
    parser.add_argument("--gaps", type=float, nargs="+", default=[0.0, 0.03, 0.1])
    arguments = parser.parse_args()
    print(f"{'n':>6} {'gap':>5} {'errs to':>10} {'ece':>7} {'rmsce':>7} {'smooth':>7} {'test rejects':>13}")
    for n in arguments.n:
        for gap in arguments.gaps:
            for mixed in (False, True) if gap else (False,):
                found = coverage(n, gap, mixed=mixed, repeats=arguments.repeats)
                side = "both sides" if mixed else "one side" if gap else "-"
                shown = " ".join(f"{found[name]:7.3f}" for name in ("ece", "rmsce", "smooth_ece"))
                print(f"{n:6d} {gap:5.2f} {side:>10} {shown} {found['test_rejects']:13.3f}", flush=True)
    for n in arguments.n:
        print(f"paired tests of equally good models, n = {n}: {rejection(n, repeats=arguments.repeats)}", flush=True)


if __name__ == "__main__":
    main()
